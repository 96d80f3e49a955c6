"""`headstart doctor`: what this machine has, and what will be used of it."""

import json
import os
import platform
import shutil
from importlib import metadata, util
from pathlib import Path

from rich.console import Console

from headstart import __version__
from headstart.cli.consoles import plain_table
from headstart.cli.options import Common, CommonFlags

_LIBRARIES = ("torch", "numpy", "tokenizers", "safetensors", "cyclopts", "rich", "matplotlib")
_EXTRAS = {"hf": "transformers", "data": "pyarrow", "sentencepiece": "sentencepiece"}


def doctor(*, common: CommonFlags = Common()) -> None:
    """Say what this machine has, what Headstart will use of it, and why.

    For example:

        headstart doctor
        headstart doctor --threads 1 --precision bf16 --json
    """
    from headstart.machine import choose

    machine = choose(common.device, common.precision, common.threads)
    about = {"headstart": __version__, "python": platform.python_version()}
    libraries = {name: metadata.version(name) for name in _LIBRARIES}
    extras = {extra: f"missing: pip install 'headstart[{extra}]'" for extra in _EXTRAS}
    extras |= {extra: metadata.version(name) for extra, name in _EXTRAS.items() if util.find_spec(name)}
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    disk_free_gib = shutil.disk_usage(Path.cwd()).free / 2**30
    if common.json:
        uses = {"device": str(machine.device), "precision": machine.precision, "threads": machine.threads}
        facts = {**about, "libraries": libraries, "extras": extras, "memory_gib": memory_gib}
        facts |= {"disk_free_gib": disk_free_gib, "uses": {**uses, "reasons": list(machine.reasons)}}
        print(json.dumps(facts))
        return
    rows = {"Headstart": about["headstart"], "Python": about["python"], **libraries}
    rows |= {f"extra {extra}": state for extra, state in extras.items()}
    rows |= {"memory": f"{memory_gib:.1f} GiB", "disk here": f"{disk_free_gib:.1f} GiB free"}
    console = Console(highlight=False)
    console.print(plain_table("", "", rows=rows.items(), show_header=False))
    console.print("\n[bold]Will be used[/bold]")
    for reason in machine.reasons:
        console.print(f"  {reason}", markup=False)
