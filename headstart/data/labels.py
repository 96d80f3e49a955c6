"""The classes of a set: their numbers, their counts, and warnings about suspicious labels."""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headstart.data.labelled import Label, LabelledSet
from headstart.data.leakage.text_key import text_key
from headstart.data.readers.rows import shown
from headstart.errors import UserError, nearest

IMBALANCE = 100  # a class with this many times fewer rows than the largest gives a warning

_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")


def classes_of(label: Label) -> tuple[str, ...]:
    """The classes of a row: one, or several, or none."""
    return label if isinstance(label, tuple) else (str(label),)


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
    counts = _counted(labels)
    return {label: counts[label] for label in _in_order(counts)}


def _counted(labels: Iterable[Label]) -> Counter[str]:
    return Counter(name for label in labels for name in classes_of(label))


@dataclass(frozen=True)
class LabelWarning:
    """Something about the labels that is probably a mistake."""

    kind: str
    message: str
    count: int
    locations: tuple[str, ...] = ()


def label_warnings(labelled: LabelledSet) -> list[LabelWarning]:
    """All that looks wrong with the labels of one set."""
    warnings = [*_conflicts(labelled)]
    if labelled.task != "regression":
        counts = _counted(labelled.labels)
        warnings += [*_similar_names(counts, labelled), *_rare_classes(counts, labelled)]
    if labelled.task == "multilabel":
        warnings += _repeated_in_a_row(labelled)
    return warnings


def _conflicts(labelled: LabelledSet) -> Iterator[LabelWarning]:
    rows_of: dict[str, list[int]] = defaultdict(list)
    for row, text in enumerate(labelled.whole_texts):
        rows_of[text_key(text)].append(row)
    groups = [
        rows for rows in rows_of.values() if len({frozenset(classes_of(labelled.labels[row])) for row in rows}) > 1
    ]
    if groups:
        locations = tuple(labelled.locations[row] for row in groups[0])
        labels = " and ".join(dict.fromkeys(shown(labelled.labels[row]) for row in groups[0]))
        message = (
            f"{len(groups):,} {'text has' if len(groups) == 1 else 'texts have'} different labels, "
            f"in {sum(map(len, groups)):,} rows; first {' and '.join(locations[:3])}: {labels}"
        )
        yield LabelWarning("conflicting_labels", message, len(groups), locations)


def _similar_names(counts: Counter[str], labelled: LabelledSet) -> Iterator[LabelWarning]:
    names_of: dict[object, list[str]] = defaultdict(list)
    for name in sorted(counts):
        names_of[_bare(name)].append(name)
    for names in (names for names in names_of.values() if len(names) > 1):
        listed = " and ".join(f"{name!r} ({counts[name]:,} rows)" for name in names)
        message = f"labels {listed} look like one, but count as different classes"
        yield LabelWarning("similar_labels", message, len(names), _first_locations(labelled, names))


def _bare(name: str) -> object:
    """A label without case, accents and white space, signs kept: `C` and `C++` differ; `1` and `1.0` do not."""
    try:
        return float(name)
    except ValueError:
        letters = unicodedata.normalize("NFKD", name).casefold()
        return "".join(c for c in letters if not unicodedata.combining(c) and not c.isspace())


def _first_locations(labelled: LabelledSet, names: Sequence[str]) -> tuple[str, ...]:
    rows = list(zip(labelled.labels, labelled.locations, strict=True))
    return tuple(next(location for label, location in rows if name in classes_of(label)) for name in names)


def _rare_classes(counts: Counter[str], labelled: LabelledSet) -> Iterator[LabelWarning]:
    single = sorted(name for name, count in counts.items() if count == 1)
    if single:
        message = (
            f"{len(single):,} classes with one row only, such as {single[0]!r}: it cannot be both learned "
            "and checked; a split leaves it in train"
        )
        yield LabelWarning("single_row_class", message, len(single), _first_locations(labelled, single[:5]))
    if counts:
        (largest, most), (smallest, least) = counts.most_common()[0], counts.most_common()[-1]
        if most >= IMBALANCE * least:
            message = (
                f"{smallest!r} has {least:,} rows, {largest!r} {most:,}: accuracy says little here "
                f"(always {largest!r} gives {most / len(labelled):.2%}); look at macro-F1 and balanced accuracy"
            )
            yield LabelWarning("imbalance", message, least)


def _repeated_in_a_row(labelled: LabelledSet) -> Iterator[LabelWarning]:
    locations = [
        location for label, location in zip(labelled.labels, labelled.locations, strict=True)
        if len(set(classes_of(label))) < len(classes_of(label))
    ]  # fmt: skip
    if locations:
        message = f"{len(locations):,} rows name a label twice; it counts once. First {locations[0]}"
        yield LabelWarning("repeated_label", message, len(locations), tuple(locations[:5]))
