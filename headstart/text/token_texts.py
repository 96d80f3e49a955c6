"""Tokens as a reader sees them: the text of each, special ones marked, halves of a character named as such."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from headstart.text.tokenizer import Tokenizer

HALF_A_CHARACTER = "\ufffd"  # what bytes that are no whole character are decoded to
_ENDS_IN_A_BYTE = re.compile(r"<(?:0x)?[0-9A-F]{2}>$")


class ShownToken(NamedTuple):
    """A token to look at."""

    text: str
    """With the white space before it; `é (1/2)` for the first of the two tokens of an é."""

    is_special: bool
    """Whether it stands around the text instead of in it: the unknown token stands in it."""


def shown_tokens(tokenizer: Tokenizer, ids: Sequence[int] | np.ndarray) -> list[ShownToken]:
    """Each token as it is shown.

    Bytes that make up a character together are each shown as that character, with their number among them; those
    of a character that is cut off stay bytes, such as `<C3>`.
    """
    ids, special = [int(identity) for identity in ids], specials_around(tokenizer)
    pieces, texts = tokenizer.pieces_of(ids), list[str]()
    for stretch in whole_stretches(tokenizer, ids):
        if len(stretch) == 1:
            texts.append(pieces[stretch.start])
        else:
            text = text_of_stretch(tokenizer, ids, stretch)
            texts += [f"{text} ({place}/{len(stretch)})" for place in range(1, len(stretch) + 1)]
    return [ShownToken(text, identity in special) for text, identity in zip(texts, ids, strict=True)]


def whole_stretches(tokenizer: Tokenizer, ids: Sequence[int]) -> list[range]:
    """The places of the ids in the fewest tokens that are whole characters: nearly always one token each."""
    pieces, special = tokenizer.pieces_of(ids), specials_around(tokenizer)
    found, start = list[range](), 0
    for end, piece in enumerate(pieces, 1):
        is_half = _ENDS_IN_A_BYTE.search(piece) and ids[end - 1] not in special
        if is_half and tokenizer.decode(ids[start:end]).endswith(HALF_A_CHARACTER):
            continue
        found += _whole_or_single(tokenizer, ids, range(start, end))
        start = end
    return found + _singles(range(start, len(ids)))


def _whole_or_single(tokenizer: Tokenizer, ids: Sequence[int], stretch: range) -> list[range]:
    """The stretch, or its tokens one by one where something else came than the other half."""
    if len(stretch) == 1:
        return [stretch]
    tokens = [ids[place] for place in stretch]
    has_special = not specials_around(tokenizer).isdisjoint(tokens)
    is_whole = not has_special and HALF_A_CHARACTER not in tokenizer.decode(tokens)
    return [stretch] if is_whole else _singles(stretch)


def _singles(stretch: range) -> list[range]:
    return [range(place, place + 1) for place in stretch]


def text_of_stretch(tokenizer: Tokenizer, ids: Sequence[int], stretch: range) -> str:
    """The text of a stretch of whole characters, with the white space before it."""
    if len(stretch) == 1:
        return tokenizer.pieces_of([ids[stretch.start]])[0]
    return tokenizer.decode([ids[place] for place in stretch])


def specials_around(tokenizer: Tokenizer) -> frozenset[int]:
    """The special ids but for the unknown one, which stands for something in the text."""
    return tokenizer.special_ids - {tokenizer.roles["unknown"]}
