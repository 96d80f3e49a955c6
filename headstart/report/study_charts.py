"""The charts of a study: results in, a picture for wide screens, one for phones, and the same in words."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from headstart.report.arm_marks import Mark
from headstart.report.chart_parts import Chart, draw_both, label_ends, limits, percent_axis, said
from headstart.report.charts import INK
from headstart.report.study_file import Estimate, Pretraining, Study
from headstart.report.wording import count, decimals, estimate, one_line

_MOST_POINTS = 200  # of a curve: more cannot be seen


# ---- accuracy over labels -----------------------------------------------------------------------------------


def labels_chart(study: Study, marks: dict[str, Mark]) -> Chart | None:
    """Accuracy on test over label budgets with intervals; with one budget alone, a row of dots for each arm."""
    found: dict[str, list[tuple[int, Estimate]]] = {}
    for score in sorted(study.scores, key=lambda score: score.budget):
        if score.accuracy and score.accuracy.value is not None and score.arm in marks:
            found.setdefault(score.arm, []).append((score.budget, score.accuracy))
    found = {arm.name: found[arm.name] for arm in study.arms if arm.name in found}
    if not found:
        return None
    parts = [
        f"{said(study, name)} " + ", ".join(f"{estimate(e)} with {count(budget)}" for budget, e in rows)
        for name, rows in found.items()
    ]
    words = f"Accuracy on test by number of labels. {'; '.join(parts)}."
    budgets = sorted({budget for rows in found.values() for budget, _ in rows})
    if len(budgets) == 1:
        rows = {name: estimates[0][1] for name, estimates in found.items()}
        height = 0.9 + 0.36 * len(rows)

        def draw_dots(figure: Figure, is_wide: bool) -> None:
            _dots(figure.subplots(), rows, marks, is_wide)

        return draw_both("labels", draw_dots, (height, height), words, list(found))

    def draw(figure: Figure, is_wide: bool) -> None:
        axes = figure.subplots()
        ends = []
        step = np.log(budgets[-1] / budgets[0]) * (0.007 if is_wide else 0.011)
        for index, (name, rows) in enumerate(found.items()):
            places = np.array([b for b, _ in rows]) * np.exp(step * (index - (len(found) - 1) / 2))
            _whiskers(axes, places, [e for _, e in rows], marks[name])
            ends.append((places[-1], rows[-1][1].value or 0.0, name, marks[name].colour))
        axes.set_ylim(*limits(_bounds(e for rows in found.values() for _, e in rows)))
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticks(*_log_ticks(budgets, 12 if is_wide else 6))
        percent_axis(axes, "accuracy on test, %")
        axes.set_xlabel("labels, on a log scale")
        if is_wide:
            label_ends(axes, ends)

    return draw_both("labels", draw, (4.6, 3.9), words, list(found))


def _bounds(found: Iterable[Estimate]) -> list[float]:
    return [number for e in found for number in (e.value, e.low, e.high) if number is not None]


def _whiskers(axes: Axes, places: np.ndarray, found: list[Estimate], mark: Mark) -> None:
    values: Any = [e.value for e in found]
    axes.plot(places, values, color=mark.colour, linestyle=mark.linestyle, marker=mark.marker, zorder=3)
    for place, e in zip(places, found, strict=True):
        if e.low is not None and e.high is not None:
            axes.plot([place, place], [e.low, e.high], color=mark.colour, linewidth=1.1, alpha=0.75)


def _log_ticks(budgets: list[int], most: int) -> tuple[list[int], list[str]]:
    """The budgets that have room for their number, from the largest down."""
    room = np.log(budgets[-1] / budgets[0]) / most
    kept: list[int] = []
    for budget in reversed(budgets):
        if not kept or np.log(kept[-1] / budget) >= room:
            kept.append(budget)
    return kept, [count(budget) for budget in kept]


def _dots(axes: Axes, rows: dict[str, Estimate], marks: dict[str, Mark], is_wide: bool) -> None:
    for place, (name, e) in enumerate(rows.items()):
        mark = marks[name]
        if e.low is not None and e.high is not None:
            axes.plot([e.low, e.high], [place, place], color=mark.colour, linewidth=1.6)
        axes.plot(
            [e.value or 0], [place], color=mark.colour, marker=mark.marker or "|", markersize=7, zorder=3
        )
        if is_wide:
            axes.text(1.02, place, estimate(e), transform=axes.get_yaxis_transform(), va="center")
    axes.set_yticks(range(len(rows)), [one_line(name, 24) for name in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(*limits(_bounds(rows.values())))
    percent_axis(axes, "accuracy on test, %", horizontal=True)


# ---- pretraining --------------------------------------------------------------------------------------------


def pretraining_chart(study: Study, marks: dict[str, Mark], measure: str) -> Chart | None:
    """The curves of the pretraining runs that have a measure: bits_per_byte, or loss for those without."""
    runs: dict[str, tuple[str, np.ndarray]] = {}
    colours: dict[str, str] = {}
    for run in study.pretraining:
        has_bits = any(point.bits_per_byte is not None for point in run.curve)
        curve = [
            (point.step, value)
            for point in sorted(run.curve, key=lambda point: point.step)
            if (value := getattr(point, measure)) is not None
        ]
        if curve and has_bits == (measure == "bits_per_byte"):
            runs[run.name] = (run.family, np.array(curve).T)
            colours.setdefault(run.family, _colour_of_family(study, marks, run))
    if not runs:
        return None
    unit = {"bits_per_byte": "bits per byte", "loss": "loss, nats per predicted token"}[measure]

    def draw(figure: Figure, is_wide: bool) -> None:
        axes = figure.subplots()
        for family, (steps, values) in runs.values():
            keep = np.unique(np.linspace(0, len(steps) - 1, _MOST_POINTS).round().astype(int))
            axes.plot(steps[keep], values[keep], color=colours[family], linewidth=1.4,
                      marker="o" if len(keep) == 1 else "")  # fmt: skip
        axes.grid(False, axis="x")
        axes.set_title(unit, loc="left", x=0)
        axes.set_xlabel("step of pretraining")
        axes.xaxis.set_major_locator(MaxNLocator(7 if is_wide else 4, integer=True))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: count(step)))
        axes.yaxis.set_major_locator(MaxNLocator(6))
        ends = {f: [(c[0][-1], c[1][-1]) for g, c in runs.values() if g == f] for f in colours}
        label_ends(axes, [(*np.mean(e, axis=0), f, colours[f]) for f, e in ends.items()])

    parts = [
        f"{one_line(name, 60)} from {decimals(curve[1][0])} to {decimals(curve[1][-1])}"
        for name, (_, curve) in runs.items()
    ]
    words = f"Pretraining on held-out text, {unit}: {'; '.join(parts)}."
    return draw_both(f"pretraining-{measure.replace('_', '-')}", draw, (3.5, 3.2), words, [])


def _colour_of_family(study: Study, marks: dict[str, Mark], run: Pretraining) -> str:
    """The colour of the arm that starts from these runs."""
    kind = "shuffled" if run.shuffled else "finetuned"
    arms = [arm for arm in study.arms if arm.kind == kind]
    named = [arm for arm in arms if arm.objective == run.objective] or arms
    return marks[named[0].name].colour if named else INK
