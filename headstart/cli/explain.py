"""`headstart explain`: pictures of the mask, the positions and a run's attention, and what a layer costs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from headstart.cli.consoles import argument_text, form_of_picture, log, open_run, plain_table, write_picture
from headstart.cli.options import Common, CommonFlags, Numbers, PicturePath, RunPath
from headstart.errors import UserError, visible
from headstart.progress import progress_bar

if TYPE_CHECKING:
    from headstart.inference.attention_maps import AttentionMaps
    from headstart.runs.load import LoadedRun

# What a picture shows, and what a layer is measured at.
MOST_SHOWN, MOST_MEASURED = 2_048, 16_384


def mask(
    *,
    length: int = 12,
    direction: Literal["causal", "bidirectional"] = "causal",
    documents: Numbers | None = None,
    left_padding: int = 0,
    right_padding: int = 0,
    text: str | None = None,
    out: PicturePath = Path("mask.svg"),
    common: CommonFlags = Common(),
) -> None:
    """Draw who may look at whom: the square subsequent mask, padding, documents side by side.

    For example:

        headstart explain mask --length 12
        headstart explain mask --text "Bonjour les amis lecteurs" --left-padding 2
        headstart explain mask --length 12 --documents 5,7 --out packed.svg

    Args:
        length: How many positions.
        direction: Itself and the past, or everything.
        documents: Lengths of documents packed side by side, such as 5,7; together they are the length.
        left_padding: How many of the positions are padding at the beginning.
        right_padding: How many of the positions are padding at the end.
        text: Words to put at the positions instead of numbers.
    """
    form = form_of_picture(out, ".svg", ".png")
    words = text.split() if text else None
    length = left_padding + len(words) + right_padding if words else length
    if not 1 <= length <= MOST_SHOWN or min(left_padding, right_padding) < 0 or left_padding + right_padding > length:
        what = f"{left_padding} + {right_padding} positions of padding in a length of {length}"
        raise UserError(what, fix=f"give a length of 1 to {MOST_SHOWN:,}, and padding within it")
    if documents and (sum(documents) != length or min(documents) < 1):
        what = f"documents of {', '.join(map(str, documents))} positions in a length of {length}"
        raise UserError(what, fix="give positive lengths whose sum is the length")
    import numpy as np
    import torch

    from headstart.inference.attention_maps import mask_of
    from headstart.report.explain_charts import mask_chart

    positions = np.arange(length)
    present = (positions >= left_padding) & (positions < length - right_padding)
    numbers = torch.tensor(np.repeat(range(len(documents)), documents))[None] if documents else None
    masked = {"keys_present": None if present.all() else torch.tensor(present[None]), "documents": numbers}
    grid = mask_of(length, length, is_causal=direction == "causal", **masked).copy()
    grid[~present] = False  # padding looks at nothing that anyone would read
    labels = [str(i) for i in range(1, length + 1)]
    if words:
        labels = ["pad"] * left_padding + words + ["pad"] * right_padding
    title = f"Each position sees {'itself and the past' if direction == 'causal' else 'everything'}"
    title += ", within its document" if documents else ""
    write_picture(out, mask_chart(grid, labels, title, ~present, form))
    if common.json:
        print(json.dumps({"out": str(out), "allowed": grid.astype(int).tolist()}))
        return
    for row in grid if length <= 40 else ():
        print(" ".join("■" if seen else "·" for seen in row))
    print(visible(f"wrote {out}"))


def positions(
    *, width: int = 64, length: int = 100, out: PicturePath = Path("positions.svg"), common: CommonFlags = Common()
) -> None:
    """Draw the sinusoidal positions: what is added where, and how alike positions are.

    For example:

        headstart explain positions --width 64 --length 100
        headstart explain positions --width 200 --length 512 --out lab.svg

    Args:
        width: Width of the model.
        length: How many positions.
    """
    form = form_of_picture(out, ".svg", ".png")
    if not (1 <= width <= MOST_SHOWN and 2 <= length <= MOST_SHOWN):
        fix = f"give a width from 1 and a length from 2, to {MOST_SHOWN:,}"
        raise UserError(f"width {width} and length {length}", fix=fix)
    import torch

    from headstart.model.positions import sinusoids
    from headstart.report.explain_charts import positions_chart

    table = sinusoids(torch.arange(length), width).numpy()
    write_picture(out, positions_chart(table, form))
    print(json.dumps({"out": str(out), "positions": table.tolist()}) if common.json else visible(f"wrote {out}"))


def attention(
    run: RunPath,
    text: str,
    *,
    text_b: str | None = None,
    target: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    most_tokens: int = 64,
    out: Path = Path("attention.svg"),
    common: CommonFlags = Common(),
) -> None:
    """Draw where a run looks in a text: a map for each layer and head, rows look at columns.

    Every run can be looked into. A translation run has three kinds of maps: of the source over itself, of the target
    over itself, and of the target over the source. As .svg it is a picture; as .html a page in which a token that is
    pointed at shows where it looks, in one file that needs no network.

    For example:

        headstart explain attention runs/base "La fin de ce roman est belle"
        headstart explain attention runs/base "La fin de ce roman est belle" --layer 2 --head 1 --out large.svg
        headstart explain attention runs/translator "la nuit tombe" --target "night falls" --out nuit.html

    Args:
        text: The text to read; - for standard input.
        text_b: The second text, for a run that reads pairs.
        target: What a translation run writes (default: its own translation).
        layer: This layer alone, counted from 1 (in an .html: shown at first).
        head: This head alone, counted from 1 (in an .html: shown at first). With --layer, one large map.
        most_tokens: Tokens to show; of a longer text the beginning is shown.
        out: The file to write: .svg or .html.
    """
    form = form_of_picture(out, ".svg", ".html", ".htm")
    if not 8 <= most_tokens <= 256:
        raise UserError(f"most-tokens is {most_tokens}", fix="give 8 to 256")
    from headstart.inference.attention_maps import attention_of
    from headstart.report.attention import attention_chart, attention_page

    loaded, machine = open_run(run, None, common)
    layers = max(loaded.config.model.depth, loaded.config.model.decoder_depth)
    for name, given, most in (("layer", layer, layers), ("head", head, loaded.config.model.heads)):
        if given is not None and not 1 <= given <= most:  # refused before anything is computed
            raise UserError(f"has no {name} {given}", where=run, fix=f"give --{name} 1 to {most}")
    texts = {"text_b": text_b, "target": target}
    maps = attention_of(loaded, argument_text(text), machine, most_tokens=most_tokens, **texts)
    title = f"Where {loaded.path.resolve().name} looks"
    if form == "svg":
        shown = (None if number is None else [number - 1] for number in (layer, head))
        write_picture(out, attention_chart(maps, title, *shown))
    else:
        write_picture(out, attention_page(maps, title, _facts(loaded, maps), (layer or 1) - 1, (head or 1) - 1))
    if common.json:
        print(json.dumps({"out": str(out), **maps.as_json()}))
        return
    if maps.is_cut:
        log(f"the text is longer: {maps.length} tokens of it are shown")
    print(visible(_facts(loaded, maps)))
    print(visible(f"wrote {out}"))


def _facts(run: "LoadedRun", maps: "AttentionMaps") -> str:
    """What there is to see, in a line."""
    kinds = []
    for one in maps.maps:
        layers, heads, rows, columns = one.weights.shape
        size = f"{rows} × {columns}" if one.kind == "cross" else f"{rows}"
        what = "token" if rows == columns == 1 else "tokens"
        kinds.append(f"{one.kind} {layers} layers × {heads} heads over {size} {what}")
    return f"{run.config.objective} run: {'; '.join(kinds)}"


def cost(
    *,
    width: int = 200,
    kernel: int = 3,
    heads: int = 2,
    lengths: Numbers = (16, 64, 256, 1024, 4096),
    out: PicturePath = Path("cost.svg"),
    common: CommonFlags = Common(),
) -> None:
    """What a layer costs: attention n²d, recurrence nd², convolution knd²; on paper and measured here.

    For example:

        headstart explain cost --width 200 --kernel 3 --lengths 16,64,256,1024
        headstart explain cost --width 512 --heads 8 --threads 1 --json

    Args:
        width: Width of the vectors (d).
        kernel: Width of the convolution's window (k).
        heads: Attention heads.
        lengths: Lengths of the text (n), rising.
    """
    form = form_of_picture(out, ".svg", ".png")
    is_rising = list(lengths) == sorted(set(lengths))
    given = (width, kernel, heads, *lengths)
    if not 1 <= min(given) <= max(given) <= MOST_MEASURED or width % heads or not is_rising:
        what = f"width {width}, kernel {kernel}, heads {heads}, lengths {', '.join(map(str, lengths))}"
        fix = f"give numbers of 1 to {MOST_MEASURED:,}, heads that divide the width, and rising lengths"
        raise UserError(what, fix=fix)
    costs = _measured(width, kernel, heads, lengths, common)
    from headstart.report.explain_charts import cost_chart

    rows, formula = costs["rows"], {row["layer"]: row["formula"] for row in costs["paper"]}
    paper = {f"{name}  {formula[name]}": [row["operations"][name] for row in rows] for name in formula}
    measured = {name: [row["seconds"][name] for row in rows] for name in rows[0]["seconds"]}
    crossings = [(c["length"], c["seconds"]) for c in costs["crossings"]]
    write_picture(out, cost_chart(lengths, paper, measured, width, crossings, costs["machine"], form))
    if common.json:
        print(json.dumps({**costs, "out": str(out)}))
    else:
        _print_cost(costs, width, kernel)
        print(f"wrote {out}")


def _measured(width: int, kernel: int, heads: int, lengths: Sequence[int], common: Common) -> dict[str, Any]:
    import torch

    from headstart.planning.layers import layer_costs, layer_times, measured_crossing

    if common.threads:
        torch.set_num_threads(common.threads)
    device = "cuda" if common.device != "cpu" and torch.cuda.is_available() else "cpu"
    with progress_bar("measuring") as on_share:
        times = layer_times(lengths, width, kernel, heads, device, on_share)
    rows = [
        {
            "length": length,
            "operations": {cost.layer: cost.operations for cost in layer_costs(length, width, kernel)},
            "seconds": {name: one.seconds[index] for name, one in times.items()},
            "noisy": [name for name, one in times.items() if one.is_noisy[index]],
        }
        for index, length in enumerate(lengths)
    ]
    crossings, unclear = [], []
    for name in list(times)[1:]:  # attention is the first
        point, is_clear = measured_crossing(lengths, times["attention"], times[name])
        if not is_clear:
            unclear.append(name)
        elif point:
            crossings.append({"with": name, "length": point[0], "seconds": point[1]})
    threads = torch.get_num_threads()
    machine = f"{device}, fp32" + (f", {threads} thread{'s'[: threads > 1]}" if device == "cpu" else "")
    paper = [cost._asdict() for cost in layer_costs(1, width, kernel)]
    for row in paper:
        del row["operations"]
    return {"machine": machine, "paper": paper, "rows": rows, "crossings": crossings, "unclear": unclear}


def _print_cost(costs: dict[str, Any], width: int, kernel: int) -> None:
    console, names = Console(highlight=False), list(costs["rows"][0]["seconds"])
    console.print(f"[bold]On paper[/bold], for one text of n vectors of width d = {width}, window k = {kernel}")
    titles = ("layer", "operations", "sequential steps", "longest path")
    console.print(plain_table(*titles, rows=[row.values() for row in costs["paper"]]))
    console.print(f"\n[bold]Measured[/bold] ({costs['machine']}, forward, one text): milliseconds")
    times = {f"{row['length']:,}": row["seconds"].values() for row in costs["rows"]}
    rows = [(length, *(f"{1e3 * seconds:.3f}" for seconds in row)) for length, row in times.items()]
    console.print(plain_table("n", numbers=names, rows=rows))
    console.print(f"\nOn paper attention passes recurrence at n = d = {width}. Measured, attention passes")
    met = {c["with"]: c["length"] for c in costs["crossings"]}
    for name in names[1:]:
        where = f"at n ≈ {met[name]:,.0f}" if name in met else "not within these lengths"
        console.print(f"  {name} {'? (too noisy)' if name in costs['unclear'] else where}")
    noisy = {name: [f"{row['length']:,}" for row in costs["rows"] if name in row["noisy"]] for name in names}
    if any(noisy.values()):
        points = "; ".join(f"{name} at n = {' and '.join(each)}" for name, each in noisy.items() if each)
        console.print(f"Noisy: {points}. Run it again while the machine does nothing else.", soft_wrap=True)
