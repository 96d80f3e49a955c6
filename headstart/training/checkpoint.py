"""Checkpoints that cannot be half-written and do not load when a bit is wrong.

Written aside, flushed, checksummed, renamed; the one before stays. `HEADSTART_FAULT=after:model` (or another
place named below) kills the process there with SIGKILL: that is how the tests show what the words above mean.
"""

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from headstart.errors import IntegrityError, TryAgain
from headstart.text.durable import flush, flush_directory, rename
from headstart.text.files import foreign_form
from headstart.training.spreading import like

FORMAT = 1
FILES = ("model.safetensors", "optimizer.safetensors", "state.json")
_NAME = re.compile(r"(?P<old>\.old-)?step-(?P<step>[0-9]{8,})")
# Where `save` can be made to die; the one between the renames only where it replaces one of the same step.
PLACES = ("after:model", "after:state", "after:manifest", "before:rename", "between:renames", "after:rename")
_DISK_FULL = ("No space left", "File too large", "Disk quota", "os error 28", "os error 27", "os error 122")


class Checkpoint(NamedTuple):
    """What a run needs to go on: weights, the optimizer's memory, and the rest as plain data."""

    step: int
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    state: dict[str, Any]
    manifest: dict[str, Any]


def fault(place: str) -> None:
    """Die here if the tests ask for it: `HEADSTART_FAULT=place` or `place@N` for the Nth time."""
    wanted, _, nth = os.environ.get("HEADSTART_FAULT", "").partition("@")
    if wanted == place:
        _passed[place] = _passed.get(place, 0) + 1
        if _passed[place] >= int(nth or 1):
            os.kill(os.getpid(), signal.SIGKILL)


_passed: dict[str, int] = {}


def weights_digest(tensors: Mapping[str, Tensor]) -> str:
    """The sha256 over all weights in the order of their names: two runs are the same run if this is the same."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def save(
    directory: Path,
    step: int,
    model: Mapping[str, Tensor],
    optimizer: Mapping[str, Tensor],
    state: Mapping[str, Any],
    facts: Mapping[str, Any],
    keep: int = 2,
) -> Path:
    """Write `directory/step-N` whole or not at all, then drop all but the newest `keep`."""
    directory.mkdir(parents=True, exist_ok=True)
    final = directory / f"step-{step:08d}"
    aside, old = directory / f".tmp-{final.name}-{os.getpid()}", directory / f".old-{final.name}"
    needed = sum(t.numel() * t.element_size() for part in (model, optimizer) for t in part.values()) + 2**16
    try:
        with disk_full_is_try_again(directory, needed):
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir()
            write_tensors(aside / "model.safetensors", model)
            fault("after:model")
            write_tensors(aside / "optimizer.safetensors", optimizer)
            _write_bytes(aside / "state.json", _canonical(state))
            fault("after:state")
            files = {
                name: {"sha256": _sha256(aside / name), "bytes": (aside / name).stat().st_size}
                for name in FILES
            }
            _write_bytes(
                aside / "manifest.json", _canonical({"format": FORMAT, "step": step, **facts, "files": files})
            )
            fault("after:manifest")
            flush_directory(aside)
            fault("before:rename")
            if os.path.lexists(final):  # of the same step; until the new one is there, loading finds it aside
                _remove(old)
                rename(final, old)
                fault("between:renames")
            rename(aside, final)
            flush_directory(directory)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    fault("after:rename")
    _remove(old)
    found = _found(directory)
    # What is newer than this was passed over when the run went on; it must not push out what is good.
    for path in [path for at, path in found if at > step] + [path for at, path in found if at <= step][keep:]:
        _remove(path)
    return final


def latest(directory: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint that is whole, and a line for each newer one that is not.

    None if there are no checkpoints at all; where there are some and none is good, an IntegrityError.
    """
    passed_over: list[str] = []
    for step, path in _found(directory):
        try:
            return load(path), passed_over
        except IntegrityError as error:
            passed_over.append(f"checkpoint of step {step} cannot be used: {error.where}: {error.what}")
    if passed_over:
        raise IntegrityError(
            "no checkpoint can be used:\n  " + "\n  ".join(passed_over),
            where=str(directory),
            fix="bring one back from a copy, or give another --out",
        )
    return None, []


def load(path: Path) -> Checkpoint:
    """Read a checkpoint and check every byte of it; whatever is wrong is an IntegrityError that names the file."""
    manifest = _read_manifest(path)
    for name in FILES:
        file, wanted = path / name, manifest["files"][name]
        if file.stat().st_size != wanted["bytes"]:
            _refuse(file, f"{file.stat().st_size} bytes, but {wanted['bytes']} were written")
        if _sha256(file) != wanted["sha256"]:
            _refuse(file, "its sha256 is not the one that was written")
    try:
        model, optimizer = (load_file(path / name) for name in FILES[:2])
        state = json.loads((path / "state.json").read_bytes())
        del state["sha256"]
    except (SafetensorError, ValueError, TypeError, KeyError, RecursionError, OSError) as error:
        for name in FILES:
            if what := foreign_form(path / name):
                _refuse(path / name, f"cannot be read: it is {what}")
        _refuse(path, f"cannot be read ({error})")
    return Checkpoint(manifest["step"], model, optimizer, state, manifest)


def _read_manifest(path: Path) -> dict[str, Any]:
    """The manifest, if it is in our form to the byte and names just the files that are there."""
    if path.is_symlink():
        _refuse(path, "is a link, and not a directory of the run")
    for name in (*FILES, "manifest.json"):
        if (path / name).is_symlink() or not (path / name).is_file():
            _refuse(path / name, "is missing, or not a plain file")
    extra = {entry.name for entry in path.iterdir()} - {*FILES, "manifest.json"}
    if extra:
        _refuse(path, f"holds files that do not belong to it: {', '.join(sorted(extra)[:10])}")
    file = path / "manifest.json"
    raw = file.read_bytes()
    try:
        signed = json.loads(raw)
        manifest = {key: value for key, value in signed.items() if key != "sha256"}
        whole = raw == _canonical(manifest)
    except (ValueError, AttributeError, RecursionError):
        whole = False
    if not whole:
        _refuse(file, "is not what was written")
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
    """Fill a model from a checkpoint; names, shapes and types must agree, and every number must be finite."""
    wrong = [f"{name} is missing" for name in parameters if name not in loaded]
    wrong += [f"{name} does not belong here" for name in loaded if name not in parameters]
    for name, parameter in parameters.items():
        tensor = loaded.get(name)
        if tensor is not None and (tensor.shape != parameter.shape or tensor.dtype != parameter.dtype):
            wrong.append(
                f"{name} is {tuple(tensor.shape)} {tensor.dtype}, not {tuple(parameter.shape)} {parameter.dtype}"
            )
        elif tensor is not None and tensor.is_floating_point() and not tensor.isfinite().all():
            wrong.append(f"{name} holds numbers that are not finite")
    if wrong:
        shown = wrong[:10] + ([f"and {len(wrong) - 10} more"] if len(wrong) > 10 else [])
        raise IntegrityError(
            "the weights do not fit the model:\n  " + "\n  ".join(shown),
            where=where,
            fix="use the checkpoint with the configuration that wrote it",
        )
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(like(loaded[name], parameter))


def clean(directory: Path) -> None:
    """Remove what dead writers left; call it while holding the run's lock."""
    for path in directory.glob(".tmp-*") if directory.is_dir() else ():
        _remove(path)


def _remove(path: Path) -> None:
    """A directory with all that is in it, a file, or a link but not what it points to; or nothing."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _found(directory: Path) -> list[tuple[int, Path]]:
    """Steps and paths, newest first; of one step the one that replaces comes before the one that is replaced."""
    if not directory.is_dir():
        return []
    named = [(match, path) for path in directory.iterdir() if (match := _NAME.fullmatch(path.name))]
    named.sort(key=lambda pair: (int(pair[0]["step"]), not pair[0]["old"]), reverse=True)
    return [(int(match["step"]), path) for match, path in named]


def _canonical(data: Mapping[str, Any]) -> bytes:
    """JSON in one form only, with its own checksum as the last key. The data is never empty."""
    body = json.dumps(data, sort_keys=True, ensure_ascii=False, allow_nan=False)
    digest = hashlib.sha256(body.encode()).hexdigest()
    return f'{body[:-1]}, "sha256": "{digest}"}}\n'.encode()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Tensors to a safetensors file, in the order of their names, flushed to the disk."""
    save_file({name: tensors[name].detach().cpu().contiguous() for name in sorted(tensors)}, path)
    with path.open("rb") as file:
        flush(path, file.fileno())


def _write_bytes(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        flush(path, file.fileno())


def _refuse(path: Path, what: str) -> NoReturn:
    raise IntegrityError(what, where=str(path), fix="the checkpoint before it is used where there is one")


@contextlib.contextmanager
def disk_full_is_try_again(directory: Path, needed: int) -> Iterator[None]:
    """A full disk reaches us as OSError, RuntimeError or SafetensorError: say what is needed and what is free."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        code = getattr(error, "errno", None)
        if code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or any(
            sign in str(error) for sign in _DISK_FULL
        ):
            free = shutil.disk_usage(directory).free
            raise TryAgain(
                f"the disk is full: writing needs {needed:,} bytes, {free:,} are free; what was there is kept",
                where=str(directory),
                fix="free some space and run the same command again",
            ) from error
        raise
