"""Labels that are probably not meant, never seen, or too few."""

import pytest
from expected_errors import refused

from headstart.data.labelled import LabelledSet
from headstart.data.labels import LabelMap, label_warnings
from headstart.data.splits import label_subset, split_by_hash


def labelled(labels, texts=None, task="classification", path="train.csv"):
    texts = texts or [f"texte numéro {number}" for number in range(len(labels))]
    return LabelledSet(path, task, texts, labels, [f"{path}:{row + 2}" for row in range(len(labels))])


def warned(rows):
    return {warning.kind: warning for warning in label_warnings(rows)}


@pytest.mark.parametrize("other", ["Pos ", "POS", "pös", "p os", " pos"])
def test_labels_that_look_like_one_are_warned_of_with_counts(other):
    warning = warned(labelled(["pos"] * 5 + ["neg"] * 4 + [other] * 2))["similar_labels"]
    assert f"'{other}' (2 rows)" in warning.message
    assert "'pos' (5 rows)" in warning.message
    assert warning.count == 2
    assert "train.csv:11" in warning.locations


def test_numbers_written_in_two_ways_are_warned_of():
    assert "similar_labels" in warned(labelled(["1", "1.0", "0"] * 3))


@pytest.mark.parametrize("labels", [["+1", "-1"], ["C", "C++"], ["a-b", "ab"], ["1", "10"]])
def test_labels_that_differ_in_signs_are_different(labels):
    assert "similar_labels" not in warned(labelled(labels * 3))


def test_a_label_twice_in_one_row_is_warned_of():
    rows = labelled([("a", "b"), ("a", "a"), ("b",)], task="multilabel")
    assert warned(rows)["repeated_label"].locations == ("train.csv:3",)


def test_one_text_with_two_labels_is_warned_of_with_counts():
    texts = ["Bien !", "autre", "bien", "BIEN.", "encore", "encore"]
    warning = warned(labelled(["1", "0", "0", "1", "1", "1"], texts))["conflicting_labels"]
    assert warning.count == 1
    assert "1 text has different labels, in 3 rows" in warning.message
    assert warning.locations == ("train.csv:2", "train.csv:4", "train.csv:5")


def test_one_text_with_two_numbers_is_warned_of_in_regression():
    assert "conflicting_labels" in warned(labelled([1.0, 2.0], ["x", "X"], task="regression"))


def test_order_of_labels_in_a_row_is_no_conflict():
    rows = labelled([("a", "b"), ("b", "a")], ["x", "x"], task="multilabel")
    assert "conflicting_labels" not in warned(rows)


def test_an_unseen_label_is_refused_before_training_with_count_and_first_row():
    label_map = LabelMap.of(labelled(["pos", "neg"]))
    test = labelled(["neg", "Pos", "pos", "Pos", "mixed"], path="test.csv")
    for refuse in (label_map.refuse_unseen, label_map.ids):
        names = ["'Pos' (2 rows", "test.csv:3", "'mixed' (1 rows", "test.csv:6", "'pos'?"]
        with refused("unknown-name", *names) as caught:
            refuse(test)
        assert caught.value.where == "test.csv:3"


def test_an_unseen_label_among_several_is_refused():
    label_map = LabelMap.of(labelled([("a",), ("b",)], task="multilabel"))
    with refused("unknown-name", "'c'"):
        label_map.refuse_unseen(labelled([("a", "c")], task="multilabel"))


def test_one_class_is_refused():
    with refused("too-few", "train.csv", "'1'", "2"):
        LabelMap.of(labelled(["1", "1"]))


def test_no_label_at_all_is_refused_for_multilabel():
    with refused("too-few", "1"):
        LabelMap.of(labelled([(), ()], task="multilabel"))


def test_a_class_of_one_row_stays_in_train_with_a_warning():
    labels = ["a"] * 50 + ["b"] * 50 + ["c"]
    rows = labelled(labels)
    for seed in range(20):
        split = split_by_hash(rows.texts, labels, 0.1, seed)
        assert 100 in split.kept
        assert {labels[row] for row in split.held_out} == {"a", "b"}
    assert "'c'" in warned(rows)["single_row_class"].message


def test_a_class_of_two_rows_has_one_on_each_side():
    labels = ["a"] * 50 + ["b"] * 2
    for seed in range(20):
        split = split_by_hash(labelled(labels).texts, labels, 0.1, seed)
        assert {labels[row] for row in split.kept} == {labels[row] for row in split.held_out} == {"a", "b"}


def test_one_to_a_thousand_is_split_by_class_and_warned_of():
    labels = ["common"] * 10_000 + ["rare"] * 10
    rows = labelled(labels)
    split = split_by_hash(rows.texts, labels, 0.2, 0)
    held_out = [labels[row] for row in split.held_out]
    assert (held_out.count("common"), held_out.count("rare")) == (2000, 2)
    message = warned(rows)["imbalance"].message
    assert "always 'common' gives 99.90%" in message
    assert "macro-F1 and balanced accuracy" in message


def test_a_small_budget_still_has_the_rare_class():
    labels = ["common"] * 10_000 + ["rare"] * 10
    chosen = label_subset(labels, labelled(labels).texts, 50, 0)
    assert [labels[row] for row in chosen].count("rare") == 1
