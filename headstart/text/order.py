"""The order of examples: a shuffle of each epoch that is computed, not stored, and the ranks' shares of it.

What comes at a step depends on (seed, step) and nothing else. Every example comes exactly once an epoch; the
batch in which an epoch ends is filled up from the next one, so that batches keep their size.
"""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from headstart.randomness import seed_of

ROUNDS = 8
Batch = TypeVar("Batch", bound=Sequence[object] | np.ndarray)


def shuffled(places: np.ndarray, count: int, seed: int, purpose: str, epoch: int) -> np.ndarray:
    """Which of `count` examples stands at each place of the epoch: a keyed permutation of 0 … count - 1.

    A Feistel network permutes the numbers of an even count of bits, whatever its round function; a number
    that lands outside goes through it again until it is inside (Black and Rogaway 2002). So nothing is
    stored, however many examples there are.
    """
    half = max(1, (max(1, count - 1).bit_length() + 1) // 2)
    keys = np.array([seed_of(seed, purpose, epoch, number) for number in range(ROUNDS)], np.uint64)
    values = _feistel(places.astype(np.uint64), half, keys)
    while (outside := values >= count).any():
        values[outside] = _feistel(values[outside], half, keys)
    return values.astype(np.int64)


def _feistel(values: np.ndarray, half: int, keys: np.ndarray) -> np.ndarray:
    low = np.uint64((1 << half) - 1)
    left, right = values >> np.uint64(half), values & low
    for key in keys:
        left, right = right, left ^ (_mixed(right ^ key) & low)
    return (left << np.uint64(half)) | right


def _mixed(values: np.ndarray) -> np.ndarray:
    """Every bit of the result depends on every bit of the value (the finisher of splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def places_at(step: int, batch: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The epoch of each example of a step's batch, and its place in that epoch."""
    return np.divmod(np.arange(step * batch, (step + 1) * batch, dtype=np.int64), count)


def examples_at(count: int, seed: int, purpose: str, step: int, batch: int) -> np.ndarray:
    """The numbers of the examples in a step's batch."""
    epochs, places = places_at(step, batch, count)
    numbers = np.empty(batch, np.int64)
    for epoch in np.unique(epochs):
        here = epochs == epoch
        numbers[here] = shuffled(places[here], count, seed, purpose, int(epoch))
    return numbers


def mixed_count(counts: Sequence[int], weights: Sequence[float]) -> int:
    """How many examples make an epoch of several sources that weigh differently."""
    return int(_shares(counts, weights).sum())


def mixed_at(
    counts: Sequence[int], weights: Sequence[float], seed: int, purpose: str, step: int, batch: int
) -> np.ndarray:
    """What a step's batch is made of: source, pass over it, and number of the example, (batch, 3).

    Each source has an endless order of its own, pass after pass, and every epoch takes the next weight × count of
    it. So with weight 2 each example comes twice an epoch, and with 1/2 once in two epochs.
    """
    shares = _shares(counts, weights)
    ends = np.cumsum(shares)
    epochs, _ = places_at(step, batch, int(ends[-1]))
    slots = examples_at(int(ends[-1]), seed, purpose, step, batch)
    sources = np.searchsorted(ends, slots, "right")
    found = np.empty((batch, 3), np.int64)
    for source in np.unique(sources).tolist():
        here = sources == source
        taken = epochs[here] * shares[source] + slots[here] - (ends[source] - shares[source])
        turns, places = np.divmod(taken, counts[source])
        numbers = np.empty_like(places)
        for turn in np.unique(turns).tolist():
            now = turns == turn
            numbers[now] = shuffled(places[now], counts[source], seed, f"{purpose} of source {source}", turn)
        found[here] = np.stack([np.full_like(turns, source), turns, numbers], axis=1)
    return found


def _shares(counts: Sequence[int], weights: Sequence[float]) -> np.ndarray:
    """How many examples of each source an epoch has: one at least."""
    return np.maximum(1, np.round(np.multiply(counts, weights))).astype(np.int64)


def for_rank(batch: Batch, rank: int, world: int) -> Batch:
    """A rank's share of the global batch; together the ranks have all of it once.

    Where the batch has fewer examples than there are ranks, some get none.
    """
    assert 0 <= rank < world, f"rank {rank} of {world}"
    return batch[rank::world]  # type: ignore[return-value]
