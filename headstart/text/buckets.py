"""Batches of examples of like length: labelled texts by number or by tokens, pairs by tokens.

An epoch is shuffled, sorted by length within windows, cut into batches, and the batches are shuffled: little
padding, and yet other companions for every example in every epoch. All of it is a function of (seed, epoch).
"""

from functools import lru_cache

import numpy as np

from headstart.errors import UserError
from headstart.randomness import stream

WINDOW_BATCHES = 32


class LengthBuckets:
    """Batches over examples whose lengths are known: (examples,), or (examples, 2) for source and target."""

    def __init__(
        self,
        lengths: np.ndarray,
        *,
        batch_examples: int | None = None,
        batch_tokens: int | None = None,
        window_batches: int = WINDOW_BATCHES,
        multiple: int = 1,
    ) -> None:
        """Give one of the two sizes: a number of examples, or of tokens with the padding counted.

        By tokens the widths are counted up to a multiple, for batches that are padded up to it.
        """
        assert (batch_examples is None) != (batch_tokens is None), "one of batch_examples and batch_tokens"
        if not len(lengths):
            raise UserError("there are no examples to make batches of", fix="give at least one example")
        self.lengths = np.asarray(lengths, np.int64).reshape(len(lengths), -1)
        self.batch_examples, self.batch_tokens, self.multiple = batch_examples, batch_tokens, multiple
        if batch_tokens is not None:
            self._refuse_long(batch_tokens)
            batch_examples = max(1, batch_tokens // max(1, round(float(self.lengths.sum(1).mean()))))
        assert batch_examples is not None
        self._window = window_batches * batch_examples
        self.plan = lru_cache(maxsize=2)(self._plan)
        self._ends: dict[int, list[int]] = {}

    def _refuse_long(self, batch_tokens: int) -> None:
        longest = int(rounded_up(self.lengths, self.multiple).sum(1).argmax())
        needed = int(rounded_up(self.lengths[longest], self.multiple).sum())
        if needed > batch_tokens:
            raise UserError(
                f"example {longest + 1:,} has {needed:,} tokens, a batch may have {batch_tokens:,}",
                fix=f"--batch-tokens {needed} or more, or cut long examples with a smaller --length",
            )

    def examples_at(self, seed: int, step: int) -> np.ndarray:
        """The numbers of the examples in a step's batch."""
        epoch, batch = self.place_of(seed, step)
        return self.plan(seed, epoch)[batch]

    def place_of(self, seed: int, step: int) -> tuple[int, int]:
        """The epoch of a step, and the number of its batch within the epoch.

        By tokens an epoch has a few batches more or less than another, so all before it are planned once.
        """
        if self.batch_examples is not None:
            return divmod(step, -(-len(self.lengths) // self.batch_examples))
        ends = self._ends.setdefault(seed, [0])
        while ends[-1] <= step:
            ends.append(ends[-1] + len(self.plan(seed, len(ends) - 1)))
        epoch = int(np.searchsorted(ends, step, "right")) - 1
        return epoch, step - ends[epoch]

    def batch_count(self, seed: int, epoch: int) -> int:
        """How many batches the epoch has."""
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
    """Each length up to the next multiple."""
    return -(-lengths // multiple) * multiple


def _by_length(lengths: np.ndarray) -> np.ndarray:
    """The order by length, ties as they came; of a pair the longer side counts first.

    On tatoeba-en-fr that leaves 12 % of a batch for padding, source before target 18 %, the sum 20 %.
    """
    return np.lexsort((*lengths.T[::-1], lengths.max(axis=1)))
