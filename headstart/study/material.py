"""What a study works on: labelled sets put in order, leaks looked for, a tokenizer, the model and its costs.

The labelled rows are written into the study's directory as they were read, so that every trial reads the same
plain files, whatever form and encoding the user's had; without --valid and --test a part of train is split off by
the hash of the text.
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from headstart.errors import UserError
from headstart.model.presets import HeadConfig, ModelConfig, preset
from headstart.plan.operations import Lengths, per_text
from headstart.plan.parameters import total
from headstart.study.design import (
    PRETRAINED,
    Pretraining,
    PretrainPart,
    StudyConfig,
    arms_of,
    rates_of,
    with_budgets,
)
from headstart.text.documents import Documents, pieces
from headstart.text.files import Reading, form_of
from headstart.text.fingerprints import fingerprint
from headstart.text.labelled import LabelledSet, read_labelled
from headstart.text.labels import LabelMap, class_counts
from headstart.text.leaks import find_leaks
from headstart.text.mixture import weighted_path
from headstart.text.normalising import in_order
from headstart.text.splits import split_by_hash
from headstart.text.tokenizer import Tokenizer
from headstart.text.tokenizer_training import train as train_tokenizer
from headstart.training.execute import Console
from headstart.training.finetune import refuse_other_pairs
from headstart.training.loading import load
from headstart.training.machine import Device, choose
from headstart.training.pretrain import CPU_BATCH_TOKENS, GPU_BATCH_TOKENS, PretrainObjective, planned_steps
from headstart.training.run_directory import DataConfig, RunDirectory, write_whole
from headstart.training.tokenizing import FRAME_ROLES

VALID_SHARE, TEST_SHARE = 0.1, 0.2
SETS = ("train", "valid", "test")
_COUNTED = {"document_count": "documents", "token_count": "tokens", "text_bytes": "text_bytes"}
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Material:
    """A study that is ready to be carried out: its settings resolved, its files in place. Plain data."""

    directory: Path
    config: StudyConfig
    model: ModelConfig
    labels: tuple[str, ...]
    rates: list[float]
    device: Device
    mean_tokens: float
    """Tokens of a labelled text, framed and cut, on average."""

    steps: dict[str, list[int]]
    """For each objective the steps of each phase of pretraining: those of equal compute."""

    facts: dict[str, Any]
    """What study.json says of the data."""

    def labelled(self, name: str) -> Path:
        return self.directory / "data" / f"{name}.jsonl"

    @property
    def tokenizer(self) -> Path:
        return self.directory / "tokenizer"

    def base(self, pretraining: Pretraining) -> Path:
        """The run of a pretraining."""
        return self.directory / "pretrain" / pretraining.name

    def model_for(self, objective: PretrainObjective | None) -> ModelConfig:
        """The base as this objective reads: its direction, and segments where it has pairs of sentences."""
        direction: Literal["causal", "bidirectional"] = "causal" if objective == "causal" else "bidirectional"
        segments = 2 if objective == "masked-nsp" else self.model.segments
        return dataclasses.replace(self.model, direction=direction, segments=segments)

    @property
    def head(self) -> HeadConfig:
        return HeadConfig(
            kind="classification", classes=len(self.labels), pooling=self.config.finetune.pooling or None
        )


def prepare(
    config: StudyConfig, overrides: dict[str, Any], directory: Path, device: Device, tell: Tell
) -> Material:
    """Read, check, split and write; the same files give the same material."""
    arms = arms_of(config.study)
    sets = _labelled_sets(config, directory, tell)
    labels = LabelMap.of(sets["train"])
    for labelled in sets.values():
        labels.refuse_unseen(labelled)
    study = with_budgets(config.study, len(sets["train"]), len(labels))
    for name, labelled in sets.items():
        _write_labelled(directory / "data" / f"{name}.jsonl", labelled)
    corpus = [path for phase in config.pretrain for path in phase.corpus]
    if not corpus and any(arm.kind in (*PRETRAINED, "scratch-long") for arm in arms):
        raise UserError(
            "nothing to pretrain on", fix="give --corpus, or a base with --start, or --demo plain"
        )
    machine = choose(device, study.precision, study.threads, fast=study.fast)
    if study.fast:
        for reason in machine.reasons:
            tell(reason)
    words = _tokenizer(config, directory, sets["train"], tell)
    model = _model(config, overrides, words)
    if sets["train"].texts_b is not None:
        model = _with_segments(model, config.study.start, tell)
    is_cpu = machine.device.type == "cpu"
    config = dataclasses.replace(
        config,
        study=dataclasses.replace(study, precision=machine.precision, fast=machine.is_fast),
        pretrain=[
            dataclasses.replace(
                phase,
                length=min(phase.length or model.context, model.context),
                batch_tokens=phase.batch_tokens or (CPU_BATCH_TOKENS if is_cpu else GPU_BATCH_TOKENS),
            )
            for phase in config.pretrain
        ],
        finetune=dataclasses.replace(
            config.finetune, length=min(config.finetune.length or model.context, model.context)
        ),
    )
    limit = config.finetune.length
    lengths = [min(limit, len(ids) + 2) for ids in words.encode_many(sets["train"].whole_texts)]
    facts = _facts(config, sets, corpus, labels, directory, tell)
    material = Material(
        directory, config, model, labels.labels, rates_of(config.finetune, model), device,
        float(np.mean(lengths)), {}, facts,
    )  # fmt: skip
    steps = _pretraining_steps(material, words, tell) if corpus else {}  # counts the corpus too
    facts["model"] = {
        "preset": "the start's" if config.study.start else config.study.preset,
        "parameters": total(material.model_for(arms[-1].objective), material.head),
        "vocab": model.vocab,
        "description": f"{model.depth} layers, {model.width} wide, {model.heads} heads, "
        f"feed-forward {model.ffn}, {model.positions} positions, a vocabulary of {model.vocab:,}",
    }
    return dataclasses.replace(material, steps=steps)


# ---- labelled rows ------------------------------------------------------------------------------------------


def _labelled_sets(config: StudyConfig, directory: Path, tell: Tell) -> dict[str, LabelledSet]:
    how, files = config.reading, config.finetune
    if not files.train:
        raise UserError("no labelled rows", fix="give --train (and --valid, --test), or --demo plain")

    def read(path: str) -> LabelledSet:
        return read_labelled(
            path, text_column=how.text_column, label_column=how.label_column,
            reading=Reading(how.encoding, how.errors), skip_bad_rows=how.skip_bad_rows,
        )  # fmt: skip

    sets = {"train": read(files.train)}
    for name, share in (("test", TEST_SHARE), ("valid", VALID_SHARE)):
        if given := getattr(files, name):
            sets[name] = read(given)
            continue
        rest = sets["train"]
        split = split_by_hash(rest.whole_texts, rest.labels, share, config.study.seed)
        sets |= {"train": rest.subset(split.kept), name: rest.subset(split.held_out)}
        tell(
            f"no --{name}: {len(split.held_out):,} rows of train are kept apart for it, by the hash of their text"
        )
    for name, labelled in sets.items():
        refuse_other_pairs(labelled, sets["train"].texts_b is not None, "the training rows are")
        if labelled.skipped.counts:
            tell(f"{name}: {labelled.skipped.summary()}")
    return {name: sets[name] for name in SETS}


def _write_labelled(path: Path, labelled: LabelledSet) -> None:
    lines = []
    for row, (text, label) in enumerate(zip(labelled.texts, labelled.labels, strict=True)):
        texts = (
            {"text": text} if labelled.texts_b is None else {"text_a": text, "text_b": labelled.texts_b[row]}
        )
        lines.append(json.dumps({**texts, "label": label}, ensure_ascii=False))
    data = ("\n".join(lines) + "\n").encode()
    if not path.exists() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)


# ---- the tokenizer, the model, the steps ----------------------------------------------------------------------


def _tokenizer(config: StudyConfig, directory: Path, train: LabelledSet, tell: Tell) -> Tokenizer:
    """The start's, a given one, the study's own from before, or one trained on the corpus; with all roles."""
    folder = directory / "tokenizer"
    # study.toml is written after the tokenizer, and the settings in it are checked next.
    if (directory / "study.toml").exists():
        return Tokenizer.load(folder)
    if config.study.start:
        words = load(config.study.start).tokenizer
    elif config.tokenizer.path:
        words = Tokenizer.load(config.tokenizer.path)
        if (asked := config.tokenizer.normalise) and words.normalise != in_order(asked):
            raise UserError(
                f"normalises {' and '.join(words.normalise) or 'nothing'}, and {' and '.join(asked)} is asked for",
                where=config.tokenizer.path,
                fix="leave normalise out of [tokenizer], or give another tokenizer",
            )
    else:
        how, vocab = config.reading, config.tokenizer.vocab
        tell(f"training a tokenizer of {vocab:,} tokens")
        trained = train_tokenizer(
            lambda: (
                piece.text
                for files, documents in _texts_once(config.pretrain)
                for piece in pieces(
                    files, documents=documents,
                    text_column=how.text_column, encoding=how.encoding, errors=how.errors,
                    skip_bad_rows=how.skip_bad_rows,
                )
            )
            if config.pretrain
            else iter(train.whole_texts),
            vocab=vocab,
            kind=config.tokenizer.kind,
            normalise=config.tokenizer.normalise,
        )  # fmt: skip
        for note in trained.notes:
            tell(note)
        words = trained.tokenizer
    if not config.study.start:  # a start's tokenizer is as it was trained with
        needs = {"causal"} if config.study.objectives == ["causal"] else {"causal", "masked"}
        roles = {role for frame in needs for role in FRAME_ROLES[frame]}
        for role in sorted(roles | ({"mask"} if "masked" in needs else set())):
            words, _ = words.with_role(role)  # type: ignore[arg-type]
    folder.mkdir(parents=True, exist_ok=True)
    words.save(folder)
    return words


def _texts_once(phases: list[PretrainPart]) -> list[tuple[list[str], Documents]]:
    """The files of each phase that no phase before it has, and what a document is in them."""
    seen: set[str] = set()
    found: list[tuple[list[str], Documents]] = []
    for phase in phases:
        paths = [weighted_path(path)[0] for path in phase.corpus]
        found.append(([path for path in paths if path not in seen], phase.documents))
        seen.update(paths)
    return [(files, documents) for files, documents in found if files]


def _model(config: StudyConfig, overrides: dict[str, Any], words: Tokenizer) -> ModelConfig:
    if config.study.start:
        given = {key: value for key, value in overrides.items() if value is not None}
        return dataclasses.replace(RunDirectory(config.study.start).read_config().model, **given)
    return preset(config.study.preset, **{**overrides, "vocab": words.size})


def _with_segments(model: ModelConfig, start: str, tell: Tell) -> ModelConfig:
    """Pairs of texts are told apart by segments: in all arms, or in none."""
    if not start:
        return dataclasses.replace(model, segments=max(2, model.segments))
    if not model.segments:
        tell("the start has no segments, which tell the texts of a pair apart: no arm has them")
    return model


def _pretraining_steps(material: Material, words: Tokenizer, tell: Tell) -> dict[str, list[int]]:
    """The first objective gets the epochs or steps that were asked for, the others as many operations."""
    config, first = material.config, material.config.study.objectives[0]
    steps: dict[str, list[int]] = {}
    for phase in config.pretrain:
        steps_in_epochs, stores = planned_steps(
            _data_config(config, phase), first, words, epochs=phase.epochs, length=phase.length,  # type: ignore[arg-type]
            batch_tokens=phase.batch_tokens, console=Console(tell),
        )  # fmt: skip
        asked = phase.steps or steps_in_epochs
        counted = material.facts["data"].setdefault("corpus_total", dict.fromkeys(_COUNTED.values(), 0))
        for store in stores:
            for of_header, name in _COUNTED.items():
                counted[name] += getattr(store.header, of_header)
        for objective in config.study.objectives:
            ratio = text_operations(material, first, phase) / text_operations(material, objective, phase)
            steps.setdefault(objective, []).append(max(1, round(asked * ratio)))
    return steps


def _data_config(config: StudyConfig, phase: PretrainPart) -> DataConfig:
    how, files = config.reading, [weighted_path(path) for path in phase.corpus]
    return DataConfig(
        corpus=[path for path, _ in files], weights=[weight for _, weight in files], valid=phase.valid,
        documents=phase.documents, text_column=how.text_column, encoding=how.encoding, errors=how.errors,
        skip_bad_rows=how.skip_bad_rows,
    )  # fmt: skip


def text_operations(material: Material, objective: str, phase: PretrainPart) -> int:
    """Forward and backward operations of pretraining on one block."""
    kinds = {"causal": "lm", "masked": "masked", "masked-nsp": "masked-nsp"}
    head = HeadConfig(kind=kinds[objective])  # type: ignore[arg-type]
    model, lengths = material.model_for(objective), Lengths(phase.length)  # type: ignore[arg-type]
    totals = per_text(model, head, lengths, masked_share=phase.mask_share)
    return totals.forward + totals.backward


# ---- what is said of the data -----------------------------------------------------------------------------------


def _facts(
    config: StudyConfig,
    sets: dict[str, LabelledSet],
    corpus: list[str],
    labels: LabelMap,
    directory: Path,
    tell: Tell,
) -> dict[str, Any]:
    paths = [weighted_path(path)[0] for path in corpus]
    files = [{"file": Path(path).name, "sha256": sha256_of(path)} for path in dict.fromkeys(paths)]
    leaks = _leaks(config, sets, list(dict.fromkeys(paths)), files, directory, tell)
    return {
        "data": {
            "corpus": [{**file, "documents": None, "tokens": None, "text_bytes": None} for file in files],
            **{
                name: {
                    "file": Path(getattr(config.finetune, name) or config.finetune.train).name,
                    "rows": len(labelled),
                    "classes": class_counts(labelled.labels),
                    "sha256": labelled.fingerprint,
                }
                for name, labelled in sets.items()
            },
            "labels": list(labels.labels),
            "leaks": leaks["counts"],
            "leaked_test_rows": len(leaks["test_rows"]),
        },
        "leaked_rows": leaks["test_rows"],
    }


def _leaks(
    config: StudyConfig,
    sets: dict[str, LabelledSet],
    corpus: list[str],
    files: list[dict[str, str]],
    directory: Path,
    tell: Tell,
) -> dict[str, Any]:
    """Texts that stand in two sets, or in a set and in the corpus; found once and kept."""
    key = hashlib.sha256(
        json.dumps([[s.fingerprint for s in sets.values()], [file["sha256"] for file in files]]).encode()
    ).hexdigest()
    kept = directory / "data" / "leaks.json"
    if kept.exists() and (found := json.loads(kept.read_bytes())).get("key") == key:
        return dict(found)
    tell("looking for texts that stand in two sets, or in the corpus")
    how, documents = config.reading, config.pretrain[0].documents if config.pretrain else "auto"
    stream = pieces(
        corpus, documents=documents, text_column=how.text_column, encoding=how.encoding,
        errors=how.errors, skip_bad_rows=how.skip_bad_rows,
    ) if corpus else None  # fmt: skip
    leaks = find_leaks({name: labelled.whole_texts for name, labelled in sets.items()}, stream)
    names = ["test_in_train", "test_in_valid", "valid_in_train", *(["test_in_corpus"] if corpus else [])]
    near = [f"near_{name}" for name in names]
    rows = {row for name in names if name.startswith("test_") for row in leaks.rows.get(name, [])}
    found = {
        "key": key,
        "counts": {name: leaks.counts.get(name, 0) for name in (*names, *near)},
        "test_rows": sorted(rows),
    }
    write_whole(kept, json.dumps(found).encode())
    return found


def sha256_of(path: str) -> str:
    """Of a file's bytes; of a dataset's folder, of those of its files."""
    if form_of(path) == "dataset":
        return fingerprint(path).sha256
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", where=path, fix="check the path") from error
