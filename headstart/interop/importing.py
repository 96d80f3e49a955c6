"""In from elsewhere: a directory with config.json, model.safetensors and tokenizer.json becomes a run."""

import dataclasses
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from headstart.errors import HeadstartError, IntegrityError, UserError
from headstart.interop.families import Described, Family
from headstart.interop.fields import Fields
from headstart.interop.new_directory import new_directory, refuse_taken
from headstart.interop.reading import ForeignDirectory
from headstart.interop.sentence_heads import SENTENCE_KINDS
from headstart.interop.table import family_of
from headstart.interop.tokenizers_in import frame_found, without_begin
from headstart.objectives.masked import Corruption
from headstart.training.checkpoint import weights_digest, write_tensors
from headstart.training.finetune import DEFAULT_BATCH
from headstart.training.loading import load
from headstart.training.loop import LoopConfig
from headstart.training.optimizer import OptimizerConfig
from headstart.training.run_directory import DataConfig, RunConfig, RunDirectory
from headstart.training.vocabularies import Vocabularies

CONFIG = "config.json"


def import_huggingface(
    directory: str | Path,
    out: str | Path,
    *,
    pairs: bool = False,
    length: int | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Make a run of a checkpoint in a local directory; nothing in it is executed. Returns the run's result.

    `pairs` says that a classifier was trained on pairs of texts, which no checkpoint tells; `length` is the longest
    text in tokens (default: the context).
    """
    source, out = ForeignDirectory(directory), Path(out)
    before = RunDirectory(out)
    if not before.result_file.exists():
        refuse_taken(out)
    fields = Fields(source.json(CONFIG), str(source.path / CONFIG))
    family = family_of(fields)
    fields.refuse_unknown(family.reads)
    try:
        found, weights, words, notes = _read(source, family, fields)
    except HeadstartError as error:
        if not error.where:
            raise type(error)(error.what, where=str(source.path), fix=error.fix) from error
        raise
    for note in notes:
        tell(note)
    config = _config(found, words, pairs, length)
    result = {
        "objective": config.objective, "step": 0, "steps": 0, "weights_sha256": weights_digest(weights),
        "parameters": sum(tensor.numel() for tensor in weights.values()), "skipped": 0, "stopped_early": False,
        "best_step": None, "valid": None, "imported": _origin(source, family, fields, notes),
    }  # fmt: skip
    if before.config_file.exists() and (before.read_config(), before.read_result()) == (config, result):
        load(out)  # which says so where it is no longer what was written
        tell(f"{out}: imported from the same files before; nothing to do")
        return result
    refuse_taken(out)
    return _write(out, config, weights, words, result)


def _read(
    source: ForeignDirectory, family: Family, fields: Fields
) -> tuple[Described, dict[str, Tensor], Vocabularies, list[str]]:
    """What the checkpoint is, its weights under our names, its tokenizers, and what should be told."""
    theirs = _plainly_named(source.tensors(), family)
    found = family.described(fields, frozenset(theirs))
    words, told = family.read_vocabularies(source, fields, found)
    notes = [*found.notes, *told]
    if found.translation is None:
        frame, is_framed_as_ours = frame_found(words.source, found.frame, str(source.path))
        found = dataclasses.replace(found, frame=frame)
        notes += without_begin(words.source) if found.objective == "causal" else []
        if frame == "causal" and not is_framed_as_ours and found.head.kind in SENTENCE_KINDS:
            raise UserError(
                f"architectures is {fields.content.get('architectures')}, and its tokenizer does not put a begin and "
                "an end token around a text: its classifier would read other texts here than it was trained on",
                fix="import the language model that it was trained from, and fine-tune that",
            )
    return *_fitted(found, family.tensors_in(found, theirs), words, notes), words, notes


def _plainly_named(tensors: dict[str, Tensor], family: Family) -> dict[str, Tensor]:
    """The tensors by their plain names; two that have the same one are refused."""
    named: dict[str, str] = {}
    for name in tensors:
        plain = family.plain_name(name)
        if plain in named:
            raise IntegrityError(
                f"holds {named[plain]} and {name}, which are the same tensor of the model",
                fix="give a checkpoint with one of them",
            )
        named[plain] = name
    return {plain: tensors[name] for plain, name in named.items()}


def _fitted(
    found: Described, weights: dict[str, Tensor], words: Vocabularies, notes: list[str]
) -> tuple[Described, dict[str, Tensor]]:
    """The embedding cut to the tokenizer's size: rows that no token has are there to make a round number."""
    size, rows = words.source.size, found.model.vocab
    if size > rows:
        raise IntegrityError(
            f"the tokenizer has {size:,} tokens, and the embedding {rows:,} rows",
            fix="give the checkpoint's own tokenizer",
        )
    if size < rows and not found.model.decoder_depth:
        names = ("base.embedding.tokens.weight", "head.output.weight", "head.output.bias")
        weights |= {name: weights[name][:size].contiguous() for name in names if name in weights}
        found = dataclasses.replace(found, model=dataclasses.replace(found.model, vocab=size))
        notes.append(f"{rows - size:,} rows of the embedding belong to no token of the tokenizer: cut off")
    return found, weights


def _config(found: Described, words: Vocabularies, pairs: bool, length: int | None) -> RunConfig:
    model = dataclasses.replace(found.model, tokenizer=words.source.fingerprint)
    if pairs and found.head.kind not in SENTENCE_KINDS:
        raise UserError("--pairs without a classifier", fix="leave --pairs out: only a classifier is told")
    if length is not None and not 4 <= length <= model.context:
        raise UserError(f"--length is {length}", fix=f"give 4 to {model.context:,}, the context")
    translation = found.translation
    if translation is not None and not words.is_joint:
        translation = dataclasses.replace(translation, target_tokenizer=words.target.fingerprint)
    return RunConfig(
        objective=found.objective, start="imported", frame=found.frame, length=length or model.context,
        batch=DEFAULT_BATCH, pairs=pairs, labels=list(found.labels), data=DataConfig(), model=model,
        head=found.head, optimizer=OptimizerConfig(), loop=LoopConfig(steps=0), corruption=Corruption(),
        translation=translation,
    )  # fmt: skip


def _origin(source: ForeignDirectory, family: Family, fields: Fields, notes: list[str]) -> dict[str, Any]:
    """Where the weights came from, by content alone."""
    files = source.digests()
    whole = "".join(f"{name} {digest}\n" for name, digest in files.items())
    return {
        "family": family.name,
        "model_type": fields.content["model_type"],
        "architectures": fields.content.get("architectures"),
        "sha256": hashlib.sha256(whole.encode()).hexdigest(),
        "files": files,
        "notes": notes,
    }


def _write(
    out: Path, config: RunConfig, weights: dict[str, Tensor], words: Vocabularies, result: dict[str, Any]
) -> dict[str, Any]:
    """Written aside, read again as any run is, and only then put in its place."""
    with new_directory(out, 4 * result["parameters"]) as aside:
        run = RunDirectory(aside)
        write_tensors(run.weights_file, weights)
        words.save(aside)
        run.write_config(config)
        written = run.write_result(result)
        load(aside)
    return written
