"""What runs there are under a directory, read from their small files alone; a broken one is listed as such."""

import datetime
import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from headstart.errors import HeadstartError, UserError
from headstart.plan.parameters import components
from headstart.training.run_directory import RunDirectory
from headstart.training.vocabularies import SOURCE_FILE

State = Literal["finished", "stopped early", "unfinished", "broken"]
# What a run writes: a directory that has one of these and no config.toml has lost it.
_TRACES = ("metrics.jsonl", "result.json", "weights.safetensors", "checkpoints")
_CHECKPOINT = re.compile(r"step-(\d+)")


@dataclass(frozen=True)
class RunSummary:
    """A run in a line."""

    name: str
    """Its place under the directory that was looked through."""

    state: State
    reason: str = ""
    """Why it is broken."""

    objective: str = ""
    parameters: int = 0
    depth: int = 0
    width: int = 0
    step: int = 0
    """Of the last checkpoint, or of the end."""

    steps: int = 0
    valid: dict[str, float] = field(default_factory=dict)
    start: str = ""
    """`scratch`, the name of a run that is listed too, or the beginning of its weights' digest."""

    digest: str = ""
    last_write: str = ""
    """ISO 8601, in this machine's time zone."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def list_runs(directory: str | Path) -> list[RunSummary]:
    """All runs in a directory and below it, by name; nothing in them makes this fail."""
    top = Path(directory)
    if not top.is_dir():
        raise UserError(
            "there is no such directory", where=str(top), fix="train a run first, or give where your runs are"
        )
    found = [summary(path, _name(path, top)) for path in _run_directories(top)]
    names = {run.digest: run.name for run in reversed(found) if run.digest}
    return [replace(run, start=names.get(run.start, run.start[:12])) for run in found]


def summary(path: Path, name: str) -> RunSummary:
    """One run; whatever cannot be read makes it a broken one, with the reason."""
    last_write = _last_write(path)
    try:
        return replace(_summary(RunDirectory(path), name), last_write=last_write)
    except HeadstartError as error:
        place = f"{Path(error.where).name}: " if error.where and Path(error.where) != path else ""
        return RunSummary(name, "broken", f"{place}{error.what}", last_write=last_write)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return RunSummary(name, "broken", f"{type(error).__name__}: {error}", last_write=last_write)


def _summary(run: RunDirectory, name: str) -> RunSummary:
    config = run.read_config()
    about = RunSummary(
        name=name, state="unfinished", objective=config.objective,
        parameters=sum(component.count for component in components(config.model, config.head)),
        depth=config.model.depth, width=config.model.width, steps=config.loop.steps, start=config.start,
    )  # fmt: skip
    if not run.tokenizer_file.is_file() and not (run.path / SOURCE_FILE).is_file():
        return replace(about, state="broken", reason="tokenizer.json is missing")
    result = run.read_result()
    if result is None:
        step = max((step for step in _checkpoint_steps(run.path)), default=0)
        return replace(about, step=step, valid=_last_valid(run.path / "metrics.jsonl"))
    if not run.weights_file.is_file():
        return replace(about, state="broken", reason="weights.safetensors is missing")
    valid = {key: float(value) for key, value in (result["valid"] or {}).items() if value is not None}
    state: State = "stopped early" if result["stopped_early"] else "finished"
    return replace(
        about, state=state, step=int(result["step"]), valid=valid, digest=str(result["weights_sha256"])
    )


def _run_directories(top: Path) -> Iterator[Path]:
    """Directories that are runs, or were; what lies inside a run is its own."""
    for place, inner, files in os.walk(top):
        inner.sort()
        if "config.toml" in files or any(trace in files or trace in inner for trace in _TRACES):
            inner.clear()
            yield Path(place)
        inner[:] = [name for name in inner if not name.startswith(".")]


def _name(path: Path, top: Path) -> str:
    return str(path.relative_to(top)) if path != top else path.resolve().name


def _checkpoint_steps(path: Path) -> Iterator[int]:
    directory = path / "checkpoints"
    for entry in directory.iterdir() if directory.is_dir() else ():
        if match := _CHECKPOINT.fullmatch(entry.name):
            yield int(match[1])


def _last_valid(path: Path) -> dict[str, float]:
    """The last scores on valid; a line that is just being written is passed over."""
    if not path.is_file():
        return {}
    for line in reversed(path.read_text(encoding="utf-8", errors="replace").splitlines()):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and record.get("event") == "valid":
            return {
                key: float(value)
                for key, value in record.items()
                if key not in ("event", "step") and isinstance(value, int | float)
            }
    return {}


def _last_write(path: Path) -> str:
    """When something of the run was last written."""
    times = []
    for entry in (path, path / "checkpoints", *(path / name for name in ("metrics.jsonl", "result.json"))):
        try:
            times.append(entry.stat().st_mtime)
        except OSError:
            continue
    if not times:
        return ""
    return datetime.datetime.fromtimestamp(max(times)).astimezone().isoformat(timespec="seconds")
