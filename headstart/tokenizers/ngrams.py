"""Counts of n-grams, as scikit-learn's CountVectorizer has them, but by numpy: a corpus takes seconds, not minutes.

An n-gram is known by two numbers, its first n - 1 symbols (an n-gram themselves) and its last one, so that no text
is ever sliced. The columns stand by length, and by those numbers among n-grams of one length.
"""

import itertools
import json
import re
from collections.abc import Sequence
from typing import Literal

import numpy as np
from scipy.sparse import csr_matrix, hstack

_WORDS = re.compile(r"(?u)\b\w\w+\b")
_SPACES = re.compile(r"\s\s+")
_DENSE = 2**25  # keys below this are looked up in a table with an entry for each of them
_CODE_POINTS = 0x110000


class Ngrams:
    """The n-grams of words or of characters, in lower case, from the shortest to the longest."""

    def __init__(self, unit: Literal["words", "characters"], shortest: int, longest: int) -> None:
        self.unit, self.shortest, self.longest = unit, shortest, longest
        self.symbols: list[str] = []
        self.grams: list[np.ndarray] = []
        """For two symbols and more the sorted keys: number of what comes before × symbols + the last symbol."""

    def fit_transform(self, texts: Sequence[str], min_df: int = 1) -> csr_matrix:
        """Learn the n-grams that occur in so many texts or more, and count them (texts, n-grams)."""
        units = self._units(texts)
        self.symbols, self.grams = sorted(set(itertools.chain.from_iterable(units))), []
        return self._count(units, min_df)

    def transform(self, texts: Sequence[str]) -> csr_matrix:
        """Count the n-grams that are known (texts, n-grams)."""
        return self._count(self._units(texts))

    def arrays(self) -> dict[str, np.ndarray]:
        """What was learnt, for a file; `load` reads it back."""
        symbols = np.frombuffer(json.dumps(self.symbols).encode(), np.uint8)
        return {"symbols": symbols, **{f"grams-{n}": keys for n, keys in enumerate(self.grams, 2)}}

    def load(self, arrays: dict[str, np.ndarray]) -> "Ngrams":
        self.symbols = json.loads(arrays["symbols"].tobytes())
        self.grams = [arrays[f"grams-{n}"] for n in range(2, self.longest + 1)]
        return self

    def _units(self, texts: Sequence[str]) -> list[list[str]] | list[str]:
        """For each text its words, or its characters: both are what scikit-learn cuts n-grams from."""
        if self.unit == "words":
            return [_WORDS.findall(text.lower()) for text in texts]
        return [_SPACES.sub(" ", text.lower()) for text in texts]

    def _numbers(self, units: list[list[str]] | list[str]) -> np.ndarray:
        """The number of each symbol, -1 for an unknown one and after every text."""
        ends = np.cumsum([len(one) + 1 for one in units], dtype=np.int64) - 1
        if self.unit == "words":
            number = {word: n for n, word in enumerate(self.symbols)}
            flat = (number.get(word, -1) for one in units for word in (*one, ""))
            return np.fromiter(flat, np.int64, ends[-1] + 1 if len(ends) else 0)
        joined = "".join(f"{text} " for text in units)
        codes = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), np.uint32)
        numbers = _indices(np.array([ord(one) for one in self.symbols], np.int64), codes, _CODE_POINTS)
        numbers[ends] = -1
        return numbers

    def _count(self, units: list[list[str]] | list[str], min_df: int | None = None) -> csr_matrix:
        """Count n-grams length by length; with `min_df` they are learnt."""
        symbols, tables = self._numbers(units), []
        rows = np.repeat(np.arange(len(units)), [len(one) + 1 for one in units])
        starts = np.flatnonzero(symbols >= 0)
        grams, size = symbols[starts], len(self.symbols)
        for length in range(1, self.longest + 1):
            if length > 1:
                last = symbols[starts + length - 1]  # there is one: -1 stands after every text
                starts, grams, last = (part[last >= 0] for part in (starts, grams, last))
                keys, bound = grams.astype(np.int64) * len(self.symbols) + last, size * len(self.symbols)
                if min_df:
                    self.grams.append(_distinct(keys, bound))
                grams, size = _indices(self.grams[length - 2], keys, bound), len(self.grams[length - 2])
                starts, grams = starts[grams >= 0], grams[grams >= 0]
            table = _table(rows[starts], grams, (len(units), size))
            if min_df and min_df > 1:  # a rare n-gram is in rarer ones only: none of those is missed
                kept = np.bincount(table.indices, minlength=size) >= min_df
                table, renumbered = table[:, kept], np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)
                grams, size = renumbered[grams], int(kept.sum())
                starts, grams = starts[grams >= 0], grams[grams >= 0]
                if length == 1:
                    symbols = renumbered[symbols]
                    self.symbols = list(itertools.compress(self.symbols, kept))
                else:
                    self.grams[-1] = self.grams[-1][kept]
            if length >= self.shortest:
                tables.append(table)
        return hstack(tables, format="csr")


def _distinct(keys: np.ndarray, bound: int) -> np.ndarray:
    """The keys that occur, sorted."""
    if bound > _DENSE:
        return np.unique(keys)
    occurs = np.zeros(bound, bool)
    occurs[keys] = True
    return np.flatnonzero(occurs)


def _indices(known: np.ndarray, keys: np.ndarray, bound: int) -> np.ndarray:
    """The index of each key among the known ones, which are sorted; -1 where it is unknown."""
    if bound <= _DENSE:
        table = np.full(bound, -1, np.int32)
        table[known] = np.arange(len(known), dtype=np.int32)
        return table[keys]
    indices = np.searchsorted(known, keys)
    is_known = np.append(known, -1)[indices] == keys
    return np.where(is_known, indices, -1)


def _table(rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> csr_matrix:
    """How often each column occurs in each row."""
    keys = np.sort(rows * shape[1] + columns)
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    counts = np.diff(first, append=len(keys)).astype(np.float64)
    rows, columns = np.divmod(keys[first], max(1, shape[1]))
    ends = np.searchsorted(rows, np.arange(shape[0] + 1))
    return csr_matrix((counts, columns.astype(np.int32), ends), shape=shape)
