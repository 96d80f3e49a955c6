"""A look at the data before anything is trained on it."""

import json

import pytest
from expected_errors import refused

from headstart.data.check import check_data


@pytest.fixture
def files(tmp_path):
    """Train has a class of one row; a row of test is in train and one is in the corpus."""
    rows = {
        "train": [("un livre", "pos"), ("un autre livre", "pos"), ("un film", "neg")],
        "test": [("Un livre !", "pos"), ("une pièce de théâtre", "neg")],
    }
    for name, pairs in rows.items():
        lines = [json.dumps({"text": text, "label": label}) for text, label in pairs]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "corpus.txt").write_text("Une pièce de théâtre.\nautre chose\n")
    return tmp_path


def test_rows_classes_and_leaks_are_counted(files):
    paths = {name: files / f"{name}.jsonl" for name in ("train", "test")}
    report = check_data(paths, [files / "corpus.txt"])
    assert report.sets["train"].rows == 3
    assert report.sets["train"].class_counts == {"neg": 1, "pos": 2}
    assert report.sets["train"].majority_share == 2 / 3
    assert report.corpus.documents == 2
    found = report.as_json()
    assert found["leaks"]["test_in_train"] == 1
    assert found["leaks"]["test_in_corpus"] == 1
    assert found["examples"]["test_in_train"][0]["text"] == "Un livre !"
    assert ("train", "single_row_class") in [(name, warning.kind) for name, warning in report.warnings]


def test_a_label_that_train_lacks_is_refused(files):
    (files / "test.jsonl").write_text('{"text": "x", "label": "other"}\n')
    with refused("unknown-name", "other"):
        check_data({"train": files / "train.jsonl", "test": files / "test.jsonl"})


def test_nothing_to_check_is_refused():
    with refused("missing", "--train", "--corpus"):
        check_data({})
