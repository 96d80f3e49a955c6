"""The course's SentencePiece model and its `dict.txt`, under the same roof as other tokenizers.

The ids are those of fairseq's dictionaries, as in the lab: `<s>` 0, `<pad>` 1, `</s>` 2, `<unk>` 3, then the
lines of `dict.txt` in their order; pieces of the model that `dict.txt` has not are unknown. Without a
`dict.txt` beside the model the ids are the model's own. Saved as a `tokenizer.json` that holds the model
itself, so that a run needs no other file.
"""

import base64
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headstart.errors import UserError
from headstart.text.roles import SPELLINGS

SPM_FORMAT = "headstart-sentencepiece-1"
_FAIRSEQ_SPECIALS = ["<s>", "<pad>", "</s>", "<unk>"]


def read_spm(model: str | Path, dictionary: str | Path | None = None) -> dict[str, Any]:
    """The specification of a tokenizer from a `.model` and a `dict.txt` (default: the one beside it)."""
    model = Path(model)
    try:
        raw = model.read_bytes()
    except OSError as error:
        raise UserError(
            f"cannot be read ({error.strerror})", where=str(model), fix="check the path"
        ) from error
    processor = processor_of(raw, str(model))
    dictionary = Path(dictionary) if dictionary else model.with_name("dict.txt")
    if dictionary.exists():
        specials = list(_FAIRSEQ_SPECIALS)
        pieces = specials + _dictionary_pieces(dictionary)
    else:
        pieces = [processor.id_to_piece(i) for i in range(len(processor))]
        specials = [p for i, p in enumerate(pieces) if processor.is_control(i) or processor.is_unknown(i)]
    encoded = base64.b64encode(raw).decode("ascii")
    return {"format": SPM_FORMAT, "specials": specials, "pieces": pieces, "model": encoded}


def _dictionary_pieces(path: Path) -> list[str]:
    pieces: list[str] = []
    seen = set(_FAIRSEQ_SPECIALS)
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(
            f"not UTF-8 at byte {error.start}", where=str(path), fix="save it as UTF-8"
        ) from error
    for number, line in enumerate(lines, start=1):
        if not line and number == len(lines):
            break
        piece, _, count = line.rpartition(" ")
        where, fix = f"{path}:{number}", "a line is a piece, a space and a count"
        if not piece or not count.isdigit():
            raise UserError(f"{line!r} is not a line of a dictionary", where=where, fix=fix)
        if piece in seen:
            raise UserError(f"the piece {piece!r} is there twice", where=where, fix="keep one of the two")
        seen.add(piece)
        pieces.append(piece)
    return pieces


def processor_of(raw: bytes, where: str) -> Any:
    """The model of the `sentencepiece` library, from the bytes of its file."""
    try:
        import sentencepiece
    except ImportError as error:
        raise UserError(
            "a SentencePiece model needs the package sentencepiece",
            where=where,
            fix="pip install 'headstart[sentencepiece]'",
        ) from error
    try:
        return sentencepiece.SentencePieceProcessor(model_proto=raw)
    except Exception as error:  # the library raises RuntimeError or its own, by version
        raise UserError(f"is no SentencePiece model ({error})", where=where, fix="check the file") from error


class SentencePieceEngine:
    """Encodes and decodes by a SentencePiece model, in the ids of its dictionary."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._processor = processor_of(base64.b64decode(spec["model"]), "tokenizer.json")
        self.pieces: list[str] = spec["pieces"]
        identities = {piece: i for i, piece in enumerate(self.pieces)}
        self.specials: dict[str, int] = {piece: identities[piece] for piece in spec["specials"]}
        unknown = next((i for piece, i in self.specials.items() if piece in SPELLINGS["unknown"]), 0)
        model_pieces = [self._processor.id_to_piece(i) for i in range(len(self._processor))]
        self._ours = np.array([identities.get(piece, unknown) for piece in model_pieces], np.uint32)
        self._models = [self._processor.piece_to_id(piece) for piece in self.pieces]
        self._spelled = frozenset(self.specials.values()) - {unknown}

    def encode_flat(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The ids of all texts in one array, and how many belong to each."""
        encoded = self._processor.encode(list(texts))
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        ids = np.fromiter((i for one in encoded for i in one), np.int64, int(lengths.sum()))
        return self._ours[ids], lengths

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids, special tokens spelled; the library shows what is unknown as ` ⁇ `."""
        spelled = [(i in self._spelled, i) for i in ids]
        return "".join(
            "".join(self.pieces[i] for _, i in run)
            if is_spelled
            else self._processor.decode([self._models[i] for _, i in run])
            for is_spelled, run in itertools.groupby(spelled, key=lambda pair: pair[0])
        )

    def text_of(self, identity: int) -> str:
        """The stretch of text that one token stands for."""
        return self.pieces[identity].replace("▁", " ")

    def continues_word(self, identity: int) -> bool | None:
        """Pieces do not say so themselves: their white space does."""
        return None

    def with_special(self, spec: dict[str, Any], spelling: str) -> dict[str, Any]:
        """The specification with one more special token, at the end."""
        return {**spec, "specials": [*spec["specials"], spelling], "pieces": [*self.pieces, spelling]}
