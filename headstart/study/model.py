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
    found = {name: _files(data, Trial(arm, budget, 0)) for name, arm in arms.items()}
    whole = [name for name, files in found.items() if all(file.exists() for file in files.values())]
    if not whole:
        return None
    best = max(whole, key=lambda name: means[name])  # among equals the first: the cheapest
    files = found[best]
    score = next(score for score in record.scores if (score.arm, score.budget) == (best, budget))
    reached: dict[str, Any] = {f"valid_{record.metric}": means[best]}
    if interval := record.of_metric(score):
        reached[record.metric] = interval.value
    regressions = [name for name in LINEAR if name in files]
    trained = data.read_trial(Trial(arms[best], budget, 0))
    config = StudyModelConfig(
        arm=best, kind=arms[best].kind, budget=budget, **reached, label_names=list(data.labels),
        pairs=data.sets()["train"].texts_b is not None, data=data.config.reading.part(Reading),
        exponents=trained.get("exponents", []),
        length=data.config.finetune.length if "run" in files else 0, parameters=_parameters(files),
        regressions=regressions,
        regressions_sha256=[hashlib.sha256(files[name].read_bytes()).hexdigest() for name in regressions],
    )  # fmt: skip
    _write(data.directory / "model", config, files)
    return KeptModel(arm=best, kind=config.kind, budget=budget, accuracy=score.accuracy, macro_f1=score.macro_f1)


def _files(data: StudyData, trial: Trial) -> dict[str, Path]:
    """What a trial's model is made of: its trial.json, and a run, logistic regressions, or both."""
    own = {"trial": data.trial_file(trial)}
    if trial.arm.kind in MIXES:
        parts = [_files(data, other) for other in data.trials_before(trial)]
        return {name: file for part in parts for name, file in part.items()} | own
    if trial.arm.kind not in NETWORKS:
        linear = data.linear_file(trial)
        if own["trial"].exists() and (linear.exists() or linear.name in data.read_trial(trial)["files"]):
            data.read_trial_file(trial, linear)
        return {trial.arm.kind: linear, **own}
    if trial.arm.kind == "frozen":
        run = own["trial"].with_name(frozen.RUN)
    else:  # a study that was killed before it tidied up has the weights of the other learning rates too
        chosen = data.read_trial(trial)["chosen"] if own["trial"].exists() else 0.0
        run = own["trial"].with_name(f"lr-{chosen:g}")
    if own["trial"].exists() and data.read_trial(trial).get("keeps_model"):
        data.refuse_missing(trial, RunDirectory(run).weights_file)
    return {"run": run, "weights": RunDirectory(run).weights_file, **own}


def _parameters(files: dict[str, Path]) -> int:
    result = RunDirectory(files["run"]).read_result() if "run" in files else None
    count = int(result["parameters"]) if result else 0
    for name in files.keys() & set(LINEAR):
        with safe_open(files[name], "np") as arrays:
            shapes = (arrays.get_slice(name).get_shape() for name in ("coefficients", "intercepts"))
            count += sum(map(math.prod, shapes))
    return count


def _write(directory: Path, config: StudyModelConfig, files: dict[str, Path]) -> None:
    with atomic_directory(directory) as temporary:
        if "run" in files:
            load(files["run"])
            copied = RunDirectory(shutil.copytree(files["run"], temporary / "run"))
            run = copied.read_config()
            # The columns that the user's files have, and not those of the study's own copies.
            run = dataclasses.replace(run, data=dataclasses.replace(run.data, **dataclasses.asdict(config.data)))
            copied.write_config(run)
            copied.write_result(copied.read_result() or {}, run)
        for name in files.keys() & set(LINEAR):
            shutil.copy(files[name], temporary / f"{name}.safetensors")
        (temporary / "model.json").write_bytes(checksummed_json.dump(dataclasses.asdict(config), indent=1))
        shutil.rmtree(directory, ignore_errors=True)
