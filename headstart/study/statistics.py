"""How sure a study can be: means and paired differences over seeds and test items, with 95 % intervals.

A trial's answers are a row of a table (seeds × items), and a claim is about other seeds and other items than
these. So the error of a mean has two sources, crossed: seeds (with the noise of each answer) and items. Their
variances come from the mean squares of the table, and each source gets its own t: with t(S-1) for the seeds and
t(I-1) for the items, half the interval is the root of t(S-1)² × variance of seeds + t(I-1)² × variance of items
(Graybill and Wang's way of adding up intervals). It is then written as one t: `freedom` is what makes t × `error`
the half width.

What was tried, on simulated studies (3 and 5 seeds with a standard deviation of 0.5 to 5 points, 400 and 2,000 items;
tests/study/test_statistics_simulated.py):

* A bootstrap over seeds covers the truth 45 to 70 % of the time with 3 seeds, 52 to 85 % with 5.
* Satterthwaite's degrees of freedom cover 91 to 98 % with 3 seeds: where the seeds' variance is small by luck,
  they also take it for well known. With negative components cut off at zero it is 88 %.
* This covers 95 to 98 %, and equal arms are called different 3 to 6 % of the time. The price at 3 seeds is an
  interval up to a third wider than Satterthwaite's, at 5 seeds up to an eighth.

A share has Wilson's form of the interval: it stays inside 0 and 1, and says something where all is right.

Macro-F1 is no mean of items, and has each item's influence in the table instead. That covers the truth 92 to 98 % of
the time, and differences 93 to 98 %, but where a rare class is hardly ever hit (fewer than 5 times in a seed) as
seldom as 25 %. There each class has Wilson's form around its own F1, and the class's distances from it add up as
errors do (MOVER, Zou and Donner 2008): 92 to 98 % again.
"""

import math
from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np
from scipy import optimize, special

from headstart.config.defaults import RARE
from headstart.inference.metrics import CONFIDENCE

_UPPER = (1 + CONFIDENCE) / 2
SEED_DEVIATION = 0.01  # one point; with 50 labels expect three
_STABLE_SHARE, _POWER = 0.5, 0.8
_FEW_HITS = 5


class Estimate(NamedTuple):
    """A mean over seeds and items, where it lies with 95 % confidence, and how sure that is."""

    value: float
    low: float
    high: float
    error: float  # the standard error
    freedom: float  # degrees of freedom: the half width, before Wilson's form, is t(freedom) × error


class Difference(NamedTuple):
    """Second less first, paired by seed and item, and the probability of one as large by chance alone."""

    value: float
    low: float
    high: float
    p: float
    error: float
    freedom: float


def mean(right: np.ndarray) -> Estimate:
    """The mean of a table (seeds, items): of 0 and 1 for right answers, or of any numbers.

    With one seed it speaks of other items only: nothing is known of other seeds.
    """
    right = _table(right)
    return _estimate(right, is_share=_holds_shares(right))


def difference(first: np.ndarray, second: np.ndarray, rarest: int | None = None) -> Difference:
    """What the second arm has more than the first: tables (seeds, items) of the same seeds and items.

    Of tables of macro-F1 `rarest` is the number of items of the rarest class, which count most.
    """
    first, second = _table(first), _table(second)
    if first.shape != second.shape:
        raise ValueError(f"tables of {first.shape} and {second.shape} are not paired")
    table = second - first
    value, error, freedom = _centre(table)
    is_share = rarest is not None or (_holds_shares(first) and _holds_shares(second))
    bound = 1.0 if is_share else math.inf
    if math.isinf(error):
        half, p = math.inf, 1.0
    elif error == 0:
        # The largest share of items that would still have been missed by all of these, 2.5 % of the time.
        half = float(1 - (1 - _UPPER) ** (1 / (rarest or table.shape[1]))) if is_share else 0.0
        p = 1.0 if value == 0 else 2.0 ** (1 - table.shape[1])  # the sign test's: every item on one side
    else:
        half, p = _t(freedom) * error, 2 * float(special.stdtr(freedom, -abs(value) / error))
    return Difference(value, max(value - half, -bound), min(value + half, bound), p, error, freedom)


def macro_f1(predictions: np.ndarray, truth: np.ndarray, classes: int) -> Estimate:
    """The mean over seeds of macro-F1: class numbers predicted (seeds, items) against the true ones (items)."""
    table = macro_f1_table(predictions, truth, classes)
    found, parts = _estimate(table, is_share=True), [p for p in _parts(predictions, truth, classes) if p.rows]
    if math.isinf(found.error) or all(p.hits >= _FEW_HITS or p.rows >= RARE * table.shape[1] for p in parts):
        return found
    ends = np.array([_estimate(part.table, True, max(2, round(part.named)))[:3] for part in parts])
    below, above = ends[:, 0] - ends[:, 1], ends[:, 2] - ends[:, 0]
    by_item = np.stack([part.table.mean(axis=0) for part in parts])
    varies = by_item.std(axis=1) > 0
    correlation = np.eye(len(parts))
    correlation[np.ix_(varies, varies)] = np.corrcoef(by_item[varies])
    low, high = (math.sqrt(max(0.0, d @ correlation @ d)) / len(parts) for d in (below, above))
    return found._replace(low=max(0.0, found.value - low), high=min(1.0, found.value + high))


def macro_f1_table(predictions: np.ndarray, truth: np.ndarray, classes: int) -> np.ndarray:
    """Each item's part in macro-F1, so that a row's mean is that seed's macro-F1; `difference` takes such tables.

    Macro-F1 is no mean of items. Its part for an item is the score plus the item's influence on it: how much
    the score would move, per item, if there were more like this one. A class that is neither true nor
    predicted in a row has no F1 and does not count there.
    """
    predictions = np.atleast_2d(predictions)
    table, present = np.zeros(predictions.shape), np.zeros((len(predictions), 1))
    for part in _parts(predictions, truth, classes):
        table += part.table
        present += part.counts
    return table / present


class _Part(NamedTuple):
    """A class's F1: each item's part in it (seeds, items), and in which seeds it counts."""

    table: np.ndarray
    counts: np.ndarray
    rows: int  # of which it is the true class
    hits: float  # those that are predicted, mean over seeds
    named: float  # items of which it is the true or the predicted class


def _parts(predictions: np.ndarray, truth: np.ndarray, classes: int) -> Iterator[_Part]:
    predictions, truth = np.atleast_2d(predictions), np.asarray(truth)
    if truth.shape != predictions.shape[1:]:
        raise ValueError(f"{predictions.shape[1]} predictions a seed for {len(truth)} true classes")
    for number in range(classes):
        is_predicted, is_true = predictions == number, truth == number
        hits, named = is_predicted & is_true, is_predicted.astype(float) + is_true
        share_named = named.mean(axis=1, keepdims=True)
        counts = share_named > 0
        # F1 = 2 × hits / named, a ratio of two means: its influence is (2 × hit - F1 × named) / mean named.
        f1 = 2 * hits.mean(axis=1, keepdims=True) / np.where(counts, share_named, 1)
        table = f1 + (2 * hits - f1 * named) / np.where(counts, share_named, 1)
        seeds = len(predictions)
        yield _Part(table, counts, int(is_true.sum()), hits.sum() / seeds, (named > 0).sum() / seeds)


def holm(p_values: list[float]) -> list[float]:
    """Holm's adjustment: the chance of one false alarm or more among all of these stays below the level."""
    adjusted, worst = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(np.argsort(p_values, kind="stable")):
        worst = max(worst, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = worst
    return adjusted


def detectable(
    items: int, seeds: int, accuracy: float = 0.8, seed_deviation: float = SEED_DEVIATION, arm_correlation: float = 0.5
) -> float:
    """The smallest true difference, in points, that `difference` finds with a power of 80 % at 5 %.

    Assumed: both arms are near `accuracy`; the standard deviation of each over seeds is `seed_deviation`; being right
    in one arm and in the other correlate by `arm_correlation`, so that at 0.8 and 0.5 the arms disagree on 16 % of the
    answers; half of that disagreement belongs to the items and would be there again with other seeds, the rest noise.
    """
    disagreement = 2 * accuracy * (1 - accuracy) * (1 - arm_correlation)
    item_variance = disagreement * _STABLE_SHARE / items
    seed_variance = (2 * seed_deviation**2 + disagreement * (1 - _STABLE_SHARE) / items) / seeds
    if seeds == 1:  # the interval of one seed speaks of other items only
        item_variance, seed_variance = disagreement / items, 0.0
    # The estimate of the seeds' variance is a chi-square's: average the power over its quantiles.
    quantiles = (np.arange(1000) + 0.5) / 1000
    estimated, seeds_t = 0.0, 0.0
    if seeds > 1:
        estimated = seed_variance * 2 * special.gammaincinv((seeds - 1) / 2, quantiles) / (seeds - 1)
        seeds_t = _t(seeds - 1)
    half = np.sqrt(seeds_t**2 * estimated + _t(max(items - 1, 1)) ** 2 * item_variance)
    error = math.sqrt(seed_variance + item_variance)

    def missing(true_difference: float) -> float:
        above, below = (true_difference - half) / error, (-true_difference - half) / error
        return float(np.mean(special.ndtr(above) + special.ndtr(below))) - _POWER

    return 100 * float(optimize.brentq(missing, 0, 1000 * error))


def equivalent_items(counts: Collection[int]) -> int:
    """So many items of even classes have about the error of macro-F1 that these have: it is the rare ones' own."""
    return round(len(counts) ** 2 / sum(1 / count for count in counts))


def detectable_sentence(items: int, seeds: int, points: float, rarest: int | None = None) -> str:
    """What a study of this size can detect, in words; by macro-F1, with so many items of the rarest class."""
    of_rarest = "" if rarest is None else f", {rarest:,} of the rarest class,"
    size = f"with {items:,} test items{of_rarest} and {seeds} seed{'s' * (seeds != 1)}"
    if points > 50:
        return f"{size} hardly any difference can be detected"
    if seeds == 1:
        return f"{size} you can detect {points:.1f} points, without accounting for variation over seeds"
    deviation = f"the standard deviation over seeds is {100 * SEED_DEVIATION:g} point"
    return f"{size} you can detect {points:.1f} points, if {deviation}"


# ---- the variances --------------------------------------------------------------------------------------


def _table(values: np.ndarray) -> np.ndarray:
    table = np.atleast_2d(np.asarray(values, dtype=float))
    if table.ndim != 2 or table.size == 0:
        raise ValueError(f"a table of seeds and items, not of shape {np.shape(values)}")
    return table


def _holds_shares(table: np.ndarray) -> bool:
    return bool(table.min() >= 0 and table.max() <= 1)


def _centre(table: np.ndarray) -> tuple[float, float, float]:
    """Mean, standard error and degrees of freedom of a table (seeds, items)."""
    seeds, items = table.shape
    value = float(table.mean())
    if items == 1:
        return value, math.inf, 0.0
    by_seed, by_item = table.mean(axis=1) - value, table.mean(axis=0) - value
    seeds_square, items_square = items * (by_seed @ by_seed), seeds * (by_item @ by_item)
    noise = 0.0
    if seeds == 1:
        seeds_variance, items_variance, seeds_t = 0.0, items_square / (items - 1) / items, 0.0
    else:
        noise_square = max(0.0, ((table - value) ** 2).sum() - seeds_square - items_square)
        noise = noise_square / ((seeds - 1) * (items - 1))
        seeds_variance = seeds_square / (seeds - 1) / table.size
        items_variance = max(0.0, items_square / (items - 1) - noise) / table.size
        seeds_t = _t(seeds - 1)
    error, least = math.sqrt(seeds_variance + items_variance), math.sqrt(noise / table.size)
    if error <= 1e-12 * max(1.0, abs(value)):  # the rounding of no variance of seeds and of items
        # Where the answers vary all the same, seeds agree by luck: no surer than the noise of answers allows.
        return value, least if least > 1e-12 else 0.0, float(items - 1)
    half = math.sqrt(seeds_t**2 * seeds_variance + _t(items - 1) ** 2 * items_variance)
    return value, error, _freedom(half / error, seeds, items)


def _estimate(table: np.ndarray, is_share: bool, items: int | None = None) -> Estimate:
    """`items`: how many bear on it, if not all."""
    value, error, freedom = _centre(table)
    if math.isinf(error):
        return Estimate(value, *((0.0, 1.0) if is_share else (-math.inf, math.inf)), error, freedom)
    half = _t(freedom) * error
    if not is_share:
        return Estimate(value, value - half, value + half, error, freedom)
    return Estimate(value, *_wilson(value, half, items or table.shape[1]), error, freedom)


def _wilson(share: float, half: float, items: int) -> tuple[float, float]:
    """The shares p that lie no further from this one than its half width, if the error goes by p(1 - p)."""
    share = min(max(share, 0.0), 1.0)
    spread = share * (1 - share)
    if half == 0 or spread < 1e-12:  # all right or all wrong: as sure as that many items make it
        scale = _t(items - 1) ** 2 / items
    else:
        scale = half**2 / spread
    centre = (share + scale / 2) / (1 + scale)
    reach = math.sqrt(scale * spread + scale**2 / 4) / (1 + scale)
    return max(0.0, min(share, centre - reach)), min(1.0, max(share, centre + reach))


def _t(freedom: float) -> float:
    return float(special.stdtrit(freedom, _UPPER))


def _freedom(t: float, seeds: int, items: int) -> float:
    """The degrees of freedom that have this 97.5 % point: between those of the seeds and those of the items."""
    lowest, highest = sorted((max(seeds - 1, 1), items - 1)) if seeds > 1 else (items - 1, items - 1)
    return float(min(max(special.stdtridf(_UPPER, t), lowest), highest))
