"""What the charts of a study have in common: two widths, an axis in percent, labels at the ends of lines."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from headstart.report.inline_svg import inline_svg, page_figure, rc_page
from headstart.report.study_file import Study
from headstart.report.wording import one_line

WIDE_INCHES, NARROW_INCHES = 9.0, 4.3
_LONGEST_LABEL = 24
_LABEL_POINTS = 11.5  # from one label at the end of a line to the next
_AROUND_INCHES = 0.7  # of a figure's height: the titles above and below the axes


@dataclass(frozen=True)
class Chart:
    """A picture in two widths, what it says in words, and the arms that its legend explains."""

    wide: Markup
    narrow: Markup
    words: str
    arms: list[str]


def draw_both(
    name: str,
    draw: Callable[[Figure, bool], None],
    heights_inches: tuple[float, float],
    words: str,
    arms: Sequence[str],
    is_small: bool = False,
) -> Chart:
    """Draw a chart wide (with labels at the lines) and narrow (without: the legend has them); a small one is narrow."""
    pictures = {"w": Markup("")}
    for kind, width, height in zip("wn", (WIDE_INCHES, NARROW_INCHES), heights_inches, strict=True):
        if is_small and kind == "w":
            continue
        with rc_page():
            figure = page_figure(width, height)
            draw(figure, kind == "w")
            pictures[kind] = inline_svg(figure, f"{name}-{kind}")
    return Chart(pictures["w"], pictures["n"], words, list(arms))


def said(study: Study, name: str) -> str:
    """What an arm is called where a chart is told in words."""
    return one_line(study.title_of(name), 80)


def limits(values: Sequence[float]) -> tuple[float, float]:
    """A range of shares that holds all values with some air, and is never empty."""
    low, high = min(values), max(values)
    air = max(0.06 * (high - low), 0.005)
    return max(low - air, -0.02), min(high + air, 1.02)


def percent_axis(axes: Axes, title: str, horizontal: bool = False) -> None:
    """Shares as percent on one axis; its title stands above the chart, where it is read first."""
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
    if not ends:
        return
    low, high = axes.get_ylim()
    height_points = 72 * (axes.get_figure(root=True).get_figheight() - _AROUND_INCHES)  # type: ignore[union-attr]
    gap = _LABEL_POINTS * (high - low) / height_points
    ends = sorted(ends, key=lambda end: end[1])
    heights = spread([end[1] for end in ends], gap, low, high)
    right = (axes.transAxes + axes.transData.inverted()).transform((1.022, 0))[0]
    for (x, y, text, colour), height in zip(ends, heights, strict=True):
        axes.plot(
            [x, right], [y, height], color=colour, linewidth=0.8, clip_on=False, scalex=False, scaley=False
        )
        axes.text(
            1.028, height, one_line(text, _LONGEST_LABEL), transform=axes.get_yaxis_transform(), va="center"
        )


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Rising places as near to the wanted ones as they can be, at least `gap` apart, within bounds if they fit.

    Neighbours that are too close form a group around their middle; groups that then touch are joined.
    """
    groups: list[list[float]] = []  # [sum of wanted - offset, members]
    for index, place in enumerate(wanted):
        groups.append([place - gap * index, 1.0])
        while len(groups) > 1 and groups[-2][0] / groups[-2][1] >= groups[-1][0] / groups[-1][1]:
            total, members = groups.pop()
            groups[-1][0] += total
            groups[-1][1] += members
    base = np.repeat([total / members for total, members in groups], [int(members) for _, members in groups])
    top = max(low, high - gap * (len(wanted) - 1))
    return [float(place) for place in np.clip(base, low, top) + gap * np.arange(len(wanted))]
