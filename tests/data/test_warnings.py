"""What is probably a mistake in the rows: labels that look like one, typos, conflicts, rare classes, long texts."""

import numpy as np
import pytest
import small

from headstart.data.labelled import LabelledSet
from headstart.data.splits import split_by_hash
from headstart.data.warnings import data_warnings
from headstart.tokenizers.templates import template_of


def labelled(labels, texts=None, task="classification", path="train.csv"):
    texts = texts or [f"texte numéro {number}" for number in range(len(labels))]
    return LabelledSet(path, task, texts, labels, [f"{path}:{row + 2}" for row in range(len(labels))])


def warned(rows):
    return {warning.kind: warning for _, warning in data_warnings({"train": rows})}


@pytest.mark.parametrize("other", ["Pos ", "POS", "pös", "p os", " pos"])
def test_labels_that_look_like_one_are_warned_of_with_counts(other):
    warning = warned(labelled(["pos"] * 5 + ["neg"] * 4 + [other] * 2))["similar_labels"]
    visible = other.replace("Pos ", "Pos␣").replace(" pos", "␣pos")
    assert f"'{visible}' (2 rows)" in warning.message
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


def test_a_class_of_one_row_stays_in_train_with_a_warning():
    labels = ["a"] * 50 + ["b"] * 50 + ["c"]
    rows = labelled(labels)
    for seed in range(20):
        split = split_by_hash(rows.texts, labels, 0.1, seed)
        assert 100 in split.kept
        assert {labels[row] for row in split.held_out} == {"a", "b"}
    assert "'c'" in warned(rows)["single_row_class"].message


def test_one_to_a_thousand_is_split_by_class_and_warned_of():
    labels = ["common"] * 10_000 + ["rare"] * 10
    rows = labelled(labels)
    split = split_by_hash(rows.texts, labels, 0.2, 0)
    held_out = [labels[row] for row in split.held_out]
    assert (held_out.count("common"), held_out.count("rare")) == (2000, 2)
    message = warned(rows)["imbalance"].message
    assert "always 'common' gives 99.90%" in message
    assert "macro-F1, and give --class-weights balanced" in message


@pytest.mark.parametrize("typo", ["buisness", "busness", "businesss", "busimess", "Buisness"])
def test_a_rare_name_one_slip_from_a_usual_one_may_be_a_typo(typo):
    warning = warned(labelled(["sport"] * 40 + ["business"] * 79 + [typo] * 2))["likely_typo"]
    assert f"{typo!r} (2 rows) may be a typo of 'business' (79 rows)" in warning.message
    assert warning.locations[0] == "train.csv:121"


@pytest.mark.parametrize(
    ("rare", "usual"),
    [
        ("class 1", "class 2"),  # they differ in a number
        ("amoral", "moral"),  # in the first letter
        ("irrelevant", "relevant"),  # in two
        ("lift", "left"),  # short names often differ in one
        ("other", "sport"),
    ],
)  # fmt: skip
def test_names_that_are_meant_to_differ_are_no_typos(rare, usual):
    assert "likely_typo" not in warned(labelled([usual] * 79 + [rare] * 2))


def test_a_name_that_is_nearly_as_usual_is_no_typo():
    assert "likely_typo" not in warned(labelled(["sport"] * 40 + ["sports"] * 5))


def test_a_slip_is_found_among_many_names():
    names = [f"{chr(97 + n // 676)}{chr(97 + n // 26 % 26)}{chr(97 + n % 26)}-label" * 2 for n in range(1500)]
    rows = labelled([name for name in names for _ in range(10)] + [names[7] + "s"])
    assert [w.kind for _, w in data_warnings({"train": rows})].count("likely_typo") == 1


def test_what_is_said_of_train_is_not_said_again_of_test():
    train = labelled(["other"] * 8 + ["Other"] * 2 + ["business"] * 30 + ["buisness"])
    test = labelled(["other"] * 8 + ["Other"] + ["business"] * 30 + ["buisness"] * 2, path="test.csv")
    found = data_warnings({"train": train, "test": test})
    assert [(name, one.kind) for name, one in found if one.kind in ("similar_labels", "likely_typo")] == [
        ("train", "similar_labels"), ("train", "likely_typo"),
    ]  # fmt: skip
    assert not [one for name, one in found if name == "test" and one.kind == "single_row_class"]


@pytest.mark.parametrize("pairs", [False, True])
def test_texts_that_are_cut_are_those_that_their_template_truncates(pairs):
    rows = labelled(["a", "b"] * 20, small.sentences(40, seed=1)).tokenized(small.tokenizer())
    template = template_of(small.tokenizer(), "masked")
    if pairs:
        rows = LabelledSet("f", "classification", rows.texts, rows.labels, rows.locations, small.sentences(40, seed=2))
        rows = rows.tokenized(small.tokenizer())
    warnings = data_warnings({"train": rows}, 20)
    assert warnings == data_warnings({"train": rows}, 20, template.cost_of(pairs=pairs))
    (found,) = [w for _, w in warnings if w.kind == "cut_texts"]
    ids = rows.token_ids
    framed = [template.pair(ids[n], ids[n + 40], 20) if pairs else template.one(ids[n], 20) for n in range(40)]
    assert found.count == np.sum([one.is_truncated for one in framed]) > 0
    assert f"{found.count / 40:.1%} of the texts are longer than 20 tokens" in found.message
    assert not data_warnings({"train": rows}, 10_000)


@pytest.mark.parametrize(("rare", "is_said"), [(9, True), (11, False)])
def test_a_rare_class_is_warned_of_where_a_study_would_go_by_macro_f1(rare, is_said):
    assert ("imbalance" in warned(labelled(["common"] * (100 - rare) + ["rare"] * rare))) == is_said
