"""What `headstart plan` prints: tables for a person."""

import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from headstart.errors import visible
from headstart.plan.answer import gigabytes, in_words
from headstart.plan.calibration import Calibration
from headstart.plan.machines import Target

if TYPE_CHECKING:
    from headstart.study.forecast import Forecast
    from headstart.training.cost import Checked


def _table(*columns: str, numbers: Sequence[str]) -> Table:
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def show(console: Console, planned: dict[str, Any]) -> None:
    """All of a plan, the answer last."""
    values = planned["symbols"]
    legend = ", ".join(
        f"{letter} = {value:,}" for letter, value in values.items() if letter != "C" or _has_classes(planned)
    )
    head = planned["head"]["kind"]
    console.print(f"[bold]{planned['preset']}[/bold] under the head {head}: {legend}\n", soft_wrap=True)
    _parameters(console, planned)
    console.print()
    _operations(console, planned)
    console.print()
    _memory(console, planned["memory"])
    console.print()
    _time(console, planned)
    console.print(f"\n[bold]{planned['answer']['sentence']}[/bold]", soft_wrap=True)


def _has_classes(planned: dict[str, Any]) -> bool:
    return any(row["name"].startswith("head.classifier") for row in planned["parameters"]["components"])


def _parameters(console: Console, planned: dict[str, Any]) -> None:
    found = planned["parameters"]
    table = _table("parameters", "formula", numbers=["count"])
    for row in found["components"]:
        table.add_row(row["name"], row["formula"], f"{row['count']:,}")
    table.add_row("[bold]total[/bold]", "", f"[bold]{found['total']:,}[/bold]")
    table.add_row("trainable", "", f"{found['trainable']:,}")
    console.print(table)
    if planned["config"]["tied"] and planned["head"]["kind"] in ("lm", "masked", "masked-nsp", "translation"):
        console.print("The output's matrix is the embedding's: counted once.")


def _operations(console: Console, planned: dict[str, Any]) -> None:
    found = planned["operations"]
    lengths = found["length"]
    seen = f"n = {lengths['source']}" + (f", target {lengths['target']}" if lengths["target"] else "")
    table = _table(f"operations, forward ({seen})", "formula", "for each", numbers=["count"])
    for row in found["components"]:
        table.add_row(row["name"], row["formula"], row["per"], f"{row['forward']:,}")
    console.print(table)
    each = found["per_token"]
    for direction in ("forward", "backward"):
        over_length = each[f"{direction}_over_length"]
        console.print(
            f"{direction} {each[direction]:,.0f} a token, of which {over_length:,.0f} grow with the length"
        )
    console.print(f"a step of the batch: {found['per_step']:.3g} operations, forward and backward")
    console.print(f"[dim]Not counted: {found['left_out']}.[/dim]", soft_wrap=True)


def _memory(console: Console, found: dict[str, Any]) -> None:
    table = _table(
        f"memory at its fullest ({found['moment']}; batch {found['batch']:,}, {found['precision']})",
        numbers=[""],
    )
    for kind, count in found["kinds"].items():
        table.add_row(kind, gigabytes(count))
    table.add_row("beside the allocator: driver, interpreter", gigabytes(found["beside"]))
    table.add_row("[bold]total[/bold]", f"[bold]{gigabytes(found['total'] + found['beside'])}[/bold]")
    console.print(table)
    rest = f"evaluation {gigabytes(found['evaluation'])}"
    if found["decoding"]:
        rest += f", decoding {gigabytes(sum(found['decoding'].values()))}"
        rest += f", of which the cache {gigabytes(found['decoding']['cache'])}"
    console.print(f"[dim]{rest}[/dim]", soft_wrap=True)


def _time(console: Console, planned: dict[str, Any]) -> None:
    found, disk = planned["time"], planned["disk"]
    table = _table("time", numbers=[""])
    table.add_row("a step", in_words(found["step"]))
    most = sorted(found["kinds"].items(), key=lambda pair: -pair[1])[:4]
    for kind, seconds in most:
        table.add_row(f"  {kind}", f"{seconds / found['step']:.0%}")
    if found["training"] is not None:
        table.add_row(f"{found['steps']:,} steps", in_words(found["training"]))
    for key, words in (
        ("evaluation_of_1000_texts", "evaluation of 1,000 texts"),
        ("decoding_of_100_tokens", "writing 100 tokens"),
    ):
        if found[key] is not None:
            table.add_row(words, in_words(found[key]))
    console.print(table)
    console.print(f"[dim]By {visible(found['source'])}.[/dim]", soft_wrap=True)
    if not found["is_calibrated"]:
        console.print("[dim]Not measured: `headstart plan --calibrate` does so on this machine.[/dim]")
    parts = ", ".join(f"{kind} {gigabytes(count)}" for kind, count in disk.items())
    console.print(f"on disk: {gigabytes(sum(disk.values()))} ({parts})", soft_wrap=True)


def show_choice(console: Console, planned: dict[str, Any]) -> None:
    """What was chosen for a time, as the command that trains it."""
    chosen, memory = planned["chosen"], planned["memory"]
    total = planned["parameters"]["total"]
    console.print(
        f"[bold]{planned['preset']}, {chosen['width']} wide, {chosen['depth']} deep[/bold]: {total:,} parameters, "
        f"{chosen['steps']:,} steps of {chosen['batch']} texts, {chosen['passes']:.2g} passes over "
        f"{chosen['corpus_tokens']:,.0f} tokens, {in_words(chosen['seconds'])} on {planned['time']['device']}",
        soft_wrap=True,
    )
    console.print(
        f"About 20 tokens a parameter, four passes at most counted as new text; what keeps it from being larger is "
        f"{chosen['bound']}.",
        soft_wrap=True,
    )
    lengths = planned["operations"]["length"]["source"]
    command = (
        f"headstart pretrain --corpus … --preset {planned['preset']} --width {chosen['width']} "
        f"--depth {chosen['depth']} --heads {chosen['heads']} --ffn {chosen['ffn']} --length {lengths} "
        f"--batch-tokens {chosen['batch'] * lengths} --steps {chosen['steps']} --out runs/base"
    )
    if chosen["accumulate"] > 1:
        command += f" --accumulate {chosen['accumulate']}"
    console.print(f"\n    {command}\n", soft_wrap=True)
    console.print(f"[dim]By {visible(planned['time']['source'])}.[/dim]", soft_wrap=True)
    needed = gigabytes(memory["total"] + memory["beside"])
    console.print(f"memory {needed} of {gigabytes(memory['available'])}")


def show_calibration(console: Console, found: Calibration) -> None:
    """What was timed, and how well the prices give it back."""
    table = _table("step", numbers=["measured", "as planned", "planned / measured"])
    for point in found.points:
        ratio = point["planned"] / point["measured"]
        table.add_row(point["name"], in_words(point["measured"]), in_words(point["planned"]), f"{ratio:.2f}")
    console.print(table)
    console.print(
        f"memory moves {found.bandwidth / 1e9:.3g} GB a second; kept for `headstart plan` from now on"
    )


# ---- planned against measured -------------------------------------------------------------------------------


def medians(rows: Iterable["Checked"]) -> dict[str, float | None]:
    """The median of the relative errors, in time and in memory."""
    found: dict[str, float | None] = {}
    for name in ("seconds_error", "memory_error"):
        errors = [abs(error) for row in rows if (error := getattr(row, name)) is not None]
        found[f"median_{name}"] = statistics.median(errors) if errors else None
    return found


def show_check(console: Console, rows: Sequence["Checked"]) -> None:
    """A line for each run, and the medians."""
    numbers = ["step, planned", "measured", "error", "memory, planned", "measured", "error"]
    table = _table("run", "device", numbers=numbers)
    for row in rows:
        table.add_row(
            visible(row.run), row.device, *_pair(row.planned_seconds, row.measured_seconds, in_words),
            *_pair(row.planned_memory, row.measured_memory, gigabytes),
        )  # fmt: skip
    console.print(table)
    found = medians(rows)
    for name, words in (("seconds", "time"), ("memory", "memory")):
        error = found[f"median_{name}_error"]
        console.print(f"median error in {words}: {'not known' if error is None else f'{error:.0%}'}")


def _pair(planned: float, measured: float | None, words: Any) -> tuple[str, str, str]:
    if not measured:
        return words(planned), "–", "–"
    return words(planned), words(measured), f"{planned / measured - 1:+.0%}"


def show_forecast(console: Console, found: "Forecast", target: Target) -> None:
    """A line for each part of a study."""
    table = _table("part", numbers=["how often", "steps each", "seconds each", "together"])
    for part in found.parts:
        table.add_row(
            part.name, f"{part.count:,}", f"{part.steps:,}", f"{part.seconds / part.count:.3g}", in_words(part.seconds)
        )  # fmt: skip
    console.print(table)
    for line in found.assumptions:
        console.print(f"[dim]{visible(line)}[/dim]", soft_wrap=True)
    total = sum(part.seconds for part in found.parts)
    console.print(f"\n[bold]{in_words(total)} on {target.title}[/bold]")
