"""Attention maps as one SVG file, and as one HTML page in which a token that is pointed at shows its weights.

The maps are pictures inside the picture, so that 144 of them stay a small file, with real text at their edges: any
script, and found by a search. Darker is more, in steps that a grey print and any colour vision keep apart; what may
not be looked at is hatched, which is something else than nothing.

The page makes no network requests. What comes from the text stands in a block of data that the script reads, and is put
on the page as text alone; the page's own rule (its Content-Security-Policy) lets no other script run.
"""

import base64
import hashlib
import io
import itertools
import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.image
import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from headstart.inference.attention_maps import AttentionMap, AttentionMaps
from headstart.report.figures import GREY, INK, short
from headstart.report.wording import one_line, percent
from headstart.tokenizers.token_texts import ShownToken

# Dark grows evenly from white over the blue of the other charts; weights are drawn by their root, since most are small.
_STOPS = np.array([[255, 255, 255], [158, 202, 225], [0, 114, 178], [0, 32, 60]], float)
MUTED = "#5F6670"  # GREY is for lines: as small text it would be too pale
_LABEL_PIXELS, _LABEL_UNITS, _PAGE_LABEL_UNITS = 10.5, 13, 24
_UNIT_PIXELS = 0.56 * _LABEL_PIXELS
_GAP, _MARGIN = 16, 24
_LEAST_STEP = 46  # pixels from map to map
_FEWEST_DOTS = 6  # of a map's picture on each side of a cell
_LARGEST_NUMBERED = 14  # tokens on a side up to which a large map has its numbers in it

Selection = Sequence[int] | None  # of layers or heads, counted from 0; None: all
KINDS = {
    "self": "Attention of the text over itself",
    "encoder": "Encoder: the source over itself",
    "decoder": "Decoder: the target over itself",
    "cross": "Decoder: the target over the source",
}
_DIRECTORY = Path(__file__).parent
_TEMPLATES = Environment(
    loader=FileSystemLoader(_DIRECTORY), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)
_TEMPLATES.filters["n"] = short


def attention_chart(attention: AttentionMaps, title: str, layers: Selection = None, heads: Selection = None) -> str:
    """All maps below each other, or those of some layers and heads where a stack has them."""
    every = [_panel(one, layers, heads) for one in attention.maps]
    panels = [panel for panel in every if panel.layers and panel.heads]
    tops = list(itertools.accumulate((panel.height + 44 for panel in panels), initial=72.0))
    has_mask = any(not panel.map.mask.all() for panel in panels)
    ramp = ["#{:02x}{:02x}{:02x}".format(*colour) for colour in shades(np.linspace(0, 1, 60) ** 2).tolist()]
    return _TEMPLATES.get_template("attention.svg").render(
        title=one_line(title, 120), attention=attention, panels=panels, tops=tops, kinds=KINDS, has_mask=has_mask,
        ramp=ramp, margin=_MARGIN, width=max([420.0, *(panel.right for panel in panels)]) + _MARGIN,
        height=tops[-1] + (76 if has_mask else 54) + 22 * attention.is_cut, ink=INK, grey=GREY, muted=MUTED,
    ) + "\n"  # fmt: skip


def label_of(token: ShownToken, longest: int = _LABEL_UNITS) -> str:
    """A token at the edge of a map: in one line, never blank, nothing in it that hides or reorders."""
    if token.text.strip():
        text = one_line(token.text, longest)
    else:
        names = {" ": "␣", "\n": "↵", "\t": "⇥"}
        text = "".join(names.get(character, "␣") for character in token.text)[:longest] or "∅"
    while len(text) > 1 and _units(text) > longest:
        text = text.rstrip("…")[:-1] + "…"
    return re.sub("[\ufdd0-\ufdef\ufffe\uffff]", "\ufffd", text)  # XML knows no such characters


# ---- a kind of attention: its maps in rows of layers and columns of heads ------------------------------------


class _Panel(NamedTuple):
    map: AttentionMap
    layers: list[int]
    heads: list[int]
    cell: float

    @property
    def is_large(self) -> bool:
        return len(self.layers) == len(self.heads) == 1

    @property
    def map_width(self) -> float:
        return self.cell * len(self.map.columns)

    @property
    def map_height(self) -> float:
        return self.cell * len(self.map.rows)

    @property
    def across(self) -> float:
        """From one map to the next; those of a token or two still need room for their names."""
        return max(self.map_width + _GAP, _LEAST_STEP)

    @property
    def down(self) -> float:
        return max(self.map_height + _GAP, _LEAST_STEP)

    @property
    def left(self) -> float:
        """Room for the layers' names and the rows' labels."""
        return 26 + 8 + _widest(self.map.rows)

    @property
    def right(self) -> float:
        """Where the maps and their slanted labels end."""
        return _MARGIN + self.left + len(self.heads) * self.across - _GAP + 0.5 * _UNIT_PIXELS * _LABEL_UNITS

    @property
    def above(self) -> float:
        """Room for the heading, the heads' names and the columns' labels, which stand at 60 degrees."""
        return 52 + 8 + 0.87 * _widest(self.map.columns)

    @property
    def height(self) -> float:
        return self.above + len(self.layers) * self.down - _GAP

    def labels(self, tokens: Sequence[ShownToken]) -> Iterator[dict[str, Any]]:
        """Every label, or every so many where they would stand on each other; special tokens are grey."""
        for index in range(0, len(tokens), max(1, int(np.ceil((_LABEL_PIXELS + 0.5) / self.cell)))):
            text, colour = label_of(tokens[index]), MUTED if tokens[index].is_special else INK
            yield {"text": text, "along": (index + 0.5) * self.cell, "colour": colour}

    def rows_in_words(self, layer: int, head: int) -> Iterator[str]:
        """The four tokens that each row looks at most."""
        for token, weights in zip(self.map.rows, self.map.weights[layer, head], strict=True):
            best = [column for column in np.argsort(-weights, kind="stable")[:4] if weights[column] > 0]
            most = [f"{label_of(self.map.columns[i])} {percent(float(weights[i]))}" for i in best]
            yield f"{label_of(token)} looks at {', '.join(most)}"

    def numbers(self, layer: int, head: int) -> Iterator[dict[str, Any]]:
        """The percentage in each cell, where there is room."""
        weights = self.map.weights[layer, head]
        if max(weights.shape) > _LARGEST_NUMBERED:
            return
        for row, column in np.argwhere(self.map.mask).tolist():
            weight = float(weights[row, column])
            light = (shades(np.array(weight)) / 255) ** 2.2 @ [0.21, 0.72, 0.07]
            text = "<1" if 0 < weight < 0.005 else f"{100 * weight:.0f}"
            x, y = (column + 0.5) * self.cell, (row + 0.5) * self.cell + 3.5
            yield {"x": x, "y": y, "text": text, "colour": INK if light > 0.2 else "#FFFFFF"}

    def png(self, layer: int, head: int) -> str:
        """A map as the address of a picture, clear where nobody may look."""
        alpha = np.where(self.map.mask, 255, 0).astype(np.uint8)
        dots = np.dstack([shades(self.map.weights[layer, head]), alpha])
        # Not every program keeps a dot square when it is drawn larger: between several of one colour it cannot blur.
        side = max(_FEWEST_DOTS, round(self.cell))
        dots = dots.repeat(side, axis=0).repeat(side, axis=1)
        buffer = io.BytesIO()
        matplotlib.image.imsave(buffer, dots, format="png", metadata={"Software": None})  # type: ignore[dict-item]
        return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")

    @property
    def masked_path(self) -> str:
        """The outline of what may not be looked at, a bar for each stretch of a row."""
        bars = []
        for row, allowed in enumerate(self.map.mask):
            edges = np.flatnonzero(np.diff(np.concatenate([[True], allowed, [True]]).astype(int)))
            for first, last in edges.reshape(-1, 2).tolist():
                wide, high = short((last - first) * self.cell), short(self.cell)
                bars.append(f"M{short(first * self.cell)} {short(row * self.cell)}h{wide}v{high}h-{wide}z")
        return "".join(bars)


def _panel(one: AttentionMap, layers: Selection, heads: Selection) -> _Panel:
    depth, width = one.weights.shape[:2]
    kept_layers = [layer for layer in (range(depth) if layers is None else layers) if layer < depth]
    kept_heads = [head for head in (range(width) if heads is None else heads) if head < width]
    longest = max(len(one.rows), len(one.columns))
    if len(kept_layers) == len(kept_heads) == 1:
        cell = 38.0 if longest <= _LARGEST_NUMBERED else 22.0 if longest <= 32 else 14.0
    else:
        cell = max(3.4, min(14.0, 180 / longest))
    return _Panel(one, kept_layers, kept_heads, cell)


def shades(weights: np.ndarray) -> np.ndarray:
    """Weights from 0 to 1 as colours, (…, 3) from 0 to 255: the more, the darker."""
    along = np.sqrt(np.clip(weights, 0, 1)) * (len(_STOPS) - 1)
    channels = [np.interp(along, np.arange(len(_STOPS)), _STOPS[:, channel]) for channel in range(3)]
    return np.stack(channels, axis=-1).round().astype(np.uint8)


def _widest(tokens: Sequence[ShownToken]) -> float:
    return _UNIT_PIXELS * max(_units(label_of(token)) for token in tokens)


def _units(text: str) -> float:
    """About how many letters wide a text is: those of Chinese and the like are as wide as two."""
    return sum(1.75 if unicodedata.east_asian_width(character) in "WF" else 1.0 for character in text)


_POSITIONS = {
    "sinusoidal": "What is added to the embedding of each token: sines and cosines, from fast to slow.",
    "learned": "What is added to the embedding of each token: a row of a table that was trained.",
    "rotary": "By which angles the queries and keys of each token are turned: their sines and cosines, from fast "
    "to slow.",
}


def attention_page(attention: AttentionMaps, title: str, facts: str, layer: int = 0, head: int = 0) -> str:
    """The page as text; `facts` is a line below the title, layer and head (from 0) are those shown at first."""
    script = (_DIRECTORY / "attention.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return _TEMPLATES.get_template("attention.html").render(
        title=one_line(title, 120), facts=one_line(facts, 300), attention=attention, kinds=KINDS,
        has_mask=any(not one.mask.all() for one in attention.maps),
        positions_words=_POSITIONS[attention.positions.kind], data=_data(attention, layer, head),
        style=Markup((_DIRECTORY / "attention.css").read_text(encoding="utf-8")), script=Markup(script),
        script_hash=Markup(f"'sha256-{digest}'"),
    )  # fmt: skip


def _data(attention: AttentionMaps, layer: int, head: int) -> Markup:
    """What the script draws, as JSON that ends no element it may stand in; weights in ten-thousandths."""
    positions = np.round(attention.positions.values.astype(float), 3).tolist()
    maps = []
    for one in attention.maps:
        weights = np.round(one.weights.astype(float) * 1e4).astype(int).tolist()
        labels = {"rows": _labels(one.rows), "columns": _labels(one.columns)}
        maps.append({"kind": one.kind, **labels, "weights": weights, "mask": one.mask.astype(int).tolist()})
    plain = {"maps": maps, "positions": {"values": positions}, "layer": layer, "head": head}
    return htmlsafe_json_dumps(plain, dumps=json.dumps, separators=(",", ":"))


def _labels(tokens: list[ShownToken]) -> list[dict[str, Any]]:
    return [{"label": label_of(token, _PAGE_LABEL_UNITS), "is_special": token.is_special} for token in tokens]
