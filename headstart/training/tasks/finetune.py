"""Fine-tuning: a base, from a start or from scratch, under a head for labelled texts."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headstart.config.defaults import PRESET
from headstart.config.model import HeadConfig, ModelConfig
from headstart.config.presets import preset
from headstart.config.resolve import resolved
from headstart.config.run import DataConfig
from headstart.config.schema import fields_of, takes
from headstart.config.training import TRANSLATION_DEFAULTS, FinetuneSettings, MachineConfig, TranslationOptions
from headstart.data.in_memory import Given, sources_by_role
from headstart.data.labelled import LabelledSet, read_labelled, refuse_other_pairs
from headstart.data.labels import LabelMap
from headstart.data.readers.sources import Source
from headstart.data.warnings import data_warnings
from headstart.errors import UserError
from headstart.inference.evaluate import Scores, labelled_scores, with_corpus_metrics
from headstart.machine import Machine
from headstart.model.model import Model
from headstart.objectives.classification import classification_objective, evaluation_batch
from headstart.planning.base import PRESET as BASE_PRESET
from headstart.planning.base import SHAPELESS, SIZES, base_recipe
from headstart.runs.directory import RunResult
from headstart.runs.load import LoadedRun, load
from headstart.tokenizers.templates import template_of
from headstart.training.early_stopping import check_best_metric
from headstart.training.fit import Console, Session, TrainingTask, fit, run_config, run_session
from headstart.training.memory import first_model
from headstart.training.tasks import translation
from headstart.training.tasks.arguments import (
    Call,
    Sources,
    are_checked,
    call_of,
    default_out,
    read_sets,
    settings_of_call,
    tokenizer_for,
)


@takes(settings_of_call(FinetuneSettings, MachineConfig))
def finetune(
    train: Given | LabelledSet,
    *,
    valid: Given | LabelledSet | None = None,
    test: Given | LabelledSet | None = None,
    out: str | Path | None = None,
    machine: Machine | None = None,
    console: Console | None = None,
    override_resume: bool = False,
    **given: Any,
) -> RunResult:
    """Train a head, and the base under it, on labelled texts, or a translator on pairs; calling it again resumes.

    The rows are those of a file, or are in memory already: a frame, a dataset, a set that was read before; splits in
    one folder or DatasetDict as `train` are taken by their names (data/in_memory.py). Every setting of
    FinetuneSettings, field of ModelConfig and setting of the machine is a keyword, as on the command line. Returns the
    result.
    """
    task = given.get("task")
    call = call_of(FinetuneSettings, given, machine, TRANSLATION_DEFAULTS if task == "translation" else None)
    check(call.settings, given)
    sources = sources_by_role(train, valid, test)
    out = out or default_out("finetune", call, sources.values())
    make = translation.build if task == "translation" else build
    with run_session(out, call.machine, console or Console()) as session:
        return fit(make(call, sources, session), session, override_resume)


@takes(one for one in settings_of_call(FinetuneSettings, MachineConfig) if one.name != "task")
def train_translator(
    train: Given,
    *,
    valid: Given | None = None,
    test: Given | None = None,
    out: str | Path | None = None,
    **given: Any,
) -> RunResult:
    """Train an encoder-decoder on pairs: `finetune` with the task translation."""
    return finetune(train, valid=valid, test=test, out=out, task="translation", **given)


def check(settings: FinetuneSettings, given: Mapping[str, Any]) -> None:
    """Refuse what does not fit together, before anything is read."""
    task = settings.task
    check_best_metric(task, settings)
    of_others = (
        ("batch", "pooling", "freeze", "valid_share", "unfreeze_every", "text_column", "label_column", "valid_metrics")
        if task == "translation"
        else (*fields_of(TranslationOptions), "batch_tokens", "valid_bleu")
    )
    for setting in (fields_of(FinetuneSettings)[name] for name in of_others):
        if given.get(setting.name) is not None or getattr(settings, setting.name) != setting.default:
            fix = "leave it out" if task == "translation" else "leave it out, or give --task=translation"
            raise UserError(f"{setting.flag} with --task={task}", fix=fix, code="conflict")
    if settings.freeze == "base" and settings.start == "scratch":
        raise UserError("--freeze=base without --start", fix="only a pretrained base can be frozen", code="missing")
    if settings.freeze == "base" and settings.unfreeze_every:
        raise UserError("--freeze=base and --unfreeze-every at once", fix="give one of them", code="conflict")
    if settings.class_weights != "none" and task != "classification":
        fix = "leave it out: it is for classes, of which a text has one"
        raise UserError(f"--class-weights with --task={task}", fix=fix, code="conflict")
    if settings.r_drop and task not in ("classification", "translation"):
        fix = "leave it out: it is for classes and translation"
        raise UserError(f"--r-drop with --task={task}", fix=fix, code="conflict")


def build(call: Call[FinetuneSettings], sources: Sources, session: Session) -> TrainingTask:
    """Everything that a fine-tuning needs: its rows, tokenizer, model and objectives."""
    given, machine, console = call.settings, session.machine, session.console
    start = load(given.start) if given.start != "scratch" else None
    paths = {role: one.path if isinstance(one, LabelledSet) else str(one) for role, one in sources.items()}
    seed = given.seed if given.labels_seed == -1 else given.labels_seed
    data = given.part(DataConfig, **paths, labels_seed=seed)
    sets = _read_sets(sources, data, given, console)
    label_map = None if given.task == "regression" else LabelMap.of(sets["train"])
    if label_map is not None:
        for labelled in sets.values():  # what could never be predicted is known before training
            label_map.refuse_unseen(labelled)
    base = _base(call, start, sets["train"])
    frame_name = start.config.frame if start else ("causal" if base.direction == "causal" else "masked")
    texts = sets["train"].whole_texts
    tokenizer = tokenizer_for(session, given, start, lambda: iter(texts), frame_name, call.tokenizer)
    base = dataclasses.replace(base, vocab=tokenizer.size, tokenizer=tokenizer.fingerprint)
    given = resolved(given, given.task, base, machine.device.type)
    head = HeadConfig(kind=given.task, classes=len(label_map) if label_map else 1, pooling=given.pooling)
    sets = {name: labelled.tokenized(tokenizer) for name, labelled in sets.items()}
    template = template_of(tokenizer, frame_name)
    shared = label_map, tokenizer, template, given.length, head
    batches = dict.fromkeys(sets, evaluation_batch(given.batch, machine.device.type)) | {"train": given.batch}
    objectives = {
        name: classification_objective(labelled, *shared, batches[name], given.r_drop)
        for name, labelled in sets.items()
    }
    if given.class_weights == "balanced":
        objectives["train"].balance_classes()
    if "valid" not in objectives and (given.patience or given.evaluate_every):
        fix = "give valid rows, or a share of train to hold out"
        raise UserError("nothing to evaluate on", fix=fix, code="missing")
    # Loss and accuracy come with every evaluation, the others take a pass over valid of their own.
    if "valid" in objectives and (given.valid_metrics or given.best_metric not in ("loss", "accuracy")):
        valid = objectives["valid"]
        objectives["valid"] = with_corpus_metrics(valid, lambda model, on: labelled_scores(model, valid, on))
    if not are_checked(sources):
        special_tokens = template.cost_of(pairs=sets["train"].texts_b is not None)
        for name, warning in data_warnings(sets, given.length, special_tokens):
            console.log(f"{name}: {warning.message}")
    fingerprints = [sets[name].fingerprint[:16] for name in ("train", "valid") if name in sets]
    config = run_config(
        given, start, objectives["train"], objective=given.task, frame=frame_name, model=base,
        pairs=sets["train"].texts_b is not None, label_names=list(label_map.labels) if label_map else [],
        data=dataclasses.replace(data, fingerprint="+".join(fingerprints)),
    )  # fmt: skip
    model = first_model(config, machine, start, console.log)
    if given.freeze == "base":
        model.base.requires_grad_(False)

    def finish(model: Model, scores: Scores | None) -> dict[str, Any]:
        measured = [name for name in ("valid", "test") if name in objectives]
        return {
            **{name: labelled_scores(model, objectives[name], machine) for name in measured},
            "counts": {name: {"rows": len(labelled)} for name, labelled in sets.items()},
        }

    return TrainingTask(config, tokenizer, model, objectives["train"], objectives.get("valid"), finish)


def _read_sets(sources: Sources, data: DataConfig, given: FinetuneSettings, console: Console) -> dict[str, LabelledSet]:
    """The labelled sets, all of single texts or all of pairs."""

    def read(source: Source | LabelledSet) -> LabelledSet:
        if isinstance(source, LabelledSet):
            return source
        return read_labelled(source, data, task=given.task)  # type: ignore[arg-type]

    sets = read_sets(sources, read, lambda rows: (rows.whole_texts, rows.labels), given, console.log)
    for labelled in sets.values():
        refuse_other_pairs(labelled, sets["train"].texts_b is not None, "the training rows are")
    return sets


def _base(call: Call[FinetuneSettings], start: LoadedRun | None, train: LabelledSet) -> ModelConfig:
    """The start's base, or the preset's; a base from scratch that reads pairs of texts has segments."""
    if start is not None:
        return dataclasses.replace(start.config.model, **call.model)
    has_shape = call.settings.preset or call.model.keys() - SHAPELESS
    shape = {} if has_shape else base_recipe(SIZES[0], 0, 0).model  # that of a small study's arms from scratch
    config = preset(call.settings.preset or (PRESET if has_shape else BASE_PRESET), **{**shape, **call.model})
    needs_segments = train.texts_b is not None and not config.segments
    return dataclasses.replace(config, segments=2) if needs_segments else config
