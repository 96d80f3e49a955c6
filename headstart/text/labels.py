"""The classes of a set: their numbers, their counts, and what may be wrong with them, told before training."""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headstart.config import nearest
from headstart.errors import UserError
from headstart.text.folding import fold_key
from headstart.text.labelled import Label, LabelledSet
from headstart.text.rows import shown

IMBALANCE = 100
"""A class with this many times fewer rows than the largest is told as a warning."""

_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")


def classes_of(label: Label) -> tuple[str, ...]:
    """The classes of a row: one, or several, or none."""
    return label if isinstance(label, tuple) else (str(label),)


@dataclass(frozen=True)
class LabelMap:
    """The classes in the order of their numbers, kept as a plain list of strings in the run.

    Integers stand in numerical order (`-1`, `2`, `10`), everything else in that of its characters.
    """

    labels: tuple[str, ...]

    def __post_init__(self) -> None:
        twice = [label for label, count in Counter(self.labels).items() if count > 1]
        if twice:
            raise UserError(f"label {twice[0]!r} stands twice in the label map", fix="each label once")

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.labels)}

    @classmethod
    def of(cls, labelled: LabelledSet) -> "LabelMap":
        """The classes of a training set; one class only cannot be learned and is refused."""
        assert labelled.task != "regression", "numbers have no classes"
        found = {name for label in labelled.labels for name in classes_of(label)}
        least = 2 if labelled.task == "classification" else 1
        if len(found) < least:
            what = f"every row has the label {next(iter(found))!r}" if found else "no row has a label"
            raise UserError(what, where=labelled.path, fix=f"give rows of at least {least} classes")
        return cls(_in_order(found))

    def id_of(self, label: str) -> int:
        """The number of a class."""
        if label not in self._ids:
            raise UserError(f"unknown label {label!r}", fix=nearest(label, self.labels))
        return self._ids[label]

    def ids(self, labelled: LabelledSet) -> np.ndarray:
        """The numbers of a set: (rows,), or for multilabel a table of zeros and ones, (rows, classes)."""
        self.refuse_unseen(labelled)
        if labelled.task == "classification":
            return np.array([self.id_of(str(label)) for label in labelled.labels], dtype=np.int64)
        table = np.zeros((len(labelled), len(self)), dtype=np.int64)
        for row, label in enumerate(labelled.labels):
            table[row, [self.id_of(name) for name in classes_of(label)]] = 1
        return table

    def refuse_unseen(self, labelled: LabelledSet) -> None:
        """Refuse a set with a label that this map does not have: nothing could ever predict it."""
        unseen: dict[str, list[str]] = defaultdict(list)
        for label, place in zip(labelled.labels, labelled.places, strict=True):
            for name in classes_of(label):
                if name not in self._ids:
                    unseen[name].append(place)
        if unseen:
            listed = [f"{name!r} ({len(at):,} rows, first at {at[0]})" for name, at in unseen.items()]
            first = next(iter(unseen))
            raise UserError(
                f"labels that are not in train: {', '.join(listed[:5])}{', …' if len(listed) > 5 else ''}",
                where=unseen[first][0],
                fix=f"add such rows to train, or mend the label ({nearest(first, self.labels)})",
            )


def _in_order(labels: Iterable[str]) -> tuple[str, ...]:
    labels = list(labels)
    return tuple(sorted(labels, key=int if all(map(_INTEGER.fullmatch, labels)) else None))


def class_counts(labels: Iterable[Label]) -> dict[str, int]:
    """How many rows each class has, in the order of a label map."""
    counts = Counter(name for label in labels for name in classes_of(label))
    return {label: counts[label] for label in _in_order(counts)}


# ---- what may be wrong ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class LabelWarning:
    """Something about labels that can be trained on but is probably not meant."""

    kind: str
    message: str
    count: int
    places: tuple[str, ...] = ()


def label_warnings(labelled: LabelledSet) -> list[LabelWarning]:
    """All that looks wrong with the labels of one set."""
    warnings = _conflicts(labelled)
    if labelled.task != "regression":
        counts = Counter(name for label in labelled.labels for name in classes_of(label))
        warnings += [*_similar_names(counts, labelled), *_rare_classes(counts, labelled)]
    if labelled.task == "multilabel":
        warnings += _repeated_in_a_row(labelled)
    return warnings


def _conflicts(labelled: LabelledSet) -> list[LabelWarning]:
    rows_of: dict[str, list[int]] = defaultdict(list)
    for row, text in enumerate(labelled.whole_texts):
        rows_of[fold_key(text)].append(row)
    groups = [
        rows for rows in rows_of.values()
        if len({frozenset(classes_of(labelled.labels[row])) for row in rows}) > 1
    ]  # fmt: skip
    if not groups:
        return []
    row_count = sum(map(len, groups))
    places = tuple(labelled.places[row] for row in groups[0])
    labels = " and ".join(dict.fromkeys(shown(labelled.labels[row]) for row in groups[0]))
    message = (
        f"{len(groups):,} {'text stands' if len(groups) == 1 else 'texts stand'} with different labels, "
        f"in {row_count:,} rows; "
        f"first {' and '.join(places[:3])}: {labels}"
    )
    return [LabelWarning("conflicting_labels", message, len(groups), places)]


def _similar_names(counts: Counter[str], labelled: LabelledSet) -> list[LabelWarning]:
    names_of: dict[object, list[str]] = defaultdict(list)
    for name in sorted(counts):
        names_of[_bare(name)].append(name)
    return [
        LabelWarning(
            "similar_labels",
            f"labels {' and '.join(f'{n!r} ({counts[n]:,} rows)' for n in names)} look like one, "
            "but count as different classes",
            len(names),
            tuple(_first_places(labelled, names)),
        )
        for names in names_of.values()
        if len(names) > 1
    ]


def _bare(name: str) -> object:
    """A label without case, accents and white space, signs kept: `C` and `C++` differ; `1` and `1.0` do not."""
    try:
        return float(name)
    except ValueError:
        letters = unicodedata.normalize("NFKD", name).casefold()
        return "".join(c for c in letters if not unicodedata.combining(c) and not c.isspace())


def _first_places(labelled: LabelledSet, names: Sequence[str]) -> Iterable[str]:
    rows = list(zip(labelled.labels, labelled.places, strict=True))
    return (next(place for label, place in rows if name in classes_of(label)) for name in names)


def _rare_classes(counts: Counter[str], labelled: LabelledSet) -> list[LabelWarning]:
    warnings = []
    single = sorted(name for name, count in counts.items() if count == 1)
    if single:
        message = (
            f"{len(single):,} classes with one row only, such as {single[0]!r}: it cannot be both learned "
            "and checked; a split leaves it in train"
        )
        warnings.append(
            LabelWarning("single_row_class", message, len(single), tuple(_first_places(labelled, single[:5])))
        )
    if counts:
        (largest, most), (smallest, least) = counts.most_common()[0], counts.most_common()[-1]
        if most >= IMBALANCE * least:
            message = (
                f"{smallest!r} has {least:,} rows, {largest!r} {most:,}: accuracy says little here "
                f"(always {largest!r} gives {most / len(labelled):.2%}); look at macro-F1 and balanced accuracy"
            )
            warnings.append(LabelWarning("imbalance", message, least))
    return warnings


def _repeated_in_a_row(labelled: LabelledSet) -> list[LabelWarning]:
    places = [
        place for label, place in zip(labelled.labels, labelled.places, strict=True)
        if len(set(classes_of(label))) < len(classes_of(label))
    ]  # fmt: skip
    if not places:
        return []
    message = f"{len(places):,} rows name a label twice; it counts once. First {places[0]}"
    return [LabelWarning("repeated_label", message, len(places), tuple(places[:5]))]
