"""Running a part of a benchmark in a process of its own, and how much memory it took."""

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any


def peak_mb() -> float:
    """The peak of this process's resident memory.

    Linux counts the parent's memory into a child's `ru_maxrss`, so /proc is asked where there is one.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024 / 1e6
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def report(**found: Any) -> None:
    """What a child found, for its parent."""
    print(json.dumps(found | {"peak_mb": peak_mb()}))


def run_child(script: str, *arguments: str | Path) -> dict[str, Any]:
    """Run `script --child arguments` and return what it reported."""
    command = [sys.executable, script, "--child", *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])  # a library may have spoken before
    return found
