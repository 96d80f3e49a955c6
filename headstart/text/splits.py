"""Splits and subsets of labelled rows, as functions of the texts, the labels and a seed.

Which side a row falls on hangs on the hash of its folded text, never on its place in the file.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from headstart.errors import UserError
from headstart.randomness import seed_of
from headstart.text.folding import digest, fold_key
from headstart.text.labelled import Label


class Split(NamedTuple):
    """Two parts of a set, as row numbers in ascending order."""

    kept: list[int]
    held_out: list[int]
    not_held_out: list[str]
    """Classes of which no row could be held out, since all their rows are one text."""


def split_by_hash(texts: Sequence[str], labels: Sequence[Label], share: float, seed: int) -> Split:
    """Hold out a share of every class.

    Rows whose texts are the same after folding go together, always. In each class these groups are ranked by
    the hash of (seed, text), and the first ones are held out until the share of the class's rows is reached
    (a group too large for what is left is passed over): at least one group, and never all of them. So the
    split is stratified to the row where texts are distinct; reordering the rows, or adding some to another
    class, moves nothing; adding a row to a class moves at most the rows at its border. A class whose rows are
    all one text stays where it can be learned: kept. A row of several labels counts under the rarest of them;
    numbers (regression) are one class.
    """
    if not 0 < share < 1:
        raise UserError(f"a share of {share} to hold out", fix="give a number between 0 and 1, such as 0.1")
    strata, keys = _strata(labels), [digest(fold_key(text)).hex() for text in texts]
    rows_of: dict[str, list[int]] = defaultdict(list)
    for row, key in enumerate(keys):
        rows_of[key].append(row)
    groups_of: dict[str, list[str]] = defaultdict(list)
    for key, rows in rows_of.items():
        # A text with two labels counts under the more frequent one, so that the order of rows cannot matter.
        counts = Counter(strata[row] for row in rows)
        groups_of[min(counts, key=lambda stratum: (-counts[stratum], stratum))].append(key)
    held_out = []
    for keys_of_class in groups_of.values():
        ranked = sorted(keys_of_class, key=lambda key: (seed_of(seed, "split", key), key))
        held_out += _take(ranked, rows_of, share)
    held = {row for key in held_out for row in rows_of[key]}
    missing = sorted(stratum for stratum, group in groups_of.items() if len(group) == 1)
    return Split([row for row in range(len(texts)) if row not in held], sorted(held), missing)


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
        raise UserError(
            f"a budget of {budget:,} labels where there are {len(labels):,}", fix="1 to that many"
        )
    ranked: dict[str, list[tuple[int, int]]] = defaultdict(list)
    occurrences: Counter[bytes] = Counter()
    for row, (stratum, text) in enumerate(zip(_strata(labels), texts, strict=True)):
        key = digest(fold_key(text))
        # Repeats of a text get hashes of their own: side by side they would waste a small budget.
        ranked[stratum].append((seed_of(seed, "label subset", key.hex(), occurrences[key]), row))
        occurrences[key] += 1
    order = []
    for stratum, hashed in ranked.items():
        for rank, (_, row) in enumerate(sorted(hashed)):
            turn = (0, -len(hashed)) if rank == 0 else (1, (rank + 0.5) / len(hashed))
            order.append((turn, stratum, row))
    return [row for _, _, row in sorted(order)[:budget]]


def _strata(labels: Sequence[Label]) -> list[str]:
    counts = Counter(name for label in labels if isinstance(label, tuple) for name in label)
    strata = []
    for label in labels:
        if isinstance(label, tuple):
            strata.append(min(label, key=lambda name: (counts[name], name), default=""))
        else:
            strata.append("" if isinstance(label, float) else str(label))
    return strata
