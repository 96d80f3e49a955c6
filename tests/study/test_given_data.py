"""Data given beside a study's settings: what the settings say of it, and the files that its trials read."""

import datetime
import json
import os
from functools import cache

import pytest
import small
from expected_errors import refused

from headstart.config.reading import Reading, RowReading
from headstart.config.study import FinetunePart, PretrainPart, StudyConfig, StudyPart, TokenizerPart
from headstart.data.labelled import read_labelled
from headstart.data.readers.documents import pieces
from headstart.study.data import labelled_sets
from headstart.study.given_data import given_data
from headstart.study.study import study as run_study

pandas, datasets = pytest.importorskip("pandas"), pytest.importorskip("datasets")

TEXTS = small.sentences(40, seed=4)
LABELS = ["oui" if "belle" in text else "non" for text in TEXTS]
RECORDS = [{"text": text, "label": label} for text, label in zip(TEXTS, LABELS, strict=True)]
SHAPE = {"width": 16, "ffn": 24, "heads": 2, "depth": 1, "context": 64}


@cache
def dataset():
    """With a column of classes, which is kept as numbers."""
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["non", "oui"])})
    return datasets.Dataset.from_list(RECORDS, features=features)


def given(config=None, **sources):
    return given_data(config or StudyConfig(), *(sources.get(name) for name in ("corpus", "train", "valid", "test")))


def rows_of(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


# ---- names in the settings ----------------------------------------------------------------------------------


def test_without_data_the_settings_stay_as_they_are(tmp_path):
    config = StudyConfig(
        pretrain=[PretrainPart(corpus=["a.txt", "b.txt=2"])], finetune=FinetunePart(train="t.csv", test="x.csv")
    )
    found = given(config)
    assert (found.config, found.sets) == (config, {})
    assert found.as_files(config, tmp_path) == config
    assert list(tmp_path.iterdir()) == []


def test_settings_name_what_is_given_and_paths_are_paths(tmp_path):
    config = StudyConfig(finetune=FinetunePart(train="from-the-settings.csv", valid="v.csv"))
    found = given(config, train=pandas.DataFrame(RECORDS), test=str(tmp_path / "t.csv"), corpus=["a.txt", "b.txt=3"])
    files = found.config.finetune
    assert (files.train, files.valid, files.test) == ("pandas.DataFrame", "v.csv", str(tmp_path / "t.csv"))
    (phase,) = found.config.pretrain
    assert phase.corpus == ["a.txt", "b.txt=3"]
    assert list(found.sets) == ["train"]
    assert found.corpus == [None, None]


def test_a_corpus_keeps_its_weights_and_the_phase_its_settings():
    config = StudyConfig(pretrain=[PretrainPart(steps=7)])
    found = given(config, corpus=[(dataset(), 2.5), "a.txt", pandas.Series(TEXTS), ("b.txt", 0.5)])
    (phase,) = found.config.pretrain
    assert phase.corpus == ["datasets.Dataset=2.5", "a.txt", "pandas.Series", "b.txt=0.5"]
    assert phase.steps == 7
    assert [table is not None for table in found.corpus] == [True, False, True, False]


def test_splits_take_the_roles_of_their_names(tmp_path):
    splits = {"train": dataset().select(range(30)), "validation": dataset().select([30]), "test": dataset()}
    found = given(train=datasets.DatasetDict(splits), test=pandas.DataFrame(RECORDS[:5]))
    sets = labelled_sets(found.config, lambda line: None, found.sets)
    assert [len(sets[name]) for name in ("train", "valid", "test")] == [30, 1, 5]
    assert (found.config.finetune.valid, found.config.finetune.test) == ("datasets.Dataset", "pandas.DataFrame")


def test_a_folder_of_splits_is_taken_apart_and_its_train_is_a_corpus_too(tmp_path):
    splits = {"train": dataset().select(range(30)), "test": dataset().select(range(30, 40))}
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "reviews")
    folder = str(tmp_path / "reviews")
    config = StudyConfig(pretrain=[PretrainPart(corpus=[f"{folder}=2", "a.txt"])], finetune=FinetunePart(train=folder))
    found = given(config).config
    assert found.pretrain[0].corpus == [f"{folder}/train=2", "a.txt"]
    assert (found.finetune.train, found.finetune.valid, found.finetune.test) == (
        f"{folder}/train", "", f"{folder}/test",
    )  # fmt: skip


def test_what_a_study_cannot_be_given_is_refused(tmp_path):
    two_phases = StudyConfig(pretrain=[PretrainPart(corpus=["a.txt"]), PretrainPart(corpus=["b.txt"])])
    with refused("conflict", "[[pretrain]]"):
        given(two_phases, corpus="c.txt")
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    with refused("unsupported", "rows.jsonl"):
        given(train=read_labelled(tmp_path / "rows.jsonl"))
    with refused("unsupported", "int"):
        given(train=3)


# ---- files for the trials -----------------------------------------------------------------------------------


def test_tables_of_rows_are_read_as_they_are(tmp_path):
    frame = pandas.DataFrame(RECORDS).assign(id=range(40), note="private")
    found = given(train=frame, test=dataset())
    sets = labelled_sets(found.as_files(found.config, tmp_path), lambda line: None, found.sets)
    assert sorted([*sets["train"].texts, *sets["valid"].texts]) == sorted(TEXTS)
    assert (sets["test"].texts, sets["test"].labels) == (TEXTS, LABELS)  # classes by their names
    assert not (tmp_path / "given").exists(), "what prepare writes is the only copy"


def test_columns_are_those_that_the_settings_name(tmp_path):
    frame = pandas.DataFrame({"text": ["no"] * 40, "review": TEXTS, "verdict": LABELS, "label": 0})
    config = StudyConfig(reading=RowReading(text_column="review", label_column="verdict"))
    found = given(config, train=frame, corpus=frame)
    as_files = found.as_files(found.config, tmp_path)
    rows = labelled_sets(as_files, lambda line: None, found.sets)["train"]
    assert set(zip(rows.texts, rows.labels, strict=True)) < set(zip(TEXTS, LABELS, strict=True))
    assert rows_of(as_files.pretrain[0].corpus[0]) == [{"review": text} for text in TEXTS]
    with refused("unknown-name", "'verdict'"):
        narrow = given(config, train=frame[["review"]])
        labelled_sets(narrow.config, lambda line: None, narrow.sets)


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_corpus_table_is_written_so_that_every_encoding_reads_it(tmp_path, encoding):
    config = StudyConfig(reading=RowReading(encoding=encoding))
    found = given(config, corpus=pandas.Series(["un été à Nîmes"]))
    (phase,) = found.as_files(found.config, tmp_path).pretrain
    assert [piece.text for piece in pieces(phase.corpus, config.reading.part(Reading))] == ["un été à Nîmes"]


def test_a_corpus_of_tables_becomes_files_with_their_weights(tmp_path):
    found = given(corpus=[(dataset(), 2.0), "a.txt", pandas.Series(TEXTS[:3])])
    (phase,) = found.as_files(found.config, tmp_path).pretrain
    first, third = tmp_path / "given" / "corpus-1.jsonl", tmp_path / "given" / "corpus-3.jsonl"
    assert phase.corpus == [f"{first}=2", "a.txt", str(third)]
    assert rows_of(first) == [{"text": text} for text in TEXTS]
    assert rows_of(third) == [{"text": text} for text in TEXTS[:3]]


def read(*rows, test=RECORDS):
    """The training rows of a table beside which nothing is kept apart."""
    found = given(train=list(rows), valid=test, test=test)
    return labelled_sets(found.config, lambda line: None, found.sets)["train"]


def test_pairs_of_texts_stay_pairs():
    pairs = [
        {"text_a": text, "text_b": "Vraiment ?", "label": label} for text, label in zip(TEXTS, LABELS, strict=True)
    ]
    rows = read(*pairs, test=pairs)
    assert (rows.texts, rows.texts_b) == (TEXTS, ["Vraiment ?"] * 40)
    assert given(train=pairs).config.finetune.train == "list of records"


def test_whole_numbers_are_labels_and_dates_are_not():
    rows = read({"text": "a", "label": 2}, {"text": "É 🚀 \u2028", "label": 3}, test=[{"text": "a", "label": 3}])
    assert (rows.texts, rows.labels) == (["a", "É 🚀 \u2028"], ["2", "3"])
    with refused("bad-row", "list of records:1", "2024-02-29"):
        read({"text": "bissextile", "label": datetime.date(2024, 2, 29)})


@pytest.mark.parametrize("row", [{"text": None, "label": "non"}, {"text": "a", "label": None}])
def test_a_bad_row_in_memory_is_named(row):
    with refused("bad-row", "list of records:2"):
        read(RECORDS[0], row)


def test_the_same_table_is_not_written_again(tmp_path):
    found = given(corpus=pandas.Series(TEXTS))
    file = tmp_path / "given" / "corpus-1.jsonl"
    found.as_files(found.config, tmp_path)
    before = file.stat().st_ino
    found.as_files(found.config, tmp_path)
    assert file.stat().st_ino == before
    other = given(corpus=pandas.Series(TEXTS[1:]))
    other.as_files(other.config, tmp_path)
    assert [row["text"] for row in rows_of(file)] == TEXTS[1:]


# ---- a whole study ------------------------------------------------------------------------------------------


def small_study(**part):
    return StudyConfig(
        study=StudyPart(**{"budgets": [8], "seeds": 2, **part}),
        tokenizer=TokenizerPart(vocab=320),
        pretrain=[PretrainPart(steps=1, length=16, batch_tokens=64, evaluations=1)],
        finetune=FinetunePart(epochs=1.0, least_steps=1, length=24, learning_rates=[1e-3], evaluations=1),
    )


@pytest.mark.slow
def test_a_study_of_frames_goes_on_and_notices_a_change(tmp_path):
    frame, config = pandas.DataFrame(RECORDS), small_study(arms=["majority", "tfidf", "finetuned"])
    sources = {"corpus": [(dataset(), 2.0)], "train": frame, "test": dataset(), "out": tmp_path / "study"}
    found = run_study(config, **sources, model=SHAPE, jobs=1, device="cpu")
    assert {trial.status for trial in found.trials} == {"done"}
    settings = (tmp_path / "study" / "study.toml").read_text()
    assert 'train = "pandas.DataFrame"' in settings
    assert 'corpus = ["datasets.Dataset=2"]' in settings
    assert str(tmp_path) not in settings
    assert run_study(config, **sources, model=SHAPE, jobs=1, device="cpu") == found
    with refused("changed", "content.train"):
        run_study(config, **{**sources, "train": frame[1:]}, model=SHAPE, jobs=1, device="cpu")


@pytest.mark.parametrize("path", ["-", "/dev/stdin", "-.jsonl"])
def test_what_can_be_read_once_is_refused(tmp_path, path):
    os.mkfifo(tmp_path / "pipe")
    for once in (path, str(tmp_path / "pipe")):
        for sources in ({"corpus": [once]}, {"train": "t.csv", "valid": once}, {"train": "t.csv", "test": once}):
            with refused("unsupported", once):
                given(**sources)
