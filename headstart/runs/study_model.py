"""The model that a study ends with, STUDY/model: its best arm on valid with the most labels.

model.json says which arm it is and what it promises, run/ is the network's run, tfidf.safetensors and lsa.safetensors
the arrays of logistic regressions. A mix has several of them, its networks as frozen/ and finetuned/, and exponents.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file

from headstart.config.reading import Reading
from headstart.config.run import RunConfig
from headstart.config.schema import build
from headstart.errors import IntegrityError, UserError
from headstart.runs import linear
from headstart.runs.directory import RunDirectory
from headstart.runs.load import LoadedRun, open_run
from headstart.runs.load import load as load_run
from headstart.storage import checksummed_json

FORMAT = 1
NETWORKS = ("scratch", "frozen", "finetuned", "imported")
"""Kinds of arms that are a network alone, and so a run as any other."""

_FIX = "run `headstart study` again with the same --out: it writes the model anew"


@dataclass(frozen=True, kw_only=True)
class StudyModelConfig:
    """model.json."""

    format: int = FORMAT
    arm: str
    kind: str
    budget: int
    seed: int = 0
    accuracy: float | None = None
    """On test, the mean over all seeds of the arm: what to expect of this model."""

    valid_accuracy: float | None = None
    macro_f1: float | None = None
    """The same of a study that compares by macro-F1."""

    valid_macro_f1: float | None = None
    label_names: list[str]
    pairs: bool = False
    data: Reading = field(default_factory=Reading)
    """How its rows were read."""

    exponents: list[float] = field(default_factory=list)
    """Of a mix: those of the regressions' probabilities, and then of the networks'."""

    regressions: list[str] = field(default_factory=list)
    """The logistic regressions, in the order of their exponents."""

    regressions_sha256: list[str] = field(default_factory=list)

    networks: list[str] = field(default_factory=list)
    """The networks of a mix, in the order of their exponents."""

    parameters: int = 0

    objective: str = "classification"
    length: int = 0
    """Tokens of a text that are read; 0: all."""


@dataclass(frozen=True)
class StudyModel:
    """Logistic regressions in memory, perhaps mixed with networks."""

    path: Path
    config: StudyModelConfig
    regressions: list[linear.Arrays]
    networks: list[LoadedRun]

    def mixed(self, outputs: Sequence[np.ndarray], texts: Sequence[str | tuple[str, str]]) -> np.ndarray:
        """Probabilities (texts, classes): the regressions', mixed with the outputs of each network."""
        whole = [text if isinstance(text, str) else "\n".join(text) for text in texts]
        tables = [linear.probabilities(one, whole, len(self.config.label_names)) for one in self.regressions]
        return linear.mixed([*tables, *outputs], self.config.exponents or [1.0])


def open_model(path: str | Path, verb: str, device: torch.device | str = "cpu") -> LoadedRun | StudyModel:
    """What `predict` and `evaluate` work with: a run that serves the verb, or the model of a study."""
    directory, config = _resolved(path)
    return open_run(directory, verb, device) if config is None else _load(directory, config, device)


def load(path: str | Path, device: torch.device | str = "cpu") -> LoadedRun | StudyModel:
    """A run's weights (the finished ones, else its last good checkpoint's), or the model of a study."""
    directory, config = _resolved(path)
    return load_run(directory, device) if config is None else _load(directory, config, device)


def served_config(path: str | Path) -> RunConfig | StudyModelConfig:
    """The configuration of what `load` loads."""
    directory, config = _resolved(path)
    return config or RunDirectory(directory).read_config()


def run_of(path: str | Path) -> Path:
    """The run to read: the path itself, or the run of a study's model where that is a network alone."""
    directory, config = _resolved(path)
    if config is None:
        return directory
    what = f"the study's model is the arm {config.arm}, which only predict, evaluate and serve take"
    raise UserError(what, where=path, fix=f"give a run of its trials: {directory.parent / 'trials'}", code="wrong-run")


def _resolved(path: str | Path) -> tuple[Path, StudyModelConfig | None]:
    """A run, or the directory of a study's model with its configuration where it is no network alone."""
    model = model_directory(path)
    if model is None:
        return Path(path), None
    config = _read_config(model)
    return (model / "run", None) if config.kind in NETWORKS else (model, config)


def model_directory(path: str | Path) -> Path | None:
    """Where the model of a study is; None where the path is no study. A study without one is refused."""
    path = Path(path)
    if (path / "model.json").is_file():
        return path
    if not any((path / name).is_file() for name in ("study.json", "study.toml")):
        return None
    if not (path / "model" / "model.json").is_file():
        what, fix = "the study has no model yet", "run the study to its end: the same command goes on"
        raise UserError(what, where=path, fix=fix, code="missing")
    return path / "model"


def _read_config(model: Path) -> StudyModelConfig:
    file = model / "model.json"
    content = checksummed_json.read(file, _FIX)
    if content.get("format") != FORMAT:
        what = f"is not of the format that this version reads, {FORMAT}"
        raise IntegrityError(what, where=file, fix=_FIX, code="unsupported")
    return build(StudyModelConfig, content, str(file))


def _load(model: Path, config: StudyModelConfig, device: torch.device | str) -> StudyModel:
    regressions: list[linear.Arrays] = []
    for name, digest in zip(config.regressions, config.regressions_sha256, strict=True):
        file = model / f"{Path(name).name}.safetensors"
        try:
            if hashlib.sha256(file.read_bytes()).hexdigest() != digest:
                raise IntegrityError("is not what was written", where=file, fix=_FIX)
            regressions.append(load_file(file))
        except (SafetensorError, OSError) as error:
            raise IntegrityError(f"cannot be read ({error})", where=file, fix=_FIX) from error
    networks = [load_run(model / Path(name).name, device) for name in config.networks]
    return StudyModel(model, config, regressions, networks)
