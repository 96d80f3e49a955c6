"""Which polar expression of the embedded corpus is drawn how often, and by whom.

Expressions are drawn by rank, the first of a list far more often than the last. One in three is known, whatever
its rank; the others are late: most training reviews do without them, while the unlabelled text and the test use
them all, in the company of known ones.
"""

from bisect import bisect
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate
from random import Random
from typing import Any, NamedTuple

from headstart.text import phrases_polar as polar
from headstart.text.phrases_adjectives import ADJECTIVES, BAD, GOOD

HEAD_RANK, TAIL_POWER = 1.5, 2.2  # an expression's weight is 1 / (1 + (rank / head) ** power)
KNOWN_EVERY, KNOWN_FIRST = 3, 2  # known ranks, counted from 0, are 2, 5, 8, …

_LISTS: dict[str, dict[int, Sequence[Sequence[Any]]]] = {
    "adjective": {side: ADJECTIVES[side] for side in (GOOD, BAD)},
    "verb": {side: [rows] for side, rows in polar.VERBS.items()},
    "noun": {side: [rows] for side, rows in polar.NOUNS.items()},
    "past": {side: [rows] for side, rows in polar.PASTS.items()},
    "effect": {side: [rows] for side, rows in polar.EFFECTS.items()},
    "verdict": {side: [rows] for side, rows in polar.VERDICTS.items()},
    "luckily": {side: [rows] for side, rows in polar.LUCKILY.items()},
    "snag": {side: [rows] for side, rows in polar.SNAGS.items()},
}


class Expression(NamedTuple):
    """A polar expression as it was used."""

    french: str
    polarity: int
    late: bool


class NothingLeft(Exception):
    """The review has spoken of everything that the next place could be about."""


class Pool:
    """Things to draw by weight."""

    def __init__(self, things: Sequence[Any], weights: Sequence[float]) -> None:
        self.things = things
        self.bounds = list(accumulate(weights))

    def draw(self, random: Random) -> Any:
        return self.things[bisect(self.bounds, random.random() * self.bounds[-1])]


def _ranked(kind: str, polarity: int) -> Iterator[tuple[Any, float, bool]]:
    """The expressions of a kind, each with its weight and whether it is late."""
    for rows in _LISTS[kind][polarity]:
        for rank, row in enumerate(rows):
            yield row, 1 / (1 + (rank / HEAD_RANK) ** TAIL_POWER), rank % KNOWN_EVERY != KNOWN_FIRST


@cache
def pool(kind: str, polarity: int, fits: str, known_only: bool) -> Pool:
    """The expressions of a kind that have all these letters, each with whether it is late."""
    rows = [
        (row, weight, late)
        for row, weight, late in _ranked(kind, polarity)
        if not (late and known_only) and all(letter in row.fits for letter in fits)
    ]
    return Pool([(row, late) for row, _, late in rows], [weight for _, weight, _ in rows])


def expressions() -> list[Expression]:
    """All polar expressions there are."""
    return [
        Expression(row.french, polarity, late)
        for kind in _LISTS
        for polarity in (GOOD, BAD)
        for row, _, late in _ranked(kind, polarity)
    ]
