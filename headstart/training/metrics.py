"""metrics.jsonl: a line for each thing that happened, cut back to the checkpoint when a run goes on."""

import contextlib
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


class MetricsFile:
    """Appends; a disk that is full stops the log, with one warning, and not the training."""

    def __init__(self, path: Path, warn: Callable[[str], None]) -> None:
        self.path, self._warn, self._failed = path, warn, False
        self.on_record: Callable[[dict[str, Any]], None] = lambda record: None
        """Hears every record that is written."""

    def cut_back(self, size: int) -> None:
        """Forget what was written after the checkpoint."""
        if self.path.exists() and self.path.stat().st_size > size:
            os.truncate(self.path, size)

    def write(self, **record: Any) -> None:
        """Append a record; a number that is not finite becomes null, which JSON has a word for."""
        if self._failed:
            return
        finite = {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in record.items()
        }
        before = self.size()
        try:
            self._append(json.dumps(finite) + "\n")
            self.on_record(finite)
        except OSError as error:
            self._failed = True
            with contextlib.suppress(OSError):  # half a line is none
                self.cut_back(before)
            self._warn(f"{self.path}: cannot be written ({error.strerror}); training goes on without it")

    def _append(self, line: str) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line)

    def size(self) -> int:
        """What a checkpoint notes, so that it can be cut back."""
        return self.path.stat().st_size if self.path.exists() else 0

    def read(self) -> list[dict[str, Any]]:
        """All records; a last line that a power cut left half-written is not one."""
        if not self.path.exists():
            return []
        lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]
