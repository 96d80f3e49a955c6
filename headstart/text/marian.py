"""The tokenizer of a Marian directory: a SentencePiece model cuts the text, a vocabulary of its own gives the ids.

Source and target have a model each, and most often one vocabulary for both; here each side is a tokenizer of its own.
A piece that the vocabulary has not is unknown. A text may begin with the language to translate into, `>>fra<<`, which
is one token where the vocabulary has it. Saved as a `tokenizer.json` that holds the model itself.
"""

import base64
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headstart.errors import UserError
from headstart.text.huggingface import MOST_UNUSED
from headstart.text.spm import processor_of

MARIAN_FORMAT = "headstart-marian-1"
_UNUSED = "<unused {}>"
END, UNKNOWN, PAD = "</s>", "<unk>", "<pad>"


def marian_spec(model: bytes, vocabulary: Mapping[str, int], size: int, where: str) -> dict[str, Any]:
    """The specification of one side, from the bytes of its model and from its vocabulary; `size` is the embedding's.

    Where the embedding has more rows than the vocabulary has pieces, the rest are special tokens without a meaning.
    """
    if size > len(vocabulary) + MOST_UNUSED:  # it may tell of any number
        raise UserError(
            f"has {len(vocabulary):,} pieces, and the embedding {size:,} rows",
            where=where,
            fix="give the checkpoint's own config.json and vocabulary",
        )
    pieces: list[str | None] = [None] * size
    for piece, identity in vocabulary.items():
        if not isinstance(identity, int) or isinstance(identity, bool) or not 0 <= identity < size:
            raise UserError(
                f"the piece {piece!r} has the id {identity!r}",
                where=where,
                fix=f"ids are from 0 to {size - 1:,}",
            )
        if pieces[identity] is not None:
            raise UserError(
                f"{pieces[identity]!r} and {piece!r} have the same id, {identity}",
                where=where,
                fix="mend the file",
            )
        pieces[identity] = piece
    missing = [special for special in (END, UNKNOWN, PAD) if special not in vocabulary]
    if missing:
        raise UserError(f"has no {' and no '.join(missing)}", where=where, fix="give a Marian vocabulary")
    unused = [_UNUSED.format(identity) for identity, piece in enumerate(pieces) if piece is None]
    return {
        "format": MARIAN_FORMAT,
        "specials": [END, UNKNOWN, PAD, *unused],
        "pieces": [_UNUSED.format(i) if piece is None else piece for i, piece in enumerate(pieces)],
        "model": base64.b64encode(model).decode("ascii"),
    }


def is_unused(piece: str, identity: int) -> bool:
    """Whether the vocabulary has no piece for this id."""
    return piece == _UNUSED.format(identity)


class MarianEngine:
    """Encodes and decodes one side of a Marian model."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._processor = processor_of(base64.b64decode(spec["model"]), "tokenizer.json")
        self.pieces: list[str] = spec["pieces"]
        self._ids = {piece: identity for identity, piece in enumerate(self.pieces)}
        self.specials: dict[str, int] = {piece: self._ids.pop(piece) for piece in spec["specials"]}
        self._unknown = self.specials[UNKNOWN]

    def encode_flat(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The ids of all texts in one array, and how many belong to each."""
        codes, bodies = zip(*map(_language_code, texts), strict=True) if texts else ((), ())
        # By their spelling: what the model has no piece for may be a piece of the other side's.
        encoded = self._processor.encode(list(bodies), out_type=str)
        rows = [[*code, *pieces] for code, pieces in zip(codes, encoded, strict=True)]
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        ids = (self._ids.get(piece, self._unknown) for piece in itertools.chain.from_iterable(rows))
        return np.fromiter(ids, np.uint32, int(lengths.sum())), lengths

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids, special tokens spelled; pieces of the other side's model too."""
        parts: list[str] = []
        for is_special, run in itertools.groupby(ids, key=self._is_spelled):
            pieces = [self.pieces[identity] for identity in run]
            parts.append(" ".join(pieces) if is_special else self._processor.decode_pieces(pieces))
        return " ".join(part for part in parts if part).replace("▁", " ").strip()

    def _is_spelled(self, identity: int) -> bool:
        """Whether the model is not asked: the unknown is shown by it as ` ⁇ `."""
        return identity != self._unknown and self.pieces[identity] in self.specials

    def text_of(self, identity: int) -> str:
        """The stretch of text that one token stands for."""
        return self.pieces[identity].replace("▁", " ")

    def continues_word(self, identity: int) -> bool | None:
        """Pieces do not say so themselves: their white space does."""
        return None

    def with_special(self, spec: dict[str, Any], spelling: str) -> dict[str, Any]:
        """The specification with one more special token, at the end."""
        return {**spec, "specials": [*spec["specials"], spelling], "pieces": [*self.pieces, spelling]}


def _language_code(text: str) -> tuple[list[str], str]:
    """The language that a text begins with, `>>fra<<`, and the rest; an empty list where there is none."""
    end = text.find("<<") if text.startswith(">>") else -1
    return ([], text) if end < 0 else ([text[: end + 2]], text[end + 2 :])
