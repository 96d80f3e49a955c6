"""The classes of a set: their numbers and their counts."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headstart.config.defaults import RARE
from headstart.data.labelled import Label, LabelledSet
from headstart.errors import UserError, nearest

_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")


def classes_of(label: Label) -> tuple[str, ...]:
    """The classes of a row: one, or several, or none."""
    return label if isinstance(label, tuple) else (str(label),)


def has_rare_class(counts: Mapping[str, int]) -> bool:
    """Whether a class has so few rows that it hardly counts in accuracy; of many classes each has a small share."""
    return min(counts.values()) < min(RARE, 0.5 / len(counts)) * sum(counts.values())


@dataclass(frozen=True)
class LabelMap:
    """The classes by their numbers: integers in numerical order (`-1`, `2`, `10`), the rest in alphabetical."""

    labels: tuple[str, ...]

    def __post_init__(self) -> None:
        twice = [label for label, count in Counter(self.labels).items() if count > 1]
        if twice:
            raise UserError(f"label {twice[0]!r} occurs twice in the label map", fix="each label once", code="conflict")

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.labels)}

    @classmethod
    def of(cls, labelled: LabelledSet) -> "LabelMap":
        """The classes of a training set; one class only cannot be learned and is refused."""
        assert labelled.task != "regression", "numbers have no classes"
        classes = {name for label in labelled.labels for name in classes_of(label)}
        least = 2 if labelled.task == "classification" else 1
        if len(classes) < least:
            what = f"every row has the label {next(iter(classes))!r}" if classes else "no row has a label"
            raise UserError(what, where=labelled.path, fix=f"give rows of at least {least} classes", code="too-few")
        return cls(_in_order(classes))

    def ids(self, labelled: LabelledSet) -> np.ndarray:
        """The numbers of a set: (rows,), or for multilabel a table of zeros and ones, (rows, classes)."""
        self.refuse_unseen(labelled)
        if labelled.task == "classification":
            return np.array([self._ids[str(label)] for label in labelled.labels], dtype=np.int64)
        table = np.zeros((len(labelled), len(self)), dtype=np.int64)
        for row, label in enumerate(labelled.labels):
            table[row, [self._ids[name] for name in classes_of(label)]] = 1
        return table

    def refuse_unseen(self, labelled: LabelledSet) -> None:
        """Refuse a set with a label that this map does not have: nothing could ever predict it."""
        unseen: dict[str, list[str]] = defaultdict(list)
        for label, location in zip(labelled.labels, labelled.locations, strict=True):
            for name in classes_of(label):
                if name not in self._ids:
                    unseen[name].append(location)
        if unseen:
            listed = [f"{name!r} ({len(at):,} rows, first at {at[0]})" for name, at in unseen.items()]
            first = next(iter(unseen))
            what = f"labels that are not in train: {', '.join(listed[:5])}{', …' if len(listed) > 5 else ''}"
            fix = f"add such rows to train, or correct the label ({nearest(first, self.labels)})"
            raise UserError(what, where=unseen[first][0], fix=fix, code="unknown-name")


def _in_order(labels: Iterable[str]) -> tuple[str, ...]:
    labels = list(labels)
    return tuple(sorted(labels, key=int if all(map(_INTEGER.fullmatch, labels)) else None))


def class_counts(labels: Iterable[Label]) -> dict[str, int]:
    """How many rows each class has, in the order of a label map."""
    counts = count_classes(labels)
    return {label: counts[label] for label in _in_order(counts)}


def count_classes(labels: Iterable[Label]) -> Counter[str]:
    """How many rows each class has."""
    return Counter(name for label in labels for name in classes_of(label))
