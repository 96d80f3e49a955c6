"""One piece of a study, carried out in a process of its own: a pretraining, or a trial.

Each leaves a small file when it is finished (a run's result.json, a trial's trial.json); what has one is not done
again, and what was interrupted goes on as any run does. Nothing here reads a clock.
"""

import contextlib
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from headstart.errors import RunFailed
from headstart.objectives.masked import Corruption
from headstart.study.baselines import majority, tfidf
from headstart.study.cost import pretraining_operations, trial_operations, trial_steps
from headstart.study.design import BASELINES, Pretraining, Seeds, Trial
from headstart.study.material import Material
from headstart.text.labelled import LabelledSet, read_labelled
from headstart.text.labels import LabelMap
from headstart.text.splits import label_subset
from headstart.training.budget import Budget
from headstart.training.execute import Console
from headstart.training.finetune import finetune
from headstart.training.loading import load
from headstart.training.loop import LoopConfig, Progress
from headstart.training.machine import Machine, choose
from headstart.training.metrics import MetricsFile
from headstart.training.optimizer import OptimizerConfig
from headstart.training.pretrain import PretrainObjective, pretrain
from headstart.training.run_directory import write_whole
from headstart.training.using import labelled_outputs

OnShare = Callable[[float], None]
# What a rate came to on valid, its curve there, and its run.
Try = tuple[dict[str, float | None], list[dict[str, float]], Path]


def _machine(material: Material) -> Machine:
    study = material.config.study
    return choose(material.device, study.precision, study.threads, fast=study.fast)


# ---- pretraining --------------------------------------------------------------------------------------------


def run_pretraining(material: Material, task: Pretraining, on_share: OnShare) -> None:
    """All phases, each from the one before; the last one is the base."""
    config, how = material.config, material.config.reading
    place = material.base(task)
    phases, before = config.pretrain, None
    steps = material.steps[task.objective]
    for number, phase in enumerate(phases):
        out = place if number == len(phases) - 1 else place.with_name(f"{place.name}-phase-{number + 1}")
        done, total = sum(steps[:number]), sum(steps)

        def on_step(progress: Progress, done: int = done, total: int = total) -> None:
            on_share((done + progress.step) / total)

        pretrain(
            phase.corpus, out=out, objective=task.objective, valid=phase.valid or None,
            preset_name=config.study.preset, overrides=_shape(material, task.objective),
            tokenizer=None if before else material.tokenizer, start=before,
            budget=Budget(steps=steps[number]), length=phase.length, batch_tokens=phase.batch_tokens,
            documents=phase.documents, text_column=how.text_column, encoding=how.encoding, errors=how.errors,
            skip_bad_rows=how.skip_bad_rows, shuffled=task.shuffled,
            optimizer=OptimizerConfig(
                optimizer=phase.optimizer, matrix_rate=phase.matrix_rate, weight_decay=phase.weight_decay
            ),
            corruption=Corruption.of(phase.mask_share, phase.mask_random, phase.mask_kept, phase.whole_words),
            learning_rate=phase.learning_rate or None,
            loop=LoopConfig(
                seed=Seeds.of(config.study.seed, task.seed).order, schedule=phase.schedule,
                warmup=phase.warmup, cooldown=phase.cooldown,
                evaluate_every=max(1, steps[number] // max(1, phase.evaluations)),
            ),
            machine=_machine(material), console=Console(on_step=on_step),
        )  # fmt: skip
        before = out
    for run in (place, *place.parent.glob(f"{place.name}-phase-*")):  # a finished base is its weights
        shutil.rmtree(run / "checkpoints", ignore_errors=True)


def pretraining_facts(material: Material, task: Pretraining) -> dict[str, Any]:
    """What study.json says of a finished pretraining: the loss over its steps, and what it cost."""
    place = material.base(task)
    result = json.loads((place / "result.json").read_bytes())
    records = [
        r for r in MetricsFile(place / "metrics.jsonl", lambda line: None).read() if r.get("event") == "valid"
    ]
    valid = result["valid"] or {}
    bits, loss = valid.get("bits_per_byte"), valid.get("loss")
    share = bits / loss if bits and loss else None  # the same text: bits per byte go with the loss
    curve = [
        {"step": r["step"], "loss": r["loss"], "bits_per_byte": r["loss"] * share if share else None}
        for r in records
        if r["loss"] is not None  # one that was not finite
    ]
    phases, steps = material.config.pretrain, material.steps[task.objective]
    return {
        "name": task.name, "objective": task.objective, "seed": task.seed, "shuffled": task.shuffled,
        "status": "done", "error": None, "steps": sum(steps),
        "tokens": sum(
            n * max(1, p.batch_tokens // p.length) * p.length for n, p in zip(steps, phases, strict=True)
        ),
        "operations": pretraining_operations(material, task.objective), "loss": loss, "bits_per_byte": bits,
        "curve": curve,
    }  # fmt: skip


# ---- trials -------------------------------------------------------------------------------------------------


def trial_file(material: Material, trial: Trial) -> Path:
    return material.directory / "trials" / trial.name / "trial.json"


def run_trial(material: Material, trial: Trial, on_share: OnShare) -> None:
    """Carry a trial out and write its trial.json; one that is there is left alone."""
    file = trial_file(material, trial)
    if file.exists():
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    found = (_baseline if trial.arm.kind in BASELINES else _neural)(material, trial, on_share)
    facts = {
        "arm": trial.arm.name,
        "budget": trial.budget,
        "seed": trial.seed,
        "status": "done",
        "error": None,
    }
    operations = trial_operations(material, trial)
    write_whole(file, json.dumps({**facts, "operations": operations, **found}).encode() + b"\n")
    _tidy(material, trial, found["rate"])


def _sets(material: Material) -> tuple[dict[str, LabelledSet], LabelMap]:
    sets = {name: read_labelled(material.labelled(name)) for name in ("train", "valid", "test")}
    return sets, LabelMap(material.labels)


def _baseline(material: Material, trial: Trial, on_share: OnShare) -> dict[str, Any]:
    sets, labels = _sets(material)
    seeds = Seeds.of(material.config.study.seed, trial.seed)
    train = sets["train"]
    train = train.subset(label_subset(train.labels, train.whole_texts, trial.budget, seeds.labels))
    targets = labels.ids(train)
    tries: list[dict[str, float]] = []
    if trial.arm.kind == "majority":
        predictions, rate = majority(targets, len(sets["test"])), None
    else:
        result = tfidf(
            train.whole_texts, targets, sets["valid"].whole_texts, labels.ids(sets["valid"]),
            sets["test"].whole_texts, seed=seeds.order,
        )  # fmt: skip
        predictions, rate = result.predictions, result.strength
        tries = [{"rate": c, "accuracy": accuracy, "loss": loss} for c, accuracy, loss in result.tries]
    return {
        "rate": rate, "tries": tries, "steps": 0, "epochs": 0.0, "curve": [],
        "predictions": np.asarray(predictions).tolist(),
    }  # fmt: skip


def _neural(material: Material, trial: Trial, on_share: OnShare) -> dict[str, Any]:
    """Try every rate on the same rows in the same order, choose on valid, and only then look at test."""
    machine = _machine(material)
    steps, epoch = trial_steps(material, trial)
    tries: list[Try] = []
    failure: RunFailed | None = None
    for number, rate in enumerate(material.rates):

        def on_step(progress: Progress, number: int = number) -> None:
            on_share((number + progress.step / progress.steps) / len(material.rates))

        out = trial_file(material, trial).parent / f"rate-{rate:g}"
        try:
            _finetune(material, trial, rate, steps, epoch, out, machine, on_step)
        except RunFailed as error:  # it diverged: this rate has lost, the others have not
            failure = error
            tries.append(({"rate": rate, "accuracy": 0.0, "loss": None}, [], out))
            continue
        curve = _curve(out, epoch)
        # The long scratch ends with its best on valid, the others with their last.
        end = max(curve, key=lambda p: p["accuracy"]) if trial.arm.kind == "scratch-long" else curve[-1]
        tries.append(({"rate": rate, "accuracy": end["accuracy"], "loss": end["loss"]}, curve, out))
    best, curve, out = max(tries, key=_merit)
    if failure is not None and not curve:
        raise failure
    sets, _ = _sets(material)
    outputs, _ = labelled_outputs(load(out, machine.device), sets["test"], machine)
    return {
        "rate": best["rate"], "tries": [t for t, _, _ in tries], "steps": steps, "epochs": steps / epoch,
        "curve": curve, "predictions": outputs.argmax(axis=1).tolist(),
    }  # fmt: skip


def _merit(tried: Try) -> tuple[float, float, float]:
    """The most accurate on valid; among equals the lowest loss, then the lowest rate."""
    facts, _, _ = tried
    loss = facts["loss"]
    return facts["accuracy"] or 0.0, -math.inf if loss is None else -loss, -(facts["rate"] or 0.0)


def _finetune(
    material: Material,
    trial: Trial,
    rate: float,
    steps: int,
    epoch: int,
    out: Path,
    machine: Machine,
    on_step: Callable[[Progress], None],
) -> None:
    config, arm = material.config.finetune, trial.arm
    seeds = Seeds.of(material.config.study.seed, trial.seed)
    start, is_long = _start(material, trial), arm.kind == "scratch-long"
    every = epoch * max(1, -(-steps // (epoch * config.evaluations)))
    finetune(
        material.labelled("train"), valid=material.labelled("valid"), out=out, labels=trial.budget,
        labels_seed=seeds.labels, initial_seed=seeds.initial, start=start,
        preset_name=material.config.study.preset,
        overrides=_overrides(material, arm.objective, start is not None),
        tokenizer=None if start else material.tokenizer, pooling=config.pooling or None,
        freeze="base" if arm.kind == "frozen" else "nothing", budget=Budget(steps=steps),
        length=config.length, batch=config.batch, r_drop=config.r_drop, learning_rate=rate,
        optimizer=OptimizerConfig(
            # First weights have nothing to lose in the lower layers.
            weight_decay=config.weight_decay, layer_decay=config.layer_decay if start else 1.0,
        ),
        loop=LoopConfig(
            seed=seeds.order, schedule=config.schedule, warmup=config.warmup, average=config.average,
            evaluate_every=every, keep=1, unfreeze_every=_unfreeze_every(material, trial, steps),
            # So many epochs would only overfit: the long scratch ends with its best on valid.
            patience=10**9 if is_long else 0,
            choose_by="accuracy" if is_long else "loss",
        ),
        machine=machine, console=Console(on_step=on_step),
    )  # fmt: skip


def _unfreeze_every(material: Material, trial: Trial, steps: int) -> int:
    """The steps from one block to the next; 0 where nothing is frozen, or all of the base to the end."""
    share = material.config.finetune.unfreeze
    if not share or trial.arm.kind == "frozen" or _start(material, trial) is None:
        return 0
    stages = material.model_for(trial.arm.objective).depth + 1  # the embedding after the blocks
    return max(1, int(share * steps / stages))


def _start(material: Material, trial: Trial) -> Path | None:
    if trial.arm.kind == "imported":
        return Path(material.config.study.start)
    pretraining = Pretraining.of(trial, material.config.study)
    return material.base(pretraining) if pretraining else None


def _shape(material: Material, objective: PretrainObjective | None) -> dict[str, Any]:
    """The fields of the base, all of them: a preset's name alone does not say what a study overrides."""
    own = {"vocab", "tokenizer"}
    fields = vars(material.model_for(objective))
    return {name: value for name, value in fields.items() if name not in own}


def _overrides(material: Material, objective: PretrainObjective | None, is_started: bool) -> dict[str, Any]:
    """Of fine-tuning: a start brings its shape; dropout may be another than in pretraining, in every arm."""
    dropout = material.config.finetune.dropout
    shape = {} if is_started else _shape(material, objective)
    return shape if dropout is None else {**shape, "dropout": dropout}


def _curve(run: Path, epoch: int) -> list[dict[str, float]]:
    records = MetricsFile(run / "metrics.jsonl", warn=lambda line: None).read()
    return [
        {"epoch": r["step"] / epoch, "accuracy": r["accuracy"], "loss": r["loss"]}
        for r in records
        if r.get("event") == "valid"
    ]


def _tidy(material: Material, trial: Trial, rate: float | None) -> None:
    """Weights and checkpoints of hundreds of trials would fill a disk; one run of each arm stays usable."""
    keeps = trial.budget == max(material.config.study.budgets) and trial.seed == 0
    for run in trial_file(material, trial).parent.glob("rate-*"):
        for folder in ("checkpoints", "best"):
            shutil.rmtree(run / folder, ignore_errors=True)
        if not (keeps and run.name == f"rate-{rate:g}"):
            with contextlib.suppress(FileNotFoundError):
                (run / "weights.safetensors").unlink()
