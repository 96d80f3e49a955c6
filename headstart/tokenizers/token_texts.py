"""Tokens as a reader sees them: the text of each, special ones marked, halves of a character named as such."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from headstart.tokenizers.tokenizer import Tokenizer

HALF_A_CHARACTER = "\ufffd"  # what bytes that are no whole character are decoded to
_ENDS_IN_A_BYTE = re.compile(r"<(?:0x)?[0-9A-F]{2}>$")


class ShownToken(NamedTuple):
    """A token to look at."""

    text: str  # with the white space before it; `é (1/2)` for the first of the two tokens of an é
    is_special: bool  # whether it stands around the text instead of in it: the unknown token stands in it


def shown_tokens(tokenizer: Tokenizer, ids: Sequence[int] | np.ndarray) -> list[ShownToken]:
    """Each token as it is shown.

    Bytes that make up a character together are each shown as that character, with their number among them; those
    of a character that is cut off stay bytes, such as `<C3>`.
    """
    ids, special, shown = [int(identity) for identity in ids], specials_around(tokenizer), list[ShownToken]()
    for stretch in whole_stretches(tokenizer, ids):
        text, count = text_of_stretch(tokenizer, ids, stretch), len(stretch)
        numbers = [""] if count == 1 else [f" ({number}/{count})" for number in range(1, count + 1)]
        shown += [ShownToken(text + number, ids[i] in special) for i, number in zip(stretch, numbers, strict=True)]
    return shown


def whole_stretches(tokenizer: Tokenizer, ids: Sequence[int]) -> list[range]:
    """The positions of the ids in the fewest tokens that are whole characters: nearly always one token each."""
    pieces, special = tokenizer.pieces_of(ids), specials_around(tokenizer)
    stretches, start = list[range](), 0
    for end, piece in enumerate(pieces, 1):
        is_half = _ENDS_IN_A_BYTE.search(piece) and ids[end - 1] not in special
        if is_half and tokenizer.decode(ids[start:end]).endswith(HALF_A_CHARACTER):
            continue
        tokens = ids[start:end]
        if special.isdisjoint(tokens) and HALF_A_CHARACTER not in tokenizer.decode(tokens):
            stretches.append(range(start, end))
        else:  # something else came than the other half
            stretches += [range(position, position + 1) for position in range(start, end)]
        start = end
    return stretches + [range(position, position + 1) for position in range(start, len(ids))]


def text_of_stretch(tokenizer: Tokenizer, ids: Sequence[int], stretch: range) -> str:
    """The text of a stretch of whole characters, with the white space before it."""
    if len(stretch) == 1:
        return tokenizer.pieces_of([ids[stretch.start]])[0]
    return tokenizer.decode(ids[stretch.start : stretch.stop])


def specials_around(tokenizer: Tokenizer) -> frozenset[int]:
    """The special ids but for the unknown one, which stands for something in the text."""
    return tokenizer.special_ids - {tokenizer.roles["unknown"]}
