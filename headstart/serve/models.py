"""The runs and studies that are served: what each can do, and its weights once they are needed."""

import itertools
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from headstart.config.run import RunConfig
from headstart.errors import UserError
from headstart.machine import Machine
from headstart.planning.parameters import components
from headstart.runs.directory import RunDirectory
from headstart.runs.load import LoadedRun
from headstart.runs.study_model import StudyModel, StudyModelConfig, load, served_config
from headstart.serve.errors import RequestError
from headstart.study.record import StudyRecord

Ability = Literal["classify", "generate", "score", "translate", "attention"]

CAN: dict[str, tuple[Ability, ...]] = {
    "causal": ("generate", "score", "attention"),
    **dict.fromkeys(("masked", "masked-nsp", "base"), ("attention",)),
    **dict.fromkeys(("classification", "multilabel", "regression"), ("classify", "attention")),
    "translation": ("translate", "attention"),
}

# Each ability after "can".
_DOING: dict[Ability, str] = {
    "classify": "classify", "generate": "generate", "score": "score a text", "translate": "translate",
    "attention": "show its attention",
}  # fmt: skip

_DRAWING = threading.Lock()  # matplotlib draws for one at a time


@dataclass
class ServedRun:
    """A run that is loaded when it is first used."""

    name: str
    path: Path
    config: RunConfig | StudyModelConfig
    machine: Machine
    names: Mapping[str, str] = field(default_factory=dict)  # finished runs by digest: one may start another
    _loaded: LoadedRun | StudyModel | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def can(self) -> tuple[Ability, ...]:
        # A logistic regression, alone or in a mix, has no attention.
        return CAN[self.config.objective] if isinstance(self.config, RunConfig) else ("classify",)

    @property
    def is_loaded(self) -> bool:
        return self._loaded is not None

    def loaded(self) -> Any:
        """The run in memory, as its directory is now; threads that come meanwhile wait for it."""
        with self._lock:
            if self._loaded is None:
                self._loaded = load(self.path, self.machine.device)
                self.config = self._loaded.config
            return self._loaded

    def about(self) -> dict[str, Any]:
        """Its description, without reading its weights."""
        config = self.config
        if isinstance(config, RunConfig):
            start, parameters = config.start, sum(p.count for p in components(config.model, config.head))
        else:
            start, parameters = "scratch", config.parameters
        return {
            "name": self.name, "objective": config.objective, "can": list(self.can), "labels": config.label_names,
            "pairs": config.pairs, "length": config.length, "start": start[:12],
            "start_run": self.names.get(start), "loaded": self.is_loaded, "parameters": parameters,
        }  # fmt: skip


@dataclass
class Models:
    """All that is served, by name."""

    runs: dict[str, ServedRun] = field(default_factory=dict)
    studies: dict[str, Path] = field(default_factory=dict)

    @classmethod
    def at(cls, paths: Iterable[str | Path], machine: Machine) -> "Models":
        """The runs and studies in these directories."""
        models = cls()
        for path in map(Path, paths):
            name = _name(path, {*models.runs, *models.studies})
            if (path / "study.json").is_file() or (path / "study.toml").is_file():
                StudyRecord.load(path)  # fail now and not at the first request
                models.studies[name] = path
                if not (path / "model" / "model.json").is_file():
                    continue
                name = _name(path.with_name(f"{path.resolve().name}-model"), {*models.runs, *models.studies})
            models.runs[name] = ServedRun(name, path, served_config(path), machine)
        if not models.runs and not models.studies:
            fix = "give the directories of runs: headstart serve runs/tuned"
            raise UserError("no run is given", fix=fix, code="missing")
        names = {digest: run.name for run in models.runs.values() if (digest := _digest(run.path))}
        for run in models.runs.values():
            run.names = names
        return models

    def run(self, name: str | None, ability: Ability) -> ServedRun:
        """The run of this name, or the only one that can do it."""
        able = [run for run in self.runs.values() if ability in run.can]
        if name is None and len(able) == 1:
            return able[0]
        if name is None and not able:
            fitting = " or ".join(objective for objective, can in CAN.items() if ability in can)
            raise RequestError(400, f"none of the runs can {_DOING[ability]}", f"serve a {fitting} run")
        if name is None:
            what = f"{len(able)} runs can {_DOING[ability]}, and none is named"
            raise RequestError(400, what, f"name one of: {', '.join(run.name for run in able)}")
        if name not in self.runs:
            raise RequestError(404, "no run of this name", "GET /api/runs lists them")
        run = self.runs[name]
        if run not in able:
            what = f"{run.name} is a {run.config.objective} run: it cannot {_DOING[ability]}"
            raise RequestError(400, what, f"it can {' and '.join(_DOING[one] for one in run.can)}")
        return run

    def report(self, name: str) -> bytes:
        """The report file of a study, or a new one in memory where there is none."""
        if name not in self.studies:
            raise RequestError(404, "no study of this name", "GET /api/runs lists them")
        try:
            return (self.studies[name] / "report.html").read_bytes()
        except OSError:
            from headstart.report.page import directory_page

            with _DRAWING:
                return directory_page(self.studies[name]).encode()


def _digest(path: Path) -> str:
    """The recorded digest of a finished run's weights."""
    result = RunDirectory(path).read_result()
    return str(result["weights_sha256"]) if result else ""


def _name(path: Path, taken: set[str]) -> str:
    """The directory's name, as text, with a number where it is taken."""
    name = os.fsencode(path.resolve().name).decode("utf-8", "replace") or "run"
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    return next(one for one in itertools.chain([name], numbered) if one not in taken)
