"""`headstart runs`: what runs there are."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from headstart.cli.consoles import table_console
from headstart.cli.options import Common, CommonFlags
from headstart.errors import visible

if TYPE_CHECKING:
    from headstart.training.run_listing import RunSummary

# The score that says most about each kind of run.
HEADLINES = ("accuracy", "rmse", "masked_accuracy", "loss")


def runs(directory: Path = Path("runs"), *, common: CommonFlags = Common()) -> None:
    """What runs there are: objective, size, steps, score on valid, where each started from.

    Directories below are looked through too, so that the trials of a study are found. A run that cannot be used is
    listed with the reason. Weights are not read: a checksum is checked when a run is used.

    For example:

        headstart runs

        headstart runs studies/books --json

    Parameters
    ----------
    directory
        Where to look.
    """
    from headstart.training.run_listing import list_runs

    found = list_runs(directory)
    if common.json:
        print(json.dumps({"directory": str(directory), "runs": [run.as_json() for run in found]}))
    elif found:
        _print(found)
    else:
        print(f"no runs under {visible(str(directory))}")


def _print(found: "list[RunSummary]") -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("run", "objective", "parameters", "layers", "steps", "state", "valid", "start", "written"):
        table.add_column(
            title, justify="right" if title in ("parameters", "steps") else "left", overflow="fold"
        )
    for run in found:
        cells = [run.name, run.objective or "?", f"{run.parameters:,}" if run.parameters else "?"]
        cells += [f"{run.depth} × {run.width}" if run.depth else "?", f"{run.step:,}/{run.steps:,}"]
        cells += [run.state, _headline(run), run.start, run.last_write[:16].replace("T", " ")]
        table.add_row(*(Text(visible(cell)) for cell in cells))
    console = table_console()
    console.print(table)
    for run in found:
        if run.state == "broken":
            console.print(f"{visible(run.name)}: {visible(run.reason)}", markup=False, soft_wrap=True)


def _headline(run: "RunSummary") -> str:
    measure = next((name for name in HEADLINES if name in run.valid), None)
    return f"{measure} {run.valid[measure]:.4f}" if measure else ""
