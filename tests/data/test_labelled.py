"""Labelled and paired sets, and the numbers of their classes."""

import json

import numpy as np
import pytest
import small
from expected_errors import refused

from headstart.data.labelled import LabelledSet, read_labelled, read_pairs
from headstart.data.labels import LabelMap, class_counts
from headstart.data.warnings import data_warnings


def labelled(labels, texts=None, task="classification"):
    texts = texts or [f"text {number}" for number in range(len(labels))]
    return LabelledSet("f", task, texts, labels, [f"f:{row + 1}" for row in range(len(labels))])


def jsonl(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_integers_are_in_numerical_order_and_names_in_that_of_their_characters():
    assert LabelMap.of(labelled(["10", "2", "-1", "2"])).labels == ("-1", "2", "10")
    assert LabelMap.of(labelled(["10", "2", "b", "B"])).labels == ("10", "2", "B", "b")
    assert LabelMap.of(labelled(["10", "02"])).labels == ("02", "10")
    assert LabelMap.of(labelled(["10", "9", "09"])).labels == ("09", "10", "9")


def test_order_of_rows_does_not_change_the_map():
    assert LabelMap.of(labelled(["b", "a", "c"])) == LabelMap.of(labelled(["c", "b", "a", "a"]))


def test_ids_are_places_in_the_map():
    rows = labelled(["10", "2", "10"])
    assert LabelMap.of(rows).ids(rows).tolist() == [1, 0, 1]


def test_multilabel_ids_are_a_table():
    rows = labelled([("b", "a"), (), ("c",), ("a", "a")], task="multilabel")
    label_map = LabelMap.of(rows)
    assert label_map.labels == ("a", "b", "c")
    assert np.array_equal(label_map.ids(rows), [[1, 1, 0], [0, 0, 0], [0, 0, 1], [1, 0, 0]])


def test_map_survives_being_kept_as_a_list():
    label_map = LabelMap.of(labelled(["é", "10", "2"]))
    assert LabelMap(tuple(json.loads(json.dumps(list(label_map.labels))))) == label_map


def test_numbers_and_strings_are_the_same_label_in_every_form(tmp_path):
    jsonl(tmp_path / "a.jsonl", {"text": "a", "label": 1}, {"text": "b", "label": "0"})
    (tmp_path / "a.csv").write_text("text,label\na,1\nb,0\n")
    one, other = read_labelled(tmp_path / "a.jsonl"), read_labelled(tmp_path / "a.csv")
    assert one.labels == other.labels == ["1", "0"]
    assert one.fingerprint == other.fingerprint


def test_true_and_false_are_labels(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", {"text": "a", "label": True}, {"text": "b", "label": False})
    assert read_labelled(path).labels == ["true", "false"]


def test_pairs_of_texts_are_kept_apart(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", {"text_a": "x", "text_b": "y", "label": 1})
    found = read_labelled(path)
    assert (found.texts, found.texts_b, found.whole_texts) == (["x"], ["y"], ["x\ny"])


def test_regression_takes_finite_numbers(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", {"text": "a", "label": 1}, {"text": "b", "label": "2.5"})
    assert read_labelled(path, task="regression").labels == [1.0, 2.5]


def test_multilabel_takes_lists(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", {"text": "a", "label": ["x", 1]}, {"text": "b", "label": []})
    assert read_labelled(path, task="multilabel").labels == [("x", "1"), ()]


def test_pairs_come_from_named_columns_too(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", {"text_a": "x", "text_b": "y"})
    found = read_pairs(path)
    assert (found.sources, found.targets) == (["x"], ["y"])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([("ab", "1")], [("ab", "2")]),
        ([("ab", "1")], [("a", "b1")]),
        ([("a", "1"), ("b", "1")], [("b", "1"), ("a", "1")]),
        ([("a", "1")], [("a", "1"), ("a", "1")]),
    ],
)
def test_fingerprint_tells_sets_apart(one, other):
    prints = [labelled([label for _, label in s], [text for text, _ in s]).fingerprint for s in (one, other)]
    assert prints[0] != prints[1]


def test_class_counts_follow_the_map():
    assert list(class_counts(["10", "9", "10"]).items()) == [("9", 1), ("10", 2)]


def test_a_clean_set_has_no_warnings():
    assert data_warnings({"train": labelled(["a", "b"] * 5)}) == []


def test_a_label_map_with_a_label_twice_is_refused():
    with refused("conflict", "'a'"):
        LabelMap(("a", "b", "a"))


def test_token_ids_follow_their_rows_and_are_made_once(tmp_path):
    (tmp_path / "pairs.jsonl").write_text(
        "".join(json.dumps({"text_a": f"le livre {n}", "text_b": f"{n}", "label": "x"}) + "\n" for n in range(4))
    )
    tokenizer = small.tokenizer()
    labelled = read_labelled(tmp_path / "pairs.jsonl").tokenized(tokenizer)
    assert labelled.tokenized(tokenizer) is labelled
    some = labelled.subset([2, 0])
    expected = tokenizer.encode_many([*some.texts, *some.texts_b])
    assert [ids.tolist() for ids in some.token_ids] == [ids.tolist() for ids in expected]
