"""Checkpoints that are never half-written and do not load when a bit is wrong.

They are written to a temporary directory, flushed, checksummed and renamed; the one before stays. For tests,
`HEADSTART_FAULT=after:model` (or another point named below) kills the process there with SIGKILL.
"""

import collections
import contextlib
import hashlib
import os
import re
import shutil
import signal
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from headstart.data.readers.files import foreign_form
from headstart.errors import Code, IntegrityError, RunFailed
from headstart.runs.shards import like
from headstart.storage import checksummed_json
from headstart.storage.atomic import atomic_directory, flush, rename

FORMAT = 1
FILES = ("model.safetensors", "optimizer.safetensors", "state.json")
NOTHING: Mapping[str, Any] = MappingProxyType({})
_FIX = "the checkpoint before it is used where there is one"
_NAME = re.compile(r"(?P<old>\.old-)?step-(?P<step>[0-9]{8,})")

# Where a fault can kill `save`; between the renames only where it replaces a checkpoint of the same step.
POINTS = ("after:model", "after:state", "after:manifest", "before:rename", "between:renames", "after:rename")


class Checkpoint(NamedTuple):
    """What a run needs to resume: weights, optimizer state, and the rest as plain data."""

    step: int
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    state: dict[str, Any]
    manifest: dict[str, Any]


def fault(point: str) -> None:
    """Die here under `HEADSTART_FAULT=point`, or `point@N` at the Nth time."""
    wanted, _, nth = os.environ.get("HEADSTART_FAULT", "").partition("@")
    if wanted == point:
        _passed[point] += 1
        if _passed[point] >= int(nth or 1):
            os.kill(os.getpid(), signal.SIGKILL)


_passed = collections.Counter[str]()


def weights_digest(tensors: Mapping[str, Tensor]) -> str:
    """The sha256 over all weights in the order of their names: equal for equal weights."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def refuse_not_finite(weights: Mapping[str, Tensor], where: Path) -> None:
    """Weights that are not finite are nothing to resume from, and no result."""
    for name in sorted(weights):
        if not weights[name].isfinite().all():
            what = f"the weights are not finite, {name} first; the last good checkpoint is kept"
            fix = "give a smaller --learning-rate or more --warmup"
            raise RunFailed(what, where=where, fix=fix, code="not-finite")


def save(
    directory: Path, step: int, model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor],
    state: Mapping[str, Any], facts: Mapping[str, Any], keep: int = 2,
) -> Path:  # fmt: skip
    """Write `directory/step-N` atomically, then drop all but the newest `keep`; weights must be finite."""
    refuse_not_finite(model, directory)
    final, old = directory / f"step-{step:08d}", directory / f".old-step-{step:08d}"
    needed = sum(t.numel() * t.element_size() for part in (model, optimizer) for t in part.values()) + 2**16
    if final.is_symlink():  # no checkpoint of ours, and what it points to is not ours to touch
        final.unlink()
    with atomic_directory(final, needed) as temporary:
        write_tensors(temporary / "model.safetensors", model)
        fault("after:model")
        write_tensors(temporary / "optimizer.safetensors", optimizer)
        (temporary / "state.json").write_bytes(checksummed_json.dump(state))
        fault("after:state")
        files = {
            name: {"sha256": _sha256(temporary / name), "bytes": (temporary / name).stat().st_size} for name in FILES
        }
        manifest = {"format": FORMAT, "step": step, **facts, "files": files}
        (temporary / "manifest.json").write_bytes(checksummed_json.dump(manifest))
        fault("after:manifest")
        fault("before:rename")
        if os.path.lexists(final):  # of the same step; until the new one has its name, loading finds `old`
            _remove(old)
            rename(final, old)
            fault("between:renames")
    fault("after:rename")
    _remove(old)
    saved = _saved(directory)
    # What is newer than this was passed over when the run resumed; it must not push out what is good.
    for path in [path for at, path in saved if at > step] + [path for at, path in saved if at <= step][keep:]:
        _remove(path)
    return final


def latest(directory: Path, expected: Mapping[str, Any] = NOTHING) -> tuple[Checkpoint | None, list[str]]:
    """The newest valid checkpoint (None: there are none), and a line for each newer one that is not."""
    passed_over: list[str] = []
    codes = set[Code]()
    for step, path in _saved(directory):
        try:
            return load(path, expected), passed_over
        except IntegrityError as error:
            passed_over.append(f"checkpoint of step {step} cannot be used: {error.where}: {error.what}")
            codes.add(error.code)
    if passed_over:
        what = "no checkpoint can be used:\n  " + "\n  ".join(passed_over)
        fix = "bring one back from a copy, or delete this directory: the same command then starts anew"
        if "mismatch" in codes:  # so it is too after --override-resume and a kill, until the first save
            fix = "if its settings were changed with --override-resume, give that to its command again; else " + fix
        raise IntegrityError(what, where=directory, fix=fix)
    return None, []


def load(path: Path, expected: Mapping[str, Any] = NOTHING) -> Checkpoint:
    """Read a checkpoint and verify every byte; an error is an IntegrityError that names the file.

    `expected` are settings that those of its run must not contradict.
    """
    manifest = _read_manifest(path)
    known = manifest.get("settings", {})
    if others := [name for name, value in expected.items() if known.get(name, value) != value]:
        _refuse(path, f"is of another run, with other {', '.join(others[:5])}", code="mismatch")
    for name in FILES:
        file, wanted = path / name, manifest["files"][name]
        if file.stat().st_size != wanted["bytes"]:
            _refuse(file, f"{file.stat().st_size} bytes, but {wanted['bytes']} were written")
        if _sha256(file) != wanted["sha256"]:
            _refuse(file, "its sha256 is not the one that was written")
    try:
        model, optimizer = (load_file(path / name) for name in FILES[:2])
        state = checksummed_json.parse((path / "state.json").read_bytes())
    except (SafetensorError, ValueError, TypeError, RecursionError, OSError) as error:
        for name in FILES:
            if what := foreign_form(path / name):
                _refuse(path / name, f"cannot be read: it is {what}")
        _refuse(path, f"cannot be read ({error})")
    return Checkpoint(manifest["step"], model, optimizer, state, manifest)


def _read_manifest(path: Path) -> dict[str, Any]:
    """The manifest, verified to the byte, if it names exactly the files that are there."""
    if path.is_symlink():
        _refuse(path, "is a link, and not a directory of the run")
    for name in (*FILES, "manifest.json"):
        if (path / name).is_symlink() or not (path / name).is_file():
            _refuse(path / name, "is missing, or not a plain file")
    extra = {entry.name for entry in path.iterdir()} - {*FILES, "manifest.json"}
    if extra:
        _refuse(path, f"holds files that do not belong to it: {', '.join(sorted(extra)[:10])}")
    file = path / "manifest.json"
    manifest = checksummed_json.read(file, _FIX)
    if manifest.get("format") != FORMAT:
        _refuse(file, f"has format {manifest.get('format')}, this version reads {FORMAT}")
    files, called = manifest.get("files"), _NAME.fullmatch(path.name)
    if not isinstance(files, dict) or set(files) != set(FILES):
        named = sorted(files)[:10] if isinstance(files, dict) else []
        _refuse(file, f"names other files: {', '.join(named)}")
    if not all(isinstance(entry, dict) and {"sha256", "bytes"} <= set(entry) for entry in files.values()):
        _refuse(file, "does not say what was written")
    if type(manifest.get("step")) is not int or (called and int(called["step"]) != manifest["step"]):
        _refuse(file, f"is of step {manifest.get('step')}")
    return manifest


def copy_into(parameters: Mapping[str, Tensor], loaded: Mapping[str, Tensor], where: str) -> None:
    """Copy a checkpoint into a model; names, shapes and types must agree, and every number must be finite."""
    wrong = [f"{name} is missing" for name in parameters if name not in loaded]
    wrong += [f"{name} does not belong here" for name in loaded if name not in parameters]
    for name, parameter in parameters.items():
        tensor = loaded.get(name)
        if tensor is not None and (tensor.shape != parameter.shape or tensor.dtype != parameter.dtype):
            actual, wanted = (f"{tuple(one.shape)} {one.dtype}" for one in (tensor, parameter))
            wrong.append(f"{name} is {actual}, not {wanted}")
        elif tensor is not None and tensor.is_floating_point() and not tensor.isfinite().all():
            wrong.append(f"{name} holds numbers that are not finite")
    if wrong:
        shown = wrong[:10] + ([f"and {len(wrong) - 10} more"] if len(wrong) > 10 else [])
        what = "the weights do not fit the model:\n  " + "\n  ".join(shown)
        fix = "use the checkpoint with the configuration that wrote it"
        raise IntegrityError(what, where=where, fix=fix, code="mismatch")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(like(loaded[name], parameter))


def clean(directory: Path) -> None:
    """Remove temporary files of killed processes; call it while holding the run's lock."""
    for path in directory.glob(".tmp-*") if directory.is_dir() else ():
        _remove(path)


def _remove(path: Path) -> None:
    """A directory with all that is in it, a file, or a link but not what it points to; or nothing."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _saved(directory: Path) -> list[tuple[int, Path]]:
    """Steps and paths, newest first; of one step the replacement comes before the one that it replaces."""
    if not directory.is_dir():
        return []
    named = [(match, path) for path in directory.iterdir() if (match := _NAME.fullmatch(path.name))]
    named.sort(key=lambda pair: (int(pair[0]["step"]), not pair[0]["old"]), reverse=True)
    return [(int(match["step"]), path) for match, path in named]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Tensors to a safetensors file, in the order of their names, flushed to the disk."""
    save_file({name: tensors[name].detach().cpu().contiguous() for name in sorted(tensors)}, path)
    flush(path)


def drop_others(directory: Path, steps: Collection[int]) -> None:
    """Remove the checkpoints of all other steps."""
    for step, path in _saved(directory):
        if step not in steps:
            _remove(path)


def states(directory: Path) -> Iterator[dict[str, Any]]:
    """The state of each checkpoint that is there, newest first; one that cannot be read is left out."""
    for _, path in _saved(directory):
        with contextlib.suppress(IntegrityError):
            yield checksummed_json.read(path / "state.json", _FIX)


def settings(directory: Path) -> Iterator[dict[str, Any]]:
    """What each checkpoint that is there says of the settings of its run; one that cannot be read is left out."""
    for _, path in _saved(directory):
        with contextlib.suppress(IntegrityError):
            yield dict(_read_manifest(path).get("settings", {}))


def _refuse(path: Path, what: str, code: Code = "corrupt") -> NoReturn:
    raise IntegrityError(what, where=path, fix=_FIX, code=code)
