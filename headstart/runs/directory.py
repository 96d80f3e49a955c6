"""A run is a directory: its files, metrics.jsonl among them, and whether a command fits what is there."""

import contextlib
import dataclasses
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

from headstart.config.run import RunConfig
from headstart.config.schema import build, fields_of
from headstart.config.toml import read_toml, to_toml
from headstart.config.training import LoopConfig
from headstart.data.readers.files import foreign_form
from headstart.errors import IntegrityError, Log, UserError
from headstart.storage.atomic import atomic_write
from headstart.tokenizers.tokenizer import Tokenizer, Vocabularies

# How long it trains and what is kept may change between two commands of one run; the steps may only grow.
_MAY_CHANGE = {f"loop.{name}" for name, setting in fields_of(LoopConfig).items() if not setting.is_identity}

# What a result must have for a run to be taken as finished.
_RESULT = {"step": int, "steps": int, "weights_sha256": str}


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
    counts: dict[str, dict[str, int]]
    signatures: dict[str, str]  # of BLEU and chrF
    entropies: dict[str, float]  # of tokens and token pairs of the held-out text
    imported: ImportedFrom


class RunDirectory:
    """The files of a run, each written atomically."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config_file = self.path / "config.toml"
        self.result_file = self.path / "result.json"
        self.weights_file = self.path / "weights.safetensors"
        self.tokenizer_file = self.path / "tokenizer.json"

    def read_config(self) -> RunConfig:
        """The run's configuration; a directory without one is not a run."""
        if not self.config_file.exists():
            what = "is not a run: it has no config.toml"
            raise UserError(what, where=self.path, fix="give a run's directory", code="not-a-run")
        return build(RunConfig, read_toml(self.config_file), str(self.config_file))

    def write_config(self, config: RunConfig) -> None:
        atomic_write(self.config_file, to_toml(dataclasses.asdict(config)).encode())

    def check_same(self, config: RunConfig, override: bool) -> None:
        """Refuse a command that differs from the one that started the run, and say where."""
        if not self.config_file.exists():
            return
        old, new = self.read_config(), config
        may_change = _MAY_CHANGE
        if not (old.loop.time and new.loop.time) and old.loop.steps > new.loop.steps:
            may_change = _MAY_CHANGE - {"loop.steps"}
        differing = sorted(differing_settings(old, new).items())
        lines = [f"{key} was {a!r}, is {b!r}" for key, (a, b) in differing if key not in may_change]
        if lines and not override:
            what = "the run was started with other settings:\n  " + "\n  ".join(lines)
            fix = "give the same settings, another --out, or --override-resume"
            raise UserError(what, where=self.path, fix=fix, code="changed")

    def check_tokenizer(self, tokenizer: Tokenizer | Vocabularies) -> None:
        """Refuse to resume where the run's own tokenizer.json was changed; another one that is given is a setting."""
        if not (self.config_file.exists() and self.tokenizer_file.exists()):
            return
        trained = self.read_config().model
        if tokenizer.fingerprint == trained.tokenizer:
            return
        own = Tokenizer.load(self.tokenizer_file)
        if own.fingerprint != trained.tokenizer:
            what = f"tokenizer.json ({own.size:,} tokens, {own.fingerprint[:12]}…) is not the one that "
            what += f"the run was trained with ({trained.vocab:,} tokens, {trained.tokenizer[:12]}…)"
            raise IntegrityError(what, where=self.path, fix="bring the run's own tokenizer.json back", code="mismatch")

    def read_result(self) -> dict[str, Any] | None:
        """What a finished run says of itself, or None."""
        if not self.result_file.exists():
            return None
        try:
            result = dict(json.loads(self.result_file.read_bytes()))
            wrong = [key for key in _RESULT if not isinstance(result.get(key), _RESULT[key])]
        except (ValueError, TypeError, RecursionError, OSError) as error:
            what = foreign_form(self.result_file)
            result, wrong = {}, [f"it is {what}" if what else str(error)]
        if wrong:
            what = f"cannot be read ({', '.join(wrong)})"
            raise IntegrityError(what, where=self.result_file, fix="remove it and run the same command again")
        return result

    def write_result(self, result: dict[str, Any]) -> dict[str, Any]:
        """Write the result, and return it as it is written: a number that is not finite is null."""
        written: dict[str, Any] = finite(result)
        text = json.dumps(written, indent=1, ensure_ascii=False, allow_nan=False)
        atomic_write(self.result_file, text.encode() + b"\n")
        return written


class MetricsFile:
    """A log, a line per event, cut back when a run resumes; a full disk ends it, and not the training."""

    def __init__(self, path: Path, warn: Log = lambda line: None) -> None:
        self.path, self._warn, self._failed = path, warn, False
        self.on_record: Callable[[dict[str, Any]], None] = lambda record: None  # called with every record

    def cut_back(self, size: int) -> None:
        """Drop what was written after the checkpoint."""
        if self.size() > size:
            os.truncate(self.path, size)

    def write(self, **record: Any) -> None:
        """Append a record; numbers that are not finite become null."""
        if self._failed:
            return
        known, before = finite(record), self.size()
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(known) + "\n")
            self.on_record(known)
        except OSError as error:
            self._failed = True
            with contextlib.suppress(OSError):  # drop half a line
                self.cut_back(before)
            self._warn(f"{self.path}: cannot be written ({error.strerror}); training continues without it")

    def size(self) -> int:
        """Its size, which a checkpoint records."""
        return self.path.stat().st_size if self.path.exists() else 0

    def read(self) -> list[dict[str, Any]]:
        """All records; an incomplete last line is skipped."""
        if not self.path.exists():
            return []
        lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]


def finite(value: Any) -> Any:
    """The same data for JSON, with None for each number that is not finite."""
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


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
