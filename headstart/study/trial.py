"""One piece of a study, carried out in a process of its own: a pretraining, or a trial.

Each leaves a small file when it is finished (a run's result.json, a trial's trial.json); what has one is not done
again, and what was interrupted goes on as any run does. Nothing here reads a clock.
"""

import dataclasses
import hashlib
import io
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save as safetensors

from headstart.config.study import BASELINES, WITHOUT_STEPS, Metric
from headstart.config.training import Averaging, Masking, OptimizerConfig, PretrainObjective, Schedule
from headstart.data.labels import LabelMap
from headstart.data.splits import label_subset
from headstart.errors import IntegrityError, RunFailed
from headstart.inference.evaluate import labelled_outputs
from headstart.inference.predict import OnShare
from headstart.machine import Machine, choose
from headstart.runs.directory import RunDirectory, RunResult, finite
from headstart.runs.linear import features as linear_features
from headstart.runs.load import load
from headstart.storage import checksummed_json
from headstart.storage.atomic import atomic_write
from headstart.study.baselines import (
    BaselineResult,
    Choosing,
    fit_lsa,
    logistic_regression,
    majority,
    mix,
    tfidf,
)
from headstart.study.data import SETS, StudyData, lsa_texts, npz_bytes, read_npz, trial_operations, trial_steps
from headstart.study.design import MIXED, MIXES, Pretraining, Seeds, Trial
from headstart.study.frozen import RUN, VECTORS, FrozenBase
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
    """All phases, each from the one before; the last one is the base. One that is finished has to be the same run."""
    config, base = data.config, data.base(task)
    phases, before = config.pretrain, None
    steps = data.steps[task.objective]
    for number, phase in enumerate(phases):
        out = base if number == len(phases) - 1 else base.with_name(f"{base.name}-phase-{number + 1}")
        _refuse_another(out, steps[number])
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


def _refuse_another(path: Path, steps: int) -> None:
    """What pretraining would accept: a run that it could extend, or whose weights it would make again."""
    run = RunDirectory(path)
    if run.result_file.exists():
        load(path)
    if run.config_file.exists() and (before := run.read_config().loop.steps) != steps:
        raise IntegrityError(f"is of another study: it was started with {before:,} steps, not {steps:,}", where=path)


def run_trial(data: StudyData, trial: Trial, on_share: OnShare) -> None:
    """Carry a trial out and write its trial.json; one that is there is left alone."""
    file = data.trial_file(trial)
    if file.exists():
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    found = (_without_steps if trial.arm.kind in WITHOUT_STEPS else _neural)(data, trial, on_share)
    facts = {"arm": trial.arm.name, "budget": trial.budget, "seed": trial.seed, "status": "done", "error": None}
    facts |= {"operations": trial_operations(data, trial), **found}
    kept = (data.probabilities_file(trial), data.linear_file(trial))
    facts |= {"settings": data.trial_settings, "base": data.base_digest(trial)}
    facts["keeps_model"] = data.keeps_model(trial)
    facts["files"] = {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in kept if one.exists()}
    atomic_write(file, checksummed_json.dump(finite(facts)))
    _tidy(data, trial, found["chosen"])


def _without_steps(data: StudyData, trial: Trial, on_share: OnShare) -> dict[str, Any]:
    before = data.trials_before(trial)
    if trial.arm.kind in BASELINES and before and before[0].budget == trial.budget:
        return _repeated(data, trial, before[0])
    valid_labels = LabelMap(data.labels).ids(data.sets()["valid"])
    if trial.arm.kind in MIXES:
        result = mix([_probabilities(data, other) for other in before], valid_labels, data.metric)
    else:
        result = _baseline(data, trial, valid_labels)
    if trial.arm.kind in MIXED:
        _keep_probabilities(data, trial, result.valid, result.test)
    if data.keeps_model(trial) and trial.arm.kind == "frozen":
        out, pairs = data.trial_file(trial).with_name(RUN), data.sets()["train"].texts_b is not None
        size = float(_vectors(data, trial)["size"])
        _frozen_base(data, trial).write_run(result.arrays, size, data.labels, out, pairs=pairs)
    elif data.keeps_model(trial) and trial.arm.kind in ("tfidf", "lsa"):
        atomic_write(data.linear_file(trial), safetensors({n: _single(a) for n, a in result.arrays.items()}))
    return {
        "chosen": result.chosen, "steps": 0, "epochs": 0.0, "curve": [], "predictions": result.predictions.tolist(),
        "tries": [{"value": value, data.metric: reached, "loss": loss} for value, reached, loss in result.tries],
        **({"exponents": result.arrays["exponents"].tolist()} if trial.arm.kind in MIXES else {}),
    }  # fmt: skip


def _single(array: np.ndarray) -> np.ndarray:
    """In single precision, where it is in double."""
    return np.ascontiguousarray(array, np.float32 if array.dtype == np.float64 else array.dtype)


def _repeated(data: StudyData, trial: Trial, first: Trial) -> dict[str, Any]:
    """What another trial has found on the same rows."""
    if trial.arm.kind in MIXED:
        kept = data.read_trial_file(first, data.probabilities_file(first))
        atomic_write(data.probabilities_file(trial), kept)
    found = data.read_trial(first)
    return {name: found[name] for name in ("chosen", "steps", "epochs", "curve", "predictions", "tries")}


def _baseline(data: StudyData, trial: Trial, valid_labels: np.ndarray) -> BaselineResult:
    sets, classes = data.sets(), len(data.labels)
    seeds, train = Seeds.of(data.config.study.seed, trial.seed), sets["train"]
    # In the order of the file, so that the result depends on which rows they are alone.
    rows = sorted(label_subset(train.labels, train.whole_texts, trial.budget, seeds.labels))
    train_labels = LabelMap(data.labels).ids(train.subset(rows))
    how = Choosing(data.metric, data.config.finetune.class_weights)
    if trial.arm.kind == "majority":
        return majority(train_labels, len(sets["valid"]), len(sets["test"]), classes)
    labels = (train_labels, valid_labels, classes)
    if trial.arm.kind == "frozen":
        vectors = _vectors(data, trial)
        return logistic_regression(vectors["train"][rows], vectors["valid"], vectors["test"], *labels, how)
    if trial.arm.kind == "lsa":
        learnt, features = _lsa(data)
        result = logistic_regression(features["train"][rows], features["valid"], features["test"], *labels, how)
        return result._replace(arrays={**learnt, **result.arrays} if result.chosen else result.arrays)
    texts = {name: labelled.whole_texts for name, labelled in sets.items()}
    chosen = [texts["train"][row] for row in rows]
    return tfidf(chosen, train_labels, texts["valid"], valid_labels, texts["test"], classes, how)


def _lsa(data: StudyData) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """What LSA has learnt from the study's text, and the labelled texts by it; learnt once, and kept in lsa.npz."""
    file, facts = data.directory / "lsa.npz", data.facts["data"]
    content = np.array([one["sha256"] for one in (*(facts[name] for name in SETS), *facts["corpus"])])
    if not file.exists():
        arrays = fit_lsa(lsa_texts(data))
        for name, rows in data.sets().items():
            arrays[name] = np.hstack([np.zeros((len(rows), 0), np.float32), *linear_features(arrays, rows.whole_texts)])
        atomic_write(file, npz_bytes({**arrays, "content": content}))
    fix = "delete it: it is learnt again"
    kept = read_npz(file, fix)
    if not np.array_equal(kept.pop("content", np.array([])), content):
        raise IntegrityError("is of other text", where=file, fix=fix)
    features: dict[str, np.ndarray] = {name: kept.pop(name).astype(float) for name in SETS}
    return kept, features


def _frozen_base(data: StudyData, trial: Trial) -> FrozenBase:
    return FrozenBase(_base(data, trial), data.config.finetune.length, data.config.finetune.pooling)


def _vectors(data: StudyData, trial: Trial) -> dict[str, np.ndarray]:
    """What a trial's base makes of the labelled texts; made once, and kept beside the base."""
    base, fix = _frozen_base(data, trial), "delete it: it is made again"
    file = base.path / VECTORS
    rows = [data.facts["data"][name]["sha256"] for name in SETS]
    made_of = np.array([str(data.base_digest(trial)), *rows, str(base.length), str(base.pooling)])
    if not file.exists():
        atomic_write(file, npz_bytes({**base.vectors(data.sets(), machine_of(data)), "made_of": made_of}))
    kept = read_npz(file, fix)
    if not np.array_equal(kept.pop("made_of", made_of), made_of):
        raise IntegrityError("is of another base, or of other texts", where=file, fix=fix)
    return {name: table.astype(float) for name, table in kept.items()}


def _keep_probabilities(data: StudyData, trial: Trial, valid: np.ndarray, test: np.ndarray) -> None:
    tables = {"valid": valid.astype(np.float32), "test": test.astype(np.float32)}
    atomic_write(data.probabilities_file(trial), npz_bytes(tables))


def _probabilities(data: StudyData, trial: Trial) -> BaselineResult:
    kept = data.read_trial_file(trial, data.probabilities_file(trial))
    with np.load(io.BytesIO(kept)) as tables:
        return BaselineResult(tables["valid"].astype(float), tables["test"].astype(float), None, [])


def _neural(data: StudyData, trial: Trial, on_share: OnShare) -> dict[str, Any]:
    """Try every learning rate on the same rows in the same order, choose on valid, and only then look at test."""
    machine = machine_of(data)
    steps, epoch = trial_steps(data, trial)
    metric, tries = data.metric, list[TriedRun]()
    failure: RunFailed | None = None
    learning_rates = data.learning_rates_for(trial.arm)
    for number, learning_rate in enumerate(learning_rates):

        def on_step(progress: Progress, number: int = number) -> None:
            on_share((number + progress.step / progress.steps) / len(learning_rates))

        out = data.trial_file(trial).parent / f"lr-{learning_rate:g}"
        try:
            result = _finetune(data, trial, learning_rate, out, machine, on_step)
        except RunFailed as error:  # it diverged: this one has lost, the others have not
            failure = error
            tries.append(({"value": learning_rate, metric: 0.0, "loss": None}, [], out))
            continue
        curve = [
            {
                "epoch": one["step"] / epoch,
                **{name: one[name] for name in ("accuracy", "macro_f1", "loss") if name in one},
            }
            for one in result["evaluations"]
        ]
        # The long scratch ends with its best on valid, the others with their last.
        end = max(curve, key=lambda p: p[metric]) if trial.arm.kind == "scratch-long" else curve[-1]
        reached = {name: value for name, value in end.items() if name != "epoch"}
        tries.append(({"value": learning_rate, **reached}, curve, out))
    # The best on valid; among equals the lowest loss, then the lowest learning rate.
    best, curve, out = max(tries, key=lambda tried: _merit(tried[0], metric))
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


def _merit(tried: dict[str, Any], metric: Metric) -> tuple[float, float, float]:
    return tried[metric], -math.inf if tried["loss"] is None else -tried["loss"], -tried["value"]


def _finetune(
    data: StudyData,
    trial: Trial,
    learning_rate: float,
    out: Path,
    machine: Machine,
    on_step: Callable[[Progress], None],
) -> RunResult:
    steps, epoch = trial_steps(data, trial)
    config, arm, sets, metric = data.config.finetune, trial.arm, data.sets(), data.metric
    seeds = Seeds.of(data.config.study.seed, trial.seed)
    start, is_long = _start(data, trial), arm.kind == "scratch-long"
    # A start brings its shape; dropout may be another than in pretraining, in every arm.
    shape = {} if start else _shape(data, arm.objective)
    if config.dropout is not None:
        shape["dropout"] = config.dropout
    every = epoch * max(1, -(-steps // (epoch * config.evaluations)))
    return finetune(
        sets["train"], valid=sets["valid"], out=out, labels=trial.budget,
        labels_seed=seeds.labels, initial_seed=seeds.initial, seed=seeds.order, start=start,
        preset=data.config.study.preset, model=shape,
        tokenizer=None if start else data.tokenizer, pooling=config.pooling, length=config.length,
        batch=config.batch, class_weights=config.class_weights, r_drop=config.r_drop,
        optimizer=config.part(
            # New weights have nothing to lose in the lower layers.
            OptimizerConfig, learning_rate=learning_rate, layer_decay=config.layer_decay if start else 1.0
        ),
        schedule=config.part(Schedule), average=config.part(Averaging), steps=steps, evaluate_every=every, keep=0,
        unfreeze_every=_unfreeze_every(data, trial, steps),
        # So many epochs would only overfit: the long scratch ends with its best on valid.
        patience=10**9 if is_long else 0, best_metric=metric if is_long else "loss",
        valid_metrics=metric != "accuracy",
        machine=machine, console=Console(on_step=on_step),
    )  # fmt: skip


def _unfreeze_every(data: StudyData, trial: Trial, steps: int) -> int:
    """The steps from one block to the next; 0 where all of the base trains from the start."""
    share = data.config.finetune.unfreeze
    if not share or _start(data, trial) is None:
        return 0
    stages = data.model_for(trial.arm.objective).depth + 1  # the embedding after the blocks
    return max(1, int(share * steps / stages))


def _start(data: StudyData, trial: Trial) -> Path | None:
    if trial.arm.kind == "imported":
        return Path(data.config.study.start)
    return _base(data, trial) if Pretraining.of(trial, data.config.study) else None


def _base(data: StudyData, trial: Trial) -> Path:
    """The run of the pretraining that a trial starts from."""
    pretraining = Pretraining.of(trial, data.config.study)
    assert pretraining is not None, f"{trial.name} starts from no pretraining"
    return data.base(pretraining)


def _shape(data: StudyData, objective: PretrainObjective | None) -> dict[str, Any]:
    """The fields of the base, all of them: a preset's name alone does not say what a study overrides."""
    fields = dataclasses.asdict(data.model_for(objective))
    return {name: value for name, value in fields.items() if name not in ("vocab", "tokenizer")}


def _tidy(data: StudyData, trial: Trial, chosen: float | None) -> None:
    """Weights and tokenizers of hundreds of trials would fill a disk; one run of each arm stays usable."""
    for run in data.trial_file(trial).parent.glob("lr-*"):
        shutil.rmtree(run / "best", ignore_errors=True)
        if not (data.keeps_model(trial) and run.name == f"lr-{chosen:g}"):
            for name in ("weights.safetensors", "tokenizer.json"):
                (run / name).unlink(missing_ok=True)
