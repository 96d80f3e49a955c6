"""A directory that came from elsewhere, read as plain data: no code in it runs, and nothing outside of it is opened."""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from headstart.data.readers.files import foreign_form
from headstart.errors import Code, IntegrityError, UserError
from headstart.interop.families.fields import refuse_code

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
LARGEST_JSON_BYTES = 256 << 20

# Weights that run code when they are loaded, or are of a kind that nobody here reads.
_PICKLES = (".bin", ".ckpt", ".joblib", ".pickle", ".pkl", ".pt", ".pth")

_CONVERT = (
    "convert it where running its code does no harm: transformers.AutoModel….from_pretrained(DIR)"
    ".save_pretrained(NEW, safe_serialization=True)"
)
_OTHERS = {"tf_model.h5": "TensorFlow's", "flax_model.msgpack": "Flax's"}
_OWN_FILE, _WHOLE = "give the checkpoint's own file", "give a whole checkpoint"
_AGAIN = "fetch the file again"


class ForeignDirectory:
    """The files of a checkpoint; a name that leads elsewhere, by `..` or by a link, is refused."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            what = "is not a directory" if self.path.exists() else "there is no such directory"
            self._refuse(what, "give one with config.json, model.safetensors and tokenizer.json", "no-file")
        self._used: set[str] = set()

    def _refuse(self, what: str, fix: str, code: Code, name: str = "") -> NoReturn:
        raise UserError(what, where=self.path / name, fix=fix, code=code)

    def has(self, name: str) -> bool:
        return os.path.lexists(self.path / name)

    def file(self, name: str) -> Path:
        """The path of a file that is there, and really in this directory."""
        if name != os.path.basename(name) or name in ("", ".", "..") or "\\" in name or "\0" in name:
            what = f"names the file {name!r}, which is not a plain name in this directory"
            self._refuse(what, "a checkpoint's files stand side by side in its own directory", "unsupported")
        path = self.path / name
        if not path.is_file():
            self._refuse(f"has no {name}", "give a whole checkpoint's directory", "no-file")
        # A link is followed only to where a download's cache keeps its files: a blob beside the snapshots.
        here = self.path.resolve()
        cache = here.parent.parent if here.parent.name == "snapshots" else here
        if path.is_symlink() and path.resolve().parent not in (here, cache / "blobs"):
            what = f"{name} is a link that leads out of the directory"
            self._refuse(what, "put the file itself there", "unsupported")
        self._used.add(name)
        return path

    def bytes(self, name: str, most: int) -> bytes:
        """The content of a file that has no more bytes than these."""
        path = self.file(name)
        if (size := path.stat().st_size) > most:
            self._refuse(f"has {size:,} bytes, and {most:,} are read at most", _OWN_FILE, "too-large", name)
        return path.read_bytes()

    def json(self, name: str) -> dict[str, Any]:
        """The content of a JSON file, an object."""
        path = self.file(name)
        if what := foreign_form(path):
            self._refuse(f"is {what}, and no JSON", _OWN_FILE, "bad-format", name)
        try:
            content = json.loads(self.bytes(name, LARGEST_JSON_BYTES), object_pairs_hook=_each_once)
        except (ValueError, RecursionError) as error:
            raise UserError(f"is not JSON ({error})", where=path, fix="mend the file", code="bad-format") from error
        if not isinstance(content, dict):
            self._refuse("is JSON, but no object", _OWN_FILE, "bad-format", name)
        refuse_code(content, str(path))
        return content

    # ---- weights ----

    def tensors(self) -> dict[str, Tensor]:
        """All tensors, in float32 where they are of floating point."""
        loaded: dict[str, Tensor] = {}
        for file, names in self._shards():
            for name, tensor in _loaded(self.file(file)).items():
                if name in loaded or (names is not None and name not in names):
                    what = f"holds {name}, which the index puts elsewhere"
                    raise IntegrityError(what, where=self.path / file, fix=_WHOLE, code="mismatch")
                loaded[name] = tensor.to(torch.float32) if tensor.is_floating_point() else tensor
                if not loaded[name].isfinite().all():
                    what = f"{name} holds numbers that are not finite"
                    raise IntegrityError(what, where=self.path / file, fix=_AGAIN, code="not-finite")
        return loaded

    def _shards(self) -> Iterator[tuple[str, set[str] | None]]:
        """The files of the weights, with the names of the tensors in each where an index gives them."""
        if self.has(WEIGHTS):
            yield WEIGHTS, None
            return
        if not self.has(INDEX):
            self._refuse_other_weights()
        index = self.json(INDEX).get("weight_map")
        if not isinstance(index, dict) or not all(isinstance(file, str) for file in index.values()):
            self._refuse("has no weight_map", _WHOLE, "missing", INDEX)
        for file in sorted(set(index.values())):
            if not file.endswith(".safetensors"):
                self._refuse(f"names {file!r}, which is no .safetensors file", _CONVERT, "unsupported", INDEX)
            yield file, {name for name, its_file in index.items() if its_file == file}

    def _refuse_other_weights(self) -> None:
        if unsafe := [path.name for path in sorted(self.path.iterdir()) if path.suffix.lower() in _PICKLES]:
            what = f"{unsafe[0]} is a pickle, which can run code: it is not read, and there is no {WEIGHTS}"
            self._refuse(what, _CONVERT, "unsupported")
        others = [f"{name} ({whose})" for name, whose in _OTHERS.items() if self.has(name)]
        what = f"has no {WEIGHTS}" + (f"; {', '.join(others)} is not read" if others else "")
        self._refuse(what, "give a checkpoint in safetensors", "no-file")

    def digests(self) -> dict[str, str]:
        """The sha256 of every file that was read."""
        digests = {}
        for name in sorted(self._used):
            with (self.path / name).open("rb") as file:
                digests[name] = hashlib.file_digest(file, "sha256").hexdigest()
        return digests


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
        why = f"it is {form}" if (form := foreign_form(path)) else error
        raise IntegrityError(f"cannot be read ({why})", where=path, fix=_AGAIN) from error
