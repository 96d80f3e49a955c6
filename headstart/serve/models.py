"""The runs and studies that are served: what each can do, and its weights once somebody asks for them."""

import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from headstart.errors import IntegrityError, UserError
from headstart.plan.parameters import components
from headstart.report.study_file import read_study, read_timing
from headstart.serve.refusals import Refused
from headstart.training.loading import LoadedRun, load
from headstart.training.machine import Machine
from headstart.training.run_directory import RunConfig, RunDirectory

Ability = Literal["classify", "generate", "score", "translate", "attention"]

CAN: dict[str, tuple[Ability, ...]] = {
    "causal": ("generate", "score", "attention"),
    "masked": ("attention",),
    "masked-nsp": ("attention",),
    "base": ("attention",),
    "classification": ("classify", "attention"),
    "multilabel": ("classify", "attention"),
    "regression": ("classify", "attention"),
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
    config: RunConfig
    machine: Machine
    names: Mapping[str, str] = field(default_factory=dict)
    """Of all finished runs that are served, by the digest of their weights: one may be the start of another."""

    _loaded: LoadedRun | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def can(self) -> tuple[Ability, ...]:
        return CAN[self.config.objective]

    @property
    def is_loaded(self) -> bool:
        return self._loaded is not None

    def loaded(self) -> LoadedRun:
        """The run in memory; whoever comes while it is being loaded waits for it.

        What counts is the directory as it is then: its run may have been trained on, or be another one.
        """
        with self._lock:
            if self._loaded is None:
                self._loaded = load(self.path, self.machine.device)
                self.config = self._loaded.config
            return self._loaded

    def about(self) -> dict[str, Any]:
        """What is known of it without its weights."""
        config = self.config
        return {
            "name": self.name, "objective": config.objective, "can": list(self.can), "labels": config.labels,
            "pairs": config.pairs, "length": config.length, "start": config.start[:12],
            "start_run": self.names.get(config.start), "loaded": self.is_loaded,
            "parameters": sum(part.count for part in components(config.model, config.head)),
        }  # fmt: skip


@dataclass(frozen=True)
class ServedStudy:
    """A study and its report."""

    name: str
    path: Path

    def report(self) -> bytes:
        """The report as it was written, or made anew where it is not there; nothing is written."""
        try:
            return (self.path / "report.html").read_bytes()
        except OSError:
            study = read_study(self.path)
        try:
            timing, clock_error = read_timing(self.path), ""
        except IntegrityError as error:  # only the measured seconds are lost: the page says so
            timing, clock_error = None, error.what
        from headstart.report.page import report_page  # a second to import, and seldom needed

        with _DRAWING:
            return report_page(study, timing, clock_error).encode()


class Models:
    """All that is served, by name."""

    def __init__(self, runs: Iterable[ServedRun], studies: Iterable[ServedStudy]) -> None:
        self.runs = {run.name: run for run in runs}
        self.studies = {study.name: study for study in studies}

    @classmethod
    def at(cls, paths: Iterable[str | Path], machine: Machine) -> "Models":
        """Those in these directories; what is neither a run nor a study is refused."""
        runs, studies, taken = [], [], set[str]()
        for path in map(Path, paths):
            name = _name(path, taken)
            taken.add(name)
            if (path / "study.json").is_file() or (path / "study.toml").is_file():
                read_study(path)  # one that cannot be read is refused now, not when it is asked for
                studies.append(ServedStudy(name, path))
            else:
                runs.append(ServedRun(name, path, RunDirectory(path).read_config(), machine))
        if not taken:
            raise UserError("no run is given", fix="give the directories of runs: headstart serve runs/tuned")
        names = {digest: run.name for run in runs if (digest := _digest(run.path))}
        for run in runs:
            run.names = names
        return cls(runs, studies)

    def run(self, name: str | None, ability: Ability) -> ServedRun:
        """The run of this name, or the only one that can do it."""
        able = [run for run in self.runs.values() if ability in run.can]
        if name is None:
            return _only(able, ability)
        if name not in self.runs:
            raise Refused(404, "there is no run of this name", "GET /api/runs lists them")
        run = self.runs[name]
        if run not in able:
            raise Refused(
                400,
                f"{run.name} is a {run.config.objective} run: it cannot {_DOING[ability]}",
                f"it can {' and '.join(_DOING[one] for one in run.can)}",
            )
        return run

    def study(self, name: str) -> ServedStudy:
        if name not in self.studies:
            raise Refused(404, "there is no study of this name", "GET /api/runs lists them")
        return self.studies[name]


def _only(able: list[ServedRun], ability: Ability) -> ServedRun:
    if len(able) == 1:
        return able[0]
    if not able:
        fitting = " or ".join(objective for objective, can in CAN.items() if ability in can)
        raise Refused(400, f"none of the runs can {_DOING[ability]}", f"serve a {fitting} run")
    names = ", ".join(run.name for run in able)
    raise Refused(400, f"{len(able)} runs can {_DOING[ability]}, and none is named", f"name one of: {names}")


def _digest(path: Path) -> str:
    """The sha256 over a finished run's weights, as it tells it; what is wrong there is told when it is used."""
    try:
        result = RunDirectory(path).read_result()
    except IntegrityError:
        return ""
    return str(result["weights_sha256"]) if result else ""


def _name(path: Path, taken: set[str]) -> str:
    """The directory's name, as text, with a number where it is taken."""
    name = os.fsencode(path.resolve().name).decode("utf-8", "replace") or "run"
    if name not in taken:
        return name
    number = 2
    while f"{name}-{number}" in taken:
        number += 1
    return f"{name}-{number}"
