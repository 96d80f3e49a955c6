"""The order of examples: a shuffle of each epoch that is computed, not stored.

What comes at a step depends on (seed, step) and nothing else. Every example comes exactly once an epoch; the
batch in which an epoch ends is filled up from the next one, so that batches keep their size. Examples of different
lengths come in batches of similar length, by number of examples or of tokens.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from headstart.errors import UserError
from headstart.randomness import seed_of, stream

ROUNDS = 8
WINDOW_BATCHES = 32


def shuffled(positions: np.ndarray, count: int, seed: int, purpose: str, epoch: int) -> np.ndarray:
    """Which of `count` examples stands at each position of the epoch: a keyed permutation of 0 … count - 1.

    A Feistel network with any round function permutes the numbers of an even count of bits; a number that
    lands outside goes through it again until it is inside (Black and Rogaway 2002). So nothing is stored,
    for any number of examples.
    """
    half = max(1, (max(1, count - 1).bit_length() + 1) // 2)
    keys = np.array([seed_of(seed, purpose, epoch, number) for number in range(ROUNDS)], np.uint64)
    values = _feistel(positions.astype(np.uint64), half, keys)
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


def positions_at(step: int, batch: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The epoch of each example of a step's batch, and its position in that epoch."""
    return np.divmod(np.arange(step * batch, (step + 1) * batch, dtype=np.int64), count)


def examples_at(count: int, seed: int, purpose: str, step: int, batch: int) -> np.ndarray:
    """The numbers of the examples in a step's batch."""
    return _shuffled_by_epoch(*positions_at(step, batch, count), count, seed, purpose)


def _shuffled_by_epoch(epochs: np.ndarray, positions: np.ndarray, count: int, seed: int, purpose: str) -> np.ndarray:
    numbers = np.empty_like(positions)
    for epoch in np.unique(epochs).tolist():
        here = epochs == epoch
        numbers[here] = shuffled(positions[here], count, seed, purpose, epoch)
    return numbers


def mixed_count(counts: Sequence[int], weights: Sequence[float]) -> int:
    """How many examples make an epoch of several sources that weigh differently."""
    return int(_shares(counts, weights).sum())


def mixed_at(
    counts: Sequence[int], weights: Sequence[float], seed: int, purpose: str, step: int, batch: int
) -> np.ndarray:
    """What a step's batch is made of: source, pass over it, and number of the example, (batch, 3).

    Each source has its endless order, pass after pass, and every epoch takes the next weight × count of it. So with
    weight 2 each example comes twice an epoch, and with 1/2 once in two epochs.
    """
    shares = _shares(counts, weights)
    ends = np.cumsum(shares)
    epochs, _ = positions_at(step, batch, int(ends[-1]))
    slots = examples_at(int(ends[-1]), seed, purpose, step, batch)
    sources = np.searchsorted(ends, slots, "right")
    drawn = np.empty((batch, 3), np.int64)
    for source in np.unique(sources).tolist():
        here = sources == source
        taken = epochs[here] * shares[source] + slots[here] - (ends[source] - shares[source])
        passes, positions = np.divmod(taken, counts[source])
        numbers = _shuffled_by_epoch(passes, positions, counts[source], seed, f"{purpose} of source {source}")
        drawn[here] = np.stack([np.full_like(passes, source), passes, numbers], axis=1)
    return drawn


def _shares(counts: Sequence[int], weights: Sequence[float]) -> np.ndarray:
    """How many examples of each source an epoch has: one at least."""
    return np.maximum(1, np.round(np.multiply(counts, weights))).astype(np.int64)


# ---- batches of similar length


class LengthBuckets:
    """Batches over examples whose lengths are known: (examples,), or (examples, 2) for source and target.

    An epoch is shuffled, sorted by length within windows and cut into batches, which are shuffled: little padding, and
    different batches in every epoch. All of it is a function of (seed, epoch).
    """

    def __init__(
        self,
        lengths: np.ndarray,
        *,
        batch_examples: int | None = None,
        batch_tokens: int | None = None,
        window_batches: int = WINDOW_BATCHES,
        multiple: int = 1,
    ) -> None:
        """Give one of the two sizes: of examples, or of tokens with the padding, up to the multiple, counted."""
        assert (batch_examples is None) != (batch_tokens is None), "one of batch_examples and batch_tokens"
        if not len(lengths):
            raise UserError("there are no examples to make batches of", fix="give at least one example", code="too-few")
        self.lengths = np.asarray(lengths, np.int64).reshape(len(lengths), -1)
        self.batch_examples, self.batch_tokens, self.multiple = batch_examples, batch_tokens, multiple
        if batch_tokens is not None:
            rounded = rounded_up(self.lengths, multiple).sum(1)
            longest, needed = int(rounded.argmax()), int(rounded.max())
            if needed > batch_tokens:
                what = f"example {longest + 1:,} has {needed:,} tokens, a batch may have {batch_tokens:,}"
                fix = f"--batch-tokens {needed} or more, or cut long examples with a smaller --length"
                raise UserError(what, fix=fix, code="too-large")
            batch_examples = max(1, batch_tokens // max(1, round(float(self.lengths.sum(1).mean()))))
        assert batch_examples is not None
        self._window = window_batches * batch_examples
        self.plan = lru_cache(maxsize=2)(self._plan)
        self._ends: dict[int, list[int]] = {}

    def examples_at(self, seed: int, step: int) -> np.ndarray:
        epoch, batch = self.position_of(seed, step)
        return self.plan(seed, epoch)[batch]

    def position_of(self, seed: int, step: int) -> tuple[int, int]:
        """The epoch of a step, and the number of its batch within the epoch."""
        if self.batch_examples is not None:
            return divmod(step, -(-len(self.lengths) // self.batch_examples))
        # By tokens an epoch has a few batches more or less than another, so all before it are planned once.
        ends = self._ends.setdefault(seed, [0])
        while ends[-1] <= step:
            ends.append(ends[-1] + len(self.plan(seed, len(ends) - 1)))
        epoch = int(np.searchsorted(ends, step, "right")) - 1
        return epoch, step - ends[epoch]

    def batch_count(self, seed: int, epoch: int) -> int:
        return len(self.plan(seed, epoch))

    def _plan(self, seed: int, epoch: int) -> list[np.ndarray]:
        """The epoch's batches, in their order: every example in exactly one of them."""
        draws = stream(seed, "bucket order", epoch)
        order = draws.permutation(len(self.lengths))
        batches = []
        for start in range(0, len(order), self._window):
            window = order[start : start + self._window]
            window = window[_by_length(self.lengths[window])]
            batches += np.split(window, self._cuts(self.lengths[window]))
        return [batches[number] for number in draws.permutation(len(batches))]

    def _cuts(self, lengths: np.ndarray) -> list[int]:
        """Where batches begin in a window, the first aside."""
        if self.batch_examples is not None:
            return list(range(self.batch_examples, len(lengths), self.batch_examples))
        assert self.batch_tokens is not None
        cuts, start, widest = [], 0, [0] * lengths.shape[1]
        for number, row in enumerate(rounded_up(lengths, self.multiple).tolist()):
            wider = [max(pair) for pair in zip(widest, row, strict=True)]
            if (number + 1 - start) * sum(wider) > self.batch_tokens:
                cuts.append(number)
                start, wider = number, row
            widest = wider
        return cuts


def rounded_up(lengths: np.ndarray, multiple: int) -> np.ndarray:
    return -(-lengths // multiple) * multiple


def _by_length(lengths: np.ndarray) -> np.ndarray:
    """The order by length, ties as they came; of a pair the longer side counts first.

    On tatoeba-en-fr that leaves 12 % of a batch for padding, source before target 18 %, the sum 20 %.
    """
    return np.lexsort((*lengths.T[::-1], lengths.max(axis=1)))
