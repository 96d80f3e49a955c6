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

from headstart.errors import UserError
from headstart.interop.fields import Fields
from headstart.interop.reading import ForeignDirectory
from headstart.interop.tokenizers_in import read_tokenizer
from headstart.interop.tokenizers_out import framed_spec, write_json
from headstart.text.frames import Frame, FrameName, frame_of, target_frame_of
from headstart.text.marian import END, MARIAN_FORMAT, PAD, UNKNOWN, is_unused, marian_spec
from headstart.text.spm import processor_of
from headstart.text.tokenizer import Tokenizer
from headstart.training.run_directory import write_whole
from headstart.training.vocabularies import Vocabularies

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
        return _of_these_sizes(_read_plain(directory, fields), vocab, target_vocab or vocab, fields)
    settings = directory.json(SETTINGS) if directory.has(SETTINGS) else {}
    _refuse_other_settings(settings, f"{directory.path / SETTINGS}")
    words = directory.json(VOCABULARY)
    is_separate = settings.get("separate_vocabs", False) is True
    target_words = directory.json(TARGET_VOCABULARY) if is_separate else words
    target_name = TARGET_VOCABULARY if is_separate else VOCABULARY
    source = marian_spec(_model(directory, SOURCE_MODEL), words, vocab, f"{directory.path / VOCABULARY}")
    target = marian_spec(
        _model(directory, TARGET_MODEL),
        target_words,
        target_vocab or vocab,
        f"{directory.path / target_name}",
    )
    return Vocabularies(Tokenizer(source), Tokenizer(target))


def _model(directory: ForeignDirectory, name: str) -> bytes:
    path = directory.file(name)
    if path.stat().st_size > LARGEST_MODEL_BYTES:
        raise UserError(
            f"has {path.stat().st_size:,} bytes, and {LARGEST_MODEL_BYTES:,} are read at most",
            where=str(path),
            fix="give the checkpoint's own file",
        )
    raw = path.read_bytes()
    processor_of(raw, str(path))  # what is no model is refused while its file can be named
    return raw


def _refuse_other_settings(settings: Spec, where: str) -> None:
    """Refuse settings by which other ids would come out."""
    if settings.get("sp_model_kwargs"):
        raise UserError(
            "sp_model_kwargs asks for sampled pieces, and text is always cut in the same way here",
            where=where,
            fix="delete sp_model_kwargs from the file",
        )
    for name, spelling in (("eos_token", END), ("unk_token", UNKNOWN), ("pad_token", PAD)):
        given = settings.get(name) or spelling
        given = given.get("content") if isinstance(given, dict) else given
        if given != spelling:
            raise UserError(
                f"{name} is {given!r}", where=where, fix=f"a Marian vocabulary has it as {spelling}"
            )
    added = settings.get("added_tokens_decoder") or {}
    spellings = [token.get("content") for token in added.values()] if isinstance(added, dict) else [added]
    if others := [spelling for spelling in spellings if spelling not in (END, UNKNOWN, PAD)]:
        raise UserError(
            f"adds {others[0]!r} to the vocabulary, to be looked for in every text",
            where=where,
            fix="give a checkpoint without added tokens",
        )


def _read_plain(directory: ForeignDirectory, fields: Fields) -> Vocabularies:
    """From `tokenizer.json`, and the target's beside it where it has one of its own."""
    if not directory.has(TOKENIZER):
        raise UserError(
            f"has no {SOURCE_MODEL} and no {TOKENIZER}",
            where=str(directory.path),
            fix="give a whole checkpoint",
        )
    source = read_tokenizer(directory, fields, "causal").tokenizer
    if not directory.has(TARGET_TOKENIZER):
        return Vocabularies(source, source)
    spec = directory.json(TARGET_TOKENIZER)
    if not isinstance(spec.get("model"), dict):
        raise UserError(
            "has no model", where=str(directory.path / TARGET_TOKENIZER), fix="give a tokenizer.json"
        )
    return Vocabularies(source, Tokenizer(spec, str(directory.path / TARGET_TOKENIZER)))


def _of_these_sizes(words: Vocabularies, vocab: int, target_vocab: int, fields: Fields) -> Vocabularies:
    """Refuse an embedding with other rows than a tokenizer has tokens."""
    for name, rows, side in (
        ("vocab_size", vocab, words.source),
        ("decoder_vocab_size", target_vocab, words.target),
    ):
        if rows != side.size:
            fields.refuse(name, f"{side.size}, which the tokenizer has")
    return words


def refuse_other_frame(
    directory: ForeignDirectory, words: Vocabularies, frame: FrameName, fields: Fields
) -> None:
    """Refuse a checkpoint whose special tokens around a text are none that we put there."""
    if directory.has(SOURCE_MODEL) and frame != "marian":
        fields.refuse("decoder_start_token_id", f"{words.target.id_of('pad')}, the padding token")
    target = target_frame_of(words.target, frame)
    for name, mine in (("decoder_start_token_id", target.first), ("eos_token_id", target.last)):
        if fields.integer(name) != mine:
            fields.refuse(name, f"{mine}, which the tokenizer has for it")
    if directory.has(SOURCE_MODEL):
        return
    given = tokenizers.Tokenizer.from_str(json.dumps(directory.json(TOKENIZER))).encode("a").ids
    wanted = frame_of(words.source, frame).one(words.source.encode("a"), 64).tokens.tolist()
    if given != wanted:
        raise UserError(
            f"puts other tokens around a text ({given}) than the model is read with here ({wanted})",
            where=str(directory.path / TOKENIZER),
            fix="give it a post-processor that puts these there",
        )


# ---- out ----------------------------------------------------------------------------------------------------


def is_marian(words: Vocabularies, frame: FrameName) -> bool:
    """Whether `transformers` can read the tokenizers as Marian's own."""
    return frame == "marian" and all(
        side.spec.get("format") == MARIAN_FORMAT for side in (words.source, words.target)
    )


def tokenizer_obstacle(words: Vocabularies, frame: FrameName) -> str | None:
    """What keeps the tokenizers from being written in either form."""
    if is_marian(words, frame):
        return None
    if any("format" in side.spec for side in (words.source, words.target)):
        return "the tokenizer is a SentencePiece model with a token before each text, and Marian's puts none there"
    return None


def write_marian(words: Vocabularies, frame: FrameName, length: int, directory: Path) -> None:
    """Write the tokenizers so that `transformers` gives the ids that the run reads."""
    common: Spec = {"model_max_length": length, "clean_up_tokenization_spaces": False}
    if is_marian(words, frame):
        is_separate = words.source.pieces != words.target.pieces
        for name, side in ((SOURCE_MODEL, words.source), (TARGET_MODEL, words.target)):
            write_whole(directory / name, base64.b64decode(side.spec["model"]))
        write_json(directory / VOCABULARY, _vocabulary(words.source))
        if is_separate:
            write_json(directory / TARGET_VOCABULARY, _vocabulary(words.target))
        write_json(
            directory / SETTINGS,
            {
                **common, "tokenizer_class": "MarianTokenizer", "separate_vocabs": is_separate,
                "eos_token": END, "unk_token": UNKNOWN, "pad_token": PAD,
            },
        )  # fmt: skip
        return
    around = frame_of(words.source, frame)
    write_json(directory / TOKENIZER, framed_spec(words.source, around))
    if not words.is_joint:
        write_json(directory / TARGET_TOKENIZER, framed_spec(words.target, Frame(None, None)))
    roles = {
        "bos_token": around.first, "eos_token": around.last, "unk_token": words.source.roles["unknown"],
        "pad_token": words.source.roles["pad"],
    }  # fmt: skip
    spelled = {
        name: words.source.pieces[identity] for name, identity in roles.items() if identity is not None
    }
    write_json(directory / SETTINGS, {**common, "tokenizer_class": "PreTrainedTokenizerFast", **spelled})


def _vocabulary(side: Tokenizer) -> dict[str, int]:
    return {piece: identity for identity, piece in enumerate(side.pieces) if not is_unused(piece, identity)}
