"""Differences as a forest plot: a row for each budget of a pair, its interval, and the line of no difference."""

import re

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from headstart.report.arm_marks import Mark
from headstart.report.chart_parts import Chart, draw_both, percent_axis, said
from headstart.report.charts import GREY, INK
from headstart.report.inline_svg import PAPER
from headstart.report.study_file import Difference, Study
from headstart.report.wording import one_line, plural, points, points_interval, probability

_ROW_INCHES, _AIR_ROWS = 0.25, 0.5  # a row's height; what a new pair keeps from the one above it


def forest_chart(study: Study, marks: dict[str, Mark], reading: str) -> Chart | None:
    """The differences of one reading, pair by pair."""
    found = [d for d in study.differences if d.reading == reading and d.value is not None]
    if not found:
        return None
    headings, rows, bottom = _places(found)
    ends = [0.0, *(end for d in found for end in (d.value, d.low, d.high) if end is not None)]
    air = max(0.05 * (max(ends) - min(ends)), 0.002)

    def draw(figure: Figure, is_wide: bool) -> None:
        ratios = [1, 0.42] if is_wide else [1]
        columns = figure.subplots(1, len(ratios), width_ratios=ratios, sharey=True, squeeze=False)[0]
        axes = columns[0]
        axes.axvline(0, color=GREY, linewidth=0.9, zorder=1)
        for place, pair in headings:
            _draw_heading(axes, place, pair)
        for place, row in rows:
            _draw_row(axes, place, row, marks)
            if is_wide:
                _write_numbers(columns[1], place, row)
        axes.set_yticks([place for place, _ in rows], [plural(row.budget, "label") for _, row in rows])
        axes.set_ylim(bottom - 0.2, -0.7)
        axes.set_xlim(min(ends) - air, max(ends) + air)
        percent_axis(axes, "difference in accuracy, percentage points", horizontal=True)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda share, _: _tick(share)))
        axes.tick_params(axis="x", length=0)

    parts = [
        f"{said(study, d.arm)} less {said(study, d.against)} with {plural(d.budget, 'label')}: "
        f"{points(d.value)} {points_interval(d.low, d.high)}"
        for d in found
    ]
    words = f"Differences in accuracy in percentage points, at {one_line(reading, 60)}. {'; '.join(parts)}."
    height = 0.7 + _ROW_INCHES * bottom
    name = re.sub(r"\W+", "-", f"forest-{reading}", flags=re.ASCII)
    return draw_both(name, draw, (height, height), words, [])


def _places(
    found: list[Difference],
) -> tuple[list[tuple[float, tuple[str, str]]], list[tuple[float, Difference]], float]:
    """Where each pair's heading and rows stand, from the top, and where they end."""
    headings: list[tuple[float, tuple[str, str]]] = []
    rows: list[tuple[float, Difference]] = []
    place = 0.0
    for pair in dict.fromkeys((d.arm, d.against) for d in found):
        place += _AIR_ROWS if headings else 0
        headings.append((place, pair))
        for row in sorted((d for d in found if (d.arm, d.against) == pair), key=lambda d: d.budget):
            place += 1
            rows.append((place, row))
        place += 1
    return headings, rows, place


def _draw_heading(axes: Axes, place: float, pair: tuple[str, str]) -> None:
    text = f"{one_line(pair[0], 24)} less {one_line(pair[1], 24)}"
    background = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.5}
    axes.text(
        0, place, text, transform=axes.get_yaxis_transform(), va="center", weight="bold", bbox=background
    )


def _draw_row(axes: Axes, place: float, row: Difference, marks: dict[str, Mark]) -> None:
    mark = marks.get(row.arm)
    colour, shape = (mark.colour, mark.marker or "|") if mark else (INK, "o")
    if row.low is not None and row.high is not None:
        axes.plot([row.low, row.high], [place, place], color=colour, linewidth=1.6, solid_capstyle="butt")
    axes.plot(
        [row.value or 0.0], [place], color=colour, marker=shape, markersize=6, zorder=3, markeredgewidth=1.4,
        markerfacecolor=colour if holds_up(row) else PAPER,
    )  # fmt: skip


def holds_up(row: Difference) -> bool:
    """Whether a difference is one at the 5 % level, after Holm where that is known."""
    p = row.p if row.p_holm is None else row.p_holm
    if p is not None:
        return p < 0.05
    return row.low is not None and row.high is not None and not row.low <= 0 <= row.high


def _write_numbers(column: Axes, place: float, row: Difference) -> None:
    """What stands to the right of a row: the difference, its interval, and p."""
    column.set_axis_off()
    column.text(0.16, place, points(row.value), va="center", ha="right")
    column.text(0.2, place, points_interval(row.low, row.high), va="center", color=GREY)
    p = row.p if row.p_holm is None else row.p_holm
    if p is not None:
        column.text(1, place, f"p {'' if p < 0.001 else '= '}{probability(p)}", va="center", ha="right")


def _tick(share: float) -> str:
    return "0" if abs(share) < 1e-9 else points(share).removesuffix(".0")
