"""What rows and texts are read from: files by their form, folders that hold a dataset, and tables in memory.

A dataset folder is what the `datasets` library saves to disk, or holds parquet files. It may have several splits. One
of them is named like something in the folder, `reviews/test`: a folder there, or the parquet files whose names begin
with it (`test.parquet`, `test-00000-of-00002.parquet`), in the folder itself or in its `data`. Files whose names
match no split are parts of one set.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from headstart.config.training import WEIGHT
from headstart.errors import UserError


@dataclass(frozen=True, eq=False)
class Table:
    """Rows in memory, or behind a library that reads them: a frame, a dataset, a list of records."""

    name: str  # what it is called in messages and in a run's settings: there is no path
    columns: tuple[str, ...]
    read: Callable[[Sequence[str]], Iterator[list[Any]]]
    """Gives the plain values of these columns, row by row, as often as it is called; None where one is missing."""

    def __str__(self) -> str:
        return self.name

    def narrowed(self, choose: Callable[[tuple[str, ...], str], dict[str, str]]) -> "Table":
        """The same rows with the wanted columns alone: what else it holds does not make it another one."""
        return Table(self.name, tuple(choose(self.columns, self.name).values()), self.read)


FilePath = str | Path
Source = FilePath | Table
OnBytes = Callable[[int], None] | None
"""Called with the size of each block read from disk (compressed, if it is), for a progress bar."""
Item = TypeVar("Item")

Form = Literal["text", "spm", "jsonl", "csv", "tsv", "parquet", "dataset", "table"]

FORMS: dict[str, Form] = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
    ".csv": "csv", ".tsv": "tsv", ".tab": "tsv",
    ".parquet": "parquet", ".spm": "spm",
}  # fmt: skip

_WEIGHTS = "give text; weights and pickles are not read here"
_OFFICE = (".docx", ".doc", ".odt", ".rtf", ".pdf", ".epub", ".xls", ".xlsx", ".ods")
NOT_AN_OFFICE_FILE = "save it as plain text (.txt) in UTF-8"
NOT_AN_ARCHIVE = "unpack it; of the compressed forms only .gz is read"

_REFUSED = {
    **dict.fromkeys((".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle", ".joblib", ".npy", ".npz"), _WEIGHTS),
    **dict.fromkeys((".safetensors", ".onnx", ".model"), _WEIGHTS),
    **dict.fromkeys(_OFFICE, NOT_AN_OFFICE_FILE),
    **dict.fromkeys((".zip", ".7z", ".rar", ".tar", ".tgz", ".xz", ".bz2", ".zst"), NOT_AN_ARCHIVE),
}


def form_of(path: Source) -> Form:
    """The form of a file by its name, `.gz` aside; what has no other known ending is plain text.

    `-` is standard input and plain text; `-.jsonl`, `-.csv` and `-.tsv` are standard input in those forms. A folder,
    or a split of one, is a dataset; a table in memory is a table.
    """
    if isinstance(path, Table):
        return "table"
    if not is_stdin(path) and is_dataset(path):
        return "dataset"
    name = Path(str(path).lower().removesuffix(".gz"))
    ending = name.suffix or Path("x" + name.name).suffix
    if ending in _REFUSED:
        raise UserError(f"a {ending} file is not text", where=path, fix=_REFUSED[ending], code="bad-format")
    return FORMS.get(ending, "text")


def has_known_ending(name: str) -> bool:
    """Whether a name ends like a file of data or text, or like one that is refused."""
    return Path(name.lower().removesuffix(".gz")).suffix in (".txt", *FORMS, *_REFUSED)


def is_stdin(path: str | Path) -> bool:
    """Whether the path means standard input: `-` or `/dev/stdin`, or `-.jsonl` and the like."""
    name = str(path)
    return name in ("-", "/dev/stdin") or (name.startswith("-.") and not os.path.exists(name))


def weighted_path(given: str) -> tuple[str, float]:
    """The file and the weight of `FILE=WEIGHT`, or of `FILE`; a file that has the whole name is meant by it."""
    path, sign, number = given.rpartition("=")
    try:
        weight = float(number)
    except ValueError:
        return given, 1.0
    if not sign or not path or os.path.exists(given) or is_stdin(given):
        return given, 1.0
    return path, checked_weight(weight, path)


def checked_weight(weight: float, where: str) -> float:
    """How often a source is read in an epoch."""
    if not WEIGHT.holds(weight):
        raise UserError(f"a weight of {weight:g}", where=where, fix=f"give a number {WEIGHT}, or leave it out")
    return float(weight)


def by_weight(items: Sequence[Item], weights: Sequence[float]) -> dict[float, list[Item]]:
    """The items of each weight, in their order; no weights are all 1."""
    groups: dict[float, list[Item]] = {}
    for item, weight in zip(items, weights or [1.0] * len(items), strict=True):
        groups.setdefault(weight, []).append(item)
    return groups


# ---- dataset folders

SplitName = Literal["train", "valid", "test"]

# What a split for each role may be called; the first that is there is taken.
SPLITS: dict[SplitName, tuple[str, ...]] = {
    "train": ("train", "training"),
    "valid": ("validation", "valid", "val", "dev"),
    "test": ("test",),
}

_WORDS = {name for names in SPLITS.values() for name in names}
_PART = re.compile(r"[-_.]\d+([-_.]of[-_.]\d+)?$")  # such as -00000-of-00002
_STATE, _SPLITS = "state.json", "dataset_dict.json"  # which `save_to_disk` writes


def is_dataset(path: str | Path) -> bool:
    """Whether the path is a folder, or names a split that a folder holds as files."""
    if os.path.exists(path):  # which, unlike that of pathlib, takes any name
        return os.path.isdir(path)
    path = Path(path)
    return not path.suffix and os.path.isdir(path.parent) and path.name in _parquet_splits(path.parent)


def dataset_files(path: str | Path) -> list[Path]:
    """The files of a dataset, in their order; a folder of several splits is refused: one has to be named."""
    path = Path(path)
    splits = _splits(path) if path.is_dir() else {"": _parquet_splits(path.parent).get(path.name, [])}
    if not any(splits.values()):
        what = "is a directory" if path.is_dir() else "no such file"
        fix = f"name the files in it, such as {path}/*.txt; or give what Dataset.save_to_disk or parquet wrote"
        raise UserError(f"{what}, and no dataset", where=path, fix=fix, code="no-file")
    if len(splits) > 1:
        fix = f"name one of them: {path}/{next(iter(splits))}"
        raise UserError(f"holds the splits {', '.join(splits)}", where=path, fix=fix, code="missing")
    return next(iter(splits.values()))


def splits_in(path: str | Path) -> dict[str, str]:
    """The path of each split, where a folder holds several; else nothing."""
    splits = _splits(Path(path)) if os.path.isdir(path) else {}
    return {name: str(Path(path) / name) for name in splits} if len(splits) > 1 else {}


def _splits(folder: Path) -> dict[str, list[Path]]:
    """The files of each split; of the only one under no name."""
    if (folder / _STATE).is_file():
        return {"": _saved_files(folder)}
    if (folder / _SPLITS).is_file():
        names = _listed(folder / _SPLITS, lambda about: about["splits"])
        return {name: _saved_files(folder / name) for name in names}
    return _parquet_splits(folder)


def _parquet_splits(folder: Path) -> dict[str, list[Path]]:
    for directory in (folder, folder / "data"):
        if files := sorted(directory.glob("*.parquet")):
            named: dict[str, list[Path]] = {}
            for file in files:
                named.setdefault(_PART.sub("", file.stem), []).append(file)
            return named if _WORDS & set(named) else {"": files}  # else their names are for something else
        parts = {name: sorted((directory / name).glob("*.parquet")) for name in sorted(_WORDS)}
        if any(parts.values()):
            return {name: files for name, files in parts.items() if files}
    return {}


def _saved_files(folder: Path) -> list[Path]:
    """The files that the state of a saved dataset lists: there may be others, left over from before."""
    names = _listed(folder / _STATE, lambda about: [file["filename"] for file in about["_data_files"]])
    return [folder / name for name in names]


def _listed(path: Path, names_in: Callable[[Any], Any]) -> list[str]:
    """Names of files beside this one, and of nothing else."""
    try:
        names = [str(name) for name in names_in(json.loads(path.read_bytes()))]
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        what = f"is not what Dataset.save_to_disk writes ({error!r})"
        raise UserError(what, where=path, fix="save the dataset again", code="bad-format") from error
    for name in names:
        if name in ("", ".", "..") or Path(name).name != name:
            what = f"names {name!r}, which is not a file beside it"
            raise UserError(what, where=path, fix="save the dataset again", code="bad-format")
    return names
