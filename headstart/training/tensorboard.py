"""The scalars of metrics.jsonl for TensorBoard, under RUN/tensorboard/.

Every process writes the events anew from metrics.jsonl, which a resume has cut back to its checkpoint, and then
appends. So no step is there twice, and a run that began without it has all of its steps. It never makes a training
fail, nor changes its weights.
"""

import contextlib
import importlib
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal

from headstart.errors import Log, UserError

Tracker = Literal["tensorboard"]
Record = dict[str, Any]
DIRECTORY = "tensorboard"


def require(track: Tracker | None) -> None:
    """Refuse a tracker that is not installed, before anything is computed."""
    if track is None:
        return
    try:
        importlib.import_module("tensorboard.summary.writer.record_writer")
        importlib.import_module("tensorboard.compat.proto.event_pb2")
    except Exception as error:  # not there, or broken by another version of protobuf
        what = f"--track=tensorboard needs the package tensorboard ({error})"
        raise UserError(what, fix="pip install 'headstart[tensorboard]'", code="no-package") from error


def scalars(record: Record) -> dict[str, float]:
    """The scalars of a record by tag: `train/loss`, `valid/accuracy`; without those that were not finite."""
    if record.get("event") == "skipped":
        return {"train/skipped": 1.0}
    if record.get("event") == "missing":
        return {}
    part = "valid" if record.get("event") == "valid" else "train"
    return {
        f"{part}/{name}": float(value)
        for name, value in record.items()
        if name not in ("event", "step") and isinstance(value, int | float) and not isinstance(value, bool)
    }


class EventFile:
    """One event file, which replaces those of earlier processes."""

    def __init__(self, run: Path, warn: Log) -> None:
        require("tensorboard")
        self.directory, self._warn = run / DIRECTORY, warn
        self._file: BinaryIO | None = None
        self._writer: Any = None

    def begin(self, read: Callable[[], Iterable[Record]]) -> None:
        """Write all records so far into a new file, and only then delete the old ones."""
        with self._warn_on_failure():
            self.directory.mkdir(parents=True, exist_ok=True)
            before = sorted(self.directory.glob("events.out.tfevents.*.headstart"))
            # TensorBoard reads files by the order of their names, and a session's start makes it forget what was.
            numbers = [path.name.split(".")[3] for path in before]
            number = 1 + max((int(number) for number in numbers if number.isdecimal()), default=0)
            self._open(self.directory / f"events.out.tfevents.{number:010d}.headstart")
            for record in read():
                self._add(record)
            self._writer.flush()
            for path in before:
                path.unlink()

    def add(self, record: Record) -> None:
        """Append a record, visible to a reader at once."""
        if self._file is not None:
            with self._warn_on_failure():
                self._add(record)
                self._writer.flush()

    def close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
        self._file = self._writer = None

    def _open(self, path: Path) -> None:
        from tensorboard.compat.proto import event_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._file = path.open("wb")
        self._writer = RecordWriter(self._file)
        session = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        for about in ({"file_version": "brain.Event:2"}, {"session_log": session, "step": 0}):
            self._writer.write(event_pb2.Event(wall_time=time.time(), **about).SerializeToString())

    def _add(self, record: Record) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2

        made = summary_pb2.Summary
        values = [made.Value(tag=tag, simple_value=value) for tag, value in scalars(record).items()]
        event = event_pb2.Event(wall_time=time.time(), step=record["step"], summary=made(value=values))
        self._writer.write(event.SerializeToString())

    @contextlib.contextmanager
    def _warn_on_failure(self) -> Iterator[None]:
        """Warn once of what cannot be written, or read from metrics.jsonl; training continues without it."""
        try:
            yield
        except (OSError, ValueError, TypeError, KeyError) as error:
            self.close()
            reason = (error.strerror if isinstance(error, OSError) else None) or error
            self._warn(f"{self.directory}: cannot be written ({reason}); training continues without it")
