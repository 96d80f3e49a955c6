"""Hugging Face in and out: config.json, model.safetensors and tokenizer files become a run, and a run becomes them."""

import copy
import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from safetensors.torch import save_file
from torch import Tensor

from headstart.config.run import DataConfig, RunConfig
from headstart.config.training import LoopConfig, Masking, OptimizerConfig
from headstart.errors import HeadstartError, IntegrityError, Log, UserError, nearest
from headstart.interop.directory import ForeignDirectory
from headstart.interop.families.decoders import Gpt2, GptNeoX, Llama, Mistral
from headstart.interop.families.encoders import Bert, Camembert, DistilBert, Roberta, XlmRoberta
from headstart.interop.families.family import Described, Family, unmet
from headstart.interop.families.fields import Fields
from headstart.interop.families.marian import Marian
from headstart.interop.model_card import write_card
from headstart.interop.tokenizer_files import frame_of_tokenizer, tokenizer_obstacle, without_begin, write_json
from headstart.planning.parameters import SENTENCE_KINDS
from headstart.runs.checkpoint import weights_digest, write_tensors
from headstart.runs.directory import RunDirectory, RunResult, with_config
from headstart.runs.load import LoadedRun, load
from headstart.runs.study_model import run_of
from headstart.storage.atomic import atomic_directory, refuse_existing
from headstart.tokenizers.tokenizer import Vocabularies

CONFIG = "config.json"

# A base without segments is a RoBERTa rather than a BERT; what is left to BERT has segments or another head.
_TRIED = (Roberta, DistilBert, Bert, Gpt2, Llama, GptNeoX, Marian, Camembert, XlmRoberta, Mistral)
FAMILIES: dict[str, Family] = {family.model_type: family() for family in _TRIED}


def silent(line: str) -> None:
    """Log nothing."""


def family_of(fields: Fields) -> Family:
    """The family that a config.json says it is of."""
    model_type = fields.text("model_type")
    if model_type not in FAMILIES:
        what = f"model_type is {model_type!r}, a family that Headstart does not have"
        fix = f"these can be imported: {', '.join(FAMILIES)}"
        raise UserError(what, where=fields.where, fix=fix, code="unsupported")
    return FAMILIES[model_type]


# ---- in -----------------------------------------------------------------------------------------------------


def import_huggingface(
    directory: str | Path, out: str | Path, *, pairs: bool = False, length: int | None = None, log: Log = silent
) -> RunResult:
    """Make a run of a checkpoint in a local directory; nothing in it is executed. Returns the run's result.

    `pairs` says that a classifier was trained on pairs of texts, which no checkpoint records; `length` is the longest
    text in tokens (default: the context).
    """
    source, out = ForeignDirectory(directory), Path(out)
    before = RunDirectory(out)
    if not before.result_file.exists():
        refuse_existing(out)
    fields = Fields(source.json(CONFIG), str(source.path / CONFIG))
    family = family_of(fields)
    fields.refuse_unknown(family.reads)
    try:
        described, weights, vocabularies, notes = _read(source, family, fields)
    except HeadstartError as error:
        if not error.where:
            raise type(error)(error.what, where=source.path, fix=error.fix, code=error.code) from error
        raise
    for note in notes:
        log(note)
    config = _config(described, vocabularies, pairs, length)
    result: dict[str, Any] = {
        "objective": config.objective, "step": 0, "steps": 0, "weights_sha256": weights_digest(weights),
        "parameters": sum(tensor.numel() for tensor in weights.values()), "skipped": 0, "stopped_early": False,
        "best_step": None, "valid": None, "imported": _origin(source, family, fields, notes),
    }  # fmt: skip
    known = config, with_config(result, config)
    if before.config_file.exists() and (before.read_config(), before.read_result()) == known:
        load(out)  # which says so where it is no longer what was written
        log(f"{out}: imported from the same files before; nothing to do")
        return cast(RunResult, result)
    refuse_existing(out)
    # Written beside it, read again as any run is, and only then renamed.
    with atomic_directory(out, 4 * result["parameters"]) as temporary:
        run = RunDirectory(temporary)
        write_tensors(run.weights_file, weights)
        vocabularies.save(temporary)
        run.write_config(config)
        written = run.write_result(result, config)
        load(temporary)
    return cast(RunResult, written)


def _read(
    source: ForeignDirectory, family: Family, fields: Fields
) -> tuple[Described, dict[str, Tensor], Vocabularies, list[str]]:
    """What the checkpoint is, its weights under our names, its tokenizers, and notes for the user."""
    theirs = _plainly_named(source.tensors(), family)
    described = family.described(fields, frozenset(theirs))
    vocabularies, more = family.read_vocabularies(source, fields, described)
    notes = [*described.notes, *more]
    if described.translation is None:
        frame, is_framed_as_ours = frame_of_tokenizer(vocabularies.source, described.frame, str(source.path))
        described = dataclasses.replace(described, frame=frame)
        notes += without_begin(vocabularies.source) if described.objective == "causal" else []
        if frame == "causal" and not is_framed_as_ours and described.head.kind in SENTENCE_KINDS:
            what = f"architectures is {fields.content.get('architectures')}, and its tokenizer does not put a begin "
            what += "and an end token around a text: its classifier would read other texts here than it was trained on"
            fix = "import the language model that it was trained from, and fine-tune that"
            raise UserError(what, fix=fix, code="unsupported")
    return *_fitted(described, family.tensors_in(described, theirs), vocabularies, notes), vocabularies, notes


def _plainly_named(tensors: dict[str, Tensor], family: Family) -> dict[str, Tensor]:
    """The tensors by their plain names; two that have the same one are refused."""
    named: dict[str, str] = {}
    for name in tensors:
        plain = family.plain_name(name)
        if plain in named:
            what = f"holds {named[plain]} and {name}, which are the same tensor of the model"
            raise IntegrityError(what, fix="give a checkpoint with one of them", code="conflict")
        named[plain] = name
    return {plain: tensors[name] for plain, name in named.items()}


def _fitted(
    described: Described, weights: dict[str, Tensor], vocabularies: Vocabularies, notes: list[str]
) -> tuple[Described, dict[str, Tensor]]:
    """The embedding cut to the tokenizer's size: rows that no token has are there to make a round number."""
    size, rows = vocabularies.source.size, described.model.vocab
    if size > rows:
        what = f"the tokenizer has {size:,} tokens, and the embedding {rows:,} rows"
        raise IntegrityError(what, fix="give the checkpoint's own tokenizer", code="mismatch")
    if size < rows and not described.model.decoder_depth:
        names = ("base.embedding.tokens.weight", "head.output.weight", "head.output.bias")
        weights |= {name: weights[name][:size].contiguous() for name in names if name in weights}
        described = dataclasses.replace(described, model=dataclasses.replace(described.model, vocab=size))
        notes.append(f"{rows - size:,} rows of the embedding belong to no token of the tokenizer: cut off")
    return described, weights


def _config(described: Described, vocabularies: Vocabularies, pairs: bool, length: int | None) -> RunConfig:
    model = dataclasses.replace(described.model, tokenizer=vocabularies.source.fingerprint)
    if pairs and described.head.kind not in SENTENCE_KINDS:
        fix = "leave --pairs out: it is for classifiers alone"
        raise UserError("--pairs without a classifier", fix=fix, code="conflict")
    if length is not None and not 4 <= length <= model.context:
        raise UserError(f"--length is {length}", fix=f"give 4 to {model.context:,}, the context")
    translation = described.translation
    if translation is not None and not vocabularies.is_joint:
        translation = dataclasses.replace(translation, target_tokenizer=vocabularies.target.fingerprint)
    return RunConfig(
        objective=described.objective, start="imported", frame=described.frame, length=length or model.context,
        pairs=pairs, label_names=list(described.labels), data=DataConfig(), model=model, head=described.head,
        optimizer=OptimizerConfig(), loop=LoopConfig(steps=0), masking=Masking(),
        translation=translation,
    )  # fmt: skip


def _origin(source: ForeignDirectory, family: Family, fields: Fields, notes: list[str]) -> dict[str, Any]:
    """Where the weights came from, by content alone."""
    files = source.digests()
    whole = "".join(f"{name} {digest}\n" for name, digest in files.items())
    return {
        "family": family.name, "model_type": fields.content["model_type"],
        "architectures": fields.content.get("architectures"),
        "sha256": hashlib.sha256(whole.encode()).hexdigest(), "files": files, "notes": notes,
    }  # fmt: skip


# ---- out ----------------------------------------------------------------------------------------------------


class HuggingFaceExport(NamedTuple):
    """What was written."""

    directory: Path
    family: str
    architecture: str
    files: tuple[str, ...]


def export_huggingface(
    run: LoadedRun | str | Path, directory: str | Path, *, family: str | None = None, log: Log = silent
) -> HuggingFaceExport:
    """Write a run into a new directory as the family that expresses it; where none does, an error says why not.

    `family` is one of `FAMILIES` (default: the one that it was imported from, else the first that can).
    """
    run, directory = run if isinstance(run, LoadedRun) else load(run_of(run)), Path(directory)
    refuse_existing(directory)
    run = _with_own_padding(run, log)
    weights = {name: parameter.detach().cpu().float() for name, parameter in run.model.named_parameters()}
    chosen = _chosen(run, weights, family)
    config, tensors = chosen.exported(run, weights)
    with atomic_directory(directory, 4 * sum(tensor.numel() for tensor in tensors.values())) as temporary:
        write_json(temporary / CONFIG, {**config, "dtype": "float32"})
        if generation := chosen.generation_out(run):
            write_json(temporary / "generation_config.json", generation)
        save_file(tensors, temporary / "model.safetensors", {"format": "pt"})
        chosen.write_vocabularies(run, temporary)
        write_card(run, temporary, kind="huggingface")
        files = tuple(sorted(path.name for path in temporary.iterdir()))
    return HuggingFaceExport(directory, chosen.name, config["architectures"][0], files)


def _chosen(run: LoadedRun, weights: Mapping[str, Tensor], wanted: str | None) -> Family:
    """The family that was asked for, that the run came from, or the first that expresses it."""
    if wanted is not None and wanted not in FAMILIES:
        raise UserError(f"no family {wanted!r}", fix=nearest(wanted, FAMILIES), code="unknown-name")
    result = RunDirectory(run.path).read_result() or {}
    origin = (result.get("imported") or {}).get("model_type")
    obstacles: dict[str, str] = {}
    for name in [wanted] if wanted else [*([origin] if origin in FAMILIES else []), *FAMILIES]:
        family = FAMILIES[name]
        obstacle = family.obstacle(run, weights)
        if obstacle is None and not family.is_translator:
            obstacle = tokenizer_obstacle(run.tokenizer)
        if obstacle is None:
            return family
        obstacles[name] = obstacle
    near = min(obstacles, key=lambda name: _distance(run, FAMILIES[name]))
    what = f"cannot be written as {wanted}: " if wanted else f"is written as no family; the nearest is {near}, but "
    fix = "headstart export RUN --to onnx DIR takes any run; or train with the presets bert-base, gpt2, "
    fix += "modern-small, modern-base, or tiny with the causal objective"
    raise UserError(what + obstacles[near], where=run.path, fix=fix, code="unsupported")


def _distance(run: LoadedRun, family: Family) -> int:
    """How many options of the run a family has not; how a text is read weighs most."""
    missing = unmet(run.config.model, family.wanted(run.config.model))
    is_other = family.is_translator != bool(run.config.model.decoder_depth)
    return len(missing) + 10 * is_other + 5 * ("direction" in missing)


def _with_own_padding(run: LoadedRun, log: Log) -> LoadedRun:
    """A causal classifier with its own padding token: elsewhere the last token is found by what is no padding."""
    roles, model = run.tokenizer.roles, run.config.model
    is_classifier = model.direction == "causal" and run.config.head.kind in SENTENCE_KINDS
    if not is_classifier or roles["pad"] not in {roles[role] for role in roles if role != "pad"}:
        return run
    given = run.tokenizer.spec.get("roles") or {}
    named = {role: spelling for role, spelling in given.items() if role != "pad"}
    tokenizer, note = type(run.tokenizer)({**run.tokenizer.spec, "roles": named}).with_role("pad")
    log(note)
    wider = copy.deepcopy(run.model)  # the caller's stays as it is
    table = wider.base.embedding.tokens
    rows = tokenizer.size - table.num_embeddings
    table.weight = torch.nn.Parameter(torch.cat([table.weight.detach(), torch.zeros(rows, model.width)]))
    fitted = dataclasses.replace(model, vocab=tokenizer.size, tokenizer=tokenizer.fingerprint)
    config = dataclasses.replace(run.config, model=fitted)
    return dataclasses.replace(run, config=config, tokenizer=tokenizer, model=wider)
