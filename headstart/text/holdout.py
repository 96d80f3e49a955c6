"""A corpus in two parts, by the hash of each document: what is trained on, and what is held out to measure by."""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Literal

from headstart.randomness import seed_of
from headstart.text.documents import Piece

Part = Literal["all", "kept", "held out"]
SHARE = 0.1


def document_part(
    source: Iterable[Piece], part: Part, share: float = SHARE, seed: int = 0
) -> Iterator[Piece]:
    """The pieces of the documents of one part.

    A document's side hangs on its first piece alone (all of it, up to 65,536 characters): so it can be of any
    size, and a repeated document is never on both sides.
    """
    is_first, is_wanted = True, True
    for piece in source:
        if is_first and part != "all":
            is_wanted = _is_held_out(piece.text, share, seed) == (part == "held out")
        if is_wanted:
            yield piece
        is_first = piece.ends_document


def _is_held_out(text: str, share: float, seed: int) -> bool:
    key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return seed_of(seed, "hold out", key) < share * 2**63
