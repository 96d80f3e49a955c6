"""`headstart explain`: pictures of the mask and the positions, and what a layer costs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from headstart.cli.options import Common, CommonFlags, Numbers
from headstart.errors import UserError


def mask(
    *,
    length: int = 12,
    direction: Literal["causal", "bidirectional"] = "causal",
    documents: Numbers | None = None,
    left_padding: int = 0,
    right_padding: int = 0,
    text: str | None = None,
    out: Path = Path("mask.svg"),
    common: CommonFlags = Common(),
) -> None:
    """Draw who may look at whom: the square subsequent mask, padding, documents side by side.

    For example:

        headstart explain mask --length 12

        headstart explain mask --text "Bonjour les amis lecteurs" --left-padding 2

        headstart explain mask --length 12 --documents 5,7 --out packed.svg

    Parameters
    ----------
    length
        How many positions.
    direction
        Itself and the past, or everything.
    documents
        Lengths of documents packed side by side, such as 5,7; together they are the length.
    left_padding
        How many of the positions are padding at the beginning.
    right_padding
        How many of the positions are padding at the end.
    text
        Words to put at the positions instead of numbers.
    out
        The SVG file to write.
    """
    words = text.split() if text else None
    length = left_padding + len(words) + right_padding if words else length
    if length < 1 or left_padding < 0 or right_padding < 0 or left_padding + right_padding > length:
        raise UserError(
            f"{left_padding} + {right_padding} positions of padding in a length of {length}",
            fix="give a length of at least 1, and padding within it",
        )
    if documents and (sum(documents) != length or min(documents) < 1):
        raise UserError(
            f"documents of {', '.join(map(str, documents))} positions in a length of {length}",
            fix="give positive lengths whose sum is the length",
        )
    import numpy as np
    import torch

    from headstart.model.masks import build_mask, subsequent_mask
    from headstart.report.charts import mask_chart

    present = np.ones(length, dtype=bool)
    present[:left_padding] = False
    present[length - right_padding :] = False
    numbers = torch.tensor(np.repeat(range(len(documents)), documents))[None] if documents else None
    found = build_mask(
        length,
        length,
        causal=direction == "causal",
        keys_present=None if present.all() else torch.tensor(present[None]),
        query_documents=numbers,
        key_documents=numbers,
    )
    if found.causal_square:
        grid = subsequent_mask(length).numpy()
    elif found.allowed is None:
        grid = np.ones((length, length), dtype=bool)
    else:
        grid = found.allowed[0, 0].expand(length, length).numpy().copy()
    grid[~present] = False  # padding looks at nothing that anyone would read
    if words:
        labels = ["pad"] * left_padding + words + ["pad"] * right_padding
    else:
        labels = [str(i) for i in range(1, length + 1)]
    title = (
        "Each position sees itself and the past" if direction == "causal" else "Each position sees everything"
    )
    title += ", within its document" if documents else ""
    write_picture(out, mask_chart(grid, labels, title, ~present))
    if common.json:
        print(json.dumps({"out": str(out), "allowed": grid.astype(int).tolist()}))
        return
    console = Console(highlight=False)
    if length <= 40:
        for row in grid:
            console.print(" ".join("■" if seen else "·" for seen in row))
    console.print(f"wrote {out}", markup=False)


def positions(
    *, width: int = 64, length: int = 100, out: Path = Path("positions.svg"), common: CommonFlags = Common()
) -> None:
    """Draw the sinusoidal positions: what is added where, and how alike positions are.

    For example:

        headstart explain positions --width 64 --length 100

        headstart explain positions --width 200 --length 512 --out lab.svg

    Parameters
    ----------
    width
        Width of the model.
    length
        How many positions.
    out
        The SVG file to write.
    """
    if width < 1 or length < 2:
        raise UserError(f"width {width} and length {length}", fix="give a width from 1 and a length from 2")
    import torch

    from headstart.model.positions import sinusoids
    from headstart.report.charts import positions_chart

    table = sinusoids(torch.arange(length), width).numpy()
    write_picture(out, positions_chart(table))
    if common.json:
        print(json.dumps({"out": str(out), "positions": table.tolist()}))
    else:
        print(f"wrote {out}")


def cost(
    *,
    width: int = 200,
    kernel: int = 3,
    heads: int = 2,
    lengths: Numbers = (16, 64, 256, 1024, 4096),
    out: Path = Path("cost.svg"),
    common: CommonFlags = Common(),
) -> None:
    """What a layer costs: attention n²d, recurrence nd², convolution knd²; on paper and measured here.

    For example:

        headstart explain cost --width 200 --kernel 3 --lengths 16,64,256,1024

        headstart explain cost --width 512 --heads 8 --threads 1 --json

    Parameters
    ----------
    width
        Width of the vectors (d).
    kernel
        Width of the convolution's window (k).
    heads
        Attention heads.
    lengths
        Lengths of the text (n), rising.
    out
        The SVG file to write.
    """
    if (
        width < 1
        or kernel < 1
        or heads < 1
        or width % heads
        or list(lengths) != sorted(set(lengths))
        or lengths[0] < 1
    ):
        raise UserError(
            f"width {width}, kernel {kernel}, heads {heads}, lengths {', '.join(map(str, lengths))}",
            fix="give positive numbers, heads that divide the width, and rising lengths",
        )
    found = _cost_figures(width, kernel, heads, lengths, common)
    from headstart.report.charts import cost_chart

    rows, formula = found["rows"], {row["layer"]: row["formula"] for row in found["paper"]}
    paper = {f"{name}  {formula[name]}": [row["operations"][name] for row in rows] for name in formula}
    measured = {name: [row["seconds"][name] for row in rows] for name in rows[0]["seconds"]}
    crossings = [(c["length"], c["seconds"]) for c in found["crossings"]]
    write_picture(out, cost_chart(lengths, paper, measured, width, crossings, found["machine"]))
    if common.json:
        print(json.dumps({**found, "out": str(out)}))
    else:
        _print_cost(found, width, kernel)
        print(f"wrote {out}")


def _rising(lengths: Sequence[int]) -> bool:
    return bool(lengths) and list(lengths) == sorted(set(lengths)) and lengths[0] >= 1


def _cost_figures(
    width: int, kernel: int, heads: int, lengths: Sequence[int], common: Common
) -> dict[str, Any]:
    import torch
    from rich.progress import track

    from headstart.plan.layers import crossing, layer_costs
    from headstart.plan.speed import measure_layers

    if common.threads:
        torch.set_num_threads(common.threads)
    device = "cuda" if common.device != "cpu" and torch.cuda.is_available() else "cpu"
    rows: list[dict[str, Any]] = []
    console = Console(stderr=True)
    for length in track(
        lengths, "measuring", console=console, disable=not console.is_terminal, transient=True
    ):
        costs = layer_costs(length, width, kernel)
        rows.append(
            {
                "length": length,
                "operations": {cost.layer: cost.operations for cost in costs},
                "seconds": measure_layers(length, width, kernel, heads, device),
            }
        )
    crossings = []
    times = {name: [row["seconds"][name] for row in rows] for name in rows[0]["seconds"]}
    for name, other in times.items():
        if name != "attention" and (place := crossing(lengths, times["attention"], other)):
            crossings.append({"with": name, "length": place[0], "seconds": place[1]})
    threads = torch.get_num_threads()
    return {
        "machine": f"{device}, fp32" + (f", {threads} thread{'s'[: threads > 1]}" if device == "cpu" else ""),
        "paper": [
            {key: value for key, value in cost._asdict().items() if key != "operations"}
            for cost in layer_costs(1, width, kernel)
        ],
        "rows": rows,
        "crossings": crossings,
    }


def _print_cost(found: dict[str, Any], width: int, kernel: int) -> None:
    console = Console(highlight=False)
    table = Table("layer", "operations", "sequential steps", "longest path", box=None, pad_edge=False)
    for row in found["paper"]:
        table.add_row(row["layer"], row["formula"], row["sequential_steps"], row["longest_path"])
    console.print(
        f"[bold]On paper[/bold], for one text of n vectors of width d = {width}, window k = {kernel}"
    )
    console.print(table)
    console.print(f"\n[bold]Measured[/bold] ({found['machine']}, forward, one text): milliseconds")
    names = list(found["rows"][0]["seconds"])
    table = Table("n", box=None, pad_edge=False)
    for name in names:
        table.add_column(name, justify="right")
    for row in found["rows"]:
        table.add_row(f"{row['length']:,}", *(f"{1e3 * row['seconds'][name]:.3f}" for name in names))
    console.print(table)
    console.print(f"\nOn paper attention passes recurrence at n = d = {width}. Measured, attention passes")
    met = {c["with"]: c["length"] for c in found["crossings"]}
    for name in names[1:]:
        console.print(
            f"  {name} " + (f"at n ≈ {met[name]:,.0f}" if name in met else "not within these lengths")
        )


def write_picture(path: Path, svg: str) -> None:
    """Write a picture, or say in words why it cannot be."""
    try:
        path.write_text(svg, encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"cannot be written ({error.strerror})", where=str(path), fix="give another --out"
        ) from error
