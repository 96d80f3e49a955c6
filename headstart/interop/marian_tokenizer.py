"""The tokenizers of a Marian directory, in and out: two SentencePiece models and their vocabulary, or tokenizer.json.

A Marian directory has `source.spm`, `target.spm` and `vocab.json` (and `target_vocab.json` where the sides do not share
one). A run of ours that was never Marian's has tokenizers of another kind: it goes out with a `tokenizer.json` that
puts our frame around a source, and comes back in with it.
"""

import base64
import json
from pathlib import Path
from typing import Any

import tokenizers

from headstart.config.run import FrameName
from headstart.errors import UserError
from headstart.interop.directory import ForeignDirectory
from headstart.interop.families.fields import Fields
from headstart.interop.tokenizer_files import framed_spec, read_tokenizer, write_json
from headstart.storage.atomic import atomic_write
from headstart.tokenizers import sentencepiece
from headstart.tokenizers.sentencepiece import END, PAD, UNKNOWN
from headstart.tokenizers.templates import Template, target_template_of, template_of
from headstart.tokenizers.tokenizer import Tokenizer, Vocabularies

SOURCE_MODEL, TARGET_MODEL = "source.spm", "target.spm"
VOCABULARY, TARGET_VOCABULARY = "vocab.json", "target_vocab.json"
TOKENIZER, TARGET_TOKENIZER = "tokenizer.json", "tokenizer.target.json"
SETTINGS = "tokenizer_config.json"
LARGEST_MODEL_BYTES = 64 << 20
Spec = dict[str, Any]


# ---- in -----------------------------------------------------------------------------------------------------


def read_marian(directory: ForeignDirectory, fields: Fields, vocab: int, target_vocab: int) -> Vocabularies:
    """The tokenizers of both sides; `vocab` and `target_vocab` are the rows of their embeddings (0: it is shared)."""
    if not directory.has(SOURCE_MODEL):
        plain = _read_plain(directory, fields)
        own = target_vocab or vocab
        for name, rows, side in (("vocab_size", vocab, plain.source), ("decoder_vocab_size", own, plain.target)):
            if rows != side.size:
                fields.refuse(name, f"{side.size}, which the tokenizer has")
        return plain
    settings = directory.json(SETTINGS) if directory.has(SETTINGS) else {}
    _refuse_other_settings(settings, f"{directory.path / SETTINGS}")
    target_file = TARGET_VOCABULARY if settings.get("separate_vocabs", False) is True else VOCABULARY
    source = _read_side(directory, SOURCE_MODEL, VOCABULARY, vocab)
    return Vocabularies(source, _read_side(directory, TARGET_MODEL, target_file, target_vocab or vocab))


def _read_side(directory: ForeignDirectory, model: str, file: str, rows: int) -> Tokenizer:
    raw = directory.bytes(model, LARGEST_MODEL_BYTES)
    sentencepiece.processor_of(raw, str(directory.path / model))  # refused while its file can be named
    return Tokenizer(sentencepiece.marian_spec(raw, directory.json(file), rows, str(directory.path / file)))


def _refuse_other_settings(settings: Spec, where: str) -> None:
    """Refuse settings by which other ids would come out."""
    if settings.get("sp_model_kwargs"):
        what = "sp_model_kwargs asks for sampled pieces, and text is always cut in the same way here"
        raise UserError(what, where=where, fix="delete sp_model_kwargs from the file", code="unsupported")
    for name, spelling in (("eos_token", END), ("unk_token", UNKNOWN), ("pad_token", PAD)):
        given = settings.get(name) or spelling
        given = given.get("content") if isinstance(given, dict) else given
        if given != spelling:
            fix = f"a Marian vocabulary has it as {spelling}"
            raise UserError(f"{name} is {given!r}", where=where, fix=fix, code="unsupported")
    added = settings.get("added_tokens_decoder") or {}
    spellings = [token.get("content") for token in added.values()] if isinstance(added, dict) else [added]
    if others := [spelling for spelling in spellings if spelling not in (END, UNKNOWN, PAD)]:
        what = f"adds {others[0]!r} to the vocabulary, to be looked for in every text"
        raise UserError(what, where=where, fix="give a checkpoint without added tokens", code="unsupported")


def _read_plain(directory: ForeignDirectory, fields: Fields) -> Vocabularies:
    """From `tokenizer.json`, and the target's own beside it where there is one."""
    if not directory.has(TOKENIZER):
        what = f"has no {SOURCE_MODEL} and no {TOKENIZER}"
        raise UserError(what, where=directory.path, fix="give a whole checkpoint", code="no-file")
    source, _ = read_tokenizer(directory, fields, "causal")
    if not directory.has(TARGET_TOKENIZER):
        return Vocabularies(source, source)
    spec, where = directory.json(TARGET_TOKENIZER), str(directory.path / TARGET_TOKENIZER)
    if not isinstance(spec.get("model"), dict):
        raise UserError("has no model", where=where, fix="give a tokenizer.json", code="bad-format")
    return Vocabularies(source, Tokenizer(spec, where))


def refuse_other_frame(
    directory: ForeignDirectory, vocabularies: Vocabularies, frame: FrameName, fields: Fields
) -> None:
    """Refuse a checkpoint whose special tokens around a text are none that we put there."""
    if directory.has(SOURCE_MODEL) and frame != "marian":
        fields.refuse("decoder_start_token_id", f"{vocabularies.target.id_of('pad')}, the padding token")
    target = target_template_of(vocabularies.target, frame)
    for name, mine in (("decoder_start_token_id", target.first), ("eos_token_id", target.last)):
        if fields.integer(name) != mine:
            fields.refuse(name, f"{mine}, which the tokenizer has for it")
    if directory.has(SOURCE_MODEL):
        return
    given = tokenizers.Tokenizer.from_str(json.dumps(directory.json(TOKENIZER))).encode("a").ids
    wanted = template_of(vocabularies.source, frame).one(vocabularies.source.encode("a"), 64).tokens.tolist()
    if given != wanted:
        what = f"puts other tokens around a text ({given}) than the model is read with here ({wanted})"
        fix = "give it a post-processor that puts these there"
        raise UserError(what, where=directory.path / TOKENIZER, fix=fix, code="unsupported")


# ---- out ----------------------------------------------------------------------------------------------------


def is_marian(vocabularies: Vocabularies, frame: FrameName) -> bool:
    """Whether `transformers` can read the tokenizers as Marian's own."""
    formats = [side.spec.get("format") for side in (vocabularies.source, vocabularies.target)]
    return frame == "marian" and formats == [sentencepiece.MARIAN_FORMAT] * 2


def tokenizer_obstacle(vocabularies: Vocabularies, frame: FrameName) -> str | None:
    """What keeps the tokenizers from being written in either form."""
    has_models = any("format" in side.spec for side in (vocabularies.source, vocabularies.target))
    if has_models and not is_marian(vocabularies, frame):
        return "the tokenizer is a SentencePiece model with a token before each text, and Marian's puts none there"
    return None


def write_marian(vocabularies: Vocabularies, frame: FrameName, length: int, directory: Path) -> None:
    """Write the tokenizers so that `transformers` gives the ids that the run reads."""
    common: Spec = {"model_max_length": length, "clean_up_tokenization_spaces": False}
    if is_marian(vocabularies, frame):
        is_separate = vocabularies.source.pieces != vocabularies.target.pieces
        for name, side in ((SOURCE_MODEL, vocabularies.source), (TARGET_MODEL, vocabularies.target)):
            atomic_write(directory / name, base64.b64decode(side.spec["model"]))
        write_json(directory / VOCABULARY, _vocabulary(vocabularies.source))
        if is_separate:
            write_json(directory / TARGET_VOCABULARY, _vocabulary(vocabularies.target))
        spelled = {"eos_token": END, "unk_token": UNKNOWN, "pad_token": PAD}
        own: Spec = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": is_separate}
        write_json(directory / SETTINGS, {**common, **own, **spelled})
        return
    source = vocabularies.source
    around = template_of(source, frame)
    write_json(directory / TOKENIZER, framed_spec(source, around))
    if not vocabularies.is_joint:
        write_json(directory / TARGET_TOKENIZER, framed_spec(vocabularies.target, Template(None, None)))
    roles = {
        "bos_token": around.first, "eos_token": around.last, "unk_token": source.roles["unknown"],
        "pad_token": source.roles["pad"],
    }  # fmt: skip
    spelled = {name: source.pieces[identity] for name, identity in roles.items() if identity is not None}
    write_json(directory / SETTINGS, {**common, "tokenizer_class": "PreTrainedTokenizerFast", **spelled})


def _vocabulary(side: Tokenizer) -> dict[str, int]:
    is_unused = sentencepiece.is_unused
    return {piece: number for number, piece in enumerate(side.pieces) if not is_unused(piece, number)}
