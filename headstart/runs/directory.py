"""A run is a directory: its files, metrics.jsonl among them, and whether a command fits what is there."""

import contextlib
import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypedDict

from headstart.config.run import RunConfig
from headstart.config.schema import build, fields_of
from headstart.config.toml import read_sealed, sealed_toml
from headstart.config.training import LoopConfig
from headstart.data.readers.files import foreign_form
from headstart.errors import HeadstartError, IntegrityError, Log, UserError
from headstart.storage import checksummed_json
from headstart.storage.atomic import atomic_write, flush
from headstart.tokenizers.tokenizer import Tokenizer

# How long it trains and what is kept may change between two commands of one run; the steps may only grow.
_MAY_CHANGE = {f"loop.{name}" for name, setting in fields_of(LoopConfig).items() if not setting.is_identity}

# Where the content is that the fingerprint is over: it may have moved.
_SAME_CONTENT = {"data.corpus", "data.train", "data.valid"}


class ImportedFrom(TypedDict, total=False):
    """What an imported checkpoint said of itself, and its files."""

    family: str
    sha256: str
    architectures: list[str] | None
    model_type: str
    files: dict[str, str]
    notes: list[str]


class RunResult(TypedDict, total=False):
    """result.json; which metrics there are depends on the task."""

    objective: str
    step: int
    steps: int
    weights_sha256: str
    parameters: int
    skipped: int
    stopped_early: bool
    best_step: int | None
    valid: dict[str, float] | None
    test: dict[str, float]
    evaluations: list[dict[str, float]]  # on valid, one after the other
    counts: dict[str, dict[str, int]]
    signatures: dict[str, str]  # of BLEU and chrF
    entropies: dict[str, float]  # of tokens and token pairs of the held-out text
    imported: ImportedFrom
    train_loss: float | None  # over the last tenth of the steps
    config_sha256: str


class RunDirectory:
    """The files of a run, each written atomically."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config_file = self.path / "config.toml"
        self.result_file = self.path / "result.json"
        self.weights_file = self.path / "weights.safetensors"
        self.tokenizer_file = self.path / "tokenizer.json"

    def fix_of(self, file: Path) -> str:
        """What mends a file that is damaged or missing: no training makes one of an imported run again."""
        again = "run the command that made the run again: it writes the file anew"
        if self._is_imported():
            return f"delete {self.path}, and import it again"
        return f"delete {file}, and {again}" if file.exists() else again

    def _is_imported(self) -> bool:
        """By its result, or by what is left of its config.toml."""
        with contextlib.suppress(IntegrityError):
            return "imported" in checksummed_json.read(self.result_file, "")
        with contextlib.suppress(OSError):
            return b'\nstart = "imported"\n' in self.config_file.read_bytes()
        return False

    def read_config(self) -> RunConfig:
        """The run's configuration, as it was written; a directory without one is not a run."""
        if not self.config_file.exists():
            what = "is not a run: it has no config.toml"
            if self.result_file.exists() or (self.path / "checkpoints").exists():
                raise IntegrityError(what, where=self.path, fix=self.fix_of(self.config_file), code="not-a-run")
            raise UserError(what, where=self.path, fix="give a run's directory", code="not-a-run")
        try:
            config = build(RunConfig, read_sealed(self.config_file, ""), str(self.config_file))
        except (IntegrityError, UserError) as error:
            fix = self.fix_of(self.config_file)
            raise IntegrityError(error.what, where=error.where, fix=fix, code=error.code) from error
        if (result := self.read_result()) is not None:
            self.check_config(result)
        return config

    def write_config(self, config: RunConfig) -> None:
        atomic_write(self.config_file, config_bytes(config))

    def check_same(self, config: RunConfig, override: bool, checkpoints: Iterable[Mapping[str, Any]] = ()) -> None:
        """Refuse a command that differs from the one that started the run, and say where.

        `checkpoints` are the settings that the run's checkpoints know: those of a foreign config.toml are others.
        """
        if override or not self.config_file.exists():
            return
        old, new = self.read_config(), config
        may_change = _MAY_CHANGE
        if old.data.fingerprint and old.data.fingerprint == new.data.fingerprint:
            may_change = may_change | _SAME_CONTENT
        if not (old.loop.time and new.loop.time) and old.loop.steps > new.loop.steps:
            may_change = may_change - {"loop.steps"}
        differing = sorted(differing_settings(old, new).items())
        lines = [f"{key} was {a!r}, is {b!r}" for key, (a, b) in differing if key not in may_change]
        known = list(checkpoints) if lines else []
        if _is_among(new, known) and not _is_among(old, known):
            what = "is not the one of the run's checkpoints, which are of this command"
            raise IntegrityError(what, where=self.config_file, fix=self.fix_of(self.config_file), code="mismatch")
        if old.model.tokenizer != new.model.tokenizer and self.tokenizer_file.exists():
            self.read_tokenizer()
        if lines:
            what = "the run was started with other settings:\n  " + "\n  ".join(lines)
            fix = "give the same settings, another --out, or --override-resume"
            raise UserError(what, where=self.path, fix=fix, code="changed")

    def read_tokenizer(self) -> Tokenizer:
        """The run's own tokenizer.json; refused where it is not the one that the run was trained with."""
        file, trained = self.tokenizer_file, self.read_config().model
        try:
            own = Tokenizer.load(file)
        except UserError as error:
            raise IntegrityError(error.what, where=file, fix=self.fix_of(file), code=error.code) from error
        if own.fingerprint != trained.tokenizer:
            what = f"tokenizer.json ({own.size:,} tokens, {own.fingerprint[:12]}…) is not the one that "
            what += f"the run was trained with ({trained.vocab:,} tokens, {trained.tokenizer[:12]}…)"
            raise IntegrityError(what, where=file, fix=self.fix_of(file), code="mismatch")
        return own

    def read_result(self) -> dict[str, Any] | None:
        """What a finished run says of itself, or None."""
        if not self.result_file.exists():
            return None
        try:
            return checksummed_json.read(self.result_file, "")
        except IntegrityError as error:
            form, fix = foreign_form(self.result_file), self.fix_of(self.result_file)
            what = f"cannot be read: it is {form}" if form else error.what
            raise IntegrityError(what, where=self.result_file, fix=fix) from error

    def write_result(self, result: dict[str, Any], config: RunConfig) -> dict[str, Any]:
        """Write the result of a run of this configuration, and return it: a number that is not finite is null."""
        written = with_config(result, config)
        atomic_write(self.result_file, checksummed_json.dump(written, indent=1))
        return written

    def check_config(self, result: dict[str, Any]) -> None:
        """Refuse a config.toml that was changed since the result was written: predictions depend on it."""
        if not self.config_file.exists() or not is_result_of(result, self.config_file.read_bytes()):
            what = "is not the one that was written with the result"
            raise IntegrityError(what, where=self.config_file, fix=self.fix_of(self.config_file))


def with_config(result: dict[str, Any], config: RunConfig) -> dict[str, Any]:
    """A result as it is written: with the sha256 of its config.toml, and null for a number that is not finite."""
    sealed: dict[str, Any] = finite({**result, "config_sha256": _sha256(config_bytes(config))})
    return sealed


def config_bytes(config: RunConfig) -> bytes:
    """The config.toml of a run."""
    return sealed_toml(dataclasses.asdict(config))


def is_result_of(result: Mapping[str, Any], config: bytes) -> bool:
    """Whether a result was written with this config.toml."""
    return result.get("config_sha256") == _sha256(config)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class MetricsFile:
    """A log to read, a line per event. Nothing is chosen by it: what it has lost it says, and training goes on."""

    def __init__(self, path: Path, warn: Log = lambda line: None) -> None:
        self.path, self._warn, self._missed = path, warn, 0
        self.on_record: Callable[[dict[str, Any]], None] = lambda record: None  # called with every record

    def resume(self, size: int, step: int = 0) -> None:
        """Drop what was written after the checkpoint of this step, and what cannot be read; say what is missing."""
        try:
            if self.path.is_symlink():  # no log of ours, and what it points to is not ours to cut
                self.path.unlink()
            missing = size - self.size()
            self.cut_back(size)
            lines = self._lines()
            whole = [line for line in lines if _record(line) is not None]
            if len(whole) < len(lines):
                atomic_write(self.path, b"".join(whole))
        except (OSError, HeadstartError) as error:
            self._warn(f"{self.path}: cannot be mended ({error}); training continues")
            return
        lost = max(0, missing) + sum(map(len, lines)) - sum(map(len, whole))
        if lost:
            self._warn(f"{self.path}: {lost:,} bytes of the log are missing or cannot be read; nothing else needs them")
            self.write(event="missing", step=step, bytes=lost)

    def cut_back(self, size: int) -> None:
        """Make it no longer than this."""
        if self.size() > size:
            os.truncate(self.path, size)

    def write(self, **record: Any) -> None:
        """Append a record; numbers that are not finite become null."""
        known, before = finite(record), self.size()
        gap = {"event": "missing", "step": record.get("step"), "records": self._missed}
        try:
            with open(self.path, "a", encoding="utf-8", opener=_open_no_link) as file:
                file.writelines(json.dumps(one) + "\n" for one in ([gap, known] if self._missed else [known]))
            self._missed = 0
        except OSError as error:
            with contextlib.suppress(OSError):  # drop half a line
                self.cut_back(before)
            if not self._missed:
                what = f"{self.path}: cannot be written ({error.strerror})"
                self._warn(f"{what}; training continues, and lines will be missing")
            self._missed += 1
        self.on_record(known)

    def flush(self) -> None:
        """Bring it to the disk, where that is possible, so that a checkpoint does not know of more than there is."""
        with contextlib.suppress(OSError, HeadstartError):
            flush(self.path)

    def size(self) -> int:
        """Its size, which a checkpoint records."""
        return self.path.stat().st_size if self.path.exists() else 0

    def read(self) -> list[dict[str, Any]]:
        """All records; a line that is incomplete or cannot be read is skipped."""
        return [record for line in self._lines() if (record := _record(line)) is not None]

    def _lines(self) -> list[bytes]:
        return self.path.read_bytes().splitlines(keepends=True) if self.path.is_file() else []


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _open_no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def finite(value: Any) -> Any:
    """The same data for JSON, with None for each number that is not finite."""
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def identity_of(config: RunConfig) -> dict[str, Any]:
    """The settings that make a run what it is, by name; its text counts by its content."""
    flat = _flat_settings(config).items()
    return {k: v for k, v in flat if k not in _MAY_CHANGE and (k == "data.fingerprint" or k[:5] != "data.")}


def _is_among(config: RunConfig, known: Iterable[Mapping[str, Any]]) -> bool:
    identity = identity_of(config).items()
    return any(all(one.get(name) == value for name, value in identity) for one in known)


def differing_settings(first: RunConfig, second: RunConfig) -> dict[str, tuple[Any, Any]]:
    """The settings that differ, by name: `section.name` inside a section."""
    one, other = _flat_settings(first), _flat_settings(second)
    return {key: (one.get(key), other.get(key)) for key in {**one, **other} if one.get(key) != other.get(key)}


def _flat_settings(config: RunConfig) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in dataclasses.asdict(config).items():
        inner = {f"{name}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {name: value}
        flat |= {key: list(one) if isinstance(one, tuple) else one for key, one in inner.items()}
    return flat
