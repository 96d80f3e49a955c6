"""Labels saved, epochs saved and the break-even: by hand, and labels by simulated studies whose truth is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from headstart.randomness import stream
from headstart.study.record import DifferenceRecord, EpochsToMatch, LabelsToMatch
from headstart.study.savings import (
    break_even,
    epochs_sentence,
    epochs_to_match,
    labels_sentence,
    labels_to_match,
)

BUDGETS = [50, 100, 200, 400, 800, 1600]


def table(share: float, seeds: int = 3, items: int = 1000) -> np.ndarray:
    """The same first items right in every seed."""
    return np.tile(np.arange(items) < round(share * items), (seeds, 1))


def values(labels):
    return labels.value, labels.low, labels.high, labels.beyond, labels.below


# ---- labels ---------------------------------------------------------------------------------------------


def test_halfway_in_accuracy_is_halfway_in_the_logarithm_of_the_labels():
    found = labels_to_match([100, 400], [table(0.6), table(0.8)], table(0.7))
    assert found.value == pytest.approx(200)  # the geometric mean of 100 and 400
    assert found.low < 200 < found.high
    assert not found.beyond
    assert not found.below


def test_what_scratch_reaches_at_a_budget_needs_that_budget():
    found = labels_to_match([50, 200, 800], [table(0.6), table(0.7), table(0.8)], table(0.7))
    assert found.value == pytest.approx(200)


def test_an_arm_that_is_better_than_all_of_scratch_is_beyond():
    found = labels_to_match([50, 200], [table(0.5), table(0.6)], table(0.9))
    assert values(found) == pytest.approx((None, 200, None, True, False))
    sentence = labels_sentence(found, [50, 200], 50)
    assert sentence == "scratch needs more than 200 labels to match finetuned with 50"


def test_an_arm_that_is_hardly_better_than_scratch_is_beyond_with_a_lower_end():
    items = np.arange(1000)
    other_items = np.tile((items >= 250) & (items < 760), (3, 1))  # 0.51 right where scratch has 0.50 at most
    found = labels_to_match([50, 200], [table(0.0), table(0.5)], other_items)
    assert found.value is None
    assert found.beyond
    assert found.high is None
    # They disagree on 510 items: an error of 2.3 points, so 0.465 is possible too: 93 % of the way to 0.5.
    assert found.low == pytest.approx(50 * 4**0.93, rel=0.02)
    assert "(at least 180)" in labels_sentence(found, [50, 200], 50)


def test_an_arm_that_is_worse_than_all_of_scratch_needs_at_most_the_fewest_labels():
    found = labels_to_match([50, 200], [table(0.6), table(0.7)], table(0.4))
    assert values(found) == pytest.approx((50, None, 50, False, True))
    sentence = labels_sentence(found, [50, 200], 200, arm="frozen")
    assert sentence == "scratch needs at most 50 labels to match frozen with 200"


def test_the_value_is_below_the_own_budget_where_scratch_is_better():
    found = labels_to_match([50, 200, 800], [table(0.6), table(0.7), table(0.8)], table(0.65))
    assert found.value == pytest.approx(100)  # whatever budget the arm had


def test_one_budget_is_enough_to_say_more_or_less():
    more, less = (labels_to_match([50], [table(0.6)], table(share)) for share in (0.9, 0.3))
    assert values(more) == pytest.approx((None, 50, None, True, False))
    assert values(less) == pytest.approx((50, None, 50, False, True))
    assert labels_to_match([50], [table(0.6)], table(0.6)).value == pytest.approx(50)


def test_a_curve_that_dips_is_levelled_before_it_is_read():
    # 0.7 and 0.6 become 0.65 twice, so 0.65 is first reached at 100 labels.
    curve = [table(0.5), table(0.7), table(0.6), table(0.8)]
    assert labels_to_match([50, 100, 200, 400], curve, table(0.65)).value == pytest.approx(100)
    assert labels_to_match([50, 100, 200, 400], curve, table(0.725)).value == pytest.approx(200 * 2**0.5, rel=1e-3)


@given(
    shares=st.lists(st.integers(0, 40), min_size=1, max_size=5),
    reached=st.integers(0, 40),
    seed=st.integers(0, 99),
)
def test_the_ends_of_the_interval_hold_the_value(shares, reached, seed):
    rng = stream(seed, "head start")
    budgets = [50 * 3**index for index in range(len(shares))]
    tables = [rng.random((3, 40)) < share / 40 for share in shares]
    found = labels_to_match(budgets, tables, rng.random((3, 40)) < reached / 40)
    value = budgets[-1] if found.value is None else found.value
    assert budgets[0] - 1e-6 <= value <= budgets[-1] + 1e-6
    assert found.low is None or budgets[0] - 1e-6 <= found.low <= value + 1e-6
    assert found.high is None or value - 1e-6 <= found.high <= budgets[-1] + 1e-6
    assert found.beyond == (found.value is None)
    assert not found.beyond or found.high is None
    assert not found.below or found.low is None
    assert "scratch needs" in labels_sentence(found, budgets, 50)


def test_budgets_that_do_not_rise_or_fit_are_refused():
    with pytest.raises(ValueError, match="rising budgets"):
        labels_to_match([200, 50], [table(0.5), table(0.6)], table(0.5))
    with pytest.raises(ValueError, match="rising budgets"):
        labels_to_match([50, 200], [table(0.5)], table(0.5))


def test_sentences_keep_two_figures_and_name_open_ends():
    say = labels_sentence(LabelsToMatch(value=412.3, low=301.7), [50, 1600], 50)
    assert say == "scratch needs about 410 labels (300 to more than 1,600) to match finetuned with 50"
    say = labels_sentence(LabelsToMatch(value=1234, high=1587), [50, 1600], 1600, "frozen", "finetuned")
    assert say == "finetuned needs about 1,200 labels (fewer than 50 to 1,600) to match frozen with 1,600"
    say = labels_sentence(LabelsToMatch(value=50, high=77, below=True), [50, 1600], 50)
    assert say == "scratch needs at most 50 labels (up to 77) to match finetuned with 50"


def simulated(level: float, seeds: int, seed_spread: float, count: int) -> list[LabelsToMatch]:
    """Studies in which scratch's level rises by half a logit with every doubling of the labels."""
    rng, found = stream(8, "labels", seeds, int(100 * level)), []
    for _ in range(count):
        difficulty, tables = rng.normal(0, 2, 1000), []
        for own in [*(0.5 * np.log2(np.array(BUDGETS) / 50)), level]:
            logits = own + difficulty + rng.normal(0, 0.5, 1000) + rng.normal(0, seed_spread, (seeds, 1))
            tables.append(rng.random((seeds, 1000)) < expit(logits))
        found.append(labels_to_match(BUDGETS, tables[:-1], tables[-1]))
    return found


@pytest.mark.parametrize(("seeds", "seed_spread"), [(3, 0.05), (3, 0.2), (5, 0.05), (5, 0.2)])
@pytest.mark.parametrize("level", [0.75, 1.9])
def test_intervals_of_the_labels_cover_the_truth(level, seeds, seed_spread):
    truth = 50 * 2 ** (2 * level)  # 141 and 697 labels, up to what a straight line misses of the curve
    found = simulated(level, seeds, seed_spread, 150)
    covered = [(f.low or 0) <= truth <= (f.high or np.inf) for f in found]
    assert np.mean(covered) >= 0.9
    if (seeds, seed_spread) == (5, 0.05):  # and they say something
        widths = [f.high / f.low for f in found if f.low and f.high]
        assert len(widths) == 150
        assert np.median(widths) < 2


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "seed_spread"), [(3, 0.05), (3, 0.2), (5, 0.05), (5, 0.2)])
@pytest.mark.parametrize("level", [0.75, 1.9, 2.4, 3.0])
def test_intervals_of_the_labels_cover_the_truth_in_many_studies(level, seeds, seed_spread):
    truth = 50 * 2 ** (2 * level)
    found = simulated(level, seeds, seed_spread, 1500)
    covered = [(f.low or 0) <= truth <= (f.high or np.inf) for f in found]
    print(f"labels {level=} {truth=:.0f} {seeds=} {seed_spread=} covered={np.mean(covered)}")
    assert np.mean(covered) >= 0.92
    if truth > BUDGETS[-1]:
        assert all(f.high is None or f.high <= BUDGETS[-1] for f in found)


# ---- epochs ---------------------------------------------------------------------------------------------


def test_epochs_are_read_off_the_mean_curves():
    scratch = [[(1, 0.5), (2, 0.6), (3, 0.8), (4, 0.7)], [(1, 0.5), (2, 0.7), (3, 0.6), (4, 0.7)]]
    arm = [[(1, 0.6), (2, 0.75), (3, 0.8), (4, 0.9)], [(1, 0.7), (2, 0.65), (3, 0.8), (4, 0.9)]]
    # scratch: 0.5, 0.65, 0.7, 0.7, at its best after 3; the arm: 0.65, 0.7, …
    found = epochs_to_match(arm, scratch)
    assert (found.value, found.of, found.scratch, found.accuracy) == pytest.approx((2, 4, 3, 0.7))
    said = "finetuned needs 2 of 4 epochs to match the best of scratch on valid (70.0 %), which scratch reaches after 3"
    assert epochs_sentence(found) == said


def test_an_arm_that_never_gets_there_has_no_epochs():
    assert epochs_to_match([[(1, 0.5), (2, 0.6)]], [[(1, 0.6), (2, 0.7)]]) == EpochsToMatch()
    assert "does not reach" in epochs_sentence(EpochsToMatch())


def test_curves_of_unequal_length_are_compared_where_all_seeds_are():
    scratch = [[(1.0, 0.5), (2.0, 0.6), (3.0, 0.9)], [(1.0, 0.5), (2.0, 0.6)]]
    found = epochs_to_match([[(1.0, 0.6)]], scratch)
    assert (found.value, found.of, found.scratch, found.accuracy) == pytest.approx((1, 1, 2, 0.6))
    assert epochs_to_match([], scratch) == EpochsToMatch()
    assert epochs_to_match([[(1.0, 0.9)]], []) == EpochsToMatch()
    assert epochs_to_match([[(1.0, 0.9)], [(0.5, 0.9)]], scratch) == EpochsToMatch()


# ---- compute --------------------------------------------------------------------------------------------


def compute(value: float, low: float, high: float) -> DifferenceRecord:
    return DifferenceRecord(
        arm="finetuned", against="scratch-long", budget=50, reading="equal compute", value=value, low=low, high=high,
        p=0.01, p_holm=0.01,
    )  # fmt: skip


def test_break_even_counts_the_finetunings_that_cost_as_much():
    found = break_even(1.2e13, 2e12)
    assert found.finetunings == pytest.approx(6)
    assert "1.2e+13 operations, as much as 6 fine-tunings" in found.sentence
    assert found.sentence.endswith("was not tried")
    assert "less than one fine-tuning" in break_even(1e12, 2e12).sentence
    assert "as much as 1 fine-tuning;" in break_even(2e12, 2e12).sentence
    with pytest.raises(ValueError, match="no operations"):
        break_even(1e12, 0)


def test_break_even_says_whether_scratch_catches_up():
    behind = break_even(1e13, 1e12, compute(0.08, 0.051, 0.109)).sentence
    assert behind.endswith("given the same compute, scratch is still 8.0 points behind finetuned (5.1 to 10.9)")
    ahead = break_even(1e13, 1e12, compute(-0.02, -0.03, -0.01)).sentence
    assert ahead.endswith("given the same compute, scratch is 2.0 points ahead of finetuned (1.0 to 3.0)")
    level = break_even(1e13, 1e12, compute(0.01, -0.01, 0.03)).sentence
    assert level.endswith("scratch is not clearly different from finetuned (-1.0 to 3.0 points)")
