"""`headstart doctor`: what this machine has, what will be used, and why."""

import json
import os
import platform
import shutil
from importlib import metadata, util
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from headstart import __version__
from headstart.cli.options import Common, CommonFlags

_LIBRARIES = ("torch", "numpy", "tokenizers", "safetensors", "cyclopts", "rich", "matplotlib")
_EXTRAS = {"hf": "transformers", "data": "pyarrow", "sentencepiece": "sentencepiece"}


def doctor(*, common: CommonFlags = Common()) -> None:
    """Say what this machine has, what Headstart will use of it, and why.

    For example:

        headstart doctor

        headstart doctor --threads 1 --precision bf16 --json
    """
    found = examine(common)
    if common.json:
        print(json.dumps(found))
        return
    console = Console(highlight=False)
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_row("Headstart", found["headstart"])
    table.add_row("Python", found["python"])
    for name, version in found["libraries"].items():
        table.add_row(name, version)
    for extra, state in found["extras"].items():
        table.add_row(f"extra {extra}", state)
    table.add_row("memory", f"{found['memory_gib']:.1f} GiB")
    table.add_row("disk here", f"{found['disk_free_gib']:.1f} GiB free")
    console.print(table)
    console.print("\n[bold]Will be used[/bold]")
    for reason in found["uses"]["reasons"]:
        console.print(f"  {reason}", markup=False)


def examine(common: Common) -> dict[str, Any]:
    """All that is known of the machine, as data."""
    from headstart.training.machine import choose

    machine = choose(common.device, common.precision, common.threads)
    return {
        "headstart": __version__,
        "python": platform.python_version(),
        "libraries": {name: metadata.version(name) for name in _LIBRARIES},
        "extras": {
            extra: metadata.version(package)
            if util.find_spec(package)
            else f"missing: pip install 'headstart[{extra}]'"
            for extra, package in _EXTRAS.items()
        },
        "memory_gib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30,
        "disk_free_gib": shutil.disk_usage(Path.cwd()).free / 2**30,
        "uses": {
            "device": str(machine.device),
            "precision": machine.precision,
            "threads": machine.threads,
            "reasons": list(machine.reasons),
        },
    }
