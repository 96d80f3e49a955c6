"""What `headstart plan` prints: tables for a person."""

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from headstart.cli.plan_command import UNKNOWN_CORPUS
from headstart.errors import visible
from headstart.plan.answer import gigabytes, in_words
from headstart.plan.calibration import Calibration
from headstart.plan.machines import Target
from headstart.plan.memory import LEAST_CLAIMED, MEGABYTE

if TYPE_CHECKING:
    from headstart.study.forecast import Forecast
    from headstart.training.cost import Checked


def _table(*columns: str, numbers: Sequence[str]) -> Table:
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def _percent(share: float, sign: str = "") -> str:
    return f"{100 * share:{sign}.0f} %"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


_HERE = "`headstart plan --calibrate` does so on this machine"
_ELSEWHERE = (
    "the public peak rates of such a machine, at the utilisation stated above (`--utilisation` sets another)"
)


def show(console: Console, planned: dict[str, Any], *, is_here: bool) -> None:
    """All of a plan, the answer last; `is_here` says that it is of this machine."""
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
    _time(console, planned, is_here)
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


def _time(console: Console, planned: dict[str, Any], is_here: bool) -> None:
    found, disk = planned["time"], planned["disk"]
    table = _table("time", numbers=[""])
    table.add_row("a step", in_words(found["step"]))
    most = sorted(found["kinds"].items(), key=lambda pair: -pair[1])[:4]
    for kind, seconds in most:
        table.add_row(f"  {kind}", _percent(seconds / found["step"]))
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
        console.print(f"[dim]Not measured: {_HERE if is_here else _ELSEWHERE}.[/dim]", soft_wrap=True)
    parts = ", ".join(f"{kind} {gigabytes(count)}" for kind, count in disk.items())
    console.print(f"on disk: {gigabytes(sum(disk.values()))} ({parts})", soft_wrap=True)


def show_choice(console: Console, planned: dict[str, Any]) -> None:
    """What was chosen for a time, as the command that trains it."""
    chosen, memory = planned["chosen"], planned["memory"]
    total = planned["parameters"]["total"]
    console.print(
        f"[bold]{planned['preset']}, {chosen['width']} wide, {chosen['depth']} deep[/bold]: {total:,} parameters, "
        f"{_counted(chosen['steps'], 'step')} of {_counted(chosen['batch'], 'text')}, "
        f"{chosen['passes']:.2g} passes over {chosen['corpus_tokens']:,.0f} tokens, "
        f"{in_words(chosen['seconds'])} on {planned['time']['device']}",
        soft_wrap=True,
    )
    console.print(
        f"About 20 tokens a parameter, four passes at most counted as new text; what keeps it from being larger is "
        f"{chosen['bound']}.",
        soft_wrap=True,
    )
    console.print(f"\n    {visible(planned['command'])}\n", soft_wrap=True, markup=False)
    if UNKNOWN_CORPUS in planned["command"].split():
        console.print(f"{UNKNOWN_CORPUS} stands for the files of the text.")
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


def summary(rows: Sequence["Checked"]) -> dict[str, float | None]:
    """The median and the worst of the relative errors, in time and in memory, and what is not counted there."""
    found: dict[str, float | None] = {}
    claimed = [row for row in rows if row.is_memory_claimed]
    for name, counted in (("seconds_error", rows), ("memory_error", claimed)):
        errors = [abs(error) for row in counted if (error := getattr(row, name)) is not None]
        found[f"median_{name}"] = statistics.median(errors) if errors else None
        found[f"worst_{name}"] = max(errors, default=None)
    measured = [row for row in rows if row.measured_memory]
    return {**found, "runs_below_claimed_memory": len(measured) - len(claimed)}


def show_check(console: Console, rows: Sequence["Checked"]) -> None:
    """A line for each run, the medians, and what is not claimed."""
    numbers = ["step, planned", "measured", "error", "memory, planned", "measured", "error"]
    table = _table("run", "device", numbers=numbers)
    for row in rows:
        table.add_row(
            visible(row.run), row.device, *_pair(row.planned_seconds, row.measured_seconds, in_words),
            *_pair(row.planned_memory, row.measured_memory, gigabytes),
        )  # fmt: skip
    console.print(table)
    found = summary(rows)
    for name, words in (("seconds", "time"), ("memory", "memory")):
        middle, worst = found[f"median_{name}_error"], found[f"worst_{name}_error"]
        shown = "not known"
        if middle is not None and worst is not None:
            shown = f"{_percent(middle)}, at worst {_percent(worst)}"
        console.print(f"median error in {words}: {shown}", soft_wrap=True)
    if below := found["runs_below_claimed_memory"]:
        console.print(
            f"{_counted(int(below), 'run')} took less than {LEAST_CLAIMED // MEGABYTE} MB, where the plan does not "
            "claim to know the memory: not counted in the errors of memory",
            soft_wrap=True,
        )


def _pair(planned: float, measured: float | None, words: Any) -> tuple[str, str, str]:
    if not measured:
        return words(planned), "–", "–"
    return words(planned), words(measured), _percent(planned / measured - 1, "+")


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
