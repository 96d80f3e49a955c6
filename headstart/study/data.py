"""What a study works on: labelled sets put in order, leaks looked for, a tokenizer, the model and its costs.

The labelled rows are written into the study's directory as they were read, so that every trial reads the same
plain files, whatever form and encoding the user's had; without --valid and --test a part of train is split off by
the hash of the text.
"""

import contextlib
import dataclasses
import functools
import hashlib
import io
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, cast

import numpy as np

from headstart.config.defaults import PRETRAIN_BATCH_TOKENS, TEST_SHARE, VALID_SHARE
from headstart.config.model import HeadConfig, ModelConfig
from headstart.config.presets import preset
from headstart.config.reading import Reading
from headstart.config.run import DataConfig
from headstart.config.study import BASELINES, PRETRAINED, WITHOUT_STEPS, Metric, PretrainPart, StudyConfig
from headstart.config.training import PretrainObjective
from headstart.data.fingerprints import fingerprint
from headstart.data.labelled import LabelledSet, read_labelled, refuse_other_pairs
from headstart.data.labels import LabelMap, class_counts
from headstart.data.leakage.find import find_leaks
from headstart.data.readers.documents import Piece, pieces
from headstart.data.readers.sources import Source, SplitName, form_of, weighted_path
from headstart.data.splits import nothing_held_out, split_by_hash, with_held_out
from headstart.data.warnings import data_warnings
from headstart.errors import IntegrityError, Log, UserError
from headstart.machine import Device, choose
from headstart.planning.operations import per_text
from headstart.planning.parameters import total
from headstart.planning.workload import Lengths
from headstart.runs.directory import RunDirectory
from headstart.runs.load import load
from headstart.storage import checksummed_json
from headstart.storage.atomic import atomic_write
from headstart.study.design import (
    HEADS,
    MIXES,
    Arm,
    Pretraining,
    Trial,
    arms_of,
    learning_rates_for,
    learning_rates_of,
    metric_of,
    steps_of,
    with_budgets,
)
from headstart.tokenizers.huggingface import in_order
from headstart.tokenizers.tokenizer import Tokenizer
from headstart.tokenizers.training import train as train_tokenizer
from headstart.training.fit import Console
from headstart.training.tasks.arguments import FRAME_ROLES
from headstart.training.tasks.pretrain import planned_steps

SETS: tuple[SplitName, ...] = ("train", "valid", "test")
TRAIN_TEXTS = "data/train-texts.jsonl"
LSA_CHARACTERS = 20_000_000  # of more a sample: so many take a minute of one core, and 1.5 GB
_COUNTED = {"document_count": "documents", "token_count": "tokens", "text_bytes": "text_bytes"}
Sets = dict[str, LabelledSet]


@dataclass(frozen=True)
class StudyData:
    """A study that is ready to be carried out: its settings resolved, its files in place. Plain data."""

    directory: Path
    config: StudyConfig
    model: ModelConfig
    labels: tuple[str, ...]
    learning_rates: list[float]
    device: Device
    mean_tokens: float  # tokens of a labelled text, framed and cut, on average
    steps: dict[str, list[int]]
    """For each objective the steps of each phase of pretraining: those of equal compute."""

    facts: dict[str, Any]  # what study.json says of the data

    def labelled(self, name: str) -> Path:
        return self.directory / "data" / f"{name}.jsonl"

    def sets(self) -> Sets:
        """The labelled sets with their token ids: read once in a process, and tokenized once in a study."""
        contents = tuple(self.facts["data"][name]["sha256"] for name in SETS)
        return _tokenized_sets(self.directory / "data", Tokenizer.load(self.tokenizer).fingerprint, contents)

    @property
    def tokenizer(self) -> Path:
        return self.directory / "tokenizer"

    def corpus_of(self, phase: PretrainPart) -> list[str]:
        """What a phase of pretraining reads."""
        return [*phase.corpus, *([str(self.directory / TRAIN_TEXTS)] if phase.labelled_texts else [])]

    def base(self, pretraining: Pretraining) -> Path:
        """The run of a pretraining."""
        return self.directory / "pretrain" / pretraining.name

    def trial_file(self, trial: Trial) -> Path:
        return self.directory / "trials" / trial.name / "trial.json"

    def read_trial(self, trial: Trial) -> dict[str, Any]:
        """What a trial that is done has found."""
        file = self.trial_file(trial)
        found = checksummed_json.read(file, self._fix(trial))
        if [found.get(name) for name in ("arm", "budget", "seed")] != [trial.arm.name, trial.budget, trial.seed]:
            raise self._damaged(trial, file, "is of another trial")
        known = found.get("settings", {})
        if others := [name for name, value in self.trial_settings.items() if known.get(name, value) != value]:
            raise self._damaged(trial, file, f"is of another study, with other {', '.join(others[:5])}")
        return found

    @property
    def trial_settings(self) -> dict[str, Any]:
        """What every trial of the study hangs on, as JSON has it; files by what is in them."""
        data, study = self.facts["data"], self.config.study
        settings: dict[str, Any] = {"seed": study.seed, "precision": study.precision, "metric": self.metric}
        settings |= {name: data[name]["sha256"] for name in SETS}
        settings["corpus"] = [file["sha256"] for file in data["corpus"]]
        settings |= {f"model.{name}": value for name, value in dataclasses.asdict(self.model).items()}
        tuning = dataclasses.asdict(self.config.finetune).items()
        settings |= {f"finetune.{name}": value for name, value in tuning if name not in SETS}
        return cast(dict[str, Any], json.loads(json.dumps(settings)))

    def base_digest(self, trial: Trial) -> str | None:
        """The sha256 over the weights of the base that a trial starts from, if the study has made one."""
        pretraining = Pretraining.of(trial, self.config.study)
        result = RunDirectory(self.base(pretraining)).read_result() if pretraining else None
        return result["weights_sha256"] if result else None

    def has_other_base(self, trial: Trial) -> bool:
        """Whether a trial that is done has started from other weights than its base has now."""
        if not self.trial_file(trial).exists() or (digest := self.base_digest(trial)) is None:
            return False
        return (self.read_trial(trial).get("base") or digest) != digest

    def refuse_other_bases(self, trials: Iterable[Trial]) -> None:
        """Name all trials to delete, where the base is the study's own and they are not of it."""
        with self.redone_if_damaged():
            others = [self.trial_file(trial) for trial in trials if self.has_other_base(trial)]
        if others:
            fix = f"delete {', '.join(str(file.parent) for file in others)}: the same command does it again"
            raise IntegrityError("started from another base than the study has", where=others[0], fix=fix)

    def read_trial_file(self, trial: Trial, file: Path) -> bytes:
        """What a trial keeps besides, as its trial.json knows it."""
        self.refuse_missing(trial, file)
        content = file.read_bytes()
        if hashlib.sha256(content).hexdigest() != self.read_trial(trial)["files"].get(file.name):
            raise self._damaged(trial, file, "is not what was written")
        return content

    def refuse_missing(self, trial: Trial, file: Path) -> None:
        """What a trial has kept has to be there."""
        if not file.exists():
            raise self._damaged(trial, file, "is missing")

    def _damaged(self, trial: Trial, file: Path, what: str) -> IntegrityError:
        return IntegrityError(what, where=file, fix=self._fix(trial))

    def _fix(self, trial: Trial) -> str:
        return f"delete {self.trial_file(trial).parent}: the same command does the trial again"

    @contextlib.contextmanager
    def redone_if_damaged(self) -> Iterator[None]:
        """Within `with`, a run of the study that cannot be used is an IntegrityError with the directory to delete."""
        try:
            yield
        except (IntegrityError, UserError) as error:
            is_damage = isinstance(error, IntegrityError) or error.code in ("changed", "missing", "not-a-run")
            run = self._run_around(Path(error.where))
            if not is_damage or run is None:
                raise
            fix = f"delete {run}: the same command does it again"
            raise IntegrityError(error.what, where=error.where, fix=fix, code=error.code) from error

    def _run_around(self, path: Path) -> Path | None:
        """The directory of the pretraining or trial that a path is of."""
        folders = self.directory / "pretrain", self.directory / "trials"
        return next((one for one in (path, *path.parents) if one.parent in folders), None)

    def probabilities_file(self, trial: Trial) -> Path:
        """What a trial that others take keeps on valid and test; it is there before trial.json is."""
        return self.trial_file(trial).with_name("probabilities.npz")

    def linear_file(self, trial: Trial) -> Path:
        """The logistic regression of a trial, if it is one whose model is kept."""
        return self.trial_file(trial).with_name("linear.safetensors")

    def keeps_model(self, trial: Trial) -> bool:
        """Whether a trial's weights stay: of the first seed with the most labels, for the study's model."""
        return trial.budget == max(self.config.study.budgets) and trial.seed == 0

    def learning_rates_for(self, arm: Arm) -> list[float]:
        """The learning rates that an arm tries on valid."""
        return learning_rates_for(arm, self.config.finetune, self.learning_rates)

    def trials_before(self, trial: Trial) -> list[Trial]:
        """The trials that this one takes something from.

        With all rows a baseline is the same for every seed: seed 0 computes it and the others take its result, so
        that every arm has a row for each seed in the paired statistics. What LSA learns from the text, and what a base
        makes of it, is the same in all trials: the first one computes it. A mix takes the probabilities of the arms in
        it.
        """
        kind, rows = trial.arm.kind, self.facts["data"]["train"]["rows"]
        if kind in MIXES:
            arms = [arm for arm in arms_of(self.config.study) if arm.kind in MIXES[kind]]
            arms = [arm for arm in arms if arm.objective in (None, trial.arm.objective)]
            return [trial._replace(arm=arm) for arm in arms]
        if kind in BASELINES and trial.budget == rows and trial.seed:
            return [trial._replace(seed=0)]
        if kind not in ("lsa", "frozen"):
            return []
        seed = trial.seed % self.config.study.pretrain_seeds if kind == "frozen" else 0
        first = Trial(trial.arm, max(self.config.study.budgets), seed)
        return [first] if first != trial else []

    def makes_vectors(self, trial: Trial) -> bool:
        """Whether it is the trial in which a base reads the labelled texts for the frozen arm."""
        return trial.arm.kind == "frozen" and not self.trials_before(trial)

    def model_for(self, objective: PretrainObjective | None) -> ModelConfig:
        """The base as this objective reads: its direction, and segments where it has pairs of sentences."""
        direction: Literal["causal", "bidirectional"] = "causal" if objective == "causal" else "bidirectional"
        segments = 2 if objective == "masked-nsp" else self.model.segments
        return dataclasses.replace(self.model, direction=direction, segments=segments)

    @property
    def metric(self) -> Metric:
        """What is chosen by on valid, and compared by on test."""
        return metric_of(self.config.study, self.facts["data"]["train"]["classes"])

    @property
    def head(self) -> HeadConfig:
        pooling = self.config.finetune.pooling or None
        return HeadConfig(kind="classification", classes=len(self.labels), pooling=pooling)


def prepare(
    config: StudyConfig, overrides: dict[str, Any], directory: Path, device: Device, log: Log, sets: Sets | None = None
) -> StudyData:  # fmt: skip
    """Check, tokenize and write; the same files give the same data. `sets` are the labelled rows, if they are read."""
    arms, sets = arms_of(config.study), sets or labelled_sets(config, log)
    labels = LabelMap.of(sets["train"])
    study = with_budgets(config.study, len(sets["train"]), len(labels))
    metric = metric_of(study, class_counts(sets["train"].labels))
    if metric != study.metric and metric != "accuracy":
        log("a class is rare: arms are compared and chosen by macro-F1 (--metric accuracy: by accuracy)")
    for name, labelled in sets.items():
        _write_labelled(directory / "data" / f"{name}.jsonl", labelled)
    if any(phase.labelled_texts for phase in config.pretrain):  # under the name that the corpus is read by
        column = config.reading.text_column or "text"
        lines = [json.dumps({column: text}) for text in sets["train"].whole_texts]
        write_changed(directory / TRAIN_TEXTS, ("\n".join(lines) + "\n").encode("ascii"))  # whatever the encoding is
    corpus = [path for phase in config.pretrain for path in phase.corpus]
    if not corpus and any(arm.kind in (*PRETRAINED, "scratch-long") for arm in arms):
        fix = "give --corpus, or a base with --start, or --demo=plain"
        raise UserError("nothing to pretrain on", fix=fix, code="missing")
    machine = choose(device, study.precision, study.threads, fast=study.fast)
    if study.fast:
        for reason in machine.reasons:
            log(reason)
    tokenizer = _tokenizer(config, directory, sets["train"], log)
    model = _model(config, overrides, tokenizer)
    if sets["train"].texts_b is not None:  # pairs are told apart by segments: in all arms, or in none
        if not config.study.start:
            model = dataclasses.replace(model, segments=max(2, model.segments))
        elif not model.segments:
            log("the start has no segments, which tell the texts of a pair apart: no arm has them")
    most, default = model.context, PRETRAIN_BATCH_TOKENS[machine.device.type]
    config = dataclasses.replace(
        config,
        study=dataclasses.replace(study, precision=machine.precision, fast=machine.is_fast, metric=metric),
        pretrain=[
            dataclasses.replace(p, length=min(p.length or most, most), batch_tokens=p.batch_tokens or default)
            for p in config.pretrain
        ],
        finetune=dataclasses.replace(config.finetune, length=min(config.finetune.length or most, most)),
    )
    sets = {name: labelled.tokenized(tokenizer) for name, labelled in sets.items()}
    _write_tokens(directory / "data" / "tokens.npz", sets)
    ids, rows, limit = sets["train"].token_ids or [], len(sets["train"]), config.finetune.length
    lengths = [min(limit, sum(map(len, ids[row::rows])) + 2) for row in range(rows)]
    facts = _facts(config, sets, corpus, labels, directory, log)
    for line in facts["data"]["warnings"]:
        log(line)
    data = StudyData(
        directory, config, model, labels.labels, learning_rates_of(config.finetune, model), device,
        float(np.mean(lengths)), {}, facts,
    )  # fmt: skip
    data = with_steps(data, _asked_steps(data, tokenizer, log)) if corpus else data
    facts["model"] = {
        "preset": "the start's" if config.study.start else config.study.preset,
        "parameters": total(data.model_for(arms[-1].objective), data.head),
        "vocab": model.vocab,
        "description": f"{model.depth} layers, {model.width} wide, {model.heads} heads, "
        f"feed-forward {model.ffn}, {model.positions} positions, a vocabulary of {model.vocab:,}",
    }
    return data


# ---- labelled rows ------------------------------------------------------------------------------------------


def write_changed(path: Path, data: bytes) -> None:
    """What is there already stays as it is."""
    if not path.exists() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, data)


def labelled_sets(config: StudyConfig, log: Log, tables: Mapping[SplitName, Source] = MappingProxyType({})) -> Sets:
    """Train, valid and test from their files, or from tables in memory; what is not given is split off train."""
    how, files = config.reading.part(Reading), config.finetune
    if not files.train:
        fix = "give --train (and --valid, --test), or --demo=plain"
        raise UserError("no labelled rows", fix=fix, code="missing")
    sets: dict[SplitName, LabelledSet] = {"train": read_labelled(tables.get("train", files.train), how)}
    splits: tuple[tuple[SplitName, float], ...] = (("test", TEST_SHARE), ("valid", VALID_SHARE))
    for name, share in splits:
        if given := getattr(files, name):
            sets[name] = read_labelled(tables.get(name, given), how)
            continue
        rest = sets["train"]
        split = split_by_hash(rest.whole_texts, rest.labels, share, config.study.seed)
        if not len(split.held_out):
            raise nothing_held_out(name, files.train, rest.whole_texts, rest.labels)
        sets |= {"train": rest.subset(split.kept), name: rest.subset(split.held_out)}
        kept = f"{len(split.held_out):,} rows of train are kept apart for it"
        log(f"no --{name}: {kept}, by the hash of their text")
    for role, labelled in sets.items():
        refuse_other_pairs(labelled, sets["train"].texts_b is not None, "the training rows are")
        if labelled.skipped.counts:
            log(f"{role}: {labelled.skipped.summary()}")
        LabelMap.of(sets["train"]).refuse_unseen(labelled)
    return {name: sets[name] for name in SETS}


def _write_labelled(path: Path, labelled: LabelledSet) -> None:
    lines = []
    for row, (text, label) in enumerate(zip(labelled.texts, labelled.labels, strict=True)):
        b = labelled.texts_b
        texts = {"text": text} if b is None else {"text_a": text, "text_b": b[row]}
        lines.append(json.dumps({**texts, "label": label}, ensure_ascii=False))
    write_changed(path, ("\n".join(lines) + "\n").encode())


def _write_tokens(path: Path, sets: Sets) -> None:
    """For each set all token ids, and the lengths of its texts."""
    arrays: dict[str, np.ndarray] = {}
    for name, labelled in sets.items():
        ids = labelled.token_ids or []
        arrays[name] = np.concatenate(ids) if ids else np.zeros(0, np.int64)
        arrays[f"{name}-lengths"] = np.array([len(text) for text in ids], np.int64)
    write_changed(path, npz_bytes(arrays))


def npz_bytes(arrays: dict[str, np.ndarray]) -> bytes:
    made = io.BytesIO()
    np.savez(made, **arrays)  # type: ignore[arg-type]
    return made.getvalue()


def read_npz(file: Path, fix: str) -> dict[str, np.ndarray]:
    """All arrays of a file; they have checksums of their own."""
    try:
        with np.load(file) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except Exception as error:  # whatever numpy and zipfile make of a damaged file
        raise IntegrityError("is not what was written", where=file, fix=fix) from error


@functools.lru_cache(maxsize=1)
def _tokenized_sets(directory: Path, fingerprint: str, contents: tuple[str, ...]) -> Sets:
    fix = "run the same command again: it is written anew"
    arrays = read_npz(directory / "tokens.npz", fix)
    ids = {name: np.split(arrays[name], np.cumsum(arrays[f"{name}-lengths"])[:-1]) for name in SETS}
    rows = {name: read_labelled(directory / f"{name}.jsonl") for name in SETS}
    for (name, labelled), content in zip(rows.items(), contents, strict=True):
        if labelled.fingerprint != content:
            raise IntegrityError("is not what was written", where=directory / f"{name}.jsonl", fix=fix)
    return {n: dataclasses.replace(rows[n], token_ids=ids[n], tokenized_by=fingerprint) for n in SETS}


# ---- the tokenizer, the model, the steps ----------------------------------------------------------------------


def _tokenizer(config: StudyConfig, directory: Path, train: LabelledSet, log: Log) -> Tokenizer:
    """The start's, a given one, the study's own from before, or one trained on the corpus; with all roles."""
    folder = directory / "tokenizer"
    # study.toml is written after the tokenizer, and the settings in it are checked next: the fingerprint too.
    if folder.exists() and (directory / "study.toml").exists():
        try:
            return Tokenizer.load(folder)
        except UserError as error:
            fix = f"delete {folder}: the same command makes it again"
            raise IntegrityError(error.what, where=error.where, fix=fix, code=error.code) from error
    if config.study.start:
        tokenizer = load(config.study.start).tokenizer
    elif config.tokenizer.tokenizer:
        tokenizer = Tokenizer.load(config.tokenizer.tokenizer)
        if (asked := config.tokenizer.normalise) and tokenizer.normalise != in_order(asked):
            what = f"normalises {' and '.join(tokenizer.normalise) or 'nothing'}"
            fix = "leave normalise out of [tokenizer], or give another tokenizer"
            what += f", and {' and '.join(asked)} is asked for"
            raise UserError(what, where=config.tokenizer.tokenizer, fix=fix, code="mismatch")
    else:
        vocab = config.tokenizer.vocab
        log(f"training a tokenizer of {vocab:,} tokens")
        trained = train_tokenizer(
            lambda: (piece.text for piece in _corpus(config)) if config.pretrain else iter(train.whole_texts),
            vocab=vocab,
            kind=config.tokenizer.kind,
            normalise=config.tokenizer.normalise,
        )
        for note in trained.notes:
            log(note)
        tokenizer = trained.tokenizer
    if not config.study.start:  # a start's tokenizer is as it was trained with
        needs = {"causal"} if config.study.objectives == ["causal"] else {"causal", "masked"}
        roles = {role for frame in needs for role in FRAME_ROLES[frame]}
        for role in sorted(roles | ({"mask"} if "masked" in needs else set())):
            tokenizer, _ = tokenizer.with_role(role)  # type: ignore[arg-type]
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(folder)
    return tokenizer


def _corpus(config: StudyConfig) -> Iterator[Piece]:
    """The text of all phases; a file that several of them have is read once."""
    seen: set[str] = set()
    for phase in config.pretrain:
        paths = [weighted_path(path)[0] for path in phase.corpus]
        files = [path for path in paths if path not in seen]
        yield from pieces(files, config.reading.part(Reading, documents=phase.documents))
        seen.update(paths)


def lsa_texts(data: StudyData) -> list[str]:
    """The corpus and the training texts, or a sample of them by the hash of each document."""

    def texts() -> Iterator[Piece]:
        train = data.sets()["train"].whole_texts
        return itertools.chain(_corpus(data.config), (Piece(text, True, True) for text in train))

    share = LSA_CHARACTERS / max(1, sum(len(piece.text) for piece in texts()))
    return [piece.text for is_taken, piece in with_held_out(texts(), share, seed=1) if is_taken]


def _model(config: StudyConfig, overrides: dict[str, Any], tokenizer: Tokenizer) -> ModelConfig:
    if config.study.start:
        given = {key: value for key, value in overrides.items() if value is not None}
        return dataclasses.replace(RunDirectory(config.study.start).read_config().model, **given)
    return preset(config.study.preset, **{**overrides, "vocab": tokenizer.size})


def _asked_steps(data: StudyData, tokenizer: Tokenizer, log: Log) -> list[int]:
    """The steps of each phase that were asked for, or that its epochs are; counts the corpus too."""
    config, asked = data.config, []
    for phase in config.pretrain:
        files, weights = ([weighted_path(path)[part] for path in data.corpus_of(phase)] for part in (0, 1))
        read: Any = {"corpus": files, "weights": weights, "valid": phase.valid, "documents": phase.documents}
        reading = config.reading.part(DataConfig, **read)
        first = cast(PretrainObjective, config.study.objectives[0])
        steps_in_epochs, stores = planned_steps(phase, reading, first, tokenizer, Console(log))
        asked.append(phase.steps or steps_in_epochs)
        counted = data.facts["data"].setdefault("corpus_total", dict.fromkeys(_COUNTED.values(), 0))
        for store in stores:
            for of_header, name in _COUNTED.items():
                counted[name] += getattr(store.header, of_header)
    return asked


def with_steps(data: StudyData, asked: list[int]) -> StudyData:
    """The first objective has these steps in each phase of pretraining, the others as many operations."""
    first, *others = data.config.study.objectives
    steps = {first: asked}
    for objective in others:
        ratios = [text_operations(data, first, p) / text_operations(data, objective, p) for p in data.config.pretrain]
        steps[objective] = [max(1, round(number * ratio)) for number, ratio in zip(asked, ratios, strict=True)]
    return dataclasses.replace(data, steps=steps)


# ---- operations: what a study costs by its design alone -------------------------------------------------------


def text_operations(data: StudyData, objective: str, phase: PretrainPart) -> int:
    """Forward and backward operations of pretraining on one block."""
    model, head = data.model_for(objective), HeadConfig(kind=HEADS[objective])  # type: ignore[arg-type]
    totals = per_text(model, head, Lengths(phase.length), masked_share=phase.mask_prob)
    return totals.forward + totals.backward


def pretraining_operations(data: StudyData, objective: PretrainObjective) -> float:
    """Forward and backward over all phases."""
    total = 0
    for phase, steps in zip(data.config.pretrain, data.steps[objective], strict=True):
        total += steps * max(1, phase.batch_tokens // phase.length) * text_operations(data, objective, phase)
    return float(total)


def step_operations(data: StudyData, arm: Arm) -> float:
    """Of one step of fine-tuning, by the mean length of a text."""
    totals = per_text(data.model_for(arm.objective), data.head, Lengths(max(1, round(data.mean_tokens))))
    readings = 2 if data.config.finetune.r_drop else 1
    return float(readings * data.config.finetune.batch * (totals.forward + totals.backward))


def trial_steps(data: StudyData, trial: Trial) -> tuple[int, int]:
    """The steps of each try of a trial, and how many make an epoch; the long scratch has the base's compute too."""
    steps, epoch = steps_of(data.config.finetune, trial.budget)
    if trial.arm.kind == "scratch-long":
        extra = pretraining_operations(data, trial.arm.objective or "causal")
        steps += round(extra / len(data.learning_rates_for(trial.arm)) / step_operations(data, trial.arm))
    return steps, epoch


def trial_operations(data: StudyData, trial: Trial) -> float:
    """Of all tries of a trial; baselines, and what is made of what others computed, count as none."""
    if trial.arm.kind in WITHOUT_STEPS:
        return 0.0
    steps, _ = trial_steps(data, trial)
    return len(data.learning_rates_for(trial.arm)) * steps * step_operations(data, trial.arm)


# ---- what is said of the data -----------------------------------------------------------------------------------


def _facts(
    config: StudyConfig, sets: Sets, corpus: list[str], labels: LabelMap, directory: Path, log: Log
) -> dict[str, Any]:
    digests = {path: sha256_of(path) for path in dict.fromkeys(weighted_path(path)[0] for path in corpus)}
    files = [{"file": Path(path).name, "sha256": digest} for path, digest in digests.items()]
    leaks = _leaks(config, sets, digests, directory / "data" / "leaks.json", log)

    warnings = data_warnings(sets, config.finetune.length)

    def about(name: str, labelled: LabelledSet) -> dict[str, Any]:
        file = Path(getattr(config.finetune, name) or config.finetune.train).name
        counts = {"rows": len(labelled), "classes": class_counts(labelled.labels)}
        return {"file": file, **counts, "sha256": labelled.fingerprint}

    return {
        "data": {
            "corpus": [{**file, "documents": None, "tokens": None, "text_bytes": None} for file in files],
            **{name: about(name, labelled) for name, labelled in sets.items()},
            "labels": list(labels.labels),
            "leaks": leaks["counts"],
            "leaked_test_rows": len(leaks["test_rows"]),
            "warnings": [f"{name}: {warning.message}" for name, warning in warnings],
        },
        "leaked_rows": leaks["test_rows"],
    }


def _leaks(config: StudyConfig, sets: Sets, corpus: dict[str, str], kept: Path, log: Log) -> dict[str, Any]:
    """Texts that stand in two sets, or in a set and in the corpus; found once and kept."""
    contents = [[labelled.fingerprint for labelled in sets.values()], list(corpus.values())]
    key = hashlib.sha256(json.dumps(contents).encode()).hexdigest()
    fix = "delete it: it is found again"
    if kept.exists() and (known := checksummed_json.read(kept, fix)).get("key") == key:
        return known
    log("looking for texts that stand in two sets, or in the corpus")
    documents = config.pretrain[0].documents if config.pretrain else "auto"
    stream = pieces(list(corpus), config.reading.part(Reading, documents=documents)) if corpus else None
    leaks = find_leaks({name: labelled.whole_texts for name, labelled in sets.items()}, stream)
    names = ["test_in_train", "test_in_valid", "valid_in_train", *(["test_in_corpus"] if corpus else [])]
    near = [f"near_{name}" for name in names]
    rows = {row for name in names if name.startswith("test_") for row in leaks.rows.get(name, [])}
    counts = {name: leaks.counts.get(name, 0) for name in (*names, *near)}
    found = {"key": key, "counts": counts, "test_rows": sorted(rows)}
    atomic_write(kept, checksummed_json.dump(found))
    return found


def sha256_of(path: str) -> str:
    """Of a file's bytes; of a dataset's folder, of those of its files."""
    if form_of(path) == "dataset":
        return fingerprint(path).sha256
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
        raise UserError(what, where=path, fix="check the path", code="no-file") from error
