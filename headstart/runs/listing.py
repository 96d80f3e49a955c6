"""List the runs under a directory from their small files; a broken run is listed with the reason."""

import contextlib
import datetime
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from headstart.errors import HeadstartError, UserError
from headstart.planning.parameters import total
from headstart.runs.directory import RunDirectory
from headstart.tokenizers.tokenizer import SOURCE_FILE

State = Literal["finished", "stopped early", "unfinished", "broken"]

# Files of a run: a directory that has one of these and no config.toml has lost it.
_TRACES = ("metrics.jsonl", "result.json", "weights.safetensors", "checkpoints")
_CHECKPOINT = re.compile(r"step-(\d+)")


@dataclass(frozen=True)
class RunSummary:
    """A run in a line."""

    name: str  # its path below the listed directory
    state: State
    reason: str = ""  # why it is broken
    objective: str = ""
    parameters: int = 0
    depth: int = 0
    width: int = 0
    step: int = 0  # of the last checkpoint, or of the end
    steps: int = 0
    valid: dict[str, float] = field(default_factory=dict)
    start: str = ""  # `scratch`, a run that is listed too, or the beginning of its digest
    digest: str = ""
    last_write: str = ""  # ISO 8601, in this machine's time zone


def list_runs(directory: str | Path) -> list[RunSummary]:
    """All runs in a directory and below it, by name; a broken run does not stop the listing."""
    top = Path(directory)
    if not top.is_dir():
        what = "there is no such directory"
        raise UserError(what, where=top, fix="train a run first, or give where your runs are", code="no-file")
    own = top.resolve().name  # where the directory itself is a run
    runs = [summary(path, own if path == top else str(path.relative_to(top))) for path in _run_directories(top)]
    names = {run.digest: run.name for run in reversed(runs) if run.digest}
    return [replace(run, start=names.get(run.start, run.start[:12])) for run in runs]


def summary(path: Path, name: str) -> RunSummary:
    """One run; an error makes it a broken one, with the reason."""
    last_write = _last_write(path)
    try:
        return replace(_summary(RunDirectory(path), name), last_write=last_write)
    except HeadstartError as error:
        file = f"{Path(error.where).name}: " if error.where and Path(error.where) != path else ""
        return RunSummary(name, "broken", f"{file}{error.what}", last_write=last_write)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return RunSummary(name, "broken", f"{type(error).__name__}: {error}", last_write=last_write)


def _summary(run: RunDirectory, name: str) -> RunSummary:
    config = run.read_config()
    about = RunSummary(
        name=name, state="unfinished", objective=config.objective,
        parameters=total(config.model, config.head),
        depth=config.model.depth, width=config.model.width, steps=config.loop.steps, start=config.start,
    )  # fmt: skip
    if not run.tokenizer_file.is_file() and not (run.path / SOURCE_FILE).is_file():
        return replace(about, state="broken", reason="tokenizer.json is missing")
    result = run.read_result()
    if result is None:
        directory = run.path / "checkpoints"
        entries = directory.iterdir() if directory.is_dir() else ()
        names = (_CHECKPOINT.fullmatch(entry.name) for entry in entries)
        step = max((int(name[1]) for name in names if name), default=0)
        return replace(about, step=step, valid=_last_valid(run.path / "metrics.jsonl"))
    if not run.weights_file.is_file():
        return replace(about, state="broken", reason="weights.safetensors is missing")
    valid = {key: float(value) for key, value in (result["valid"] or {}).items() if value is not None}
    state: State = "stopped early" if result["stopped_early"] else "finished"
    return replace(about, state=state, step=int(result["step"]), valid=valid, digest=str(result["weights_sha256"]))


def _run_directories(top: Path) -> Iterator[Path]:
    """Directories that are runs, or were; what lies inside a run is not searched."""
    for directory, inner, files in os.walk(top):
        inner.sort()
        if "config.toml" in files or any(trace in files or trace in inner for trace in _TRACES):
            inner.clear()
            yield Path(directory)
        inner[:] = [name for name in inner if not name.startswith(".")]


def _last_valid(path: Path) -> dict[str, float]:
    """The last scores on valid; an incomplete last line is skipped."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    for line in reversed(lines):
        with contextlib.suppress(ValueError, AttributeError):
            record = json.loads(line)
            if record.get("event") == "valid":
                scores = {key: value for key, value in record.items() if key not in ("event", "step")}
                return {key: float(value) for key, value in scores.items() if isinstance(value, int | float)}
    return {}


def _last_write(path: Path) -> str:
    """When something of the run was last written."""
    entries = (path, *(path / name for name in ("checkpoints", "metrics.jsonl", "result.json")))
    times = [os.path.getmtime(entry) for entry in entries if os.path.exists(entry)]
    last = datetime.datetime.fromtimestamp(max(times)).astimezone() if times else None
    return last.isoformat(timespec="seconds") if last else ""
