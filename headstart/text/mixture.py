"""Corpora that weigh differently: how often the blocks, or pairs of sentences, of each come in an epoch.

A weight of 2 means that each block comes twice an epoch, 0.5 that half of the blocks come, and in the next epoch
the other half. Files of one weight are one source; a block never reaches from one source into another.
"""

import math
import os
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from headstart.errors import UserError
from headstart.text.files import is_stdin
from headstart.text.order import for_rank, mixed_at, mixed_count
from headstart.text.packing import PackedBatch, PackedBlocks
from headstart.text.sentence_pairs import SentencePair, SentencePairs
from headstart.text.sources import Source

AnySource = TypeVar("AnySource", bound=Source)


def weighted_path(given: str) -> tuple[str, float]:
    """The file and the weight of `FILE=WEIGHT`, or of `FILE`; a file that has the whole name is meant by it."""
    path, sign, number = given.rpartition("=")
    try:
        weight = float(number)
    except ValueError:
        return given, 1.0
    if not sign or not path or os.path.exists(given) or is_stdin(given):
        return given, 1.0
    if not (math.isfinite(weight) and weight > 0):
        raise UserError(
            f"a weight of {number}", where=path, fix="give a number over 0, or leave the file out"
        )
    return path, weight


def by_weight(sources: Sequence[AnySource], weights: Sequence[float]) -> dict[float, list[AnySource]]:
    """The files of each weight, in their order; no weights are all 1."""
    found: dict[float, list[AnySource]] = {}
    for source, weight in zip(sources, weights or [1.0] * len(sources), strict=True):
        found.setdefault(weight, []).append(source)
    return found


class MixedBlocks:
    """Blocks of several sources, each as often as it weighs: a function of (seed, step)."""

    def __init__(self, sources: Sequence[PackedBlocks], weights: Sequence[float]) -> None:
        self.sources, self.weights = sources, weights
        self.frame, self.length = sources[0].frame, sources[0].length
        self.is_one_document = all(source.is_one_document for source in sources)
        self.count = mixed_count([source.count for source in sources], weights)
        """How many blocks make an epoch."""

    def examples_at(self, seed: int, step: int, batch: int, rank: int = 0, world: int = 1) -> PackedBatch:
        """The blocks of a step."""
        counts = [source.count for source in self.sources]
        drawn = for_rank(mixed_at(counts, self.weights, seed, "packed order", step, batch), rank, world)
        tokens, documents = np.empty((2, len(drawn), self.length + 1), np.int64)
        for number, source in enumerate(self.sources):
            here = drawn[:, 0] == number
            tokens[here], documents[here] = source.blocks(seed, drawn[here, 1], drawn[here, 2])
        return PackedBatch.cut(tokens, documents)


class MixedPairs:
    """Pairs of sentences of several sources, each as often as it weighs; both sentences are of one source."""

    def __init__(self, sources: Sequence[SentencePairs], weights: Sequence[float]) -> None:
        self.sources, self.weights = sources, weights
        self.count = mixed_count([source.count for source in sources], weights)
        """How many pairs make an epoch."""

    def examples_at(
        self, seed: int, step: int, batch: int, rank: int = 0, world: int = 1
    ) -> list[SentencePair]:
        """The pairs of a step; one that comes again may be followed by something else."""
        counts = [source.count for source in self.sources]
        drawn = mixed_at(counts, self.weights, seed, "pair order", step, batch)
        numbered = list(enumerate(drawn.tolist(), step * batch))
        return [
            self.sources[source].pair(seed, number, boundary)
            for number, (source, _, boundary) in for_rank(numbered, rank, world)
        ]
