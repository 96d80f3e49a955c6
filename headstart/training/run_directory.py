"""A run is a directory: what is in it, and whether a command fits what is there."""

import dataclasses
import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from headstart.config import build, read_toml, to_toml
from headstart.errors import IntegrityError, UserError
from headstart.model.presets import HeadConfig, ModelConfig
from headstart.objectives.masked import Corruption
from headstart.text.durable import flush, rename
from headstart.text.files import foreign_form
from headstart.text.frames import FrameName
from headstart.text.tokenizer import Tokenizer
from headstart.training.checkpoint import disk_full_is_try_again
from headstart.training.loop import LoopConfig
from headstart.training.optimizer import OptimizerConfig
from headstart.training.vocabularies import Vocabularies

ObjectiveName = Literal[
    "causal", "masked", "masked-nsp", "classification", "multilabel", "regression", "translation", "base"
]


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Where the examples come from, and how they are read."""

    corpus: list[str] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    """How often the blocks of each file of the corpus come in an epoch (empty: all once)."""

    train: str = ""
    valid: str = ""
    test: str = ""
    labels: int = 0
    """Labelled rows to use (0: all)."""

    labels_seed: int = 0
    """The seed that chooses them."""

    shuffled: bool = False
    """Whether the tokens of the corpus are in an order that means nothing: a control."""

    documents: str = "auto"
    text_column: str = "text"
    label_column: str = "label"
    encoding: str = "utf-8"
    errors: str = "strict"
    skip_bad_rows: bool = False
    fingerprint: str = ""
    """Over the content of all of it."""


@dataclass(frozen=True, kw_only=True)
class TranslationConfig:
    """What a translation run has besides."""

    batch_tokens: int
    """Tokens in a step: source, target and padding."""

    smoothing: float
    """Share of each target that all tokens have alike."""

    start_into: Literal["", "encoder", "decoder", "both"] = ""
    """Which stack the start's single one became."""

    target_tokenizer: str = ""
    """Fingerprint of the target's own tokenizer, where the two sides do not share one."""

    beam: int = 5
    """Ways that the search keeps open where the run is measured."""

    length_penalty: float = 1.0
    """How that search ranks translations of several lengths."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """All that makes a run what it is: config.toml."""

    objective: ObjectiveName
    start: str = "scratch"
    """Where the weights come from: scratch, or the digest of the start's weights."""

    frame: FrameName
    """The special tokens around a text: begin and end, cls and sep (RoBERTa: two between texts), or Marian's."""

    length: int
    """Tokens of a block, or of the longest text."""

    batch: int
    """Blocks, pairs or texts in a step."""

    minutes: float = 0.0
    """What the steps were measured to fit into (0: they were given)."""

    pairs: bool = False
    """Whether it was fine-tuned on pairs of texts."""

    initial_seed: int = 0
    """The seed of the first weights, where there is no start."""

    freeze: Literal["nothing", "base"] = "nothing"
    """What does not learn."""

    labels: list[str] = field(default_factory=list)
    """The classes, in the order of their numbers."""

    r_drop: float = 0.0
    """Weight of the disagreement between two readings of a text with different dropout."""

    data: DataConfig
    model: ModelConfig
    head: HeadConfig
    optimizer: OptimizerConfig
    loop: LoopConfig
    corruption: Corruption
    translation: TranslationConfig | None = None


# What may change between two commands of one run without changing what was done so far.
_MAY_CHANGE = {"loop.steps", "loop.keep", "loop.save_every", "loop.save_every_seconds"}
# What a result must have for a run to be taken as finished.
_RESULT = {"step": int, "steps": int, "weights_sha256": str}


class RunDirectory:
    """The files of a run, each written whole or not at all."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config_file = self.path / "config.toml"
        self.result_file = self.path / "result.json"
        self.weights_file = self.path / "weights.safetensors"
        self.tokenizer_file = self.path / "tokenizer.json"

    def read_config(self) -> RunConfig:
        """The run's configuration; a directory without one is not a run."""
        if not self.config_file.exists():
            raise UserError(
                "is not a run: it has no config.toml", where=str(self.path), fix="give a run's directory"
            )
        return build(RunConfig, read_toml(self.config_file), str(self.config_file))

    def write_config(self, config: RunConfig) -> None:
        write_whole(self.config_file, to_toml(dataclasses.asdict(config)).encode())

    def check_same(self, config: RunConfig, override: bool) -> None:
        """Refuse a command that differs from the one that started the run, and say where."""
        if not self.config_file.exists():
            return
        differences = _differences(self.read_config(), config)
        if differences and not override:
            raise UserError(
                "the run was started with other settings:\n  " + "\n  ".join(differences),
                where=str(self.path),
                fix="give the same settings, another --out, or --override-resume",
            )

    def check_tokenizer(self, tokenizer: Tokenizer | Vocabularies) -> None:
        """Refuse to go on where the run's own tokenizer.json was changed; another one that is given is a setting."""
        if not (self.config_file.exists() and self.tokenizer_file.exists()):
            return
        trained = self.read_config().model
        if tokenizer.fingerprint == trained.tokenizer:
            return
        own = Tokenizer.load(self.tokenizer_file)
        if own.fingerprint != trained.tokenizer:
            raise IntegrityError(
                f"tokenizer.json ({own.size:,} tokens, {own.fingerprint[:12]}…) is not the one that the run was "
                f"trained with ({trained.vocab:,} tokens, {trained.tokenizer[:12]}…)",
                where=str(self.path),
                fix="bring the run's own tokenizer.json back",
            )

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
            raise IntegrityError(
                f"cannot be read ({', '.join(wrong)})",
                where=str(self.result_file),
                fix="remove it and run the same command again",
            )
        return result

    def write_result(self, result: dict[str, Any]) -> dict[str, Any]:
        """Write the result, and return it as it is written: a number that is not finite is null."""
        written: dict[str, Any] = _finite(result)
        text = json.dumps(written, indent=1, ensure_ascii=False, allow_nan=False)
        write_whole(self.result_file, text.encode() + b"\n")
        return written


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _differences(before: RunConfig, now: RunConfig) -> list[str]:
    old, new = _flat(dataclasses.asdict(before)), _flat(dataclasses.asdict(now))
    timed = before.minutes and before.minutes == now.minutes
    lines = []
    for key in sorted({*old, *new}):
        was, is_now = old.get(key), new.get(key)
        if was == is_now or (key in _MAY_CHANGE and key != "loop.steps"):
            continue
        if key == "loop.steps" and (timed or (was or 0) < (is_now or 0)):
            continue
        lines.append(f"{key} was {was!r}, is {is_now!r}")
    return lines


def _flat(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in data.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in flat.items()}


def write_whole(path: Path, data: bytes) -> None:
    """Write aside, flush, rename; interrupted, nothing is left."""
    aside = path.with_name(f".tmp-{path.name}-{os.getpid()}")
    try:
        with disk_full_is_try_again(path.parent, len(data)):
            with aside.open("wb") as file:
                file.write(data)
                file.flush()
                flush(path, file.fileno())
            rename(aside, path)
    finally:
        aside.unlink(missing_ok=True)
