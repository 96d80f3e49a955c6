"""A matplotlib figure as SVG that belongs to its page: the page's fonts, and its colours by day and by night."""

import io
import re
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from typing import Any

import matplotlib
from markupsafe import Markup
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from headstart.report.charts import BLUE, GREEN, GREY, INK, ORANGE, PINK, STYLE

# Okabe and Ito's colours that the other charts do not use; PAPER and RULE are drawn with, never seen.
SKY, AMBER, YELLOW = "#56B4E9", "#E69F00", "#F0E442"
PAPER, RULE = "#FFFFFF", "#E6E6E6"
# The page's variable for each colour; the stylesheet gives it a value for light, for dark and for paper.
VARIABLES = {
    INK: "ink", GREY: "muted", RULE: "rule", PAPER: "paper", BLUE: "blue", ORANGE: "vermilion", GREEN: "green",
    PINK: "purple", SKY: "sky", AMBER: "amber", YELLOW: "yellow",
}  # fmt: skip
PAGE_STYLE: Any = {
    **STYLE,
    "svg.fonttype": "none",  # text stays text: the page's font, any script, found by a search
    "text.parse_math": False,  # a dollar sign in a label is no formula
    "font.size": 9.5,
    "axes.edgecolor": GREY,
    "axes.titlesize": 9.5,
    "axes.titleweight": "normal",
    "axes.titlecolor": GREY,
    "axes.linewidth": 0.7,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.7,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "ytick.major.size": 0,
    "lines.linewidth": 1.7,
    "lines.markersize": 4.5,
}


def page_figure(width_inches: float, height_inches: float) -> Figure:
    """An empty figure; draw on it within `matplotlib.rc_context(PAGE_STYLE)`."""
    figure = Figure(figsize=(width_inches, height_inches), layout="constrained")
    FigureCanvasSVG(figure)
    return figure


def variable(colour: str) -> str:
    """The CSS value of one of the colours above."""
    return f"var(--{VARIABLES[colour]})"


def inline_svg(figure: Figure, name: str) -> Markup:
    """The figure as an element of an HTML page; `name` begins every id, so that two figures never share one."""
    buffer = io.StringIO()
    with warnings.catch_warnings():
        # The browser has the glyphs that matplotlib's font lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    root = ET.fromstring(buffer.getvalue())
    for parent, child in list(_pairs(root)):
        if _plain(child.tag) in ("metadata", "style"):  # matplotlib's style would reach the whole page
            parent.remove(child)
    used = re.findall(r"#([\w.-]+)", " ".join(value for node in root.iter() for value in _links(node)))
    names = {old: f"{name}-{index}" for index, old in enumerate(dict.fromkeys(used))}
    for node in root.iter():
        _make_part_of_page(node, names)
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    root.attrib.update({"aria-hidden": "true", "focusable": "false"})
    return Markup(re.sub(r">\s+<", "><", ET.tostring(root, encoding="unicode")))


def _pairs(root: ET.Element) -> Iterator[tuple[ET.Element, ET.Element]]:
    return ((parent, child) for parent in root.iter() for child in parent)


def _plain(name: str) -> str:
    return name.rpartition("}")[2]


def _links(node: ET.Element) -> list[str]:
    return [value for key, value in node.attrib.items() if _plain(key) in ("href", "clip-path")]


def _make_part_of_page(node: ET.Element, names: dict[str, str]) -> None:
    """Without namespaces, with short ids of this figure, rounded numbers and the page's colours and fonts."""
    node.tag = _plain(node.tag)
    attributes = {_plain(key): value for key, value in node.attrib.items()}
    node.attrib.clear()
    for key, value in attributes.items():
        if key == "id":
            if value not in names:
                continue
            value = names[value]
        elif key in ("href", "clip-path"):
            value = re.sub(r"#([\w.-]+)", lambda found: f"#{names[found[1]]}", value)
        elif key == "style":
            value = re.sub(r"font-family:[^;]*;? ?", "", value)
            value = re.sub(r"#[0-9a-f]{6}", lambda found: _page_colour(found[0]), value)
        elif key == "transform" and value.startswith("rotate(-0 "):
            continue
        elif key in ("d", "x", "y", "width", "height", "transform"):
            value = re.sub(
                r"-?\d+\.\d+", lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), value
            )
            value = " ".join(value.split())
        node.set(key, value)


def _page_colour(written: str) -> str:
    name = next((name for colour, name in VARIABLES.items() if colour.lower() == written), None)
    return f"var(--{name})" if name else written


def rc_page() -> Any:
    """The settings that the page's figures are drawn and written with."""
    return matplotlib.rc_context(PAGE_STYLE)
