"""`headstart runs`: list the runs under a directory."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Column
from rich.text import Text

from headstart.cli.consoles import plain_table, table_console
from headstart.cli.options import Common, CommonFlags
from headstart.errors import visible

if TYPE_CHECKING:
    from headstart.runs.listing import RunSummary

# The score that says most about each kind of run.
HEADLINES = ("accuracy", "rmse", "masked_accuracy", "loss")


def runs(directory: Path = Path("runs"), *, common: CommonFlags = Common()) -> None:
    """List the runs: objective, size, steps, score on valid, start.

    Directories below are searched too, so the trials of a study are found. A broken run is listed with the reason.
    Weights are not read: their checksum is verified when a run is used.

    For example:

        headstart runs
        headstart runs studies/books --json

    Args:
        directory: The directory to search.
    """
    from headstart.runs.listing import list_runs

    summaries = list_runs(directory)
    if common.json:
        print(json.dumps({"directory": str(directory), "runs": [dataclasses.asdict(run) for run in summaries]}))
    elif summaries:
        _print(summaries)
    else:
        print(f"no runs under {visible(str(directory))}")


def _print(summaries: "list[RunSummary]") -> None:
    titles = ["run", "objective", "parameters", "layers", "steps", "state", "valid", "start", "written"]
    columns = [
        Column(title, justify="right" if title in ("parameters", "steps") else "left", overflow="fold")
        for title in titles
    ]
    rows = []
    for run in summaries:
        cells = [run.name, run.objective or "?", f"{run.parameters:,}" if run.parameters else "?"]
        cells += [f"{run.depth} × {run.width}" if run.depth else "?", f"{run.step:,}/{run.steps:,}"]
        measure = next((name for name in HEADLINES if name in run.valid), None)
        headline = f"{measure} {run.valid[measure]:.4f}" if measure else ""
        cells += [run.state, headline, run.start, run.last_write[:16].replace("T", " ")]
        rows.append([Text(visible(cell)) for cell in cells])
    console = table_console()
    console.print(plain_table(*columns, rows=rows))
    for run in summaries:
        if run.state == "broken":
            console.print(f"{visible(run.name)}: {visible(run.reason)}", markup=False)
