"""Rows of parquet files and of datasets that were saved to disk, through the extra `data` (pyarrow).

A column of classes (`ClassLabel` of the `datasets` library, which is written into the files) is read as the names of
its classes, and as missing where it says -1. Nothing else of that library is needed or run.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headstart.errors import UserError
from headstart.text.dataset_folders import dataset_files
from headstart.text.files import Reading, form_of, is_stdin
from headstart.text.rows import BadRows, Columns, Row

BATCH_ROWS = 256


def arrow_rows(path: str | Path, columns: Columns, reading: Reading, bad: BadRows) -> Iterator[Row]:
    """The rows of a parquet file, or of all files of a dataset's folder."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UserError(
            "parquet needs the package pyarrow", where=str(path), fix="pip install 'headstart[data]'"
        ) from None
    if form_of(path) == "dataset":
        files = dataset_files(path)
    elif is_stdin(path) or not Path(path).is_file():
        raise UserError("parquet is read from a file only", where=str(path), fix="check the path")
    else:
        files = [Path(path)]
    for file in files:
        is_parquet = file.suffix == ".parquet"
        try:
            yield from (_parquet_rows if is_parquet else _saved_rows)(file, columns, reading)
        except (pyarrow.ArrowException, OSError) as error:
            form = "parquet" if is_parquet else "Arrow"
            what = f"not a readable {form} file ({str(error).splitlines()[0]})"
            raise UserError(what, where=str(file), fix="write it again with pandas or pyarrow") from error


def _parquet_rows(path: Path, columns: Columns, reading: Reading) -> Iterator[Row]:
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        names = columns.choose(file.schema_arrow.names, str(path))
        classes, byte_count, number = class_names(file.schema_arrow), path.stat().st_size, 0
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=list(names.values())):
            yield from _rows_in(batch, names, classes, f"{path}:", number)
            number += batch.num_rows
            if reading.on_bytes:
                reading.on_bytes(byte_count * batch.num_rows // file.metadata.num_rows)


def _saved_rows(path: Path, columns: Columns, reading: Reading) -> Iterator[Row]:
    import pyarrow

    with pyarrow.memory_map(str(path)) as raw, pyarrow.ipc.open_stream(raw) as stream:
        names = columns.choose(stream.schema.names, str(path))
        classes, number, last = class_names(stream.schema), 0, 0
        for batch in stream:
            chosen = batch.select(list(dict.fromkeys(names.values())))
            for start in range(0, batch.num_rows, BATCH_ROWS):
                yield from _rows_in(
                    chosen.slice(start, BATCH_ROWS), names, classes, f"{path}:", number + start
                )
            number += batch.num_rows
            if reading.on_bytes:
                reading.on_bytes(raw.tell() - last)
                last = raw.tell()


def _rows_in(
    batch: Any, names: dict[str, str], classes: Mapping[str, Sequence[str]], where: str, before: int
) -> Iterator[Row]:
    for number, record in enumerate(batch.to_pylist(), before + 1):
        values = {role: with_class_names(record[name], classes.get(name)) for role, name in names.items()}
        yield Row(f"{where}{number}", values, names)


def class_names(schema: Any) -> dict[str, list[str]]:
    """The names of the classes of each column of classes, which the `datasets` library keeps in the schema."""
    try:
        about = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        # Lists of classes name them one level deeper.
        kinds = {
            column: kind.get("feature", kind) for column, kind in about.items() if isinstance(kind, dict)
        }
        return {
            column: [str(name) for name in kind["names"]]
            for column, kind in kinds.items()
            if kind.get("_type") == "ClassLabel"
        }
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
