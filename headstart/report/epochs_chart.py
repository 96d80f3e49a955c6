"""Accuracy over epochs, pretrained against scratch: the course's figure, with what the seeds spread over."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from headstart.report.arm_marks import Mark
from headstart.report.chart_parts import Chart, draw_both, label_ends, limits, percent_axis, said
from headstart.report.study_file import Study, Trial
from headstart.report.wording import percent, plural

_MOST_POINTS = 200  # of a curve: more cannot be seen


@dataclass(frozen=True)
class Band:
    """An arm's accuracy on valid over epochs: the mean of the seeds, the lowest and the highest."""

    epochs: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    seeds: int


def band_over_seeds(trials: Iterable[Trial]) -> Band | None:
    """The curves of an arm's trials at the epochs that all of them reached."""
    curves = []
    for trial in trials:
        known = sorted((point.epoch, point.accuracy) for point in trial.curve if point.accuracy is not None)
        if known and trial.status == "done":
            curves.append(np.array(known).T)
    if not curves:
        return None
    first, last = max(curve[0][0] for curve in curves), min(curve[0][-1] for curve in curves)
    epochs = np.unique(np.concatenate([curve[0] for curve in curves]))
    epochs = epochs[(epochs >= first) & (epochs <= last)]
    if len(epochs) == 0:
        return None
    epochs = epochs[np.unique(np.linspace(0, len(epochs) - 1, _MOST_POINTS).round().astype(int))]
    values = np.array([np.interp(epochs, *curve) for curve in curves])
    return Band(epochs, values.mean(axis=0), values.min(axis=0), values.max(axis=0), len(curves))


def _bands(study: Study, budget: int) -> dict[str, Band]:
    """The arms that learn in epochs; the one with the pretraining's compute has too many to share an axis."""
    found = {
        arm.name: band_over_seeds(t for t in study.trials if (t.arm, t.budget) == (arm.name, budget))
        for arm in study.arms
        if not arm.is_baseline and arm.kind != "scratch-long"
    }
    return {name: band for name, band in found.items() if band}


def _levels_on_valid(study: Study, budget: int) -> dict[str, float]:
    """What the baselines that choose on valid reach there: the mean over seeds."""
    levels = {}
    for arm in study.arms:
        reached = [
            attempt.accuracy
            for trial in study.trials
            if (trial.arm, trial.budget, trial.status) == (arm.name, budget, "done")
            for attempt in trial.tries
            if attempt.rate == trial.rate and attempt.accuracy is not None
        ]
        if arm.is_baseline and reached:
            levels[arm.name] = float(np.mean(reached))
    return levels


def epochs_limits(study: Study) -> tuple[float, float] | None:
    """A range of accuracy that holds the curves of every budget, so that small charts can be compared."""
    values = [
        value
        for budget in study.budgets
        for band in _bands(study, budget).values()
        for value in (band.low.min(), band.high.max())
    ]
    values += [level for budget in study.budgets for level in _levels_on_valid(study, budget).values()]
    return limits(values) if values else None


def epochs_chart(
    study: Study, marks: dict[str, Mark], budget: int, shared: tuple[float, float] | None = None
) -> Chart | None:
    """Accuracy on valid over epochs at one budget: a line for each arm, a band from seed to seed.

    With a shared range of accuracy it is one of several small charts.
    """
    bands, levels = _bands(study, budget), _levels_on_valid(study, budget)
    if not bands:
        return None
    with_bands = {arm.name for arm in study.arms if arm.kind in ("scratch", "finetuned", "imported")}
    values = [v for band in bands.values() for v in (band.low.min(), band.high.max())] + list(levels.values())

    def draw(figure: Figure, is_wide: bool) -> None:
        axes = figure.subplots()
        for name, band in bands.items():
            mark = marks[name]
            if name in with_bands and band.seeds > 1:
                axes.fill_between(
                    band.epochs, band.low, band.high, color=mark.colour, alpha=0.16, linewidth=0
                )
            axes.plot(
                band.epochs, band.mean, color=mark.colour, linestyle=mark.linestyle, marker=mark.marker,
                markevery=max(1, len(band.epochs) // 12), zorder=3,
            )  # fmt: skip
        for name, level in levels.items():
            axes.axhline(level, color=marks[name].colour, linestyle=marks[name].linestyle, linewidth=1.3)
        axes.set_ylim(*(shared or limits(values)))
        last = max(band.epochs[-1] for band in bands.values())
        axes.set_xlim(min(band.epochs[0] for band in bands.values()) - 0.02 * last, last * 1.01)
        axes.xaxis.set_major_locator(MaxNLocator(8 if is_wide else 5, integer=True))
        percent_axis(axes, "accuracy on valid, %")
        axes.set_xlabel("epoch")
        if is_wide:
            ends = [(b.epochs[-1], b.mean[-1], name, marks[name].colour) for name, b in bands.items()]
            ends += [(last, level, name, marks[name].colour) for name, level in levels.items()]
            label_ends(axes, ends)

    parts = [
        f"{said(study, name)} {percent(band.mean[-1])}"
        + (f" (seeds from {percent(band.low[-1])} to {percent(band.high[-1])})" if band.seeds > 1 else "")
        for name, band in bands.items()
    ] + [f"{said(study, name)} {percent(level)} at once" for name, level in levels.items()]
    words = f"Accuracy on valid after the last epoch with {plural(budget, 'label')}: {'; '.join(parts)}."
    return draw_both(f"epochs-{budget}", draw, (4.1, 3.5), words, [*bands, *levels], shared is not None)
