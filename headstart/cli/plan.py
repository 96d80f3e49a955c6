"""`headstart plan`: what a run will cost, from its configuration alone."""

import dataclasses
import json
from typing import Any

from rich.console import Console
from rich.table import Table

from headstart.cli.options import (
    Common,
    CommonFlags,
    ModelFlags,
    ModelOverrides,
    PresetName,
    Switch,
    model_config,
)
from headstart.model.presets import HeadConfig, HeadKind, ModelConfig, Pooling
from headstart.plan import operations, parameters


def plan(
    *,
    preset: PresetName = "tiny",
    head: HeadKind = "lm",
    classes: int = 2,
    pooling: Pooling | None = None,
    freeze: parameters.Freeze | None = None,
    batch: int = 32,
    length: int | None = None,
    target_length: int | None = None,
    tensors: Switch = False,
    overrides: ModelFlags = ModelOverrides(),
    common: CommonFlags = Common(),
) -> None:
    """What a run will cost, from its configuration alone: parameters with formulas, operations.

    For example:

        headstart plan --preset lab --vocab 100 --head lm

        headstart plan --preset lab --vocab 50001 --head classification --classes 2 --freeze base

        headstart plan --preset transformer-base --vocab 37000 --head translation --json

        headstart plan --preset modern-small --vocab 16000 --depth 8 --length 512 --batch 64

    Parameters
    ----------
    preset
        The shape to start from.
    head
        What stands on the base.
    classes
        Outputs of a classification head.
    pooling
        How a classification head makes one vector of a text.
    freeze
        What does not learn.
    batch
        Texts in a step.
    length
        Tokens in a text (default: the context).
    target_length
        Tokens of a translation (default: as many as the source has).
    tensors
        Every tensor on a line of its own.
    """
    config = model_config(preset, overrides)
    head_config = HeadConfig(kind=head, classes=classes, pooling=pooling)
    source = length or config.context
    lengths = operations.Lengths(source, (target_length or source) if config.decoder_depth else 0)
    planned = figures(config, head_config, lengths, batch, freeze, tensors)
    if common.json:
        print(json.dumps({"preset": preset, **planned}, ensure_ascii=False, indent=1))
    else:
        _print(Console(highlight=False), preset, planned)


def figures(
    config: ModelConfig,
    head: HeadConfig,
    lengths: operations.Lengths,
    batch: int,
    freeze: parameters.Freeze | None = None,
    tensor_by_tensor: bool = False,
) -> dict[str, Any]:
    """The plan as data; memory and time are not planned yet."""
    values = parameters.symbols(config, head)
    groups = parameters.components(config, head)
    shown = groups
    if tensor_by_tensor:
        shown = [
            parameters.Component(t.name, parameters.term(t.dimensions), parameters.count(t, values))
            for t in parameters.tensors(config, head)
        ]
    text = operations.per_text(config, head, lengths, freeze)
    tokens = lengths.source + lengths.target
    works = operations.components(config, head, lengths)
    return {
        "config": dataclasses.asdict(config),
        "head": dataclasses.asdict(head),
        "symbols": {letter: value for letter, value in values.items() if value},
        "parameters": {
            "total": sum(group.count for group in groups),
            "trainable": sum(group.count for group in groups if parameters.trainable(group, freeze)),
            "components": [dataclasses.asdict(component) for component in shown],
        },
        "operations": {
            "length": dataclasses.asdict(lengths),
            "components": [
                {"name": w.name, "formula": w.formula, "forward": w.forward, "per": w.unit} for w in works
            ],
            "per_token": {
                "forward": text.forward / tokens,
                "backward": text.backward / tokens,
                "forward_over_length": text.forward_over_length / tokens,
                "backward_over_length": text.backward_over_length / tokens,
            },
            "per_step": batch * (text.forward + text.backward),
            "left_out": operations.LEFT_OUT,
        },
        "memory": None,
        "time": None,
    }


def _print(console: Console, preset: str, planned: dict[str, Any]) -> None:
    values = planned["symbols"]
    legend = ", ".join(
        f"{letter} = {value:,}" for letter, value in values.items() if letter != "C" or _has_classes(planned)
    )
    console.print(
        f"[bold]{preset}[/bold] under the head {planned['head']['kind']}: {legend}\n", soft_wrap=True
    )
    _print_parameters(console, planned)
    console.print()
    _print_operations(console, planned)


def _has_classes(planned: dict[str, Any]) -> bool:
    return any(row["name"].startswith("head.classifier") for row in planned["parameters"]["components"])


def _print_parameters(console: Console, planned: dict[str, Any]) -> None:
    found = planned["parameters"]
    table = Table("parameters", "formula", box=None, pad_edge=False, header_style="bold")
    table.add_column("count", justify="right")
    for row in found["components"]:
        table.add_row(row["name"], row["formula"], f"{row['count']:,}")
    table.add_row("[bold]total[/bold]", "", f"[bold]{found['total']:,}[/bold]")
    table.add_row("trainable", "", f"{found['trainable']:,}")
    console.print(table)
    if planned["config"]["tied"] and planned["head"]["kind"] in ("lm", "masked", "masked-nsp", "translation"):
        console.print("The output's matrix is the embedding's: counted once.")


def _print_operations(console: Console, planned: dict[str, Any]) -> None:
    found = planned["operations"]
    lengths = found["length"]
    seen = f"n = {lengths['source']}" + (f", target {lengths['target']}" if lengths["target"] else "")
    table = Table(
        f"operations, forward ({seen})", "formula", "for each", box=None, pad_edge=False, header_style="bold"
    )
    table.add_column("count", justify="right")
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
    console.print("[dim]Memory and time: not planned yet.[/dim]")
