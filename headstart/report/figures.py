"""Figures as SVG or PNG: one style for all charts, for files of their own and for parts of a page.

A figure in a page has the page's fonts, and its colours by day and by night.
"""

import io
import re
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from markupsafe import Markup
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

# The colours of Okabe and Ito, which people with any colour vision can tell apart.
BLUE, ORANGE, GREEN, PINK, GREY, INK = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8A8A8A", "#222222"
SKY, AMBER, YELLOW = "#56B4E9", "#E69F00", "#F0E442"
PAPER, RULE = "#FFFFFF", "#E6E6E6"
PNG_DOTS_PER_INCH = 150

# The page's variable for each colour; the stylesheet gives it a value for light, for dark and for paper.
_VARIABLES = {
    INK: "ink", GREY: "muted", RULE: "rule", PAPER: "paper", BLUE: "blue", ORANGE: "vermilion", GREEN: "green",
    PINK: "purple", SKY: "sky", AMBER: "amber", YELLOW: "yellow",
}  # fmt: skip


def _style(name: str) -> Any:
    return matplotlib.rc_params_from_file(Path(__file__).with_name(name), use_default_template=False)


STYLE = _style("chart.mplstyle")
styled, page_styled = (matplotlib.rc_context(STYLE), matplotlib.rc_context({**STYLE, **_style("page.mplstyle")}))
"""Decorators of the functions that draw."""


def new_figure(
    width_inches: float, height_inches: float, panels: int = 0, ratios: Sequence[float] | None = None
) -> Figure:
    """A figure with panels side by side; draw it in a `styled` or `page_styled` function."""
    figure = Figure(figsize=(width_inches, height_inches), layout="constrained")
    FigureCanvasSVG(figure)
    if panels:
        figure.subplots(1, panels, width_ratios=ratios)
    return figure


def svg(figure: Figure, **options: Any) -> str:
    """The figure as the text of an SVG file."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None}, **options)
    return buffer.getvalue()


def picture(figure: Figure, form: str) -> bytes:
    """The figure as the bytes of a file: svg or png."""
    if form == "svg":
        return svg(figure).encode()
    buffer = io.BytesIO()
    figure.savefig(buffer, format=form, dpi=PNG_DOTS_PER_INCH, metadata={"Software": None})
    return buffer.getvalue()


def css_colour(colour: str) -> str:
    """One of the colours above as the page's variable."""
    name = next((name for known, name in _VARIABLES.items() if known.lower() == colour.lower()), None)
    return f"var(--{name})" if name else colour


def inline_svg(figure: Figure, name: str) -> Markup:
    """The figure as an element of an HTML page; every id begins with `name`, so that figures share none."""
    with warnings.catch_warnings():
        # The browser has the glyphs that matplotlib's font lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        root = ET.fromstring(svg(figure, transparent=True))
    for parent in list(root.iter()):
        for child in list(parent):
            if _plain(child.tag) in ("metadata", "style"):  # matplotlib's style would reach the whole page
                parent.remove(child)
    attributes = (entry for node in root.iter() for entry in node.attrib.items())
    links = " ".join(value for key, value in attributes if _plain(key) in ("href", "clip-path"))
    used = re.findall(r"#([\w.-]+)", links)
    names = {old: f"{name}-{index}" for index, old in enumerate(dict.fromkeys(used))}
    for node in root.iter():
        _adapt(node, names)
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    root.attrib.update({"aria-hidden": "true", "focusable": "false"})
    return Markup(re.sub(r">\s+<", "><", ET.tostring(root, encoding="unicode")))


def short(number: float) -> str:
    """A length in a picture: two decimals at most."""
    return f"{number:.2f}".rstrip("0").rstrip(".")


def _plain(name: str) -> str:
    return name.rpartition("}")[2]


def _adapt(node: ET.Element, names: dict[str, str]) -> None:
    """Drop namespaces, shorten ids, round numbers, and use the page's colours and fonts."""
    node.tag = _plain(node.tag)
    attributes = {_plain(key): value for key, value in node.attrib.items()}
    node.attrib.clear()
    for key, value in attributes.items():
        if (key == "id" and value not in names) or (key == "transform" and value.startswith("rotate(-0 ")):
            continue
        if key == "id":
            value = names[value]
        elif key in ("href", "clip-path"):
            value = re.sub(r"#([\w.-]+)", lambda match: f"#{names[match[1]]}", value)
        elif key == "style":
            value = re.sub(r"font-family:[^;]*;? ?", "", value)
            value = re.sub(r"#[0-9a-f]{6}", lambda match: css_colour(match[0]), value)
        elif key in ("d", "x", "y", "width", "height", "transform"):
            value = re.sub(r"-?\d+\.\d+", lambda match: short(float(match[0])), value)
            value = " ".join(value.split())
        node.set(key, value)
