"""Splits and subsets of labelled rows, as functions of the texts, the labels and a seed.

The side of a row depends on the hash of its text, never on its position in the file.
"""

import functools
import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from headstart.config.defaults import VALID_SHARE
from headstart.data.labelled import Label
from headstart.data.leakage.text_key import digest, text_key
from headstart.data.readers.documents import Piece
from headstart.errors import UserError
from headstart.randomness import seed_of


class Split(NamedTuple):
    """Two parts of a set, as row numbers in ascending order."""

    kept: list[int]
    held_out: list[int]


def split_by_hash(texts: Sequence[str], labels: Sequence[Label], share: float, seed: int) -> Split:
    """Hold out a share of every class.

    Rows with the same text (case, accents and punctuation aside) stay together. In each class these groups are ranked
    by the hash of (seed, text), and the first are held out until the share is reached (a group too large for the rest
    is skipped): at least one group, never all. So the split is stratified; reordering rows, or adding rows to another
    class, changes nothing. A class with a single text is kept. A row of several labels counts under the rarest;
    numbers (regression) are one class.
    """
    if not 0 < share < 1:
        raise UserError(f"a share of {share} to hold out", fix="give a number between 0 and 1, such as 0.1")
    strata = _strata(labels)
    rows_of: dict[str, list[int]] = defaultdict(list)
    for row, text in enumerate(texts):
        rows_of[digest(text_key(text)).hex()].append(row)
    groups_of: dict[str, list[str]] = defaultdict(list)
    for key, rows in rows_of.items():
        # A text with two labels counts under the more frequent one, so that the order of rows cannot matter.
        counts = Counter(strata[row] for row in rows)
        groups_of[min(counts, key=lambda stratum: (-counts[stratum], stratum))].append(key)
    held_out = []
    for keys_of_class in groups_of.values():
        ranked = sorted(keys_of_class, key=lambda key: (seed_of(seed, "split", key), key))
        held_out += _take(ranked, rows_of, share)
    rows_held_out = {row for key in held_out for row in rows_of[key]}
    return Split([row for row in range(len(texts)) if row not in rows_held_out], sorted(rows_held_out))


def nothing_held_out(name: str, where: str, texts: Sequence[str], labels: Sequence[Label]) -> UserError:
    """The error of rows that are too few, or too alike, to be split."""
    why = f"all its {len(texts):,} rows have the same text"
    if len({text_key(text) for text in texts}) > 1:
        why = f"each class of its {len(texts):,} rows has one text only, which stays in train"
    fix = f"give --{name} FILE, or a train with several texts of each class"
    return UserError(f"no row can be held out for {name}: {why}", where=where, fix=fix, code="too-few")


def _take(ranked: list[str], rows_of: dict[str, list[int]], share: float) -> list[str]:
    """The first groups that fit into the share, to the nearest row: at least one group, and not all."""
    wanted = share * sum(len(rows_of[key]) for key in ranked)
    taken: list[str] = []
    row_count = 0
    for key in ranked:
        size = len(rows_of[key])
        if row_count + size / 2 <= wanted and len(taken) < len(ranked) - 1:
            taken.append(key)
            row_count += size
    if not taken and len(ranked) > 1:
        taken = [min(ranked, key=lambda key: len(rows_of[key]))]
    return taken


def label_subset(labels: Sequence[Label], texts: Sequence[str], budget: int, seed: int) -> list[int]:
    """The rows of a label budget, in an order that does not depend on the budget: subsets are nested.

    In each class the rows are ranked by the hash of (seed, text). The order takes the first row of every class,
    largest class first; then always from the class that is furthest behind its share of the whole.
    So the first 50 are among the first 200, and classes stay as balanced as they are in the whole.
    """
    if not 1 <= budget <= len(labels):
        raise UserError(f"a budget of {budget:,} labels where there are {len(labels):,}", fix="1 to that many")
    ranked: dict[str, list[tuple[int, int]]] = defaultdict(list)
    occurrences: Counter[bytes] = Counter()
    for row, (stratum, text) in enumerate(zip(_strata(labels), texts, strict=True)):
        key = _digest(text)
        # Each repeat of a text gets another hash: side by side they would waste a small budget.
        ranked[stratum].append((seed_of(seed, "label subset", key.hex(), occurrences[key]), row))
        occurrences[key] += 1
    order = []
    for stratum, hashed in ranked.items():
        for rank, (_, row) in enumerate(sorted(hashed)):
            priority = (0, -len(hashed)) if rank == 0 else (1, (rank + 0.5) / len(hashed))
            order.append((priority, stratum, row))
    return [row for _, _, row in sorted(order)[:budget]]


@functools.lru_cache(1 << 15)
def _digest(text: str) -> bytes:
    return digest(text_key(text))  # a study's trials choose among the same rows again and again


def _strata(labels: Sequence[Label]) -> list[str]:
    counts = Counter(name for label in labels if isinstance(label, tuple) for name in label)
    strata = []
    for label in labels:
        if isinstance(label, tuple):
            strata.append(min(label, key=lambda name: (counts[name], name), default=""))
        else:
            strata.append("" if isinstance(label, float) else str(label))
    return strata


# ---- a corpus in two parts: what is trained on, and what is held out to measure by


def with_held_out(source: Iterable[Piece], share: float = VALID_SHARE, seed: int = 0) -> Iterator[tuple[bool, Piece]]:
    """Each piece, and whether its document is held out.

    That depends on the hash of the document's first piece alone (all of it, up to 65,536 characters): a document can
    have any size, and a repeated document is never on both sides.
    """
    is_first, is_held_out = True, False
    for piece in source:
        if is_first:
            key = hashlib.sha256(piece.text.encode("utf-8", "surrogatepass")).hexdigest()
            is_held_out = seed_of(seed, "hold out", key) < share * 2**63
        yield is_held_out, piece
        is_first = piece.ends_document
