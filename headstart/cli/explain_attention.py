"""`headstart explain attention`: where a run looks in a text, layer by layer and head by head."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from headstart.cli.evaluate import note
from headstart.cli.explain import write_picture
from headstart.cli.generate import given_text
from headstart.cli.options import Common, CommonFlags
from headstart.cli.running import machine_of
from headstart.errors import UserError, visible

if TYPE_CHECKING:
    from headstart.training.attending import AttentionMaps
    from headstart.training.loading import LoadedRun


def attention(
    run: Path,
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

    Parameters
    ----------
    run
        A run's directory.
    text
        The text to read; - for standard input.
    text_b
        The second text, for a run that reads pairs.
    target
        What a translation run writes (default: its own translation).
    layer
        This layer alone, counted from 1 (in an .html: shown at first).
    head
        This head alone, counted from 1 (in an .html: shown at first). With --layer, one large map.
    most_tokens
        Tokens to show; of a longer text the beginning is shown.
    out
        The file to write: .svg or .html.
    """
    if out.suffix.lower() not in (".svg", ".html", ".htm"):
        raise UserError(f"cannot be drawn as {out.suffix or 'a file without an ending'}", where=str(out),
                        fix="give an .svg or an .html")  # fmt: skip
    if not 8 <= most_tokens <= 256:
        raise UserError(f"most-tokens is {most_tokens}", fix="give 8 to 256")
    from headstart.training.attending import attention_of
    from headstart.training.loading import load

    machine = machine_of(common)
    machine.prepare()
    loaded = load(run, machine.device)
    _check_place(loaded, layer, head)
    found = attention_of(
        loaded, given_text(text), machine, text_b=text_b, target=target, most_tokens=most_tokens
    )
    write_picture(out, _drawn(loaded, found, layer, head, out))
    if common.json:
        print(json.dumps({"out": str(out), **found.as_json()}))
        return
    if found.is_cut:
        note(f"the text is longer: {found.length} tokens of it are shown")
    print(visible(_facts(loaded, found)))
    print(visible(f"wrote {out}"))


def _check_place(run: "LoadedRun", layer: int | None, head: int | None) -> None:
    """Refuse a layer or head that the run does not have, before it is computed."""
    config = run.config.model
    for name, given, most in (
        ("layer", layer, max(config.depth, config.decoder_depth)),
        ("head", head, config.heads),
    ):
        if given is not None and not 1 <= given <= most:
            raise UserError(f"has no {name} {given}", where=str(run.path), fix=f"give --{name} 1 to {most}")


def _drawn(run: "LoadedRun", found: "AttentionMaps", layer: int | None, head: int | None, out: Path) -> str:
    title = f"Where {run.path.resolve().name} looks"
    if out.suffix.lower() == ".svg":
        from headstart.report.attention_charts import attention_chart

        layers, heads = (None if number is None else [number - 1] for number in (layer, head))
        return attention_chart(found, title, layers, heads)
    from headstart.report.attention_page import attention_page

    return attention_page(found, title, _facts(run, found), (layer or 1) - 1, (head or 1) - 1)


def _facts(run: "LoadedRun", found: "AttentionMaps") -> str:
    """What there is to see, in a line."""
    kinds = []
    for one in found.maps:
        layers, heads, rows, columns = one.weights.shape
        size = f"{rows} × {columns}" if one.kind == "cross" else f"{rows}"
        what = "token" if rows == columns == 1 else "tokens"
        kinds.append(f"{one.kind} {layers} layers × {heads} heads over {size} {what}")
    return f"{run.config.objective} run: {'; '.join(kinds)}"
