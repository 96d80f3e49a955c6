"""Tokenizers that cut text with a SentencePiece model: the course's, and each side of a Marian translator.

The ids of the course's are those of fairseq's dictionaries: `<s>` 0, `<pad>` 1, `</s>` 2, `<unk>` 3, then the lines of
`dict.txt` in their order; pieces that `dict.txt` lacks are unknown. Without a `dict.txt` beside the model the ids are
the model's own. The sides of a Marian translator have a model each and most often one vocabulary, which gives the ids;
a text may begin with the language to translate into, `>>fra<<`, one token where the vocabulary has it.

Saved as a `tokenizer.json` that holds the model itself, so that a run needs no other file.
"""

import base64
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headstart.errors import UserError
from headstart.tokenizers.special_tokens import MOST_UNUSED, SPELLINGS

SPM_FORMAT, MARIAN_FORMAT = "headstart-sentencepiece-1", "headstart-marian-1"
_FAIRSEQ_SPECIALS = ["<s>", "<pad>", "</s>", "<unk>"]
END, UNKNOWN, PAD = "</s>", "<unk>", "<pad>"  # Marian's
_UNUSED = "<unused {}>"


def read_spm(model: Path) -> dict[str, Any]:
    """The specification of a tokenizer from a `.model` and, where there is one, the `dict.txt` beside it."""
    raw = read_bytes(model)
    processor, dictionary = processor_of(raw, str(model)), model.with_name("dict.txt")
    if dictionary.exists():
        specials = list(_FAIRSEQ_SPECIALS)
        pieces = specials + _dictionary_pieces(dictionary)
    else:
        pieces = [processor.id_to_piece(i) for i in range(len(processor))]
        specials = [p for i, p in enumerate(pieces) if processor.is_control(i) or processor.is_unknown(i)]
    return _spec(SPM_FORMAT, specials, pieces, raw)


def read_bytes(path: Path) -> bytes:
    """The content of a file of a tokenizer."""
    try:
        return path.read_bytes()
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
        raise UserError(what, where=path, fix="check the path", code="no-file") from error


def _spec(form: str, specials: list[str], pieces: list[str], model: bytes) -> dict[str, Any]:
    return {"format": form, "specials": specials, "pieces": pieces, "model": base64.b64encode(model).decode("ascii")}


def _dictionary_pieces(path: Path) -> list[str]:
    pieces: list[str] = []
    seen = set(_FAIRSEQ_SPECIALS)
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        what = f"not UTF-8 at byte {error.start}"
        raise UserError(what, where=path, fix="save it as UTF-8", code="bad-text") from error
    for number, line in enumerate(lines, start=1):
        if not line and number == len(lines):
            break
        piece, _, count = line.rpartition(" ")
        where = f"{path}:{number}"
        if not piece or not count.isdigit():
            what, fix = f"{line!r} is not a line of a dictionary", "a line is a piece, a space and a count"
            raise UserError(what, where=where, fix=fix, code="bad-format")
        if piece in seen:
            what, fix = f"the piece {piece!r} is there twice", "keep one of the two"
            raise UserError(what, where=where, fix=fix, code="conflict")
        seen.add(piece)
        pieces.append(piece)
    return pieces


def marian_spec(model: bytes, vocabulary: Mapping[str, int], size: int, where: str) -> dict[str, Any]:
    """The specification of one side of a Marian translator; `size` is the number of rows of its embedding.

    Where the embedding has more rows than the vocabulary has pieces, the rest are special tokens without a meaning.
    """
    if size > len(vocabulary) + MOST_UNUSED:
        what = f"has {len(vocabulary):,} pieces, and the embedding {size:,} rows"
        raise UserError(what, where=where, fix="give the checkpoint's own config.json and vocabulary", code="mismatch")
    pieces: list[str | None] = [None] * size
    for piece, identity in vocabulary.items():
        if not isinstance(identity, int) or isinstance(identity, bool) or not 0 <= identity < size:
            what, fix = f"the piece {piece!r} has the id {identity!r}", f"ids are from 0 to {size - 1:,}"
            raise UserError(what, where=where, fix=fix, code="bad-format")
        if pieces[identity] is not None:
            what = f"{pieces[identity]!r} and {piece!r} have the same id, {identity}"
            raise UserError(what, where=where, fix="give each piece its own id", code="conflict")
        pieces[identity] = piece
    missing = [special for special in (END, UNKNOWN, PAD) if special not in vocabulary]
    if missing:
        what = f"has no {' and no '.join(missing)}"
        raise UserError(what, where=where, fix="give a Marian vocabulary", code="missing")
    named = [_UNUSED.format(i) if piece is None else piece for i, piece in enumerate(pieces)]
    unused = [name for name, piece in zip(named, pieces, strict=True) if piece is None]
    return _spec(MARIAN_FORMAT, [END, UNKNOWN, PAD, *unused], named, model)


def is_unused(piece: str, identity: int) -> bool:
    """Whether the vocabulary has no piece for this id."""
    return piece == _UNUSED.format(identity)


def processor_of(raw: bytes, where: str) -> Any:
    """The model of the `sentencepiece` library, from the bytes of its file."""
    try:
        import sentencepiece
    except ImportError as error:
        what = "a SentencePiece model needs the package sentencepiece"
        raise UserError(what, where=where, fix="pip install 'headstart[sentencepiece]'", code="no-package") from error
    try:
        return sentencepiece.SentencePieceProcessor(model_proto=raw)
    except Exception as error:  # the library raises RuntimeError or its own, by version
        what = f"is not a SentencePiece model ({error})"
        raise UserError(what, where=where, fix="check the file", code="bad-format") from error


class _ModelEngine:
    """What both engines share: the model, its pieces, and special tokens that text never becomes."""

    continuing = ""  # a word begins with white space; no piece is marked as one that continues it

    def __init__(self, spec: dict[str, Any]) -> None:
        self._processor = processor_of(base64.b64decode(spec["model"]), "tokenizer.json")
        self.pieces: list[str] = spec["pieces"]
        self._ids = {piece: identity for identity, piece in enumerate(self.pieces)}
        self.specials: dict[str, int] = {piece: self._ids[piece] for piece in spec["specials"]}
        self._unknown = next((i for piece, i in self.specials.items() if piece in SPELLINGS["unknown"]), 0)
        # Spelled as they are, without the model, which shows the unknown as ` ⁇ `.
        self._spelled = frozenset(self.specials.values()) - {self._unknown}

    def text_of(self, identity: int) -> str:
        """The stretch of text that one token stands for."""
        return self.pieces[identity].replace("▁", " ")

    def with_special(self, spec: dict[str, Any], spelling: str) -> dict[str, Any]:
        """The specification with one more special token, at the end."""
        return {**spec, "specials": [*spec["specials"], spelling], "pieces": [*self.pieces, spelling]}


class SentencePieceEngine(_ModelEngine):
    """Encodes and decodes by a SentencePiece model, in the ids of its dictionary."""

    def __init__(self, spec: dict[str, Any]) -> None:
        super().__init__(spec)
        model_pieces = [self._processor.id_to_piece(i) for i in range(len(self._processor))]
        self._ours = np.array([self._ids.get(piece, self._unknown) for piece in model_pieces], np.uint32)
        self._models = [self._processor.piece_to_id(piece) for piece in self.pieces]

    def encode_flat(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The ids of all texts in one array, and how many belong to each."""
        encoded = self._processor.encode(list(texts))
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        ids = np.fromiter((i for one in encoded for i in one), np.int64, int(lengths.sum()))
        return self._ours[ids], lengths

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids, special tokens spelled; the library shows what is unknown as ` ⁇ `."""
        return "".join(
            "".join(self.pieces[i] for i in run)
            if is_spelled
            else self._processor.decode([self._models[i] for i in run])
            for is_spelled, run in itertools.groupby(ids, key=self._spelled.__contains__)
        )


class MarianEngine(_ModelEngine):
    """Encodes and decodes one side of a Marian model."""

    def __init__(self, spec: dict[str, Any]) -> None:
        super().__init__(spec)
        self._ordinary = {piece: i for piece, i in self._ids.items() if piece not in self.specials}

    def encode_flat(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The ids of all texts in one array, and how many belong to each."""
        codes, bodies = zip(*map(_language_code, texts), strict=True) if texts else ((), ())
        # By their spelling: what the model has no piece for may be a piece of the other side's.
        encoded = self._processor.encode(list(bodies), out_type=str)
        rows = [[*code, *pieces] for code, pieces in zip(codes, encoded, strict=True)]
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        ids = (self._ordinary.get(piece, self._unknown) for piece in itertools.chain.from_iterable(rows))
        return np.fromiter(ids, np.uint32, int(lengths.sum())), lengths

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids, special tokens spelled; pieces of the other side's model too."""
        parts: list[str] = []
        for is_special, run in itertools.groupby(ids, key=self._spelled.__contains__):
            pieces = [self.pieces[identity] for identity in run]
            parts.append(" ".join(pieces) if is_special else self._processor.decode_pieces(pieces))
        return " ".join(part for part in parts if part).replace("▁", " ").strip()


def _language_code(text: str) -> tuple[list[str], str]:
    """The language that a text begins with, `>>fra<<`, and the rest; an empty list where there is none."""
    end = text.find("<<") if text.startswith(">>") else -1
    return ([], text) if end < 0 else ([text[: end + 2]], text[end + 2 :])
