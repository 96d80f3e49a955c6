"""The model that a study ends with: the arm that is best on valid with the most labels, of the first seed.

What is promised for it is the arm's mean over seeds on test, not what its own seed reached.
"""

import dataclasses
import hashlib
import math
import shutil
from pathlib import Path
from typing import Any

from safetensors import safe_open

from headstart.config.reading import Reading
from headstart.runs.directory import RunDirectory
from headstart.runs.load import load
from headstart.runs.study_model import NETWORKS, StudyModelConfig
from headstart.storage import checksummed_json
from headstart.storage.atomic import atomic_directory
from headstart.study import frozen
from headstart.study.data import StudyData
from headstart.study.design import MIXES, Trial, arms_of
from headstart.study.record import KeptModel, StudyRecord

LINEAR = ("tfidf", "lsa")
_KINDS = (*NETWORKS, "tfidf", "lsa", *MIXES)


def keep_model(data: StudyData, record: StudyRecord) -> KeptModel | None:
    """Write STUDY/model; None where no arm has left a model."""
    budget = max(record.budgets)
    means = record.valid_scores(budget)
    arms = {arm.name: arm for arm in arms_of(data.config.study) if arm.kind in _KINDS and arm.name in means}
    found = {name: _parts(data, Trial(arm, budget, 0)) for name, arm in arms.items()}
    whole = {name: parts for name, parts in found.items() if parts is not None}
    if not whole:
        return None
    best = max(whole, key=lambda name: means[name])  # among equals the first: the cheapest
    score = next(score for score in record.scores if (score.arm, score.budget) == (best, budget))
    reached: dict[str, Any] = {f"valid_{record.metric}": means[best]}
    if interval := record.of_metric(score):
        reached[record.metric] = interval.value
    exponents = data.read_trial(Trial(arms[best], budget, 0)).get("exponents", [1.0])
    used = {part: exponent for part, exponent in zip(whole[best], exponents, strict=True) if exponent}
    parts = {name: whole[best][name] for name in used}
    regressions = [name for name in parts if name in LINEAR]
    networks = [name for name in parts if name not in LINEAR]
    config = StudyModelConfig(
        arm=best, kind=arms[best].kind, budget=budget, **reached, label_names=list(data.labels),
        pairs=data.sets()["train"].texts_b is not None, data=data.config.reading.part(Reading),
        exponents=list(used.values()) if arms[best].kind in MIXES else [],
        length=data.config.finetune.length if networks else 0,
        parameters=sum(_parameters(path) for path in parts.values()), regressions=regressions,
        regressions_sha256=[hashlib.sha256(parts[name].read_bytes()).hexdigest() for name in regressions],
        networks=networks if arms[best].kind in MIXES else [],
    )  # fmt: skip
    _write(data.directory / "model", config, parts)
    return KeptModel(arm=best, kind=config.kind, budget=budget, accuracy=score.accuracy, macro_f1=score.macro_f1)


def _parts(data: StudyData, trial: Trial) -> dict[str, Path] | None:
    """What a trial's model is made of, by the kind of arm: runs and logistic regressions; None if some are missing."""
    kind, file = trial.arm.kind, data.trial_file(trial)
    if kind in MIXES:
        parts = [_parts(data, other) for other in data.trials_before(trial)]
        if not file.exists() or None in parts:
            return None
        return {name: path for part in parts if part for name, path in part.items()}
    if not file.exists():
        return None
    if kind in LINEAR:
        linear = data.linear_file(trial)
        if not linear.exists() and linear.name not in data.read_trial(trial)["files"]:
            return None
        data.read_trial_file(trial, linear)
        return {kind: linear}
    # A study that was killed before it tidied up has the weights of the other learning rates too.
    run = file.with_name(frozen.RUN if kind == "frozen" else f"lr-{data.read_trial(trial)['chosen']:g}")
    weights = RunDirectory(run).weights_file
    if data.read_trial(trial).get("keeps_model"):
        data.refuse_missing(trial, weights)
    return {kind: run} if weights.exists() else None


def _parameters(part: Path) -> int:
    """Of a run, or of a logistic regression."""
    if part.is_dir():
        return int((RunDirectory(part).read_result() or {})["parameters"])
    with safe_open(part, "np") as arrays:
        shapes = (arrays.get_slice(name).get_shape() for name in ("coefficients", "intercepts"))
        return sum(map(math.prod, shapes))


def _write(directory: Path, config: StudyModelConfig, parts: dict[str, Path]) -> None:
    with atomic_directory(directory) as temporary:
        for name, part in parts.items():
            if name in LINEAR:
                shutil.copy(part, temporary / f"{name}.safetensors")
                continue
            load(part)
            copied = RunDirectory(shutil.copytree(part, temporary / (name if config.networks else "run")))
            run = copied.read_config()
            # The columns that the user's files have, and not those of the study's own copies.
            run = dataclasses.replace(run, data=dataclasses.replace(run.data, **dataclasses.asdict(config.data)))
            copied.write_config(run)
            copied.write_result(copied.read_result() or {}, run)
        (temporary / "model.json").write_bytes(checksummed_json.dump(dataclasses.asdict(config), indent=1))
        shutil.rmtree(directory, ignore_errors=True)
