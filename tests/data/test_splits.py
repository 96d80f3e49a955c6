"""Splits and subsets: functions of texts, labels and seed, stratified, and stable."""

import random
from collections import Counter

import pytest
from expected_errors import refused
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.data.leakage.text_key import text_key
from headstart.data.splits import label_subset, split_by_hash

ROWS = st.lists(st.tuples(st.text("abÀà !", min_size=1), st.sampled_from("xyz")), min_size=1, max_size=40)


def distinct(count, label):
    return [(f"texte numéro {number} {label}", label) for number in range(count)]


def parted(rows, share=0.1, seed=0):
    return split_by_hash([text for text, _ in rows], [label for _, label in rows], share, seed)


@settings(deadline=None)
@given(ROWS, st.floats(0.05, 0.95), st.integers(0, 5))
def test_every_row_is_on_one_side_and_repeats_stay_together(rows, share, seed):
    split = parted(rows, share, seed)
    assert sorted(split.kept + split.held_out) == list(range(len(rows)))
    sides = [{text_key(rows[row][0]) for row in side} for side in (split.kept, split.held_out)]
    assert not sides[0] & sides[1]


@settings(deadline=None)
@given(ROWS, st.randoms())
def test_order_of_the_rows_does_not_matter(rows, randomly):
    shuffled = randomly.sample(rows, len(rows))
    texts = [{rows_[row][0] for row in parted(rows_).held_out} for rows_ in (rows, shuffled)]
    assert {text_key(text) for text in texts[0]} == {text_key(text) for text in texts[1]}


def test_the_share_is_taken_of_every_class():
    rows = distinct(800, "a") + distinct(200, "b") + distinct(14, "c")
    held_out = Counter(rows[row][1] for row in parted(rows).held_out)
    assert held_out == {"a": 80, "b": 20, "c": 1}


def test_rows_added_to_another_class_move_nothing():
    rows = distinct(300, "a") + distinct(100, "b")
    more = [*rows, *distinct(500, "c")]
    before, after = parted(rows), parted(more)
    assert before.held_out == [row for row in after.held_out if row < len(rows)]


def test_a_row_added_to_a_class_moves_at_most_one_other():
    rows = distinct(300, "a")
    for extra in range(20):
        after = parted([*rows, (f"encore un texte {extra}", "a")])
        moved = set(parted(rows).held_out) ^ {row for row in after.held_out if row < len(rows)}
        assert len(moved) <= 1


def test_another_seed_gives_another_split_and_the_same_seed_the_same():
    rows = distinct(300, "a")
    assert parted(rows, seed=1) == parted(rows, seed=1)
    assert parted(rows, seed=1) != parted(rows, seed=2)


def test_a_text_that_fills_half_a_class_does_not_overfill_the_share():
    rows = [("le même texte", "a")] * 50 + distinct(50, "a")
    for seed in range(20):
        assert len(parted(rows, seed=seed).held_out) == 10


def test_rows_of_several_labels_count_under_the_rarest():
    labels = [("common",)] * 90 + [("common", "rare")] * 10
    split = split_by_hash([f"texte {row}" for row in range(100)], labels, 0.2, 0)
    assert Counter(labels[row] for row in split.held_out) == {("common",): 18, ("common", "rare"): 2}


def test_numbers_are_split_as_one_class():
    split = split_by_hash([f"texte {row}" for row in range(100)], [row / 7 for row in range(100)], 0.1, 0)
    assert len(split.held_out) == 10


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5, float("nan")])
def test_a_share_that_is_none_is_refused(share):
    with refused("bad-value", "0.1"):
        parted(distinct(10, "a"), share)


# ---- label subsets --------------------------------------------------------------------------------------


def subset(rows, budget, seed=0):
    return label_subset([label for _, label in rows], [text for text, _ in rows], budget, seed)


@settings(deadline=None)
@given(ROWS, st.integers(0, 3))
def test_subsets_are_nested(rows, seed):
    whole = subset(rows, len(rows), seed)
    assert sorted(whole) == list(range(len(rows)))
    for budget in range(1, len(rows)):
        assert subset(rows, budget, seed) == whole[:budget]


@settings(deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=5), st.integers(0, 3))
def test_classes_stay_as_balanced_as_the_whole(sizes, seed):
    rows = [row for number, size in enumerate(sizes) for row in distinct(size, str(number))]
    whole = subset(rows, len(rows), seed)
    for budget in range(1, len(rows) + 1):
        counts = Counter(rows[row][1] for row in whole[:budget])
        assert len(counts) == min(budget, len(sizes)), "every class where the budget allows"
        for number, size in enumerate(sizes):
            # Classes that get their first row early take it from the others: at most one row each.
            assert abs(counts[str(number)] - budget * size / len(rows)) <= len(sizes)


def test_equal_classes_are_exactly_balanced_at_even_budgets():
    rows = distinct(800, "a") + distinct(800, "b")
    for budget in (50, 200, 1600):
        assert set(Counter(rows[row][1] for row in subset(rows, budget)).values()) == {budget // 2}


def test_subset_follows_the_texts_not_their_places():
    rows = distinct(50, "a") + distinct(30, "b")
    shuffled = random.Random(1).sample(rows, len(rows))
    assert [rows[row] for row in subset(rows, 20)] == [shuffled[row] for row in subset(shuffled, 20)]


def test_another_seed_gives_another_subset():
    rows = distinct(100, "a")
    assert subset(rows, 10, seed=1) != subset(rows, 10, seed=2)


def test_repeats_do_not_stick_together_in_a_small_budget():
    rows = [(f"texte {number // 2}", "a") for number in range(400)]
    texts = [rows[row][0] for row in subset(rows, 40)]
    assert len(set(texts)) > 30


def test_whole_numbers_are_classes_too():
    labels = [0] * 90 + [1] * 10
    found = label_subset(labels, [f"texte {row}" for row in range(100)], 20, 0)
    assert Counter(labels[row] for row in found) == {0: 18, 1: 2}


@pytest.mark.parametrize("budget", [0, -1, 11])
def test_a_budget_that_is_not_there_is_refused_with_both_numbers(budget):
    with refused("bad-value", str(budget), "10"):
        subset(distinct(10, "a"), budget)
