"""From a call in Python to settings, data and tokenizer; every field of the schema is a keyword of such a call."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from headstart.config.model import ModelConfig, model_fields
from headstart.config.schema import Setting, Settings, fields_of, flat, settings
from headstart.config.training import FinetuneSettings, MachineConfig, TokenizerConfig
from headstart.data.fingerprints import fingerprint
from headstart.data.labelled import Label, LabelledSet, PairedSet
from headstart.data.leakage.find import equal_texts
from headstart.data.readers.sources import Source, SplitName
from headstart.data.splits import label_subset, nothing_held_out, split_by_hash
from headstart.errors import UserError
from headstart.machine import Machine, choose
from headstart.runs.directory import RunDirectory
from headstart.runs.load import LoadedRun
from headstart.tokenizers import special_tokens
from headstart.tokenizers.huggingface import in_order
from headstart.tokenizers.tokenizer import Tokenizer
from headstart.tokenizers.training import train
from headstart.training.fit import Session

T = TypeVar("T", bound=Settings)
_LEAK = {
    "test": "scores on test are too good. `headstart data check` lists such rows",
    "valid": "scores on valid are too good, and what is chosen by them",
}
S = TypeVar("S", LabelledSet, PairedSet)

Sources = Mapping[SplitName, Source | LabelledSet]

# The tokenizer knows both; --vocab is the size of one that is trained now.
MODEL_FIELDS = tuple(name for name in fields_of(ModelConfig) if name not in ("vocab", "tokenizer"))

# The roles that a frame, and the batches framed by it, need.
FRAME_ROLES: dict[str, tuple[special_tokens.Role, ...]] = {
    "causal": ("begin", "end", "pad"),
    "masked": ("cls", "sep", "pad"),
    "roberta": ("cls", "sep", "pad"),
    "marian": ("end", "pad"),
}


class Call(NamedTuple, Generic[T]):
    """What a call asks for."""

    settings: T
    model: dict[str, Any]  # the fields that were given; the others are the preset's, or the start's
    machine: Machine
    precision: str  # as given: what auto comes to is measured
    tokenizer: Tokenizer | None  # one that is in memory already
    target_tokenizer: Tokenizer | None  # the target's, in a translation


def call_of(
    cls: type[T], given: Mapping[str, Any], machine: Machine | None, defaults: Mapping[str, Any] | None = None
) -> Call[T]:
    """Sort the arguments into settings, fields of the model and the machine; what nobody knows is refused."""
    words, names = flat(given), ("tokenizer", "target_tokenizer")
    tokenizers = [words.pop(name) if isinstance(words.get(name), Tokenizer) else None for name in names]
    given_model = {**words.pop("model", {}), **{name: words.pop(name) for name in MODEL_FIELDS if name in words}}
    model = model_fields(given_model)
    computing = {name: words.pop(name) for name in fields_of(MachineConfig) if name in words}
    if machine is not None and computing:
        raise UserError(f"machine and {', '.join(computing)} at once", fix="give one of them", code="conflict")
    on = settings(MachineConfig, computing)
    machine = machine or choose(on.device, on.precision, on.threads or None, fast=on.fast, shard=on.shard)
    return Call(settings(cls, words, defaults), model, machine, on.precision, *tokenizers)


def default_out(verb: str, call: Call[Any], data: Iterable[Source | LabelledSet]) -> Path:
    """runs/VERB-HASH: the same settings and the same data find the same run.

    How long it trains, where, and what is kept of it do not matter, so that a run can be extended and moved. Data and
    tokenizers count by their content, and a start by its weights.
    """
    fields = fields_of(type(call.settings))
    known = {name: getattr(call.settings, name) for name, field in fields.items() if field.is_identity}
    for name, in_memory in (("tokenizer", call.tokenizer), ("target_tokenizer", call.target_tokenizer)):
        if in_memory or known.get(name):
            known[name] = (in_memory or Tokenizer.load(known[name])).fingerprint
    if known["start"] != "scratch":
        result = RunDirectory(known["start"]).read_result() or {}
        known["start"] = result.get("weights_sha256", known["start"])
    contents = [one.fingerprint if isinstance(one, LabelledSet) else fingerprint(one).sha256 for one in data]
    content = json.dumps([verb, known, call.model, contents, call.precision], sort_keys=True, default=str)
    return Path("runs") / f"{verb}-{hashlib.sha256(content.encode()).hexdigest()[:10]}"


def read_sets(
    sources: Sources,
    read: Callable[[Any], S],
    texts_and_labels: Callable[[S], tuple[Sequence[str], Sequence[Label]]],
    given: FinetuneSettings,
    log: Callable[[str], None],
) -> dict[str, S]:
    """Train, valid and perhaps test; without valid a share of train is split off by the hash of the text."""
    sets = {"train": read(sources["train"])}
    if "valid" in sources:
        sets["valid"] = read(sources["valid"])
    elif given.valid_share:
        whole = sets["train"]
        split = split_by_hash(*texts_and_labels(whole), given.valid_share, given.seed)
        if not len(split.held_out):
            one = sources["train"]
            where = one.path if isinstance(one, LabelledSet) else str(one)
            raise nothing_held_out("valid", where, *texts_and_labels(whole))
        sets = {"train": whole.subset(split.kept), "valid": whole.subset(split.held_out)}
    if given.labels:
        texts, labels = texts_and_labels(sets["train"])
        seed = given.seed if given.labels_seed == -1 else given.labels_seed
        rows = label_subset(labels, texts, given.labels, seed)
        sets["train"] = sets["train"].subset(rows)
        classes, there = set(labels), {labels[row] for row in rows}
        if given.task == "classification" and classes != there:
            what = f"--labels {given.labels} leaves no row of {len(classes - there)} of {len(classes)} classes"
            raise UserError(what, fix=f"give --labels {len(classes)} or more", code="too-few")
    if "test" in sources:
        sets["test"] = read(sources["test"])
    for name, labelled in sets.items():
        if labelled.skipped.counts:
            log(f"{name}: {labelled.skipped.summary()}")
    if not are_checked(sources):
        _log_leaks(sets, log)
    return sets


def are_checked(sources: Sources) -> bool:
    """Whether a study has read them, and has said what is wrong with them."""
    return any(isinstance(source, LabelledSet) for source in sources.values())


def _log_leaks(sets: Mapping[str, S], log: Callable[[str], None]) -> None:
    """Say which rows stand in another set too, before anything is trained."""
    for name, findings in equal_texts({name: rows.whole_texts for name, rows in sets.items()}).items():
        of, _, other = name.partition("_in_")
        if findings:
            first = sets[of].locations[findings[0].row]
            share = f"{len(findings):,} of {len(sets[of]):,} {of} rows are in {other} too"
            log(f"{share}, the first at {first}: {_LEAK[of]}")


def tokenizer_for(
    session: Session,
    given: TokenizerConfig,
    start: LoadedRun | None,
    texts: Callable[[], Iterator[str]],
    frame: str,
    in_memory: Tokenizer | None = None,
    *,
    masks: bool = False,
) -> Tokenizer:
    """One with the roles of its frame; a missing role is appended, with a message, but never to a start's."""
    if start is not None and (in_memory or given.tokenizer):
        fix = "a start brings its own tokenizer: leave --tokenizer out"
        raise UserError("--tokenizer with --start", fix=fix, code="conflict")
    run, ranks, normalise = session.run, session.machine.ranks, in_order(given.normalise)

    def trained() -> Tokenizer:
        session.console.log(f"training a tokenizer of {given.vocab:,} tokens on the text")
        training = train(texts, vocab=given.vocab, normalise=normalise)
        for note in training.notes:
            session.console.log(note)
        return training.tokenizer

    if start is not None:
        tokenizer = start.tokenizer
    elif in_memory is not None:
        tokenizer = in_memory
    elif given.tokenizer:
        tokenizer = Tokenizer.load(given.tokenizer)
    elif run.tokenizer_file.exists() and run.config_file.exists():
        tokenizer = run.read_tokenizer()
    else:
        tokenizer = Tokenizer(ranks.first(lambda: trained().spec)) if ranks.world > 1 else trained()
    if normalise and tokenizer.normalise != normalise:
        does, asked = (" and ".join(names) or "nothing" for names in (tokenizer.normalise, normalise))
        what = f"the tokenizer normalises {does}, and --normalise asks for {asked}"
        fix = "leave --normalise out, or train another: headstart tokenizer F… --normalise … --out DIR"
        raise UserError(what, fix=fix, code="mismatch")
    for role in (*FRAME_ROLES[frame], *(("mask",) if masks else ())):
        tokenizer, note = tokenizer.with_role(role)
        if note and start is not None:
            what = f"the start's tokenizer has no {role} token"
            raise UserError(what, where=start.path, fix="choose another start", code="missing")
        if note:
            session.console.log(note)
    return tokenizer


def settings_of_call(*classes: type[Settings]) -> list[Setting]:
    """What `call_of` takes: the fields of these classes, and of the model."""
    fields = {**fields_of(*classes), **{name: fields_of(ModelConfig)[name] for name in MODEL_FIELDS}}
    in_python = {"start": str | Path, **dict.fromkeys(("tokenizer", "target_tokenizer"), str | Path | Tokenizer)}
    shown = [one._replace(type=in_python.get(one.name, one.type)) for one in fields.values()]
    return [*shown, Setting("model", dict[str, object], None, "Fields of the model, all in one.", None, True)]
