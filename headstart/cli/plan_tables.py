"""What `headstart plan` prints: tables, and the `headstart pretrain` that trains what a budget has chosen."""

import dataclasses
import shlex
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.table import Table

from headstart.cli.consoles import plain_table
from headstart.cli.options import Common
from headstart.config.model import HeadKind, ModelConfig
from headstart.config.presets import preset
from headstart.errors import UserError, visible
from headstart.planning.choice import Choice
from headstart.planning.figures import format_bytes, format_duration
from headstart.planning.machines import Target

if TYPE_CHECKING:
    from headstart.training.calibration.cost import RunCost

UNKNOWN_CORPUS = "CORPUS"  # where the number of tokens was given alone

_OBJECTIVES: dict[HeadKind, str] = {"lm": "causal", "masked": "masked", "masked-nsp": "masked-nsp"}
_SHAPE = ("vocab", "width", "depth", "heads", "ffn")
_IMPLIED = ("direction", "tokenizer")  # pretraining takes them from the objective and from the tokenizer
_DEFAULTS = {"objective": "causal", "accumulate": 1, "device": "auto", "precision": "auto", "threads": None, "seed": 0}


def _percent(share: float, sign: str = "") -> str:
    return f"{100 * share:{sign}.0f} %"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def show(console: Console, planned: dict[str, Any], *, is_here: bool) -> None:
    """All of a plan, the answer last; `is_here` says that it is of this machine."""
    names, head = [row["name"] for row in planned["parameters"]["components"]], planned["head"]["kind"]
    has_classes = any(name.startswith("head.classifier") for name in names)
    symbols = {key: value for key, value in planned["symbols"].items() if key != "C" or has_classes}
    legend = ", ".join(f"{letter} = {value:,}" for letter, value in symbols.items())
    console.print(f"[bold]{planned['preset']}[/bold] under the head {head}: {legend}\n")
    for part in (_parameters(planned), _operations(planned), _memory(planned), _time(planned, is_here)):
        console.print(*part, "", sep="\n")
    console.print(f"[bold]{planned['answer']['sentence']}[/bold]")


def _parameters(planned: dict[str, Any]) -> Iterator[RenderableType]:
    counts = planned["parameters"]
    rows = [(row["name"], row["formula"], f"{row['count']:,}") for row in counts["components"]]
    rows.append(("[bold]total[/bold]", "", f"[bold]{counts['total']:,}[/bold]"))
    rows.append(("trainable", "", f"{counts['trainable']:,}"))
    yield plain_table("parameters", "formula", numbers=["count"], rows=rows)
    if planned["config"]["tied"] and planned["head"]["kind"] in ("lm", "masked", "masked-nsp", "translation"):
        yield "The output's matrix is the embedding's: counted once."


def _operations(planned: dict[str, Any]) -> Iterator[RenderableType]:
    counts = planned["operations"]
    lengths, each = counts["length"], counts["per_token"]
    shown = f"n = {lengths['source']}" + (f", target {lengths['target']}" if lengths["target"] else "")
    yield plain_table(
        f"operations, forward ({shown})", "formula", "for each", numbers=["count"],
        rows=[(r["name"], r["formula"], r["per"], f"{r['forward']:,}") for r in counts["components"]],
    )  # fmt: skip
    for name in ("forward", "backward"):
        over = each[f"{name}_over_length"]
        yield f"{name} {each[name]:,.0f} a token, of which {over:,.0f} grow with the length"
    yield f"a step of the batch: {counts['per_step']:.3g} operations, forward and backward"
    yield f"[dim]Not counted: {counts['left_out']}.[/dim]"


def _memory(planned: dict[str, Any]) -> Iterator[RenderableType]:
    memory = planned["memory"]
    when = f"{memory['moment']}; batch {memory['batch']:,}, {memory['precision']}"
    rows = [(kind, format_bytes(count)) for kind, count in memory["kinds"].items()]
    rows.append(("[bold]total[/bold]", f"[bold]{format_bytes(memory['total'])}[/bold]"))
    yield plain_table(f"memory of the process at its fullest ({when})", numbers=[""], rows=rows)
    rest = f"evaluation {format_bytes(memory['evaluation'])}"
    if memory["decoding"]:
        rest += f", decoding {format_bytes(sum(memory['decoding'].values()))}"
        rest += f", of which the cache {format_bytes(memory['decoding']['cache'])}"
    yield f"[dim]{rest}[/dim]"


def _time(planned: dict[str, Any], is_here: bool) -> Iterator[RenderableType]:
    time, disk = planned["time"], planned["disk"]
    largest = sorted(time["kinds"].items(), key=lambda pair: -pair[1])[:4]
    rows = [("a step", format_duration(time["step"]))]
    rows += [(f"  {kind}", _percent(seconds / time["step"])) for kind, seconds in largest]
    totals = {
        f"{time['steps'] or 0:,} steps": time["training"],
        "evaluation of 1,000 texts": time["evaluation_of_1000_texts"],
        "writing 100 tokens": time["decoding_of_100_tokens"],
    }
    rows += [(name, format_duration(seconds)) for name, seconds in totals.items() if seconds is not None]
    yield plain_table("time", numbers=[""], rows=rows)
    yield f"[dim]By {visible(time['source'])}.[/dim]"
    if not time["is_calibrated"]:
        how = "`headstart plan --calibrate` does so on this machine"
        if not is_here:
            how = "the public peak rates of such a machine, at the utilisation stated above"
            how += " (`--utilisation` sets another)"
        yield f"[dim]Not measured: {how}.[/dim]"
    parts = ", ".join(f"{kind} {format_bytes(count)}" for kind, count in disk.items())
    yield f"on disk: {format_bytes(sum(disk.values()))} ({parts})"


def show_choice(console: Console, planned: dict[str, Any]) -> None:
    """What was chosen for a time, as the command that trains it."""
    chosen, memory = planned["chosen"], planned["memory"]
    console.print(
        f"[bold]{planned['preset']}, {chosen['width']} wide, {chosen['depth']} deep[/bold]: "
        f"{planned['parameters']['total']:,} parameters, "
        f"{_counted(chosen['steps'], 'step')} of {_counted(chosen['batch'], 'text')}, "
        f"{chosen['passes']:.2g} passes over {chosen['corpus_tokens']:,.0f} tokens, "
        f"{format_duration(chosen['seconds'])} on {planned['time']['device']}\n"
        f"About 20 tokens a parameter, four passes at most counted as new text; what keeps it from being larger is "
        f"{chosen['bound']}."
    )
    console.print(f"\n    {visible(planned['command'])}\n", markup=False)
    if UNKNOWN_CORPUS in planned["command"].split():
        console.print(f"{UNKNOWN_CORPUS} stands for the files of the text.")
    console.print(f"[dim]By {visible(planned['time']['source'])}.[/dim]")
    console.print(f"memory {format_bytes(memory['total'])} of {format_bytes(memory['available'])}")


def show_calibration(console: Console, measured: dict[str, Any]) -> None:
    """What was timed, and how well the prices give it back."""
    pairs = [(point["name"], point["measured"], point["planned"]) for point in measured["points"]]
    rows = [(name, format_duration(m), format_duration(p), f"{p / m:.2f}") for name, m, p in pairs]
    console.print(plain_table("step", numbers=["measured", "as planned", "planned / measured"], rows=rows))
    rate = f"{measured['bandwidth'] / 1e9:.3g} GB a second"
    console.print(f"memory moves {rate}; kept for `headstart plan` from now on")


# ---- planned against measured -------------------------------------------------------------------------------


def summary(rows: Sequence["RunCost"]) -> dict[str, float | None]:
    """The median and the worst of the relative errors, in time and in memory."""
    errors_by_name: dict[str, float | None] = {}
    for name in ("seconds_error", "memory_error"):
        errors = [abs(error) for row in rows if (error := getattr(row, name)) is not None]
        errors_by_name[f"median_{name}"] = statistics.median(errors) if errors else None
        errors_by_name[f"worst_{name}"] = max(errors, default=None)
    return errors_by_name


def show_check(console: Console, checked: dict[str, Any]) -> None:
    """A line for each run, and the medians."""
    kinds = {"seconds": format_duration, "memory": format_bytes}
    rows = []
    for cost in checked["runs"]:
        cells = [visible(cost["run"]), cost["device"]]
        for kind, words in kinds.items():
            planned, measured, error = (cost[n] for n in (f"planned_{kind}", f"measured_{kind}", f"{kind}_error"))
            cells += [words(planned), *((words(measured), _percent(error, "+")) if measured else ("–", "–"))]
        rows.append(cells)
    numbers = ["step, planned", "measured", "error", "memory, planned", "measured", "error"]
    console.print(plain_table("run", "device", numbers=numbers, rows=rows))
    for kind, name in (("seconds", "time"), ("memory", "memory")):
        middle, worst = checked[f"median_{kind}_error"], checked[f"worst_{kind}_error"]
        shown = "not known" if middle is None else f"{_percent(middle)}, at worst {_percent(worst)}"
        console.print(f"median error in {name}: {shown}")


def forecast_table(planned: dict[str, Any], has_times: bool = True) -> Table:
    """A line for each part of a study."""
    rows = []
    for part in planned["parts"]:
        count, seconds = part["count"], part["seconds"]
        times = [f"{seconds / count:.3g}", format_duration(seconds)] if has_times else []
        rows.append((part["name"], f"{count:,}", f"{part['steps']:,}", *times))
    numbers = ["how often", "steps each", *(["seconds each", "together"] if has_times else [])]
    return plain_table("part", numbers=numbers, rows=rows)


def show_forecast(console: Console, planned: dict[str, Any], *, target: Target) -> None:
    """The parts of a study, what was assumed, and the whole."""
    console.print(forecast_table(planned))
    for line in planned["assumptions"]:
        console.print(f"[dim]{visible(line)}[/dim]")
    console.print(f"\n[bold]{format_duration(planned['seconds'])} on {target.title}[/bold]")


# ---- the command that trains what a budget has chosen -------------------------------------------------------


def fields_of_objective(head: HeadKind, asked: ModelConfig) -> dict[str, Any]:
    """The model fields that pretraining this head sets in any preset; a head without pretraining is refused."""
    if head not in _OBJECTIVES:
        fix = f"give --head one of {', '.join(_OBJECTIVES)}: those that are pretrained"
        raise UserError(f"--budget for the head {head}", fix=fix, code="unsupported")
    return {
        "direction": "causal" if head == "lm" else "bidirectional",
        "segments": max(2, asked.segments) if head == "masked-nsp" else asked.segments,
    }


def pretrain_command(preset_name: str, chosen: Choice, corpus: Sequence[Path], target: Target, common: Common) -> str:
    """The command line, quoted for a shell; the shape is named even where it is the preset's."""
    work, usual = chosen.work, dataclasses.asdict(preset(preset_name))
    model = dataclasses.asdict(work.config)
    others = [name for name in model if model[name] != usual[name] and name not in _IMPLIED]
    device, precision, threads = str(common.device), str(common.precision), common.threads
    if device not in ("auto", "cpu", "cuda"):  # a named machine: all that was planned with
        device, precision, threads = target.kind, work.precision, target.cores or threads
    settings = {
        "objective": _OBJECTIVES[work.head.kind], "preset": preset_name,
        **{name: model[name] for name in dict.fromkeys((*_SHAPE, *others))},
        "length": work.lengths.source, "batch_tokens": work.batch * work.lengths.source, "steps": chosen.steps,
        "accumulate": work.accumulate, "device": device, "precision": precision, "threads": threads or None,
        "seed": common.seed, "out": "runs/base",
    }  # fmt: skip
    paths = [f"./{path}" if str(path).startswith("-") else str(path) for path in corpus]
    words = ["headstart", "pretrain", "--corpus", *(paths or [UNKNOWN_CORPUS])]
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif name not in _DEFAULTS or value != _DEFAULTS[name]:
            words += [f"--{flag}", str(value)]
    return shlex.join(words)
