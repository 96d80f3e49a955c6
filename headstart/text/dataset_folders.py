"""Folders that hold a dataset: what the `datasets` library saves to disk, and parquet files.

A folder may hold several splits. One of them is named like something in the folder, `reviews/test`, be it a folder
there, or the parquet files whose names begin with it: `test.parquet`, `test-00000-of-00002.parquet`, in the folder
itself or in `data` inside it. Files that are named after nothing of the kind are parts of one set.
"""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from headstart.errors import UserError

Role = Literal["train", "valid", "test"]
# What a split for each role may be called; the first that is there is taken.
SPLITS: dict[Role, tuple[str, ...]] = {
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
    found = _splits(path) if path.is_dir() else {"": _parquet_splits(path.parent).get(path.name, [])}
    if not any(found.values()):
        what = "is a directory" if path.is_dir() else "no such file"
        raise UserError(
            f"{what}, and no dataset",
            where=str(path),
            fix=f"name the files in it, such as {path}/*.txt; or give what Dataset.save_to_disk or parquet wrote",
        )
    if len(found) > 1:
        first = next(iter(found))
        raise UserError(
            f"holds the splits {', '.join(found)}",
            where=str(path),
            fix=f"name one of them: {path}/{first}",
        )
    return next(iter(found.values()))


def splits_in(path: str | Path) -> dict[str, str]:
    """The path of each split, where a folder holds several; else nothing."""
    found = _splits(Path(path)) if os.path.isdir(path) else {}
    return {name: str(Path(path) / name) for name in found} if len(found) > 1 else {}


def _splits(folder: Path) -> dict[str, list[Path]]:
    """The files of each split; of the only one under no name."""
    if (folder / _STATE).is_file():
        return {"": _saved_files(folder)}
    if (folder / _SPLITS).is_file():
        names = _listed(folder / _SPLITS, lambda about: about["splits"])
        return {name: _saved_files(folder / name) for name in names}
    return _parquet_splits(folder)


def _parquet_splits(folder: Path) -> dict[str, list[Path]]:
    for place in (folder, folder / "data"):
        if files := sorted(place.glob("*.parquet")):
            return _by_name(files)
        parts = {name: sorted((place / name).glob("*.parquet")) for name in sorted(_WORDS)}
        if any(parts.values()):
            return {name: files for name, files in parts.items() if files}
    return {}


def _by_name(files: list[Path]) -> dict[str, list[Path]]:
    """Files by the split that their names begin with, if that is what their names are for."""
    parts: dict[str, list[Path]] = {}
    for file in files:
        parts.setdefault(_PART.sub("", file.stem), []).append(file)
    return parts if _WORDS & set(parts) else {"": files}


def _saved_files(folder: Path) -> list[Path]:
    """The files that the state of a saved dataset lists: there may be others, left over from before."""
    names = _listed(folder / _STATE, lambda about: [file["filename"] for file in about["_data_files"]])
    return [folder / name for name in names]


def _listed(path: Path, names_in: Callable[[Any], Any]) -> list[str]:
    """Names of files beside this one, and of nothing else."""
    try:
        names = [str(name) for name in names_in(json.loads(path.read_bytes()))]
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise UserError(
            f"is not what Dataset.save_to_disk writes ({error!r})",
            where=str(path),
            fix="save the dataset again",
        ) from error
    for name in names:
        if name in ("", ".", "..") or Path(name).name != name:
            raise UserError(
                f"names {name!r}, which is no file beside it", where=str(path), fix="save the dataset again"
            )
    return names
