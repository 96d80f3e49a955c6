"""What pretraining saves: labels, epochs, and how many fine-tunings pay for its compute."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from headstart.study.record import BreakEven, DifferenceRecord, EpochsToMatch, LabelsToMatch
from headstart.study.statistics import difference

HALVINGS = 10
ROUNDING = 1e-12
Curve = Sequence[tuple[float, float]]
"""(epoch, the metric on valid) of one seed, in order."""


def labels_to_match(budgets: Sequence[int], scratch: Sequence[np.ndarray], reached: np.ndarray) -> LabelsToMatch:
    """How many labels scratch needs to match an arm, read off scratch's curve over its budgets.

    `scratch` has a table (seeds, items) of right answers, or of parts in macro-F1, for each budget, in rising order;
    `reached` is the arm's table for the same seeds and items. The curve is made monotone, and is linear in the
    logarithm of the labels between budgets. The interval holds the numbers of labels at which the paired difference
    between the arm and scratch's curve is not significant.
    """
    if list(budgets) != sorted(set(budgets)) or len(budgets) != len(scratch) or not budgets:
        raise ValueError(f"a table for each of rising budgets, not {len(scratch)} for {list(budgets)}")
    curve = _rising([np.asarray(table, dtype=float) for table in scratch])
    means, goal, last = [float(table.mean()) for table in curve], float(np.mean(reached)), len(curve) - 1
    beyond, below = goal > means[last] + ROUNDING, goal < means[0] - ROUNDING
    position = _first_at(goal, means)

    def is_possible(where: float) -> bool:
        gap = difference(_between(curve, where), reached)
        return gap.low <= 0 <= gap.high

    inside = is_possible(position)  # not so where the arm is clearly outside scratch's whole curve
    low, high = (_edge(position, end, is_possible) if inside else position for end in (0, last))
    ends = (None if beyond else position, None if below else low, None if beyond else high)
    value, least, most = (None if end is None else _labels_at(budgets, end) for end in ends)
    return LabelsToMatch(value=value, low=least, high=most, beyond=beyond, below=below)


def labels_sentence(
    labels: LabelsToMatch, budgets: Sequence[int], budget: int, arm: str = "finetuned", against: str = "scratch"
) -> str:
    """The number of labels in words; `budget` is what the arm itself had."""
    target, most = f"to match {arm} with {budget:,}", f"more than {budgets[-1]:,}"
    high = most if labels.high is None else f"{_round(labels.high):,}"
    if labels.value is None:
        low = "" if labels.low is None or labels.low >= budgets[-1] else f" (at least {_round(labels.low):,})"
        return f"{against} needs {most} labels{low} {target}"
    if labels.below:
        rest = "" if labels.high is not None and labels.high <= budgets[0] else f" (up to {high})"
        return f"{against} needs at most {budgets[0]:,} labels{rest} {target}"
    low = f"fewer than {budgets[0]:,}" if labels.low is None else f"{_round(labels.low):,}"
    return f"{against} needs about {_round(labels.value):,} labels ({low} to {high}) {target}"


def _rising(tables: list[np.ndarray]) -> list[np.ndarray]:
    """Tables whose means never fall, by isotonic regression: neighbours that do are replaced by their mean."""
    blocks: list[list[np.ndarray]] = []
    for table in tables:
        blocks.append([table])
        while len(blocks) > 1 and np.mean(blocks[-2]) > np.mean(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    return [table for block in blocks for table in [np.mean(block, axis=0)] * len(block)]


def _first_at(goal: float, means: Sequence[float]) -> float:
    """The first position where a rising curve is at the goal: 1.5 is halfway from 1 to 2."""
    after = int(np.searchsorted(means, goal - ROUNDING))
    if after == 0 or after == len(means):
        return float(min(after, len(means) - 1))
    return after - 1 + min(1.0, (goal - means[after - 1]) / (means[after] - means[after - 1]))


def _between(curve: list[np.ndarray], position: float) -> np.ndarray:
    before = min(int(position), len(curve) - 1)
    after, part = min(before + 1, len(curve) - 1), position - before
    return (1 - part) * curve[before] + part * curve[after]


def _labels_at(budgets: Sequence[int], position: float) -> float:
    before = min(int(position), len(budgets) - 1)
    after = min(before + 1, len(budgets) - 1)
    return float(budgets[before] * (budgets[after] / budgets[before]) ** (position - before))


def _edge(inside: float, end: float, is_possible: Callable[[float], bool]) -> float | None:
    """The last possible position on the way to the end; None where the end is possible too."""
    if is_possible(end):
        return None
    for _ in range(HALVINGS):
        middle = (inside + end) / 2
        inside, end = (middle, end) if is_possible(middle) else (inside, middle)
    return inside


def _round(labels: float) -> int:
    """To two significant figures."""
    digits = max(0, math.floor(math.log10(max(labels, 1))) - 1)
    return int(round(labels / 10**digits) * 10**digits)


def epochs_to_match(arm_curves: Sequence[Curve], scratch_curves: Sequence[Curve]) -> EpochsToMatch:
    """The epochs that an arm needs to match scratch at its best, by their mean curves on valid.

    There is a curve for each seed. The epochs are None where the arm never gets there.
    """
    arm, scratch = _mean_curve(arm_curves), _mean_curve(scratch_curves)
    best = max((accuracy for _, accuracy in scratch), default=math.inf)
    for epoch, accuracy in arm:
        if accuracy >= best - ROUNDING:
            first = next(epoch for epoch, accuracy in scratch if accuracy >= best)
            return EpochsToMatch(value=epoch, of=arm[-1][0], scratch=first, accuracy=best)
    return EpochsToMatch()


def epochs_sentence(epochs: EpochsToMatch, arm: str = "finetuned", against: str = "scratch") -> str:
    """The epochs in words."""
    if epochs.value is None:
        return f"{arm} does not reach the best of {against} on valid"
    return (
        f"{arm} needs {epochs.value:.3g} of {epochs.of:.3g} epochs to match the best of {against} on valid "
        f"({100 * (epochs.accuracy or 0):.1f} %), which {against} reaches after {epochs.scratch:.3g}"
    )


def _mean_curve(curves: Sequence[Curve]) -> list[tuple[float, float]]:
    """The mean over seeds at the epochs that all of them have."""
    by_epoch = [dict(curve) for curve in curves]
    common = sorted(set.intersection(*(set(curve) for curve in by_epoch))) if by_epoch else []
    return [(epoch, float(np.mean([curve[epoch] for curve in by_epoch]))) for epoch in common]


def break_even(
    pretraining_operations: float, finetuning_operations: float, equal_compute: DifferenceRecord | None = None
) -> BreakEven:
    """The cost of the pretraining in fine-tunings, and whether scratch catches up with the same compute.

    `equal_compute` is the fine-tuned arm minus scratch given the pretraining's operations too, if that was tried.
    """
    if finetuning_operations <= 0:
        raise ValueError("a fine-tuning of no operations")
    finetunings = pretraining_operations / finetuning_operations
    whole = math.ceil(finetunings - 1e-9)
    tasks = "as much as 1 fine-tuning" if whole == 1 else f"as much as {_round(whole):,} fine-tunings"
    tasks = "less than one fine-tuning" if finetunings < 1 else tasks
    cost = f"pretraining costs {pretraining_operations:.2g} operations, {tasks}"
    return BreakEven(finetunings=finetunings, sentence=f"{cost}; {_catches_up(equal_compute)}")


def _catches_up(row: DifferenceRecord | None) -> str:
    if row is None:
        return "whether scratch would catch up with that much more compute was not tried"
    low, high = 100 * row.low, 100 * row.high
    if row.low > 0:
        gap = f"still {100 * row.value:.1f} points behind finetuned ({low:.1f} to {high:.1f})"
    elif row.high < 0:
        gap = f"{-100 * row.value:.1f} points ahead of finetuned ({-high:.1f} to {-low:.1f})"
    else:
        gap = f"not clearly different from finetuned ({low:.1f} to {high:.1f} points)"
    return f"given the same compute, scratch is {gap}"
