"""Labels that are never seen, or too few."""

from expected_errors import refused

from headstart.data.labelled import LabelledSet
from headstart.data.labels import LabelMap
from headstart.data.splits import label_subset, split_by_hash


def labelled(labels, texts=None, task="classification", path="train.csv"):
    texts = texts or [f"texte numéro {number}" for number in range(len(labels))]
    return LabelledSet(path, task, texts, labels, [f"{path}:{row + 2}" for row in range(len(labels))])


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


def test_a_class_of_two_rows_has_one_on_each_side():
    labels = ["a"] * 50 + ["b"] * 2
    for seed in range(20):
        split = split_by_hash(labelled(labels).texts, labels, 0.1, seed)
        assert {labels[row] for row in split.kept} == {labels[row] for row in split.held_out} == {"a", "b"}


def test_a_small_budget_still_has_the_rare_class():
    labels = ["common"] * 10_000 + ["rare"] * 10
    chosen = label_subset(labels, labelled(labels).texts, 50, 0)
    assert [labels[row] for row in chosen].count("rare") == 1
