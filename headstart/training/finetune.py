"""Fine-tuning: a base, from a start or from scratch, under a head for labelled texts."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from headstart.errors import UserError
from headstart.model.model import Model, transfer
from headstart.model.presets import HeadConfig, ModelConfig, Pooling, preset, usual_pooling
from headstart.objectives.classification import Classification, framed_texts, predict
from headstart.objectives.masked import Corruption
from headstart.objectives.twice import check_weight
from headstart.text.dataset_folders import Role
from headstart.text.files import Reading
from headstart.text.frames import Frame, frame_of
from headstart.text.in_memory import Given, sources_by_role
from headstart.text.labelled import LabelledSet, Task, read_labelled
from headstart.text.labels import LabelMap, label_warnings
from headstart.text.sources import Source
from headstart.text.splits import label_subset, split_by_hash
from headstart.text.tokenizer import Tokenizer
from headstart.training.batches import to_device
from headstart.training.budget import Budget
from headstart.training.choosing import check_choice
from headstart.training.evaluate import OnExamples, Scores
from headstart.training.execute import Console, execute, held
from headstart.training.loading import LoadedRun, load
from headstart.training.loop import LoopConfig
from headstart.training.machine import Machine, choose
from headstart.training.memory import first_model
from headstart.training.optimizer import OptimizerConfig
from headstart.training.run_directory import DataConfig, RunConfig, RunDirectory
from headstart.training.scores import SCORES
from headstart.training.tokenizing import DEFAULT_VOCAB, FRAME_ROLES, tokenizer_for

VALID_SHARE = 0.1
DEFAULT_EPOCHS = 10.0
DEFAULT_BATCH = 16
DEFAULT_PRESET = "tiny"
# Weights that know something already want to be moved less.
SCRATCH_RATE, START_RATE = 1e-3, 3e-4


def finetune(
    train: Given | LabelledSet,
    *,
    out: str | Path,
    task: Task = "classification",
    valid: Given | LabelledSet | None = None,
    valid_share: float = VALID_SHARE,
    test: Given | LabelledSet | None = None,
    labels: int | None = None,
    labels_seed: int | None = None,
    start: str | Path | None = None,
    preset_name: str = DEFAULT_PRESET,
    overrides: dict[str, Any] | None = None,
    tokenizer: str | Path | Tokenizer | None = None,
    vocab: int = DEFAULT_VOCAB,
    pooling: Pooling | None = None,
    freeze: Literal["nothing", "base"] = "nothing",
    budget: Budget | None = None,
    length: int | None = None,
    batch: int = DEFAULT_BATCH,
    r_drop: float = 0.0,
    text_column: str = "text",
    label_column: str = "label",
    encoding: str = "utf-8",
    errors: str = "strict",
    skip_bad_rows: bool = False,
    optimizer: OptimizerConfig | None = None,
    learning_rate: float | None = None,
    loop: LoopConfig | None = None,
    initial_seed: int | None = None,
    machine: Machine | None = None,
    override_resume: bool = False,
    console: Console | None = None,
) -> dict[str, Any]:
    """Train a head, and the base under it, on labelled texts; calling it again goes on. Returns the result.

    The rows are those of a file, or are in memory already: a frame, a dataset, a set that was read before; splits in
    one folder or DatasetDict as `train` are taken by their names (text/in_memory.py). Without `valid` a share of
    train is held out to measure by; with a share of 0 nothing is.

    The loop's seed is that of the order and of dropout; the first weights and the choice of labels have it too,
    unless they are given seeds of their own.
    """
    machine, console, budget = machine or choose(), console or Console(), budget or Budget()
    loop, optimizer = loop or LoopConfig(), optimizer or OptimizerConfig()
    rate = learning_rate or (SCRATCH_RATE if start is None else START_RATE)
    optimizer = dataclasses.replace(optimizer, learning_rate=rate)
    check_choice(task, loop.choose_by, loop.patience, loop.evaluate_every)
    if freeze == "base" and start is None:
        raise UserError(
            "--freeze base without --start", fix="only a base that has learned something can be frozen"
        )
    if freeze == "base" and loop.unfreeze_every:
        raise UserError("--freeze base and --unfreeze-every at once", fix="give one of them")
    if r_drop and task != "classification":
        raise UserError(f"--r-drop with {task}", fix="leave it out: it compares the classes of two readings")
    check_weight(r_drop)
    run = RunDirectory(out)
    with held(run, machine, console) as console:
        begun = load(start) if start is not None else None
        given = sources_by_role(train, valid, test)
        names = {role: _name(source) for role, source in given.items()}
        data = DataConfig(
            train=names["train"], valid=names.get("valid", ""), test=names.get("test", ""), labels=labels or 0,
            labels_seed=loop.seed if labels_seed is None else labels_seed, text_column=text_column,
            label_column=label_column, encoding=encoding, errors=errors, skip_bad_rows=skip_bad_rows,
        )  # fmt: skip
        sets = _read_sets(given, data, task, valid_share, loop.seed, console)
        label_map = None if task == "regression" else LabelMap.of(sets["train"])
        if label_map is not None:
            for labelled in sets.values():  # what could never be predicted is known before training
                label_map.refuse_unseen(labelled)
        shape = _shape(preset_name, overrides or {}, begun, sets["train"])
        frame_name = begun.config.frame if begun else ("causal" if shape.direction == "causal" else "masked")
        words = tokenizer_for(
            run, tokenizer, vocab, begun, lambda: iter(sets["train"].whole_texts), FRAME_ROLES[frame_name],
            console.tell, machine.ranks,
        )  # fmt: skip
        config = dataclasses.replace(shape, vocab=words.size, tokenizer=words.fingerprint)
        frame = frame_of(words, frame_name)
        length = min(length or config.context, config.context)
        pooling = pooling or usual_pooling(config)
        head = HeadConfig(kind=task, classes=len(label_map) if label_map else 1, pooling=pooling)
        goals = {
            name: make_objective(labelled, label_map, words, frame, length, head, batch, r_drop)
            for name, labelled in sets.items()
        }
        if "valid" not in goals and (loop.patience or loop.evaluate_every):
            raise UserError("nothing to measure by", fix="give valid rows, or a share of train to hold out")
        if "valid" in goals and loop.choose_by not in ("loss", "accuracy"):  # which come with the loss
            goals["valid"] = Scored(goals["valid"])
        if goals["train"].truncated_share:
            console.tell(
                f"{goals['train'].truncated_share:.1%} of the training texts are cut at {length} tokens"
            )
        steps = budget.steps_for(goals["train"], loop.seed, DEFAULT_EPOCHS)
        settings = RunConfig(
            objective=task,
            start=begun.digest if begun else "scratch",
            frame=frame_name,
            length=length,
            batch=batch,
            minutes=budget.minutes or 0.0,
            pairs=sets["train"].texts_b is not None,
            initial_seed=loop.seed if initial_seed is None else initial_seed,
            freeze=freeze,
            labels=list(label_map.labels) if label_map else [],
            r_drop=r_drop,
            data=dataclasses.replace(
                data, fingerprint="+".join(sets[n].fingerprint[:16] for n in ("train", "valid") if n in sets)
            ),
            model=config,
            head=head,
            optimizer=optimizer,
            loop=dataclasses.replace(loop, steps=steps),
            corruption=Corruption(),
        )
        model = first_model(settings, machine)
        if begun is not None:
            audit = transfer(dict(begun.model.named_parameters()), begun.config.model, model)
            console.tell(f"started from {begun.path}\n{audit}")
        if freeze == "base":
            model.base.requires_grad_(False)

        def finish(model: Model, scores: Scores | None) -> dict[str, Any]:
            found: dict[str, Any] = {
                name: score(model, goals[name], machine, task) for name in ("valid", "test") if name in goals
            }
            return {**found, "counts": {name: {"rows": len(labelled)} for name, labelled in sets.items()}}

        return execute(
            run, settings, words, model, goals["train"], goals.get("valid"), machine, console,
            override=override_resume, finish=finish,
        )  # fmt: skip


def make_objective(
    labelled: LabelledSet,
    label_map: LabelMap | None,
    tokenizer: Tokenizer,
    frame: Frame,
    length: int,
    head: HeadConfig,
    batch: int,
    r_drop: float = 0.0,
) -> Classification:
    """The objective over a labelled set."""
    if label_map is None:
        targets = np.array(labelled.labels, np.float32)
    else:
        targets = label_map.ids(labelled)
    examples = framed_texts(labelled, tokenizer, frame, length)
    return Classification(examples, targets, head, batch, tokenizer.id_of("pad"), r_drop)


class Scored(Classification):
    """An objective whose every evaluation gives the task's own measures too, to choose by one of them."""

    def __init__(self, known: Classification) -> None:
        super().__init__(known.examples, known.targets, known.head, known.batch, known.pad_id)

    def whole_scores(self, model: Model, machine: Machine) -> dict[str, float]:
        return dict(SCORES[self.head.kind](outputs_of(model, self, machine), self.targets))


@torch.inference_mode()
def outputs_of(
    model: Model, objective: Classification, machine: Machine, on_examples: OnExamples = lambda count: None
) -> np.ndarray:
    """Probabilities, or values, for every example, in the order of the set: (examples, classes)."""
    model.to(machine.device).eval()
    found = np.zeros((len(objective.examples), objective.head.classes), np.float32)
    for batch in objective.evaluation():
        with machine.autocast():
            outputs = predict(model, to_device(batch, machine.device)).float()
        if objective.head.kind == "classification":
            outputs = outputs.softmax(dim=-1)
        elif objective.head.kind == "multilabel":
            outputs = outputs.sigmoid()
        found[batch["rows"]] = outputs.cpu().numpy()
        on_examples(len(batch["rows"]))
    return found


def score(model: Model, objective: Classification, machine: Machine, task: Task) -> dict[str, float]:
    """The task's measures over a set."""
    return dict(SCORES[task](outputs_of(model, objective, machine), objective.targets))


def _name(given: Source | LabelledSet) -> str:
    return given.path if isinstance(given, LabelledSet) else str(given)


def _read_sets(
    given: Mapping[Role, Source | LabelledSet],
    data: DataConfig,
    task: Task,
    valid_share: float,
    seed: int,
    console: Console,
) -> dict[str, LabelledSet]:
    """Train, valid and perhaps test; without --valid a part of train is split off by the hash of the text."""

    def read(source: Source | LabelledSet) -> LabelledSet:
        if isinstance(source, LabelledSet):
            return source
        return read_labelled(
            source, task=task, text_column=data.text_column, label_column=data.label_column,
            reading=Reading(data.encoding, data.errors), skip_bad_rows=data.skip_bad_rows,
        )  # fmt: skip

    whole = read(given["train"])
    sets = {"train": whole}
    if "valid" in given:
        sets["valid"] = read(given["valid"])
    elif valid_share:
        split = split_by_hash(whole.whole_texts, whole.labels, valid_share, seed)
        sets = {"train": whole.subset(split.kept), "valid": whole.subset(split.held_out)}
    if data.labels:
        chosen = label_subset(sets["train"].labels, sets["train"].whole_texts, data.labels, data.labels_seed)
        sets["train"] = sets["train"].subset(chosen)
    if "test" in given:
        sets["test"] = read(given["test"])
    for name, labelled in sets.items():
        refuse_other_pairs(labelled, sets["train"].texts_b is not None, "the training rows are")
        if labelled.skipped.counts:
            console.tell(f"{name}: {labelled.skipped.summary()}")
        for warning in label_warnings(labelled):
            console.tell(f"{name}: {warning.message}")
    return sets


def refuse_other_pairs(labelled: LabelledSet, are_pairs: bool, what: str) -> None:
    """Refuse single texts where pairs are wanted, and the reverse."""
    if (labelled.texts_b is not None) != are_pairs:
        single, pairs = "single texts", "pairs of texts"
        raise UserError(
            f"holds {single if are_pairs else pairs}, and {what} {pairs if are_pairs else single}",
            where=labelled.path,
            fix="give columns text_a and text_b" if are_pairs else "give one column of texts",
        )


def _shape(
    preset_name: str, overrides: dict[str, Any], begun: LoadedRun | None, train: LabelledSet
) -> ModelConfig:
    """The start's base, or the preset's; a base from scratch that reads pairs of texts has segments."""
    given = {key: value for key, value in overrides.items() if value is not None}
    if begun is not None:
        return dataclasses.replace(begun.config.model, **given)
    config = preset(preset_name, **given)
    needs_segments = train.texts_b is not None and not config.segments
    return dataclasses.replace(config, segments=2) if needs_segments else config
