"""Means, differences, macro-F1, Holm and power: by hand, against other libraries, and at the edges."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from headstart.randomness import stream
from headstart.study.statistics import (
    detectable,
    detectable_sentence,
    difference,
    equivalent_items,
    holm,
    macro_f1,
    macro_f1_table,
    mean,
)

ANSWERS = st.tuples(st.integers(1, 5), st.integers(1, 30)).flatmap(
    lambda shape: arrays(np.int64, shape, elements=st.integers(0, 1))
)


# ---- means ----------------------------------------------------------------------------------------------


def test_two_seeds_and_two_items_by_hand():
    # Seeds' means 1 and 3, items' means 1.5 and 2.5, mean 2: squares of 4, 1 and 0 on one freedom each.
    found = mean(np.array([[0.5, 1.5], [2.5, 3.5]]))
    assert found.value == 2
    assert found.error == pytest.approx(math.sqrt((4 + 1) / 4))
    t = stats.t.ppf(0.975, 1)
    assert found.freedom == pytest.approx(1)
    assert (found.low, found.high) == pytest.approx((2 - t * found.error, 2 + t * found.error))


def test_each_source_of_error_has_its_own_t():
    rng = stream(1, "table")
    table = rng.normal(0, 3, (4, 1)) + rng.normal(0, 20, 50) + rng.normal(0, 1, (4, 50))
    found = mean(table)
    by_seed, by_item = table.mean(axis=1), table.mean(axis=0)
    noise = table - by_seed[:, None] - by_item + table.mean()
    seeds = by_seed.var(ddof=1) / 4
    items = by_item.var(ddof=1) / 50 - (noise**2).sum() / (3 * 49) / 200
    assert found.error == pytest.approx(math.sqrt(seeds + items))
    half = math.sqrt(stats.t.ppf(0.975, 3) ** 2 * seeds + stats.t.ppf(0.975, 49) ** 2 * items)
    assert (found.value - found.low, found.high - found.value) == pytest.approx((half, half))
    assert 3 < found.freedom < 49
    assert stats.t.ppf(0.975, found.freedom) * found.error == pytest.approx(half)


def test_one_seed_is_the_t_interval_of_its_items():
    table = stream(2, "table").normal(5, 2, (1, 40))
    found = mean(table)
    expected = stats.ttest_1samp(table[0], 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx(tuple(expected))
    assert found.freedom == pytest.approx(39)


def test_the_share_of_one_seed_is_wilsons_interval_with_t_for_z():
    items, right, t = 50, 40, stats.t.ppf(0.975, 49)
    found = mean((np.arange(items) < right)[None])
    expected = stats.binomtest(right, items).proportion_ci(method="wilson")
    assert (found.low, found.high) == pytest.approx(tuple(expected), abs=0.01)
    for end in (found.low, found.high):  # the end is where the share is t errors away
        assert abs(end - 0.8) == pytest.approx(t * math.sqrt(end * (1 - end) / (items - 1)))


def test_seeds_that_all_agree_are_as_good_as_one():
    row = stream(3, "table").random(200) < 0.7
    assert mean(np.tile(row, (5, 1))) == pytest.approx(mean(row[None]))


@pytest.mark.parametrize("seeds", [1, 3])
def test_all_right_says_how_many_could_still_be_wrong(seeds):
    found = mean(np.ones((seeds, 100)))
    assert (found.value, found.high, found.error) == (1, 1, 0)
    exact = stats.binomtest(100, 100).proportion_ci(method="exact")
    assert found.low == pytest.approx(exact.low, abs=0.005)
    nothing = mean(np.zeros((seeds, 100)))
    assert (nothing.low, nothing.high) == pytest.approx((0, 1 - found.low))


def test_one_item_tells_nothing():
    assert mean(np.array([[1], [0]]))[:3] == (0.5, 0, 1)
    found = difference(np.array([[1], [0]]), np.array([[1], [1]]))
    assert (found.value, found.low, found.high, found.p) == (0.5, -1, 1, 1)


def test_items_whose_component_comes_out_negative_leave_the_seeds():
    # Each item is right in one seed of two: the items' means are all the same, the seeds' too.
    table = np.array([[1, 0, 1, 0], [0, 1, 0, 1]])
    found = mean(table)
    assert found.value == 0.5
    assert 0 <= found.low < 0.5 < found.high <= 1
    shifted = mean(np.array([[1, 1, 1, 1, 1, 0], [0, 0, 0, 0, 0, 1]]))
    assert shifted.freedom == pytest.approx(1)
    assert shifted.error == pytest.approx(abs(5 / 6 - 1 / 6) / 2)


@given(ANSWERS)
def test_intervals_hold_their_value_and_stay_between_0_and_1(table):
    found = mean(table)
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert found.value == pytest.approx(table.mean())


@given(ANSWERS, st.randoms(use_true_random=False))
def test_the_order_of_seeds_and_items_does_not_matter(table, random):
    rows, columns = list(range(table.shape[0])), list(range(table.shape[1]))
    random.shuffle(rows)
    random.shuffle(columns)
    assert mean(table[rows][:, columns]) == pytest.approx(mean(table), abs=1e-9)


def test_a_table_of_nothing_is_refused():
    with pytest.raises(ValueError, match="seeds and items"):
        mean(np.zeros((3, 0)))


# ---- differences ----------------------------------------------------------------------------------------


def test_a_difference_is_the_mean_of_the_differences():
    rng = stream(4, "table")
    first, second = rng.normal(0, 1, (5, 60)), rng.normal(0.3, 1, (5, 60))
    found, expected = difference(first, second), mean(second - first)
    assert (found.value, found.low, found.high) == pytest.approx(expected[:3])
    assert (found.error, found.freedom) == pytest.approx(expected[3:])


def test_one_seed_is_the_paired_t_test():
    rng = stream(5, "table")
    first, second = rng.random((1, 80)) < 0.6, rng.random((1, 80)) < 0.8
    found = difference(first, second)
    expected = stats.ttest_rel(second[0].astype(float), first[0].astype(float))
    assert found.p == pytest.approx(expected.pvalue)
    assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval(0.95)))


@given(ANSWERS, st.integers(0, 99))
def test_p_is_below_5_percent_just_where_the_interval_leaves_out_0(first, seed):
    second = stream(seed, "second").random(first.shape) < 0.8
    found, back = difference(first, second), difference(second, first)
    assert -1 <= found.low <= found.value <= found.high <= 1
    assert back[:4] == pytest.approx((-found.value, -found.high, -found.low, found.p), abs=1e-9)
    if found.error > 0 and abs(found.p - 0.05) > 1e-9:
        assert (found.p < 0.05) == (not found.low <= 0 <= found.high)


def test_arms_with_the_same_answers_do_not_differ():
    table = stream(6, "table").random((3, 100)) < 0.5
    found = difference(table, table)
    assert (found.value, found.p, found.error) == (0, 1, 0)
    assert found.high == -found.low == pytest.approx(1 - 0.025 ** (1 / 100))


def test_arms_that_differ_on_every_item_do():
    found = difference(np.zeros((3, 100)), np.ones((3, 100)))
    assert found.value == found.high == 1
    assert found.p == pytest.approx(stats.binomtest(100, 100).pvalue)


def test_tables_of_other_seeds_or_items_are_not_paired():
    with pytest.raises(ValueError, match="not paired"):
        difference(np.zeros((3, 10)), np.zeros((5, 10)))


# ---- macro-F1 -------------------------------------------------------------------------------------------


def predicted(seeds: int = 4, items: int = 200, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = stream(7, "classes", seeds, items, classes)
    truth = rng.integers(0, classes, items)
    guesses = rng.integers(0, classes, (seeds, items))
    return np.where(rng.random((seeds, items)) < 0.6, truth, guesses), truth


def test_macro_f1_is_scikit_learns_in_each_seed():
    from sklearn.metrics import f1_score

    predictions, truth = predicted()
    expected = [f1_score(truth, row, average="macro") for row in predictions]
    np.testing.assert_allclose(macro_f1_table(predictions, truth, 3).mean(axis=1), expected)
    assert macro_f1(predictions, truth, 3).value == pytest.approx(np.mean(expected))


def test_the_parts_of_the_items_agree_with_the_jackknife():
    from sklearn.metrics import f1_score

    predictions, truth = predicted(seeds=1, items=300)
    parts = macro_f1_table(predictions, truth, 3)[0]
    whole = f1_score(truth, predictions[0], average="macro")
    without = [
        f1_score(np.delete(truth, item), np.delete(predictions[0], item), average="macro") for item in range(300)
    ]
    jackknife = 300 * whole - 299 * np.array(without)
    np.testing.assert_allclose(parts, jackknife, atol=0.02)
    error = math.sqrt(jackknife.var(ddof=1) / 300)
    assert macro_f1(predictions, truth, 3).error == pytest.approx(error, rel=0.02)


def test_a_class_that_is_neither_true_nor_predicted_does_not_count():
    predictions, truth = np.array([[0, 1, 1, 0], [0, 1, 2, 0]]), np.array([0, 1, 0, 0])
    # Seed 0: F1 of 4/5 and 2/3. Seed 1: 4/5, 1, and 0 for the class 2 that is predicted in vain.
    np.testing.assert_allclose(
        macro_f1_table(predictions, truth, 5).mean(axis=1), [(4 / 5 + 2 / 3) / 2, (4 / 5 + 1) / 3]
    )


def test_macro_f1_at_its_edges():
    truth = np.array([0, 1] * 50)
    perfect = macro_f1(np.tile(truth, (3, 1)), truth, 2)
    assert (perfect.value, perfect.high, perfect.error) == (1, 1, 0)
    assert 0.95 < perfect.low < 0.97
    wrong = macro_f1(1 - truth[None], truth, 2)
    assert (wrong.value, wrong.low) == (0, 0)
    majority = macro_f1(np.zeros((3, 100), int), truth, 2)
    assert majority.value == pytest.approx(1 / 3)
    assert 0 < majority.low < 1 / 3 < majority.high < 0.5


def test_arms_that_agree_on_few_rare_items_may_still_differ_on_others():
    truth = np.array([0] * 95 + [1] * 5)
    table = macro_f1_table(np.zeros((3, 100), int), truth, 2)
    found = difference(table, table, rarest=5)
    # Of five items 0.025 ** (1 / 5) may be wrong as often as that, and macro-F1 has half of the rare class.
    assert (found.value, found.p) == (0, 1)
    assert (found.low, found.high) == pytest.approx((-(1 - 0.025 ** (1 / 5)), 1 - 0.025 ** (1 / 5)))


def test_an_arm_that_never_names_the_rare_class_may_know_some_of_other_items():
    truth = np.array([0] * 380 + [1] * 20)
    found = macro_f1(np.zeros((3, 400), int), truth, 2)
    rows = stats.binomtest(0, 20).proportion_ci(method="wilson")
    # F1 of a class of which a share s is recognised, and nothing wrongly: 2 s / (1 + s), at most twice the share.
    assert found.value == pytest.approx(760 / 780 / 2)
    assert rows.high / 2 < found.high - found.value < rows.high
    assert found.value - found.low < 0.02


def test_even_classes_count_all_their_items_and_uneven_ones_those_of_the_rare():
    assert equivalent_items([50, 50]) == 100
    assert equivalent_items([100, 1900]) == 380
    assert "2,000 test items, 100 of the rarest class, and 3 seeds" in detectable_sentence(2000, 3, 5.0, 100)


def test_macro_f1_wants_a_prediction_for_each_item():
    with pytest.raises(ValueError, match="3 predictions a seed for 4"):
        macro_f1(np.zeros((2, 3), int), np.zeros(4, int), 2)


# ---- Holm, power ----------------------------------------------------------------------------------------


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.02, 0.02]) == pytest.approx([0.04, 0.04])
    assert holm([0.9, 0.8]) == [1, 1]
    assert holm([0.03]) == [0.03]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_lies_between_p_and_bonferroni_and_keeps_the_order(p_values):
    adjusted = holm(p_values)
    for p, new in zip(p_values, adjusted, strict=True):
        assert p <= new <= min(1, len(p_values) * p)
    in_order = [adjusted[index] for index in np.argsort(p_values, kind="stable")]
    assert in_order == sorted(in_order)


def test_one_seed_detects_what_the_normal_distribution_says():
    # Arms that disagree on 16 % of 1,600 items: an error of 1 point, found with 80 % power at 1.96 + 0.84 of it.
    expected = stats.t.ppf(0.975, 1599) + stats.norm.ppf(0.8)
    assert detectable(1600, 1) == pytest.approx(expected, rel=1e-3)


def test_more_items_more_seeds_and_steadier_seeds_detect_less():
    assert detectable(2000, 5) < detectable(400, 5) < detectable(400, 3)
    assert detectable(2000, 5, seed_deviation=0.002) < detectable(2000, 5, seed_deviation=0.03)
    assert detectable(2000, 5, arm_correlation=0.8) < detectable(2000, 5, arm_correlation=0.2)
    assert detectable(2000, 5, accuracy=0.95) < detectable(2000, 5)


def test_what_can_be_detected_is_said_with_what_it_rests_on():
    assert detectable_sentence(2000, 5, 3.14) == (
        "with 2,000 test items and 5 seeds you can detect 3.1 points, if the standard deviation over seeds is 1 point"
    )
    assert "without accounting for variation over seeds" in detectable_sentence(2000, 1, 2.5)
    assert "hardly any difference" in detectable_sentence(2, 2, detectable(2, 2))


def test_seeds_that_agree_by_luck_are_not_surer_than_their_answers_noise():
    # Two seeds with the same mean, each with its own items: no variance of seeds, none of items, much of answers.
    first = np.zeros((2, 18))
    second = np.zeros((2, 18))
    second[0, :3], second[1, 3:6] = 1, 1
    first[0, 10], first[1, 11] = 1, 1
    found = difference(first, second)
    assert found.value == pytest.approx(4 / 36)
    assert found.error > 0.05
    assert found.low < found.value < found.high
    assert (found.p < 0.05) == (not found.low <= 0 <= found.high)


@given(st.integers(0, 2**32 - 1), st.integers(2, 4), st.integers(4, 30))
def test_p_and_the_interval_of_small_tables_never_disagree(seed, seeds, items):
    rng = np.random.default_rng(seed)
    first, second = (rng.random((seeds, items)) < share for share in rng.random(2))
    found = difference(first.astype(float), second.astype(float))
    if found.error > 0:
        assert (found.p < 0.05) == (not found.low <= 0 <= found.high)
