"""Where a run looks, as SVG: a small map for each layer and head, or one large one with its numbers.

The maps are pictures inside the picture, so that 144 of them stay a small file, with real text at their edges: any
script, and found by a search. Darker is more, in steps that a grey print and any colour vision keep apart; what may
not be looked at is hatched, which is something else than nothing.
"""

import base64
import io
import re
import unicodedata
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from typing import NamedTuple

import matplotlib.image
import numpy as np

from headstart.report.charts import GREY, INK
from headstart.report.wording import one_line, percent
from headstart.text.token_texts import ShownToken
from headstart.training.attending import AttentionMap, AttentionMaps

# Dark grows evenly from white over the blue of the other charts; weights are drawn by their root, since most are small.
_STOPS = np.array([[255, 255, 255], [158, 202, 225], [0, 114, 178], [0, 32, 60]], float)
MUTED = "#5F6670"  # GREY is for lines: as small text it would be too pale
_TICKS = (0.0, 0.01, 0.1, 0.25, 0.5, 1.0)
_FONT = "DejaVu Sans, Noto Sans, Liberation Sans, Arial, sans-serif"
_LABEL_PIXELS, _LABEL_UNITS = 10.5, 13
_UNIT_PIXELS = 0.56 * _LABEL_PIXELS
_GAP, _MARGIN = 16, 24
_LEAST_STEP = 46  # pixels from map to map
_FEWEST_DOTS = 6  # of a map's picture on each side of a cell
_LARGEST_NUMBERED = 14  # tokens on a side up to which a large map has its numbers in it
KINDS = {
    "self": "Attention of the text over itself",
    "encoder": "Encoder: the source over itself",
    "decoder": "Decoder: the target over itself",
    "cross": "Decoder: the target over the source",
}


def attention_chart(
    found: AttentionMaps, title: str, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None
) -> str:
    """All maps below each other, or those of some layers and heads (counted from 0) where a stack has them."""
    root = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "font-family": _FONT, "fill": INK})
    _hatching(ET.SubElement(root, "defs"))
    paper = ET.SubElement(root, "rect", {"width": "100%", "height": "100%", "fill": "#FFFFFF"})
    _text(root, _MARGIN, 38, one_line(title, 120), size=16, weight="bold")
    panels = [_panel(one, layers, heads) for one in found.maps]
    panels = [panel for panel in panels if panel.layers and panel.heads]
    top, width = 72.0, 420.0
    for panel in panels:
        width = max(width, _draw_panel(root, panel, top))
        top += panel.height + 44
    top = _draw_legend(root, _MARGIN, top, any(not panel.map.mask.all() for panel in panels))
    if found.is_cut:
        _text(root, _MARGIN, top, f"The text is longer: {found.length} tokens of it are shown.", colour=MUTED)
        top += 22
    width, height = width + _MARGIN, top + 6
    root.attrib |= {"width": _n(width), "height": _n(height), "viewBox": f"0 0 {_n(width)} {_n(height)}"}
    paper.attrib |= {"width": _n(width), "height": _n(height)}
    return ET.tostring(root, encoding="unicode") + "\n"


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
    row_labels: list[str]
    column_labels: list[str]

    @property
    def is_single(self) -> bool:
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
        return 26 + 8 + _UNIT_PIXELS * max(map(_units, self.row_labels))

    @property
    def above(self) -> float:
        """Room for the heading, the heads' names and the columns' labels, which stand at 60 degrees."""
        return 52 + 8 + 0.87 * _UNIT_PIXELS * max(map(_units, self.column_labels))

    @property
    def height(self) -> float:
        return self.above + len(self.layers) * self.down - _GAP


def _panel(one: AttentionMap, layers: Sequence[int] | None, heads: Sequence[int] | None) -> _Panel:
    depth, width = one.weights.shape[:2]
    kept_layers = [layer for layer in (range(depth) if layers is None else layers) if layer < depth]
    kept_heads = [head for head in (range(width) if heads is None else heads) if head < width]
    longest = max(len(one.rows), len(one.columns))
    if len(kept_layers) == len(kept_heads) == 1:
        cell = 38.0 if longest <= _LARGEST_NUMBERED else 22.0 if longest <= 32 else 14.0
    else:
        cell = max(3.4, min(14.0, 180 / longest))
    labels = [[label_of(token) for token in tokens] for tokens in (one.rows, one.columns)]
    return _Panel(one, kept_layers, kept_heads, cell, *labels)


def _draw_panel(root: ET.Element, panel: _Panel, top: float) -> float:
    """Draw the maps of one kind; returns where they end on the right."""
    one, name = panel.map, f"mask-{panel.map.kind}"
    left, above = _MARGIN + panel.left, top + panel.above
    _text(root, _MARGIN, top + 4, KINDS[one.kind], size=13, weight="bold")
    defs = root.find("defs")
    assert defs is not None
    ET.SubElement(defs, "path", {"id": name, "d": _masked_path(one.mask, panel.cell), "fill": "url(#hatch)"})
    for row, layer in enumerate(panel.layers):
        y = above + row * panel.down
        middle = y + panel.map_height / 2
        _text(root, _MARGIN + 10, middle, f"layer {layer + 1}", anchor="middle", turn=-90, colour=MUTED)
        _draw_labels(root, panel.row_labels, one.rows, left - 6, y, panel.cell, is_row=True)
        for column, head in enumerate(panel.heads):
            x = left + column * panel.across
            if row == 0:
                centre = x + panel.map_width / 2
                _text(root, centre, top + 32, f"head {head + 1}", anchor="middle", colour=MUTED)
                _draw_labels(root, panel.column_labels, one.columns, x, y - 6, panel.cell, is_row=False)
            _draw_map(root, panel, layer, head, x, y, name)
    return left + len(panel.heads) * panel.across - _GAP + 0.5 * _UNIT_PIXELS * _LABEL_UNITS


def _draw_map(
    root: ET.Element, panel: _Panel, layer: int, head: int, x: float, y: float, mask_name: str
) -> None:
    one, weights = panel.map, panel.map.weights[layer, head]
    group = ET.SubElement(root, "g", {"transform": f"translate({_n(x)} {_n(y)})"})
    ET.SubElement(group, "title").text = f"layer {layer + 1}, head {head + 1}"
    size = {"width": _n(panel.map_width), "height": _n(panel.map_height)}
    picture = {"preserveAspectRatio": "none", "style": "image-rendering:pixelated"}
    side = max(_FEWEST_DOTS, round(panel.cell))
    ET.SubElement(group, "image", {**size, **picture, "href": _png(weights, one.mask, side)})
    ET.SubElement(group, "use", {"href": f"#{mask_name}"})
    ET.SubElement(group, "rect", {**size, "fill": "none", "stroke": GREY, "stroke-width": "0.6"})
    if not panel.is_single:
        return
    for row, looks in enumerate(weights):
        words = f"{panel.row_labels[row]} looks at {_most_looked_at(looks, panel.column_labels)}"
        band = {
            "y": _n(row * panel.cell),
            "width": size["width"],
            "height": _n(panel.cell),
            "fill": "transparent",
        }
        ET.SubElement(ET.SubElement(group, "rect", band), "title").text = words
    if max(weights.shape) <= _LARGEST_NUMBERED:
        _draw_numbers(group, weights, one.mask, panel.cell)


def _draw_numbers(group: ET.Element, weights: np.ndarray, mask: np.ndarray, cell: float) -> None:
    """The percentage in each cell; pointers go through, to the row below."""
    for row, column in np.argwhere(mask).tolist():
        weight = float(weights[row, column])
        light = (shades(np.array(weight)) / 255) ** 2.2 @ [0.21, 0.72, 0.07]
        colour = INK if light > 0.2 else "#FFFFFF"
        place = ((column + 0.5) * cell, (row + 0.5) * cell + 3.5)
        said = "<1" if 0 < weight < 0.005 else f"{100 * weight:.0f}"
        _text(group, *place, said, anchor="middle", colour=colour).set("pointer-events", "none")


def _most_looked_at(looks: np.ndarray, labels: Sequence[str], count: int = 4) -> str:
    best = [place for place in np.argsort(-looks, kind="stable")[:count] if looks[place] > 0]
    return ", ".join(f"{labels[place]} {percent(float(looks[place]))}" for place in best)


def _draw_labels(
    root: ET.Element,
    labels: Sequence[str],
    tokens: Sequence[ShownToken],
    x: float,
    y: float,
    cell: float,
    is_row: bool,
) -> None:
    """Every label, or every so many where they would stand on each other; special tokens are grey."""
    step = max(1, int(np.ceil((_LABEL_PIXELS + 0.5) / cell)))
    for place in range(0, len(labels), step):
        along = (place + 0.5) * cell
        colour = MUTED if tokens[place].is_special else INK
        if is_row:
            _text(root, x, y + along + 3.6, labels[place], anchor="end", colour=colour)
        else:
            _text(root, x + along + 3, y, labels[place], turn=-60, colour=colour)


# ---- colours ------------------------------------------------------------------------------------------------


def shades(weights: np.ndarray) -> np.ndarray:
    """Weights from 0 to 1 as colours, (…, 3) from 0 to 255: the more, the darker."""
    along = np.sqrt(np.clip(weights, 0, 1)) * (len(_STOPS) - 1)
    channels = [np.interp(along, np.arange(len(_STOPS)), _STOPS[:, channel]) for channel in range(3)]
    return np.stack(channels, axis=-1).round().astype(np.uint8)


def _png(weights: np.ndarray, mask: np.ndarray, side: int) -> str:
    """A map as the address of a picture, clear where nobody may look."""
    dots = np.dstack([shades(weights), np.where(mask, 255, 0).astype(np.uint8)])
    # Not every program keeps a dot square when it is drawn larger: between several of one colour it cannot blur.
    dots = dots.repeat(side, axis=0).repeat(side, axis=1)
    buffer = io.BytesIO()
    matplotlib.image.imsave(buffer, dots, format="png", metadata={"Software": None})  # type: ignore[dict-item]
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def _hatching(defs: ET.Element) -> None:
    box = {"width": "5", "height": "5"}
    pattern = ET.SubElement(
        defs, "pattern", {"id": "hatch", **box, "patternUnits": "userSpaceOnUse", "patternTransform": "rotate(45)"}
    )  # fmt: skip
    ET.SubElement(pattern, "rect", {**box, "fill": "#F4F4F2"})
    ET.SubElement(pattern, "rect", {"width": "1", "height": "5", "fill": "#C8C6C0"})


def _masked_path(mask: np.ndarray, cell: float) -> str:
    """The outline of what may not be looked at, a bar for each stretch of a row."""
    bars = []
    for row, allowed in enumerate(mask):
        edges = np.flatnonzero(np.diff(np.concatenate([[True], allowed, [True]]).astype(int)))
        for first, last in edges.reshape(-1, 2).tolist():
            wide, high = _n((last - first) * cell), _n(cell)
            bars.append(f"M{_n(first * cell)} {_n(row * cell)}h{wide}v{high}h-{wide}z")
    return "".join(bars)


def _draw_legend(root: ET.Element, x: float, y: float, has_mask: bool) -> float:
    """The colours with their weights, and what the hatching means; returns where the next line goes."""
    steps, width = 60, 240.0
    for step in range(steps):
        colour = "#{:02x}{:02x}{:02x}".format(*shades(np.array((step / (steps - 1)) ** 2)).tolist())
        bar = {
            "x": _n(x + step * width / steps),
            "y": _n(y),
            "width": _n(width / steps + 0.4),
            "height": "10",
        }
        ET.SubElement(root, "rect", {**bar, "fill": colour})
    frame = {"x": _n(x), "y": _n(y), "width": _n(width), "height": "10", "fill": "none", "stroke": GREY}
    ET.SubElement(root, "rect", {**frame, "stroke-width": "0.6"})
    for tick in _TICKS:
        _text(root, x + width * tick**0.5, y + 24, f"{100 * tick:.0f}", anchor="middle", colour=MUTED)
    _text(root, x + width + 14, y + 9, "% of what a row looks at", colour=MUTED)
    if not has_mask:
        return y + 48
    box = {"x": _n(x), "y": _n(y + 38), "width": "22", "height": "12", "fill": "url(#hatch)"}
    ET.SubElement(root, "rect", {**box, "stroke": GREY, "stroke-width": "0.6"})
    _text(root, x + 32, y + 48, "may not be looked at: the mask", colour=MUTED)
    return y + 70


# ---- text ---------------------------------------------------------------------------------------------------


def _text(
    parent: ET.Element,
    x: float,
    y: float,
    words: str,
    *,
    size: float = _LABEL_PIXELS,
    weight: str = "",
    anchor: str = "start",
    turn: int = 0,
    colour: str = INK,
) -> ET.Element:
    place = {"transform": f"translate({_n(x)} {_n(y)}) rotate({turn})"} if turn else {"x": _n(x), "y": _n(y)}
    look = {"font-size": _n(size), "text-anchor": anchor, "fill": colour}
    element = ET.SubElement(parent, "text", place | look | ({"font-weight": weight} if weight else {}))
    element.text = words
    return element


def _units(text: str) -> float:
    """About how many letters wide a text is: those of Chinese and the like are as wide as two."""
    return sum(1.75 if unicodedata.east_asian_width(character) in "WF" else 1.0 for character in text)


def _n(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")
