"""The head start in units that people feel: labels saved, epochs saved, and when the compute is earned back."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from headstart.study.statistics import Difference, difference

HALVINGS = 10
ROUNDING = 1e-12
Curve = Sequence[tuple[float, float]]
"""(epoch, accuracy on valid) of one seed, in order."""


class Labels(NamedTuple):
    """How many labels the other arm needs to match, and the 95 % interval of that."""

    value: float | None
    """None where it does not get there with the labels we have."""

    low: float | None
    """None where even the fewest labels we tried may be enough."""

    high: float | None
    """None where all the labels we have may not be enough."""

    beyond: bool
    """More labels than we have."""

    below: bool = False
    """`value` is the fewest labels we tried, and they are already enough."""


class Epochs(NamedTuple):
    """After how many epochs of how many an arm is where scratch is at its best, and when scratch gets there."""

    value: float
    of: float
    scratch: float
    accuracy: float


class BreakEven(NamedTuple):
    """How many fine-tunings cost as much as the pretraining, and what that means."""

    finetunings: float
    sentence: str


# ---- labels ---------------------------------------------------------------------------------------------


def labels_to_match(budgets: Sequence[int], scratch: Sequence[np.ndarray], reached: np.ndarray) -> Labels:
    """How many labels scratch needs for what an arm reached, read off scratch's curve over its budgets.

    `scratch` has a table (seeds, items) of right answers for each budget, in rising order, `reached` is the
    arm's table for the same seeds and items. The curve never falls and is straight over the logarithm of the
    labels. A number of labels is inside the interval where the paired difference between the arm and scratch's
    curve at that number cannot be told from none.
    """
    if list(budgets) != sorted(set(budgets)) or len(budgets) != len(scratch) or not budgets:
        raise ValueError(f"a table for each of rising budgets, not {len(scratch)} for {list(budgets)}")
    curve = _rising([np.asarray(table, dtype=float) for table in scratch])
    means, goal, last = [float(table.mean()) for table in curve], float(np.mean(reached)), len(curve) - 1
    beyond, below = goal > means[last] + ROUNDING, goal < means[0] - ROUNDING
    place = _first_at(goal, means)

    def is_possible(where: float) -> bool:
        found = difference(_between(curve, where), reached)
        return found.low <= 0 <= found.high

    inside = is_possible(place)  # not so where the arm is clearly outside scratch's whole curve
    low = _edge(place, 0, is_possible) if inside else place
    high = _edge(place, last, is_possible) if inside else place
    return Labels(
        value=None if beyond else _labels_at(budgets, place),
        low=None if below or low is None else _labels_at(budgets, low),
        high=None if beyond or high is None else _labels_at(budgets, high),
        beyond=beyond,
        below=below,
    )


def labels_sentence(
    labels: Labels, budgets: Sequence[int], budget: int, arm: str = "finetuned", against: str = "scratch"
) -> str:
    """The number of labels, for people; `budget` is what the arm itself had."""
    for_what = f"for what {arm} reaches with {budget:,}"
    high = "more than we have" if labels.high is None else f"{_round(labels.high):,}"
    if labels.value is None:
        low = "" if labels.low is None or labels.low >= budgets[-1] else f", at least {_round(labels.low):,},"
        return f"{against} needs more than the {budgets[-1]:,} labels we have{low} {for_what}"
    if labels.below:
        rest = "" if labels.high is not None and labels.high <= budgets[0] else f" (up to {high})"
        return f"{against} needs at most {budgets[0]:,} labels{rest} {for_what}"
    low = f"fewer than {budgets[0]:,}" if labels.low is None else f"{_round(labels.low):,}"
    return f"{against} needs about {_round(labels.value):,} labels ({low} to {high}) {for_what}"


def _rising(tables: list[np.ndarray]) -> list[np.ndarray]:
    """Tables whose means never fall: neighbours that do are replaced by their mean (isotonic regression)."""
    blocks: list[list[np.ndarray]] = []
    for table in tables:
        blocks.append([table])
        while len(blocks) > 1 and np.mean(blocks[-2]) > np.mean(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    return [table for block in blocks for table in [np.mean(block, axis=0)] * len(block)]


def _first_at(goal: float, means: Sequence[float]) -> float:
    """The first place on a curve that never falls where it is at the goal: 1.5 is halfway from 1 to 2."""
    after = int(np.searchsorted(means, goal - ROUNDING))
    if after == 0 or after == len(means):
        return float(min(after, len(means) - 1))
    return after - 1 + min(1.0, (goal - means[after - 1]) / (means[after] - means[after - 1]))


def _between(curve: list[np.ndarray], place: float) -> np.ndarray:
    before = min(int(place), len(curve) - 1)
    after, part = min(before + 1, len(curve) - 1), place - before
    return (1 - part) * curve[before] + part * curve[after]


def _labels_at(budgets: Sequence[int], place: float) -> float:
    before = min(int(place), len(budgets) - 1)
    after = min(before + 1, len(budgets) - 1)
    return float(budgets[before] * (budgets[after] / budgets[before]) ** (place - before))


def _edge(inside: float, end: float, is_possible: Callable[[float], bool]) -> float | None:
    """The last possible place on the way to the end; None where the end is possible too."""
    if is_possible(end):
        return None
    for _ in range(HALVINGS):
        middle = (inside + end) / 2
        inside, end = (middle, end) if is_possible(middle) else (inside, middle)
    return inside


def _round(labels: float) -> int:
    """Two figures that count: nobody knows a number of labels to the last one."""
    digits = max(0, math.floor(math.log10(max(labels, 1))) - 1)
    return int(round(labels / 10**digits) * 10**digits)


# ---- epochs ---------------------------------------------------------------------------------------------


def epochs_to_match(curve_arm: Sequence[Curve], curve_scratch: Sequence[Curve]) -> Epochs | None:
    """The epochs an arm needs to be where scratch is at its best, by their mean curves on valid.

    Curves are of one seed each. None where the arm never gets there, or no epoch is common to all seeds.
    """
    arm, scratch = _mean_curve(curve_arm), _mean_curve(curve_scratch)
    if not arm or not scratch:
        return None
    accuracy = max(accuracy for _, accuracy in scratch)
    first = next(epoch for epoch, reached in scratch if reached >= accuracy)
    for epoch, reached in arm:
        if reached >= accuracy - ROUNDING:
            return Epochs(epoch, arm[-1][0], first, accuracy)
    return None


def epochs_sentence(epochs: Epochs | None, arm: str = "finetuned", against: str = "scratch") -> str:
    """The epochs, for people."""
    if epochs is None:
        return f"{arm} does not reach on valid what {against} reaches at its best"
    return (
        f"{arm} is after {epochs.value:.3g} of {epochs.of:.3g} epochs where {against} is at its best, "
        f"after {epochs.scratch:.3g} ({100 * epochs.accuracy:.1f} % on valid)"
    )


def _mean_curve(curves: Sequence[Curve]) -> list[tuple[float, float]]:
    """The mean over seeds at the epochs that all of them have."""
    by_epoch = [dict(curve) for curve in curves]
    common = sorted(set.intersection(*(set(curve) for curve in by_epoch))) if by_epoch else []
    return [(epoch, float(np.mean([curve[epoch] for curve in by_epoch]))) for epoch in common]


# ---- compute --------------------------------------------------------------------------------------------


def break_even(
    pretraining_operations: float,
    finetuning_operations: float,
    equal_compute: Difference | None = None,
    arm: str = "finetuned",
    against: str = "scratch",
) -> BreakEven:
    """What the pretraining costs, counted in fine-tunings that share it, and whether scratch could do without.

    `equal_compute` is the arm less scratch where scratch was given the pretraining's operations too; its
    `value` is above 0 where the pretraining was the better use of them. None where that was not tried.
    """
    if finetuning_operations <= 0:
        raise ValueError("a fine-tuning of no operations")
    finetunings = pretraining_operations / finetuning_operations
    cost = f"pretraining costs {pretraining_operations:.2g} operations"
    if finetunings < 1:
        cost += ", less than a single fine-tuning"
    else:
        whole = math.ceil(finetunings - 1e-9)
        tasks = "1 fine-tuning" if whole == 1 else f"{_round(whole):,} fine-tunings"
        cost += (
            f", as much as {tasks}: where more than that share the base, it is the smaller part of the bill"
        )
    return BreakEven(finetunings, f"{cost}; {_with_equal_compute(equal_compute, arm, against)}")


def _with_equal_compute(found: Difference | None, arm: str, against: str) -> str:
    if found is None:
        return f"whether {against} would catch up with that much more compute was not tried"
    given = f"given the same compute {against}"
    if found.low > 0:
        return f"{given} still stays {_points(found.value)} behind {arm} ({_range(found.low, found.high)})"
    if found.high < 0:
        return f"{given} is {_points(-found.value)} ahead of {arm} ({_range(-found.high, -found.low)})"
    return f"{given} cannot be told from {arm} ({_range(found.low, found.high)} points between them)"


def _points(share: float) -> str:
    return f"{100 * share:.1f} points"


def _range(low: float, high: float) -> str:
    return f"{100 * low:.1f} to {100 * high:.1f}"
