"""Data in memory as something to read: data frames, datasets, lists of records, splits of them.

No library is imported for it: an object is recognised by the module of its class.

* a `pandas.DataFrame`, or a `Series` of texts (a column `text`)
* a `datasets.Dataset`; columns of classes are read as the names of their classes
* a `pyarrow.Table`
* a list of records: `[{"text": "…", "label": "good"}, …]`
* splits by their names, each any of these: a `datasets.DatasetDict`, or a dict
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from pathlib import Path
from typing import Any

from headstart.data.labelled import LabelledSet
from headstart.data.readers.arrow import BATCH_ROWS, class_names, values_of
from headstart.data.readers.sources import SPLITS, Source, SplitName, Table, splits_in
from headstart.errors import UserError

Given = str | Path | Table | Sized  # a path, or one of the objects above


def source_of(given: Given) -> Source:
    """A path as it is, and anything else as a table."""
    if isinstance(given, str | Path | Table):
        return given
    made = _maker(given)
    if made is None:
        fix = "give a path, a pandas DataFrame, a datasets.Dataset, a pyarrow.Table or a list of records"
        raise UserError(f"cannot read data from a {type(given).__name__}", fix=fix, code="unsupported")
    return made(given)


def sources_by_role(
    train: Given | None, valid: Given | None = None, test: Given | None = None
) -> dict[SplitName, Source | LabelledSet]:
    """What to read for each role; `train` may hold splits for all three, over which `valid` and `test` prevail."""
    given: dict[SplitName, Given | None] = {"train": train, "valid": valid, "test": test}
    splits, sources = {} if train is None else _splits_of(train), dict[SplitName, Source | LabelledSet]()
    for role, one in given.items():
        if isinstance(one, LabelledSet):
            sources[role] = one
        elif one is not None and not (isinstance(one, str) and not one):
            sources[role] = split_for(one, role)
        elif name := _name_for(role, splits):
            sources[role] = source_of(splits[name])
    return sources


def split_for(given: Given, role: SplitName) -> Source:
    """What to read for this role: the split of that name, where there are several, else all of it."""
    splits = _splits_of(given)
    if not splits:
        return source_of(given)
    name = _name_for(role, splits)
    if name is None:
        where = str(given) if isinstance(given, str | Path) else f"a {type(given).__name__}"
        what = f"holds the splits {', '.join(map(str, splits))}, and none for {role}"
        raise UserError(what, where=where, fix=f"name one of them, or call it {SPLITS[role][0]}", code="missing")
    return source_of(splits[name])


def _splits_of(given: Given) -> Mapping[str, Given]:
    if isinstance(given, Mapping):
        return given
    return splits_in(given) if isinstance(given, str | Path) else {}


def _name_for(role: SplitName, splits: Mapping[str, Given]) -> str | None:
    return next((name for name in SPLITS[role] if name in splits), None)


def is_one(given: Given) -> bool:
    """Whether this is one thing to read from, and no list of such things."""
    return isinstance(given, str | Path | Table | Mapping) or _maker(given) is not None


def _maker(given: Given) -> Callable[[Any], Table] | None:
    """What makes a table of this object, by the library that its class, or one that it extends, is from."""
    if isinstance(given, list) and given and isinstance(given[0], Mapping):
        has_splits = given[0] and all(_maker(value) is not None for value in given[0].values())
        if not has_splits:
            return _records
    libraries = {(kind.__module__.partition(".")[0], kind.__name__) for kind in type(given).__mro__}
    return next((made for known, made in _MAKERS.items() if known in libraries), None)


def _frame(frame: Any) -> Table:
    columns = [str(column) for column in frame.columns]
    for column in columns:
        if columns.count(column) > 1:
            fix = "rename one of them"
            raise UserError(f"column {column!r} occurs twice", where=_name(frame), fix=fix, code="conflict")

    def read(wanted: Sequence[str]) -> Iterator[list[Any]]:
        indexes = [columns.index(name) for name in wanted]
        for start in range(0, len(frame), BATCH_ROWS):
            part = frame.iloc[start : start + BATCH_ROWS, indexes]
            yield from map(list, zip(*(_values(part.iloc[:, n]) for n in range(len(indexes))), strict=True))

    return Table(_name(frame), tuple(columns), read)


def _values(series: Any) -> list[Any]:
    """The values of a column as Python has them; None where pandas knows of none."""
    pairs = zip(series.tolist(), series.isna().tolist(), strict=True)
    return [None if is_missing else _plain(value) for value, is_missing in pairs]


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value  # numbers and arrays of NumPy


def _dataset(dataset: Any) -> Table:
    def read(wanted: Sequence[str]) -> Iterator[list[Any]]:
        plain = dataset.with_format("arrow").select_columns(list(dict.fromkeys(wanted)))
        for batch in plain.iter(batch_size=BATCH_ROWS):
            yield from values_of(batch, wanted, class_names(dataset.features.arrow_schema))

    return Table(_name(dataset), tuple(dataset.column_names), read)


def _arrow_table(table: Any) -> Table:
    def read(wanted: Sequence[str]) -> Iterator[list[Any]]:
        for batch in table.select(list(dict.fromkeys(wanted))).to_batches(BATCH_ROWS):
            yield from values_of(batch, wanted, class_names(table.schema))

    return Table(_name(table), tuple(table.column_names), read)


def _records(records: Sequence[Mapping[str, Any]]) -> Table:
    columns = tuple(dict.fromkeys(str(name) for record in records for name in record))

    def read(wanted: Sequence[str]) -> Iterator[list[Any]]:
        for record in records:
            yield [_plain(record.get(name)) for name in wanted]

    return Table("list of records", columns, read)


def _no_stream(stream: Any) -> Table:
    what = f"a {_name(stream)} can be read once only, and a run reads its data several times"
    fix = "make a datasets.Dataset of it: Dataset.from_generator, or load it without streaming=True"
    raise UserError(what, fix=fix, code="unsupported")


def _name(given: Any) -> str:
    return f"{type(given).__module__.partition('.')[0]}.{type(given).__name__}"


_MAKERS: dict[tuple[str, str], Callable[[Any], Table]] = {
    ("pandas", "DataFrame"): _frame,
    ("pandas", "Series"): lambda series: replace(_frame(series.to_frame("text")), name=_name(series)),
    ("datasets", "Dataset"): _dataset,
    ("datasets", "IterableDataset"): _no_stream,
    ("datasets", "IterableDatasetDict"): _no_stream,
    ("pyarrow", "Table"): _arrow_table,
}
