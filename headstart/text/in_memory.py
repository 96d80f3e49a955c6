"""Data that a program has in its hands, as something to read: frames, datasets, lists of records, splits of them.

Nothing is imported for it: what somebody hands over is already there, and is known by the library it is from.

* a `pandas.DataFrame`, or a `Series` of texts (a column `text`)
* a `datasets.Dataset`; columns of classes are read as the names of their classes
* a `pyarrow.Table`
* a list of records: `[{"text": "…", "label": "good"}, …]`
* splits by their names, each any of these: a `datasets.DatasetDict`, or a dict
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headstart.errors import UserError
from headstart.text.arrow import BATCH_ROWS, class_names, with_class_names
from headstart.text.dataset_folders import SPLITS, Role, splits_in
from headstart.text.labelled import LabelledSet
from headstart.text.sources import Source, Table

Given = Any
"""A path, or one of the objects above."""


def source_of(given: Given) -> Source:
    """A path as it is, and anything else as a table."""
    if isinstance(given, str | Path | Table):
        return given
    made = _maker(given)
    if made is None:
        raise UserError(
            f"a {type(given).__name__} is nothing to read from",
            fix="give a path, a pandas DataFrame, a datasets.Dataset, a pyarrow.Table or a list of records",
        )
    return made(given)


def sources_by_role(
    train: Given, valid: Given = None, test: Given = None
) -> dict[Role, Source | LabelledSet]:
    """What to read for each role that is given; splits in one folder or dict are given the roles of their names.

    So `train` alone may hold all three; `valid` and `test`, where they are given too, go before its own. A set that
    was read before is as good as one that is to be read.
    """
    given: dict[Role, Given] = {"train": train, "valid": valid, "test": test}
    own, found = _splits_of(train), dict[Role, Source | LabelledSet]()
    for role, one in given.items():
        if isinstance(one, LabelledSet):
            found[role] = one
        elif one is not None and not (isinstance(one, str) and not one):
            found[role] = split_for(one, role)
        elif name := _name_for(role, own):
            found[role] = source_of(own[name])
    return found


def split_for(given: Given, role: Role) -> Source:
    """What to read for this role: the split of that name, where there are several, else all of it."""
    splits = _splits_of(given)
    if not splits:
        return source_of(given)
    name = _name_for(role, splits)
    if name is None:
        where = str(given) if isinstance(given, str | Path) else f"a {type(given).__name__}"
        raise UserError(
            f"holds the splits {', '.join(map(str, splits))}, and none for {role}",
            where=where,
            fix=f"name one of them, or call it {SPLITS[role][0]}",
        )
    return source_of(splits[name])


def _splits_of(given: Given) -> Mapping[str, Given]:
    if isinstance(given, Mapping):
        return given
    return splits_in(given) if isinstance(given, str | Path) else {}


def _name_for(role: Role, splits: Mapping[str, Given]) -> str | None:
    return next((name for name in SPLITS[role] if name in splits), None)


def is_one(given: Given) -> bool:
    """Whether this is one thing to read from, and no list of such things."""
    return isinstance(given, str | Path | Table | Mapping) or _maker(given) is not None


# ---- one for each library ---------------------------------------------------------------------------------


def _maker(given: Given) -> Callable[[Given], Table] | None:
    """What makes a table of this object, by the library that its class, or one that it extends, is from."""
    if isinstance(given, list) and given and isinstance(given[0], Mapping) and not _splits_are_in(given[0]):
        return _records
    libraries = {(kind.__module__.partition(".")[0], kind.__name__) for kind in type(given).__mro__}
    return next((made for known, made in _MAKERS.items() if known in libraries), None)


def _splits_are_in(record: Mapping[str, Any]) -> bool:
    return bool(record) and all(_maker(value) is not None for value in record.values())


def _frame(frame: Any) -> Table:
    columns = [str(column) for column in frame.columns]
    for column in columns:
        if columns.count(column) > 1:
            raise UserError(f"column {column!r} stands twice", where=_name(frame), fix="rename one of them")

    def read(wanted: Sequence[str]) -> Iterator[list[Any]]:
        places = [columns.index(name) for name in wanted]
        for start in range(0, len(frame), BATCH_ROWS):
            part = frame.iloc[start : start + BATCH_ROWS, places]
            yield from map(list, zip(*(_values(part.iloc[:, n]) for n in range(len(places))), strict=True))

    return Table(_name(frame), tuple(columns), read)


def _values(series: Any) -> list[Any]:
    """The values of a column as Python has them; None where pandas knows of none."""
    pairs = zip(series.tolist(), series.isna().tolist(), strict=True)
    return [None if is_missing else _plain(value) for value, is_missing in pairs]


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value  # numbers and arrays of NumPy


def _series(series: Any) -> Table:
    def read(wanted: Sequence[str]) -> Iterator[list[Any]]:
        for start in range(0, len(series), BATCH_ROWS):
            yield from ([value] for value in _values(series.iloc[start : start + BATCH_ROWS]))

    return Table(_name(series), ("text",), read)


def _dataset(dataset: Any) -> Table:
    def read(wanted: Sequence[str]) -> Iterator[list[Any]]:
        plain = dataset.with_format("arrow").select_columns(list(dict.fromkeys(wanted)))
        for batch in plain.iter(batch_size=BATCH_ROWS):
            yield from _arrow_values(batch, wanted, class_names(dataset.features.arrow_schema))

    return Table(_name(dataset), tuple(dataset.column_names), read)


def _arrow_table(table: Any) -> Table:
    def read(wanted: Sequence[str]) -> Iterator[list[Any]]:
        for batch in table.select(list(dict.fromkeys(wanted))).to_batches(BATCH_ROWS):
            yield from _arrow_values(batch, wanted, class_names(table.schema))

    return Table(_name(table), tuple(table.column_names), read)


def _arrow_values(
    batch: Any, wanted: Sequence[str], classes: Mapping[str, Sequence[str]]
) -> Iterator[list[Any]]:
    for record in batch.to_pylist():
        yield [with_class_names(record[name], classes.get(name)) for name in wanted]


def _records(records: Sequence[Mapping[str, Any]]) -> Table:
    columns = tuple(dict.fromkeys(str(name) for record in records for name in record))

    def read(wanted: Sequence[str]) -> Iterator[list[Any]]:
        for record in records:
            yield [_plain(record.get(name)) for name in wanted]

    return Table("list of records", columns, read)


def _no_stream(stream: Any) -> Table:
    raise UserError(
        f"a {_name(stream)} can be read once only, and a run reads its data several times",
        fix="make a datasets.Dataset of it: Dataset.from_generator, or load it without streaming=True",
    )


def _name(given: Any) -> str:
    return f"{type(given).__module__.partition('.')[0]}.{type(given).__name__}"


_MAKERS: dict[tuple[str, str], Callable[[Any], Table]] = {
    ("pandas", "DataFrame"): _frame,
    ("pandas", "Series"): _series,
    ("datasets", "Dataset"): _dataset,
    ("datasets", "IterableDataset"): _no_stream,
    ("datasets", "IterableDatasetDict"): _no_stream,
    ("pyarrow", "Table"): _arrow_table,
}
