"""`headstart compare`: two runs on the same data, with a paired interval."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from headstart.cli.evaluate import note, working
from headstart.cli.options import Common, CommonFlags, ReadingFlags, ReadingOptions
from headstart.cli.running import machine_of
from headstart.errors import visible

if TYPE_CHECKING:
    from headstart.training.compare import Comparison

# Which way is better, for the measures that are compared.
LESS_IS_BETTER = ("bits_per_byte", "mae")


def compare(
    first: Path,
    second: Path,
    *,
    data: str,
    length: int | None = None,
    reading: ReadingFlags = ReadingOptions(),
    common: CommonFlags = Common(),
) -> None:
    """Two runs on the same data: the scores of each, and the difference with its 95 % interval.

    Fine-tuned runs of one task are compared text by text (with McNemar's exact test where texts are right or
    wrong), causal runs by bits per byte, document by document, or block by block where there are few documents.
    The difference is the second's score less the first's.

    For example:

        headstart compare runs/scratch runs/tuned --data test.jsonl

        headstart compare runs/base runs/second --data other.txt --json

    Parameters
    ----------
    first
        A run's directory.
    second
        Another's.
    data
        Labelled rows, or a corpus for causal runs.
    length
        Tokens to read at once (default: each as trained).
    """
    from headstart.training.compare import compare as compared
    from headstart.training.using import open_run

    machine = machine_of(common)
    machine.prepare()
    one, other = (open_run(path, "compare", machine) for path in (first, second))
    with working(f"comparing on {data}"):
        how = dataclasses.replace(one.config.data, **reading.given())
        found = compared(one, other, data, machine, length=length, reading=how, tell=note)
    if common.json:
        print(json.dumps(as_json((str(first), str(second)), found)))
    else:
        _print((str(first), str(second)), found)


def as_json(names: tuple[str, str], found: "Comparison") -> dict[str, Any]:
    """The comparison as data."""
    difference = {
        "measure": found.measure, "value": found.difference.value, "low": found.difference.low,
        "high": found.difference.high, "confidence": 0.95, "unit": found.unit,
    }  # fmt: skip
    return {
        "runs": [{"run": name, "metrics": m} for name, m in zip(names, found.metrics, strict=True)],
        "difference": difference,
        "count": found.unit_count,
        "agreement": found.agreement or None,
        "settings": {key: list(values) for key, values in found.settings.items()},
    }


def _print(names: tuple[str, str], found: "Comparison") -> None:
    console = Console(highlight=False, soft_wrap=True)
    headers = [Column(Text(visible(name))) for name in names]
    table = Table("", *headers, box=None, pad_edge=False, header_style="bold")
    for measure, value in found.metrics[0].items():
        table.add_row(measure, f"{value:.4f}", f"{found.metrics[1][measure]:.4f}")
    console.print(table)
    console.print(f"\n{sentence(found)}")
    if found.agreement:
        counts = found.agreement
        console.print(
            f"Of {found.unit_count:,} texts both have {counts['both_right']:,} right, the first alone "
            f"{counts['only_first_right']:,}, the second alone {counts['only_second_right']:,}, neither "
            f"{counts['neither_right']:,}; McNemar's exact p = {counts['mcnemar_p']:.4g}."
        )
    if found.settings:
        console.print("\nSettings that differ")
        settings = Table("", "first", "second", box=None, pad_edge=False)
        for key, (one, other) in found.settings.items():
            settings.add_row(key, *(Text(visible(_short(str(value)))) for value in (one, other)))
        console.print(settings)


def sentence(found: "Comparison") -> str:
    """What the interval says, in words."""
    value, low, high = found.difference
    if low is None or high is None:
        return f"{found.measure}, second less first: {value:+.4f}; too little to give an interval."
    about = f"{found.measure}, second less first: {value:+.4f}, 95 % interval {low:+.4f} to {high:+.4f}"
    about += f" (paired over {found.unit_count:,} {found.unit}s)"
    if low <= 0 <= high:
        return f"{about}: this data cannot tell the two apart."
    is_second_better = (value < 0) == (found.measure in LESS_IS_BETTER)
    return f"{about}: the {'second' if is_second_better else 'first'} is better."


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "…"
