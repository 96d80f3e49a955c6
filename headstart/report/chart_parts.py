"""What the charts of a study share: each arm's look, two widths, an axis in percent, labels at the ends of lines."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.markers import MarkerStyle
from matplotlib.path import Path
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import Affine2D
from sklearn.isotonic import isotonic_regression

from headstart.report import figures as f
from headstart.report.wording import one_line
from headstart.study.record import ArmRecord

WIDE_INCHES, NARROW_INCHES = 9.0, 4.3
_LONGEST_LABEL = 24
_LABEL_POINTS = 11.5  # from one label at the end of a line to the next
_AROUND_INCHES = 0.7  # of a figure's height: the titles above and below the axes

# The first arm of a kind looks the same in every study.
_COLOUR_OF_KIND = {
    "majority": f.GREY, "tfidf": f.INK, "lsa": f.AMBER, "scratch": f.ORANGE, "finetuned": f.BLUE, "frozen": f.SKY,
    "combined": f.GREEN, "shuffled": f.PINK, "scratch-long": f.YELLOW,
}  # fmt: skip

_COLOURS = [f.BLUE, f.GREEN, f.PINK, f.SKY, f.YELLOW, f.AMBER, f.ORANGE, f.INK, f.GREY]
_MARKER_OF_KIND = {"majority": "", "tfidf": "D", "lsa": "d", "scratch": "o", "finetuned": "s", "combined": "P"}
_MARKERS = ["^", "v", "X", "<", ">", "*", "p", "h", "H", "8"]
_DASHES = {"majority": (1.0, 2.2), "tfidf": (4.5, 2.0), "lsa": (2.2, 1.6), "frozen": (6.0, 1.6), "shuffled": (3.0, 1.4)}


@dataclass(frozen=True)
class Mark:
    """The colour, marker and dash of an arm in every chart."""

    colour: str
    marker: str
    dashes: tuple[float, float] | None

    @property
    def linestyle(self) -> str | tuple[float, tuple[float, float]]:
        return (0, self.dashes) if self.dashes else "solid"

    @property
    def line(self) -> dict[str, Any]:
        return {"color": self.colour, "linestyle": self.linestyle, "marker": self.marker}

    def sample(self) -> Markup:
        """A piece of the arm's line with its marker, for a legend in the page."""
        colour = f.css_colour(self.colour)
        dashes = f' stroke-dasharray="{" ".join(f"{1.7 * n:g}" for n in self.dashes)}"' if self.dashes else ""
        line = f'<path d="M1 7H31" stroke="{colour}" stroke-width="2.2"{dashes}/>'
        shape = f'<path d="{_outline(self.marker)}" fill="{colour}"/>' if self.marker else ""
        inside = Markup(line + shape)
        return Markup('<svg class="sample" viewBox="0 0 32 14" aria-hidden="true">{}</svg>').format(inside)


def arm_marks(arms: Sequence[ArmRecord]) -> dict[str, Mark]:
    """A mark for each arm; colours repeat only when there are more arms than colours, markers later still."""
    marks: dict[str, Mark] = {}
    colours, markers = list(_COLOURS), list(_MARKERS)
    for arm in arms:  # colours of their kind first, so that no other arm takes them
        colour = _COLOUR_OF_KIND.get(arm.kind)
        if colour in colours:
            marker = _MARKER_OF_KIND.get(arm.kind)
            marker = markers.pop(0) if marker is None else marker
            marks[arm.name] = Mark(colour, marker, _DASHES.get(arm.kind))
            colours.remove(colour)
    for arm in arms:
        if arm.name not in marks:
            colours, markers = colours or list(_COLOURS), markers or list(_MARKERS)
            marks[arm.name] = Mark(colours.pop(0), markers.pop(0), _DASHES.get(arm.kind))
    return marks


def _outline(marker: str) -> str:
    """The marker as an SVG path around the middle of a sample."""
    style = MarkerStyle(marker)
    to_sample = Affine2D(style.get_transform().get_matrix()).scale(8.5, -8.5).translate(16, 7)
    letters = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE4: "C", Path.CURVE3: "Q"}
    segments = style.get_path().transformed(to_sample).iter_segments(curves=True, simplify=False)
    return "".join(
        letters[code] + " ".join(f"{number:.1f}" for number in vertices) if code in letters else "Z"
        for vertices, code in segments
    )


class Chart(NamedTuple):
    """A picture in two widths, the same in words, and the arms that its legend explains."""

    wide: Markup
    narrow: Markup
    words: str
    arms: list[str]


@f.page_styled
def draw_both(
    name: str, draw: Callable[[Figure, bool], None], heights_inches: tuple[float, float], words: str,
    arms: Sequence[str], is_small: bool = False,
) -> Chart:  # fmt: skip
    """Draw a chart wide, with labels at the lines, and narrow, without; a small one only narrow."""
    pictures = {"w": Markup("")}
    for kind, width, height in zip("wn", (WIDE_INCHES, NARROW_INCHES), heights_inches, strict=True):
        if kind == "n" or not is_small:
            figure = f.new_figure(width, height)
            draw(figure, kind == "w")
            pictures[kind] = f.inline_svg(figure, f"{name}-{kind}")
    return Chart(pictures["w"], pictures["n"], words, list(arms))


def limits(values: Sequence[float]) -> tuple[float, float]:
    """A range of shares that holds all values with a margin, and is never empty."""
    low, high = min(values), max(values)
    margin = max(0.06 * (high - low), 0.005)
    return max(low - margin, -0.02), min(high + margin, 1.02)


def percent_axis(axes: Axes, title: str, horizontal: bool = False) -> None:
    """Shares as percent on one axis; the title of a vertical one stands above the chart, where it is read first."""
    axis = axes.xaxis if horizontal else axes.yaxis
    axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda share, _: f"{round(100 * share, 1):g}"))
    axes.grid(False, axis="y" if horizontal else "x")
    if horizontal:
        axes.set_xlabel(title)
    else:
        axes.set_title(title, loc="left", x=0)


def label_ends(axes: Axes, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Write (x, y, text, colour) to the right of the axes, apart from each other, with a thread to the line."""
    low, high = axes.get_ylim()
    height_points = 72 * (axes.get_figure(root=True).get_figheight() - _AROUND_INCHES)  # type: ignore[union-attr]
    gap = _LABEL_POINTS * (high - low) / height_points
    ends = sorted(ends, key=lambda end: end[1])
    heights = spaced([end[1] for end in ends], gap, low, high)
    right = (axes.transAxes + axes.transData.inverted()).transform((1.022, 0))[0]
    for (x, y, text, colour), height in zip(ends, heights, strict=True):
        thread: Any = {"linewidth": 0.8, "clip_on": False, "scalex": False, "scaley": False}
        axes.plot([x, right], [y, height], color=colour, **thread)
        axes.text(1.028, height, one_line(text, _LONGEST_LABEL), transform=axes.get_yaxis_transform(), va="center")


def spaced(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Rising heights as near to the wanted ones as possible, at least `gap` apart, within bounds if they fit."""
    offsets = gap * np.arange(len(wanted))
    rising = isotonic_regression(np.asarray(wanted, float) - offsets)
    top = max(low, high - gap * (len(wanted) - 1))
    heights: list[float] = (np.clip(rising, low, top) + offsets).tolist()
    return heights
