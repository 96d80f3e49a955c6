"""A directory that came from elsewhere, read as plain data: no code in it runs, and nothing outside of it is opened."""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from headstart.errors import IntegrityError, UserError
from headstart.interop.fields import CODE, refuse_code
from headstart.text.files import foreign_form

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
LARGEST_JSON_BYTES = 256 << 20
# Weights that run code when they are loaded, or are of a kind that nobody here reads.
_PICKLES = (".bin", ".ckpt", ".joblib", ".pickle", ".pkl", ".pt", ".pth")
_CONVERT = (
    "convert it in a place where running its code does no harm: transformers.AutoModel….from_pretrained(DIR)"
    ".save_pretrained(NEW, safe_serialization=True)"
)
_OTHERS = {"tf_model.h5": "TensorFlow's", "flax_model.msgpack": "Flax's"}


class ForeignDirectory:
    """The files of a checkpoint; a name that leads elsewhere, by `..` or by a link, is refused."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise UserError(
                "is not a directory" if self.path.exists() else "there is no such directory",
                where=str(path),
                fix="give a directory with config.json, model.safetensors and tokenizer.json",
            )
        self._used: set[str] = set()

    def has(self, name: str) -> bool:
        return os.path.lexists(self.path / name)

    def file(self, name: str) -> Path:
        """The path of a file that is there, and really in this directory."""
        if name != os.path.basename(name) or name in ("", ".", "..") or "\\" in name or "\0" in name:
            raise UserError(
                f"names the file {name!r}, which is not a plain name in this directory",
                where=str(self.path),
                fix="a checkpoint's files stand side by side in its own directory",
            )
        path = self.path / name
        if not path.is_file():
            raise UserError(f"has no {name}", where=str(self.path), fix="give a whole checkpoint's directory")
        self._refuse_link(path, name)
        self._used.add(name)
        return path

    def _refuse_link(self, path: Path, name: str) -> None:
        """A link is followed only to where a download's cache keeps its files: a blob beside the snapshots."""
        if not path.is_symlink():
            return
        target, here = path.resolve(), self.path.resolve()
        cache = here.parent.parent if here.parent.name == "snapshots" else here
        if target.parent not in (here, cache / "blobs"):
            raise UserError(
                f"{name} is a link that leads out of the directory",
                where=str(self.path),
                fix="put the file itself there",
            )

    def json(self, name: str) -> dict[str, Any]:
        """The content of a JSON file, an object."""
        path = self.file(name)
        if what := foreign_form(path):
            raise UserError(f"is {what}, and no JSON", where=str(path), fix="give the checkpoint's own file")
        if path.stat().st_size > LARGEST_JSON_BYTES:
            raise UserError(
                f"has {path.stat().st_size:,} bytes, and {LARGEST_JSON_BYTES:,} are read at most",
                where=str(path),
                fix="give the checkpoint's own file",
            )
        try:
            content = json.loads(path.read_bytes(), object_pairs_hook=_each_once)
        except (ValueError, RecursionError) as error:
            raise UserError(f"is not JSON ({error})", where=str(path), fix="mend the file") from error
        if not isinstance(content, dict):
            raise UserError("is JSON, but no object", where=str(path), fix="give the checkpoint's own file")
        for key in CODE:
            if key in content:
                refuse_code(key, str(path))
        return content

    # ---- weights ----

    def tensors(self) -> dict[str, Tensor]:
        """All tensors, in float32 where they are of floating point."""
        found: dict[str, Tensor] = {}
        for file, names in self._shards():
            for name, tensor in _loaded(self.file(file)).items():
                if name in found or (names is not None and name not in names):
                    raise IntegrityError(
                        f"holds {name}, which the index puts elsewhere",
                        where=str(self.path / file),
                        fix="give a whole checkpoint",
                    )
                found[name] = _single(name, tensor, str(self.path / file))
        return found

    def _shards(self) -> Iterator[tuple[str, set[str] | None]]:
        """The files of the weights, with the names of the tensors in each where an index gives them."""
        if self.has(WEIGHTS):
            yield WEIGHTS, None
            return
        if not self.has(INDEX):
            self._refuse_other_weights()
        index = self.json(INDEX).get("weight_map")
        if not isinstance(index, dict) or not all(isinstance(file, str) for file in index.values()):
            raise UserError("has no weight_map", where=str(self.path / INDEX), fix="give a whole checkpoint")
        for file in sorted(set(index.values())):
            if not file.endswith(".safetensors"):
                raise UserError(
                    f"names {file!r}, which is no .safetensors file",
                    where=str(self.path / INDEX),
                    fix=_CONVERT,
                )
            yield file, {name for name, place in index.items() if place == file}

    def _refuse_other_weights(self) -> None:
        unsafe = [path.name for path in sorted(self.path.iterdir()) if path.suffix.lower() in _PICKLES]
        if unsafe:
            raise UserError(
                f"{unsafe[0]} is a pickle, which can run code: it is not read, and there is no {WEIGHTS}",
                where=str(self.path),
                fix=_CONVERT,
            )
        others = [f"{name} ({whose})" for name, whose in _OTHERS.items() if self.has(name)]
        told = f"; {', '.join(others)} is not read" if others else ""
        raise UserError(
            f"has no {WEIGHTS}{told}", where=str(self.path), fix="give a checkpoint in safetensors"
        )

    def digests(self) -> dict[str, str]:
        """The sha256 of every file that was read."""
        found = {}
        for name in sorted(self._used):
            with (self.path / name).open("rb") as file:
                found[name] = hashlib.file_digest(file, "sha256").hexdigest()
        return found


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; a key that stands there twice has two values, and readers differ in which one they take."""
    content = dict(pairs)
    if len(content) < len(pairs):
        (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {twice[:200]!r} is there twice")
    return content


def _loaded(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError, RuntimeError, MemoryError) as error:
        what = foreign_form(path)
        raise IntegrityError(
            f"cannot be read ({f'it is {what}' if what else error})",
            where=str(path),
            fix="fetch the file again",
        ) from error


def _single(name: str, tensor: Tensor, where: str) -> Tensor:
    """In float32; numbers that are not finite are refused."""
    if not tensor.is_floating_point():
        return tensor
    tensor = tensor.to(torch.float32)
    if not tensor.isfinite().all():
        raise IntegrityError(
            f"{name} holds numbers that are not finite", where=where, fix="fetch the file again"
        )
    return tensor
