"""What is probably a mistake in labelled rows, said alike by `data check`, `finetune`, `study` and its report."""

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from headstart.data.labelled import LabelledSet
from headstart.data.labels import classes_of, count_classes, has_rare_class
from headstart.data.leakage.text_key import text_key
from headstart.data.readers.rows import shown
from headstart.errors import visible_spaces
from headstart.tokenizers.templates import Template

TYPO_ROWS = 10  # a class with this many times fewer rows than one of nearly the same name may be a typo of it
TYPO_LETTERS = range(5, 61)  # of a name: shorter ones differ in a letter by design, longer ones are sentences
IMBALANCE = 100  # of several labels, a class with this many times fewer rows than the largest gives a warning


@dataclass(frozen=True)
class DataWarning:
    """Something about the rows that is probably a mistake, or that a person should know."""

    kind: str
    message: str
    count: int
    locations: tuple[str, ...] = ()


def data_warnings(
    sets: Mapping[str, LabelledSet], length: int = 0, special_tokens: int | None = None
) -> list[tuple[str, DataWarning]]:
    """All that looks wrong, with the set that it is of; what is said of one set is not said again of the next.

    With a length, of rows that are tokenized: how many are cut where that many tokens are read, the special ones
    among them (default: as many as our own templates have).
    """
    warnings, said = list[tuple[str, DataWarning]](), set[frozenset[str]]()
    first = next(iter(sets), "")  # what is learned from, where there is any
    for name, labelled in sets.items():
        found = [*_conflicts(labelled)]
        if labelled.task != "regression":
            counts = count_classes(labelled.labels)
            found += [*_similar_names(counts, labelled, said), *_likely_typos(counts, labelled, said)]
            found += _rare_classes(counts, labelled) if name == first else []
        if labelled.task == "multilabel":
            found += _repeated_in_a_row(labelled)
        if length and name == first:
            found += _cut(labelled, length, special_token_count(labelled) if special_tokens is None else special_tokens)
        warnings += [(name, one) for one in found]
    return warnings


def _cut(labelled: LabelledSet, length: int, special_tokens: int) -> Iterator[DataWarning]:
    counts = token_counts(labelled)
    cut = [row for row, count in enumerate(counts) if count + special_tokens > length]
    if cut:
        message = (
            f"{len(cut) / len(counts):.1%} of the texts are longer than {length:,} tokens, and are cut; "
            f"the longest has {max(counts):,}"
        )
        yield DataWarning("cut_texts", message, len(cut), tuple(labelled.locations[row] for row in cut[:5]))


def token_counts(labelled: LabelledSet) -> list[int]:
    """The tokens of each row, of both texts together where it has two."""
    ids, rows = labelled.token_ids or [], len(labelled)
    return [sum(map(len, ids[row::rows])) for row in range(rows)]


def special_token_count(labelled: LabelledSet) -> int:
    """Those around a row in a run from scratch, and between its texts where it has two."""
    return Template(first=0, last=0).cost_of(pairs=labelled.texts_b is not None)


def _conflicts(labelled: LabelledSet) -> Iterator[DataWarning]:
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
            f"in {sum(map(len, groups)):,} rows; first {' and '.join(map(_file_and_line, locations[:3]))}: {labels}"
        )
        yield DataWarning("conflicting_labels", message, len(groups), locations)


def _similar_names(counts: Counter[str], labelled: LabelledSet, said: set[frozenset[str]]) -> Iterator[DataWarning]:
    names_of: dict[object, list[str]] = defaultdict(list)
    for name in sorted(counts):
        names_of[_bare(name)].append(name)
    for names in (names for names in names_of.values() if len(names) > 1 and frozenset(names) not in said):
        said.add(frozenset(names))
        listed = " and ".join(f"{_quoted(name)} ({_rows(counts[name])})" for name in names)
        message = f"labels {listed} look like one, but count as different classes"
        yield DataWarning("similar_labels", message, len(names), _first_locations(labelled, names))


def _bare(name: str) -> object:
    """A label without case, accents and white space, signs kept: `C` and `C++` differ; `1` and `1.0` do not."""
    try:
        return float(name)
    except ValueError:
        letters = unicodedata.normalize("NFKD", name).casefold()
        return "".join(c for c in letters if not unicodedata.combining(c) and not c.isspace())


def _likely_typos(counts: Counter[str], labelled: LabelledSet, said: set[frozenset[str]]) -> Iterator[DataWarning]:
    """Names of few rows that are one slip of the fingers from a name of many."""
    for rare, usual in sorted(_neighbours(counts)):
        few, many = counts[rare], counts[usual]
        if many >= TYPO_ROWS * few and frozenset((rare, usual)) not in said:
            said.add(frozenset((rare, usual)))
            message = (
                f"label {_quoted(rare)} ({_rows(few)}) may be a typo of {_quoted(usual)} ({_rows(many)}): "
                "they count as different classes"
            )
            yield DataWarning("likely_typo", message, few, _first_locations(labelled, (rare, usual)))


def _neighbours(counts: Counter[str]) -> set[tuple[str, str]]:
    """Pairs of names, the one of fewer rows first, that differ by a letter too many, too few, other or exchanged."""
    alike: dict[str, list[str]] = defaultdict(list)
    for name in counts:
        if len(name) in TYPO_LETTERS:
            folded = name.casefold()
            for key in {folded, *(folded[:at] + folded[at + 1 :] for at in range(len(folded)))}:
                alike[key].append(name)
    pairs = {pair for names in alike.values() for pair in combinations(names, 2)}
    ordered = (sorted(pair, key=lambda name: (counts[name], name)) for pair in pairs)
    return {(rare, usual) for rare, usual in ordered if _is_slip(rare.casefold(), usual.casefold())}


def _is_slip(one: str, other: str) -> bool:
    """The same first letter, and one edit apart, in letters alone: `class 1` and `class 2` are two classes."""
    if one == other or one[0] != other[0]:
        return False
    begin = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    ends = 0
    while ends < min(len(one), len(other)) - begin and one[-1 - ends] == other[-1 - ends]:
        ends += 1
    left, right = one[begin : len(one) - ends], other[begin : len(other) - ends]
    is_edit = max(len(left), len(right)) == 1 or (len(left) == len(right) == 2 and left == right[::-1])
    return is_edit and (left + right).isalpha()


def _quoted(name: str) -> str:
    """A label in quotes, in which spaces that cannot be seen are."""
    return repr(visible_spaces(name))


def _file_and_line(location: str) -> str:
    """Without the folder, which a record of a study does not depend on."""
    return location.rpartition("/")[2]


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


def _first_locations(labelled: LabelledSet, names: Sequence[str]) -> tuple[str, ...]:
    rows = list(zip(labelled.labels, labelled.locations, strict=True))
    return tuple(next(location for label, location in rows if name in classes_of(label)) for name in names)


def _rare_classes(counts: Counter[str], labelled: LabelledSet) -> Iterator[DataWarning]:
    single = sorted(name for name, count in counts.items() if count == 1)
    if single:
        classes, they, them = ("class", "it", "it") if len(single) == 1 else ("classes", "they", "them")
        message = (
            f"{len(single):,} {classes} with one row only, such as {_quoted(single[0])}: "
            f"{they} cannot be both learned and checked; a split leaves {them} in train"
        )
        yield DataWarning("single_row_class", message, len(single), _first_locations(labelled, single[:5]))
    if counts:
        (largest, most), (smallest, least) = counts.most_common()[0], counts.most_common()[-1]
        if has_rare_class(counts) if labelled.task == "classification" else most >= IMBALANCE * least:
            message = (
                f"{_quoted(smallest)} has {_rows(least)}, {_quoted(largest)} {most:,}: accuracy says little here "
                f"(always {_quoted(largest)} gives {most / len(labelled):.2%}); look at macro-F1"
                + (", and give --class-weights balanced" if labelled.task == "classification" else "")
            )
            yield DataWarning("imbalance", message, least)


def _repeated_in_a_row(labelled: LabelledSet) -> Iterator[DataWarning]:
    locations = [
        location for label, location in zip(labelled.labels, labelled.locations, strict=True)
        if len(set(classes_of(label))) < len(classes_of(label))
    ]  # fmt: skip
    if locations:
        message = f"{len(locations):,} rows name a label twice; it counts once. First {_file_and_line(locations[0])}"
        yield DataWarning("repeated_label", message, len(locations), tuple(locations[:5]))
