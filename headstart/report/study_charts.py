"""The charts of a study: the record in, a picture for wide screens, one for phones, and the same in words."""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from headstart.config.study import Metric
from headstart.report import wording
from headstart.report.chart_parts import Chart, Mark, draw_both, label_ends, limits, percent_axis
from headstart.report.figures import GREY, INK, PAPER
from headstart.report.wording import count, estimate, one_line, percent, plural, points, points_interval, sentence_case
from headstart.study.record import DifferenceRecord, Interval, PretrainingRecord, StudyRecord, TrialRecord

Marks = dict[str, Mark]
_MOST_POINTS = 200  # of a curve: more cannot be seen
_ROW_INCHES, _GAP_ROWS = 0.25, 0.5  # of the differences: a row's height, and the gap before a new pair


def _title(study: StudyRecord, name: str) -> str:
    return one_line(study.title_of(name), 80)


def _thinned(size: int) -> np.ndarray:
    """Indices of at most so many points, the ends included."""
    return np.unique(np.linspace(0, size - 1, _MOST_POINTS).round().astype(int))


# ---- accuracy over epochs -----------------------------------------------------------------------------------


class Band(NamedTuple):
    """An arm's metric on valid over epochs: the mean, the lowest and the highest seed."""

    epochs: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    seeds: int


def band_over_seeds(trials: Iterable[TrialRecord], metric: Metric = "accuracy") -> Band | None:
    """The curves of an arm's trials at the epochs that all of them reached."""
    curves = []
    for trial in trials:
        points_of = [(point.epoch, getattr(point, metric)) for point in trial.curve]
        known = sorted((epoch, value) for epoch, value in points_of if value is not None)
        if known and trial.status == "done":
            curves.append(np.array(known).T)
    if not curves:
        return None
    first, last = max(curve[0][0] for curve in curves), min(curve[0][-1] for curve in curves)
    epochs = np.unique(np.concatenate([curve[0] for curve in curves]))
    epochs = epochs[(epochs >= first) & (epochs <= last)]
    if len(epochs) == 0:
        return None
    epochs = epochs[_thinned(len(epochs))]
    values = np.array([np.interp(epochs, *curve) for curve in curves])
    return Band(epochs, values.mean(axis=0), values.min(axis=0), values.max(axis=0), len(curves))


def _bands(study: StudyRecord, budget: int) -> dict[str, Band]:
    """The arms that learn in epochs, but for the one with so many that it would stretch the axis."""
    bands = {
        arm.name: band_over_seeds((t for t in study.trials if (t.arm, t.budget) == (arm.name, budget)), study.metric)
        for arm in study.arms
        if arm.has_epochs and arm.kind != "scratch-long"
    }
    return {name: band for name, band in bands.items() if band}


def _baseline_levels(study: StudyRecord, budget: int) -> dict[str, float]:
    """What the arms without epochs that choose on valid reach there: the mean over seeds."""
    means = study.valid_scores(budget)
    return {arm.name: means[arm.name] for arm in study.arms if arm.name in means and not arm.has_epochs}


def epochs_limits(study: StudyRecord, *budgets: int) -> tuple[float, float] | None:
    """A range of the metric that holds the curves of these budgets, so that charts can share it."""
    bands = [band for budget in budgets for band in _bands(study, budget).values()]
    values = [value for band in bands for value in (band.low.min(), band.high.max())]
    values += [level for budget in budgets for level in _baseline_levels(study, budget).values()]
    return limits(values) if values else None


def epochs_chart(
    study: StudyRecord, marks: Marks, budget: int, shared: tuple[float, float] | None = None
) -> Chart | None:
    """The metric on valid over epochs at one budget: a line for each arm, a band over its seeds.

    With a shared range it is one of several small charts.
    """
    bands, levels = _bands(study, budget), _baseline_levels(study, budget)
    if not bands:
        return None
    with_bands = {arm.name for arm in study.arms if arm.kind in ("scratch", "finetuned", "imported")}

    def draw(figure: Figure, is_wide: bool) -> None:
        axes = figure.subplots()
        for name, band in bands.items():
            mark = marks[name]
            if name in with_bands and band.seeds > 1:
                look: Any = {"color": mark.colour, "alpha": 0.16, "linewidth": 0}
                axes.fill_between(band.epochs, band.low, band.high, **look)
            axes.plot(band.epochs, band.mean, markevery=max(1, len(band.epochs) // 12), zorder=3, **mark.line)
        for name, level in levels.items():
            axes.axhline(level, color=marks[name].colour, linestyle=marks[name].linestyle, linewidth=1.3)
        axes.set_ylim(*(shared or epochs_limits(study, budget) or (0, 1)))
        last = max(band.epochs[-1] for band in bands.values())
        axes.set_xlim(min(band.epochs[0] for band in bands.values()) - 0.02 * last, last * 1.01)
        axes.xaxis.set_major_locator(MaxNLocator(8 if is_wide else 5, integer=True))
        percent_axis(axes, f"{study.metric_title} on valid, %")
        axes.set_xlabel("epoch")
        if is_wide:
            ends = [(b.epochs[-1], b.mean[-1], name, marks[name].colour) for name, b in bands.items()]
            ends += [(last, level, name, marks[name].colour) for name, level in levels.items()]
            label_ends(axes, ends)

    parts = [
        f"{_title(study, name)} {percent(band.mean[-1])}"
        + (f" (seeds from {percent(band.low[-1])} to {percent(band.high[-1])})" if band.seeds > 1 else "")
        for name, band in bands.items()
    ] + [f"{_title(study, name)} {percent(level)} without epochs" for name, level in levels.items()]
    title = sentence_case(study.metric_title)
    words = f"{title} on valid after the last epoch with {plural(budget, 'label')}: {'; '.join(parts)}."
    return draw_both(f"epochs-{budget}", draw, (4.1, 3.5), words, [*bands, *levels], shared is not None)


# ---- accuracy over labels -----------------------------------------------------------------------------------


def labels_chart(study: StudyRecord, marks: Marks) -> Chart | None:
    """The metric on test over label budgets with intervals; with one budget, a row of dots for each arm."""
    by_arm: dict[str, list[tuple[int, Interval]]] = {arm.name: [] for arm in study.arms}
    for score in sorted(study.scores, key=lambda score: score.budget):
        if (reached := study.of_metric(score)) and score.arm in by_arm:
            by_arm[score.arm].append((score.budget, reached))
    by_arm = {name: rows for name, rows in by_arm.items() if rows}
    if not by_arm:
        return None
    parts = [
        f"{_title(study, name)} " + ", ".join(f"{estimate(e)} with {count(budget)}" for budget, e in rows)
        for name, rows in by_arm.items()
    ]
    title = f"{study.metric_title} on test, %"
    words = f"{sentence_case(study.metric_title)} on test by number of labels. {'; '.join(parts)}."
    budgets = sorted({budget for rows in by_arm.values() for budget, _ in rows})
    height = 0.9 + 0.36 * len(by_arm)

    def draw(figure: Figure, is_wide: bool) -> None:
        if len(budgets) == 1:
            _dots(figure.subplots(), {name: rows[0][1] for name, rows in by_arm.items()}, marks, title, is_wide)
        else:
            _lines(figure.subplots(), by_arm, budgets, marks, title, is_wide)

    heights = (height, height) if len(budgets) == 1 else (4.6, 3.9)
    return draw_both("labels", draw, heights, words, list(by_arm))


def _lines(
    axes: Axes, by_arm: dict[str, list[tuple[int, Interval]]], budgets: list[int], marks: Marks, title: str,
    is_wide: bool,
) -> None:  # fmt: skip
    """A line for each arm; those of one budget stand side by side."""
    ends = []
    step = np.log(budgets[-1] / budgets[0]) * (0.007 if is_wide else 0.011)
    for index, (name, rows) in enumerate(by_arm.items()):
        mark = marks[name]
        xs = np.array([b for b, _ in rows]) * np.exp(step * (index - (len(by_arm) - 1) / 2))
        axes.plot(xs, [e.value for _, e in rows], zorder=3, **mark.line)
        for x, (_, e) in zip(xs, rows, strict=True):
            axes.plot([x, x], [e.low, e.high], color=mark.colour, linewidth=1.1, alpha=0.75)
        ends.append((xs[-1], rows[-1][1].value, name, mark.colour))
    axes.set_ylim(*limits(_bounds(e for rows in by_arm.values() for _, e in rows)))
    axes.set_xscale("log")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(*_log_ticks(budgets, 12 if is_wide else 6))
    percent_axis(axes, title)
    axes.set_xlabel("labels, on a log scale")
    if is_wide:
        label_ends(axes, ends)


def _bounds(intervals: Iterable[Interval]) -> list[float]:
    return [number for e in intervals for number in (e.low, e.high)]


def _log_ticks(budgets: list[int], most: int) -> tuple[list[int], list[str]]:
    """The budgets that have room for their number, from the largest down."""
    room = np.log(budgets[-1] / budgets[0]) / most
    kept: list[int] = []
    for budget in reversed(budgets):
        if not kept or np.log(kept[-1] / budget) >= room:
            kept.append(budget)
    return kept, [count(budget) for budget in kept]


def _dots(axes: Axes, rows: dict[str, Interval], marks: Marks, title: str, is_wide: bool) -> None:
    for y, (name, e) in enumerate(rows.items()):
        mark = marks[name]
        axes.plot([e.low, e.high], [y, y], color=mark.colour, linewidth=1.6)
        axes.plot([e.value], [y], color=mark.colour, marker=mark.marker or "|", markersize=7, zorder=3)
        if is_wide:
            axes.text(1.02, y, estimate(e), transform=axes.get_yaxis_transform(), va="center")
    axes.set_yticks(range(len(rows)), [one_line(name, 24) for name in rows])
    axes.set(ylim=(len(rows) - 0.4, -0.6), xlim=limits(_bounds(rows.values())))
    percent_axis(axes, title, horizontal=True)


# ---- differences: a forest plot -----------------------------------------------------------------------------


def forest_chart(study: StudyRecord, marks: Marks, reading: str) -> Chart | None:
    """The differences of one reading: a row for each budget of a pair, and the line of no difference."""
    differences = [d for d in study.differences if d.reading == reading]
    if not differences:
        return None
    headings: list[tuple[float, str]] = []
    rows: list[tuple[float, DifferenceRecord]] = []
    bottom = 0.0
    for pair in dict.fromkeys((d.arm, d.against) for d in differences):
        bottom += _GAP_ROWS if headings else 0
        headings.append((bottom, " minus ".join(one_line(name, 24) for name in pair)))
        of_pair = sorted((d for d in differences if (d.arm, d.against) == pair), key=lambda d: d.budget)
        rows += [(bottom + number, row) for number, row in enumerate(of_pair, 1)]
        bottom += len(of_pair) + 1
    ends = [0.0, *(end for d in differences for end in (d.low, d.high))]
    margin = max(0.05 * (max(ends) - min(ends)), 0.002)

    def draw(figure: Figure, is_wide: bool) -> None:
        ratios = [1, 0.42] if is_wide else [1]
        columns = figure.subplots(1, len(ratios), width_ratios=ratios, sharey=True, squeeze=False)[0]
        axes = columns[0]
        axes.axvline(0, color=GREY, linewidth=0.9, zorder=1)
        for y, text in headings:
            box: Any = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.5}
            axes.text(0, y, text, transform=axes.get_yaxis_transform(), va="center", weight="bold", bbox=box)
        for y, row in rows:
            _draw_difference(axes, y, row, marks.get(row.arm))
            if is_wide:
                _write_difference(columns[1], y, row)
        axes.set_yticks([y for y, _ in rows], [plural(row.budget, "label") for _, row in rows])
        axes.set(ylim=(bottom - 0.2, -0.7), xlim=(min(ends) - margin, max(ends) + margin))
        percent_axis(axes, f"difference in {study.metric_title}, percentage points", horizontal=True)
        ticks = FuncFormatter(lambda x, _: "0" if abs(x) < 1e-9 else points(x).removesuffix(".0"))
        axes.xaxis.set_major_formatter(ticks)
        axes.tick_params(axis="x", length=0)

    parts = [
        f"{_title(study, d.arm)} minus {_title(study, d.against)} with {plural(d.budget, 'label')}: "
        f"{points(d.value)} {points_interval(d.low, d.high)}"
        for d in differences
    ]
    words = f"Differences in {study.metric_title} in percentage points, at {one_line(reading, 60)}. {'; '.join(parts)}."
    name = re.sub(r"\W+", "-", f"forest-{reading}", flags=re.ASCII)
    return draw_both(name, draw, (0.7 + _ROW_INCHES * bottom,) * 2, words, [])


def _draw_difference(axes: Axes, y: float, row: DifferenceRecord, mark: Mark | None) -> None:
    colour, shape = (mark.colour, mark.marker or "|") if mark else (INK, "o")
    axes.plot([row.low, row.high], [y, y], color=colour, linewidth=1.6, solid_capstyle="butt")
    axes.plot(
        [row.value], [y], color=colour, marker=shape, markersize=6, zorder=3, markeredgewidth=1.4,
        markerfacecolor=colour if row.is_clear else PAPER,
    )  # fmt: skip


def _write_difference(column: Axes, y: float, row: DifferenceRecord) -> None:
    """To the right of a row: the difference, its interval, and p after Holm."""
    column.set_axis_off()
    column.text(0.16, y, points(row.value), va="center", ha="right")
    column.text(0.2, y, points_interval(row.low, row.high), va="center", color=GREY)
    p = f"p {'' if row.p_holm < 0.001 else '= '}{wording.probability(row.p_holm)}"
    column.text(1, y, p, va="center", ha="right")


# ---- pretraining --------------------------------------------------------------------------------------------


def pretraining_chart(study: StudyRecord, marks: Marks, measure: str) -> Chart | None:
    """The curves of the pretraining runs that have a measure: bits_per_byte, or loss for those without."""
    runs: dict[str, tuple[str, np.ndarray]] = {}
    colours: dict[str, str] = {}
    frequencies: dict[str, float] = {}  # what token frequencies alone give, by objective
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
            end = max(run.curve, key=lambda point: point.step)
            if run.base and end.loss and (reached := getattr(end, measure)) is not None:
                frequencies.setdefault(run.objective, run.base.unigram_entropy * reached / end.loss)
    if not runs:
        return None
    unit = {"bits_per_byte": "bits per byte", "loss": "loss, nats per predicted token"}[measure]

    def draw(figure: Figure, is_wide: bool) -> None:
        axes = figure.subplots()
        for family, (steps, values) in runs.values():
            keep = _thinned(len(steps))
            marker = "o" if len(keep) == 1 else ""
            axes.plot(steps[keep], values[keep], color=colours[family], linewidth=1.4, marker=marker)
        for level in frequencies.values():
            axes.axhline(level, color=GREY, linestyle="dotted", linewidth=1.3)
        axes.grid(False, axis="x")
        axes.set_title(unit, loc="left", x=0)
        axes.set_xlabel("step of pretraining")
        axes.xaxis.set_major_locator(MaxNLocator(7 if is_wide else 4, integer=True))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: count(step)))
        axes.yaxis.set_major_locator(MaxNLocator(6))
        ends = {f: [(c[0][-1], c[1][-1]) for g, c in runs.values() if g == f] for f in colours}
        labels = [(*np.mean(e, axis=0), f, colours[f]) for f, e in ends.items()]
        last = max(curve[0][-1] for _, curve in runs.values())
        label_ends(axes, labels + [(last, level, "frequencies", GREY) for level in frequencies.values()])

    parts = [
        f"{one_line(name, 60)} from {wording.decimals(curve[1][0])} to {wording.decimals(curve[1][-1])}"
        for name, (_, curve) in runs.items()
    ]
    parts += [
        f"token frequencies alone give {wording.decimals(level)} ({objective})"
        for objective, level in frequencies.items()
    ]
    words = f"Pretraining on held-out text, {unit}: {'; '.join(parts)}."
    return draw_both(f"pretraining-{measure.replace('_', '-')}", draw, (3.5, 3.2), words, [])


def _colour_of_family(study: StudyRecord, marks: Marks, run: PretrainingRecord) -> str:
    """The colour of the arm that starts from these runs."""
    kind = "shuffled" if run.shuffled else "finetuned"
    arms = [arm for arm in study.arms if arm.kind == kind]
    named = [arm for arm in arms if arm.objective == run.objective] or arms
    return marks[named[0].name].colour if named else INK
