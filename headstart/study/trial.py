"""One piece of a study, carried out in a process of its own: a pretraining, or a trial.

Each leaves a small file when it is finished (a run's result.json, a trial's trial.json); what has one is not done
again, and what was interrupted goes on as any run does. Nothing here reads a clock.
"""

import dataclasses
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save as safetensors

from headstart.config.study import BASELINES, WITHOUT_STEPS
from headstart.config.training import Averaging, Masking, OptimizerConfig, PretrainObjective, Schedule
from headstart.data.labels import LabelMap
from headstart.data.splits import label_subset
from headstart.errors import RunFailed, UserError
from headstart.inference.evaluate import labelled_outputs
from headstart.inference.predict import OnShare
from headstart.machine import Machine, choose
from headstart.runs.directory import MetricsFile
from headstart.runs.linear import features as linear_features
from headstart.runs.load import load
from headstart.storage.atomic import atomic_write
from headstart.study.baselines import (
    BaselineResult,
    fit_lsa,
    logistic_regression,
    majority,
    mix,
    tfidf,
)
from headstart.study.data import SETS, StudyData, lsa_texts, npz_bytes, trial_operations, trial_steps
from headstart.study.design import MIXED, MIXES, Pretraining, Seeds, Trial
from headstart.training.fit import Console
from headstart.training.step_log import Progress
from headstart.training.tasks.finetune import finetune
from headstart.training.tasks.pretrain import pretrain

# What a learning rate came to on valid, its curve there, and its run.
TriedRun = tuple[dict[str, Any], list[dict[str, float]], Path]


def machine_of(data: StudyData) -> Machine:
    """What the study's settings choose here."""
    study = data.config.study
    return choose(data.device, study.precision, study.threads, fast=study.fast)


def run_pretraining(data: StudyData, task: Pretraining, on_share: OnShare) -> None:
    """All phases, each from the one before; the last one is the base."""
    config, base = data.config, data.base(task)
    phases, before = config.pretrain, None
    steps = data.steps[task.objective]
    for number, phase in enumerate(phases):
        out = base if number == len(phases) - 1 else base.with_name(f"{base.name}-phase-{number + 1}")
        done, total = sum(steps[:number]), sum(steps)

        def on_step(progress: Progress, done: int = done, total: int = total) -> None:
            on_share((done + progress.step) / total)

        pretrain(
            data.corpus_of(phase), out=out, objective=task.objective, valid=phase.valid or None, shuffled=task.shuffled,
            preset=config.study.preset, model=_shape(data, task.objective), start=before,
            tokenizer=None if before else data.tokenizer, steps=steps[number], length=phase.length,
            batch_tokens=phase.batch_tokens, reading=config.reading, documents=phase.documents,
            optimizer=phase.part(OptimizerConfig), schedule=phase.part(Schedule), masking=phase.part(Masking),
            embedding_init=phase.embedding_init if before is None else "random",
            seed=Seeds.of(config.study.seed, task.seed).order,
            evaluate_every=max(1, steps[number] // phase.evaluations),
            machine=machine_of(data), console=Console(on_step=on_step), keep=0,
        )  # fmt: skip
        before = out


def run_trial(data: StudyData, trial: Trial, on_share: OnShare) -> None:
    """Carry a trial out and write its trial.json; one that is there is left alone."""
    file = data.trial_file(trial)
    if file.exists():
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    found = (_without_steps if trial.arm.kind in WITHOUT_STEPS else _neural)(data, trial, on_share)
    facts = {"arm": trial.arm.name, "budget": trial.budget, "seed": trial.seed, "status": "done", "error": None}
    facts |= {"operations": trial_operations(data, trial), **found}
    atomic_write(file, json.dumps(facts).encode() + b"\n")
    _tidy(data, trial, found["chosen"])


def _without_steps(data: StudyData, trial: Trial, on_share: OnShare) -> dict[str, Any]:
    before = data.trials_before(trial)
    if trial.arm.kind in BASELINES and before and before[0].budget == trial.budget:
        return _repeated(data, trial, before[0])
    valid_labels = LabelMap(data.labels).ids(data.sets()["valid"])
    if trial.arm.kind in MIXES:
        result = mix([_probabilities(data, other) for other in before], valid_labels)
    else:
        result = _baseline(data, trial, valid_labels)
    if trial.arm.kind in MIXED:
        _keep_probabilities(data, trial, result.valid, result.test)
    if data.keeps_model(trial) and trial.arm.kind in ("tfidf", "lsa"):
        atomic_write(data.linear_file(trial), safetensors({n: _single(a) for n, a in result.arrays.items()}))
    return {
        "chosen": result.chosen, "steps": 0, "epochs": 0.0, "curve": [], "predictions": result.predictions.tolist(),
        "tries": [{"value": value, "accuracy": accuracy, "loss": loss} for value, accuracy, loss in result.tries],
        **({"exponents": result.arrays["exponents"].tolist()} if trial.arm.kind in MIXES else {}),
    }  # fmt: skip


def _single(array: np.ndarray) -> np.ndarray:
    """In single precision, where it is in double."""
    return np.ascontiguousarray(array, np.float32 if array.dtype == np.float64 else array.dtype)


def _repeated(data: StudyData, trial: Trial, first: Trial) -> dict[str, Any]:
    """What another trial has found on the same rows."""
    if trial.arm.kind in MIXED:
        atomic_write(data.probabilities_file(trial), data.probabilities_file(first).read_bytes())
    found = json.loads(data.trial_file(first).read_bytes())
    return {name: found[name] for name in ("chosen", "steps", "epochs", "curve", "predictions", "tries")}


def _baseline(data: StudyData, trial: Trial, valid_labels: np.ndarray) -> BaselineResult:
    sets, classes = data.sets(), len(data.labels)
    seeds, train = Seeds.of(data.config.study.seed, trial.seed), sets["train"]
    # In the order of the file, so that the result depends on which rows they are alone.
    rows = sorted(label_subset(train.labels, train.whole_texts, trial.budget, seeds.labels))
    train_labels = LabelMap(data.labels).ids(train.subset(rows))
    if trial.arm.kind == "majority":
        return majority(train_labels, len(sets["valid"]), len(sets["test"]), classes)
    if trial.arm.kind == "lsa":
        learnt, features = _lsa(data)
        labels = (train_labels, valid_labels, classes)
        result = logistic_regression(features["train"][rows], features["valid"], features["test"], *labels)
        return result._replace(arrays={**learnt, **result.arrays} if result.chosen else result.arrays)
    texts = {name: labelled.whole_texts for name, labelled in sets.items()}
    chosen = [texts["train"][row] for row in rows]
    return tfidf(chosen, train_labels, texts["valid"], valid_labels, texts["test"], classes)


def _lsa(data: StudyData) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """What LSA has learnt from the study's text, and the labelled texts by it; learnt once, and kept in lsa.npz."""
    file = data.directory / "lsa.npz"
    if not file.exists():
        arrays = fit_lsa(lsa_texts(data))
        for name, rows in data.sets().items():
            arrays[name] = np.hstack([np.zeros((len(rows), 0), np.float32), *linear_features(arrays, rows.whole_texts)])
        atomic_write(file, npz_bytes(arrays))
    with np.load(file) as kept:
        features: dict[str, np.ndarray] = {name: kept[name].astype(float) for name in SETS}
        return {name: kept[name] for name in kept.files if name not in SETS}, features


def _keep_probabilities(data: StudyData, trial: Trial, valid: np.ndarray, test: np.ndarray) -> None:
    tables = {"valid": valid.astype(np.float32), "test": test.astype(np.float32)}
    atomic_write(data.probabilities_file(trial), npz_bytes(tables))


def _probabilities(data: StudyData, trial: Trial) -> BaselineResult:
    file = data.probabilities_file(trial)
    if not file.exists():
        what, fix = "has no probabilities.npz, which a mix needs", "delete this directory, and run the study again"
        raise UserError(what, where=str(file.parent), fix=fix, code="missing")
    with np.load(file) as tables:
        return BaselineResult(tables["valid"].astype(float), tables["test"].astype(float), None, [])


def _neural(data: StudyData, trial: Trial, on_share: OnShare) -> dict[str, Any]:
    """Try every learning rate on the same rows in the same order, choose on valid, and only then look at test."""
    machine = machine_of(data)
    steps, epoch = trial_steps(data, trial)
    tries: list[TriedRun] = []
    failure: RunFailed | None = None
    learning_rates = data.learning_rates_for(trial.arm)
    for number, learning_rate in enumerate(learning_rates):

        def on_step(progress: Progress, number: int = number) -> None:
            on_share((number + progress.step / progress.steps) / len(learning_rates))

        out = data.trial_file(trial).parent / f"lr-{learning_rate:g}"
        try:
            _finetune(data, trial, learning_rate, out, machine, on_step)
        except RunFailed as error:  # it diverged: this one has lost, the others have not
            failure = error
            tries.append(({"value": learning_rate, "accuracy": 0.0, "loss": None}, [], out))
            continue
        curve = _curve(out, epoch)
        # The long scratch ends with its best on valid, the others with their last.
        end = max(curve, key=lambda p: p["accuracy"]) if trial.arm.kind == "scratch-long" else curve[-1]
        tries.append(({"value": learning_rate, "accuracy": end["accuracy"], "loss": end["loss"]}, curve, out))
    # The most accurate on valid; among equals the lowest loss, then the lowest learning rate.
    best, curve, out = max(tries, key=lambda tried: _merit(**tried[0]))
    if failure is not None and not curve:
        raise failure
    run = load(out, machine.device)
    outputs, _ = labelled_outputs(run, data.sets()["test"], machine)
    if trial.arm.kind in MIXED:
        _keep_probabilities(data, trial, labelled_outputs(run, data.sets()["valid"], machine)[0], outputs)
    return {
        "chosen": best["value"], "tries": [t for t, _, _ in tries], "steps": steps, "epochs": steps / epoch,
        "curve": curve, "predictions": outputs.argmax(axis=1).tolist(),
    }  # fmt: skip


def _merit(value: float, accuracy: float, loss: float | None) -> tuple[float, float, float]:
    return accuracy, -math.inf if loss is None else -loss, -value


def _finetune(
    data: StudyData,
    trial: Trial,
    learning_rate: float,
    out: Path,
    machine: Machine,
    on_step: Callable[[Progress], None],
) -> None:
    steps, epoch = trial_steps(data, trial)
    config, arm, sets = data.config.finetune, trial.arm, data.sets()
    seeds = Seeds.of(data.config.study.seed, trial.seed)
    start, is_long = _start(data, trial), arm.kind == "scratch-long"
    # A start brings its shape; dropout may be another than in pretraining, in every arm.
    shape = {} if start else _shape(data, arm.objective)
    if config.dropout is not None:
        shape["dropout"] = config.dropout
    every = epoch * max(1, -(-steps // (epoch * config.evaluations)))
    finetune(
        sets["train"], valid=sets["valid"], out=out, labels=trial.budget,
        labels_seed=seeds.labels, initial_seed=seeds.initial, seed=seeds.order, start=start,
        preset=data.config.study.preset, model=shape,
        tokenizer=None if start else data.tokenizer, pooling=config.pooling, length=config.length,
        batch=config.batch, r_drop=config.r_drop, freeze="base" if arm.kind == "frozen" else "nothing",
        optimizer=config.part(
            # New weights have nothing to lose in the lower layers.
            OptimizerConfig, learning_rate=learning_rate, layer_decay=config.layer_decay if start else 1.0
        ),
        schedule=config.part(Schedule), average=config.part(Averaging), steps=steps, evaluate_every=every, keep=0,
        unfreeze_every=_unfreeze_every(data, trial, steps),
        # So many epochs would only overfit: the long scratch ends with its best on valid.
        patience=10**9 if is_long else 0, best_metric="accuracy" if is_long else "loss",
        machine=machine, console=Console(on_step=on_step),
    )  # fmt: skip


def _unfreeze_every(data: StudyData, trial: Trial, steps: int) -> int:
    """The steps from one block to the next; 0 where nothing is frozen, or all of the base to the end."""
    share = data.config.finetune.unfreeze
    if not share or trial.arm.kind == "frozen" or _start(data, trial) is None:
        return 0
    stages = data.model_for(trial.arm.objective).depth + 1  # the embedding after the blocks
    return max(1, int(share * steps / stages))


def _start(data: StudyData, trial: Trial) -> Path | None:
    if trial.arm.kind == "imported":
        return Path(data.config.study.start)
    pretraining = Pretraining.of(trial, data.config.study)
    return data.base(pretraining) if pretraining else None


def _shape(data: StudyData, objective: PretrainObjective | None) -> dict[str, Any]:
    """The fields of the base, all of them: a preset's name alone does not say what a study overrides."""
    fields = dataclasses.asdict(data.model_for(objective))
    return {name: value for name, value in fields.items() if name not in ("vocab", "tokenizer")}


def _curve(run: Path, epoch: int) -> list[dict[str, float]]:
    valid = [r for r in MetricsFile(run / "metrics.jsonl").read() if r.get("event") == "valid"]
    return [{"epoch": r["step"] / epoch, "accuracy": r["accuracy"], "loss": r["loss"]} for r in valid]


def _tidy(data: StudyData, trial: Trial, chosen: float | None) -> None:
    """Weights and tokenizers of hundreds of trials would fill a disk; one run of each arm stays usable."""
    for run in data.trial_file(trial).parent.glob("lr-*"):
        shutil.rmtree(run / "best", ignore_errors=True)
        if not (data.keeps_model(trial) and run.name == f"lr-{chosen:g}"):
            for name in ("weights.safetensors", "tokenizer.json"):
                (run / name).unlink(missing_ok=True)
