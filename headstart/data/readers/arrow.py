"""Rows of parquet files and of datasets that were saved to disk, through the extra `data` (pyarrow).

A column of classes (`ClassLabel` of the `datasets` library, which is written into the files) is read as the names of
its classes, and as missing where it says -1. Nothing else of that library is needed or run.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headstart.config.reading import Reading
from headstart.data.readers.rows import BadRows, Columns, Row, Rows
from headstart.data.readers.sources import FilePath, OnBytes, dataset_files, form_of, is_stdin
from headstart.errors import UserError

BATCH_ROWS = 256
Classes = Mapping[str, Sequence[str]]


def arrow_rows(path: FilePath, columns: Columns, reading: Reading, bad: BadRows, on_bytes: OnBytes) -> Rows:
    """The rows of a parquet file, or of all files of a dataset's folder."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        fix = "pip install 'headstart[data]'"
        raise UserError("parquet needs the package pyarrow", where=path, fix=fix, code="no-package") from None
    if form_of(path) == "dataset":
        files = dataset_files(path)
    elif is_stdin(path) or not Path(path).is_file():
        raise UserError("parquet is read from a file only", where=path, fix="check the path", code="no-file")
    else:
        files = [Path(path)]
    for file in files:
        is_parquet = file.suffix == ".parquet"
        try:
            yield from (_parquet_rows if is_parquet else _saved_rows)(file, columns, on_bytes)
        except (pyarrow.ArrowException, OSError) as error:
            form = "parquet" if is_parquet else "Arrow"
            what = f"not a readable {form} file ({str(error).splitlines()[0]})"
            raise UserError(what, where=file, fix="write it again with pandas or pyarrow", code="bad-format") from error


def _parquet_rows(path: Path, columns: Columns, on_bytes: OnBytes) -> Rows:
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        names = columns.choose(file.schema_arrow.names, str(path))
        classes, byte_count, number = class_names(file.schema_arrow), path.stat().st_size, 0
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=list(names.values())):
            yield from _rows_in(batch, names, classes, path, number)
            number += batch.num_rows
            if on_bytes:
                on_bytes(byte_count * batch.num_rows // file.metadata.num_rows)


def _saved_rows(path: Path, columns: Columns, on_bytes: OnBytes) -> Rows:
    import pyarrow

    with pyarrow.memory_map(str(path)) as raw, pyarrow.ipc.open_stream(raw) as stream:
        names = columns.choose(stream.schema.names, str(path))
        classes, number, last = class_names(stream.schema), 0, 0
        for batch in stream:
            chosen = batch.select(list(dict.fromkeys(names.values())))
            for start in range(0, batch.num_rows, BATCH_ROWS):
                yield from _rows_in(chosen.slice(start, BATCH_ROWS), names, classes, path, number + start)
            number += batch.num_rows
            if on_bytes:
                on_bytes(raw.tell() - last)
                last = raw.tell()


def _rows_in(batch: Any, names: dict[str, str], classes: Classes, path: Path, before: int) -> Rows:
    for number, values in enumerate(values_of(batch, names.values(), classes), before + 1):
        yield Row(f"{path}:{number}", dict(zip(names, values, strict=True)), names)


def values_of(batch: Any, columns: Iterable[str], classes: Classes) -> Iterator[list[Any]]:
    """The values of these columns, row by row, classes by their names."""
    for record in batch.to_pylist():
        yield [with_class_names(record[name], classes.get(name)) for name in columns]


def class_names(schema: Any) -> dict[str, list[str]]:
    """The names of the classes of each column of classes, which the `datasets` library keeps in the schema."""
    try:
        about = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        # Lists of classes name them one level deeper.
        kinds = {column: kind.get("feature", kind) for column, kind in about.items() if hasattr(kind, "get")}
        labels = {column: kind for column, kind in kinds.items() if kind.get("_type") == "ClassLabel"}
        return {column: [str(name) for name in kind["names"]] for column, kind in labels.items()}
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        return {}  # written by somebody else, or without names


def with_class_names(value: Any, names: Sequence[str] | None) -> Any:
    """The name of a class by its number; a number that has none is a missing value. Anything else is itself."""
    if names is None:
        return value
    if isinstance(value, list):
        return [with_class_names(one, names) for one in value]
    if isinstance(value, int):
        return names[value] if 0 <= value < len(names) else None
    return value
