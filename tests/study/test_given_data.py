"""Data given beside a study's settings: what the settings say of it, and the files that its trials read."""

import datetime
import json
from functools import cache

import pytest
import small
from expected_errors import refused

import headstart
from headstart.config.reading import RowReading
from headstart.config.study import FinetunePart, PretrainPart, StudyConfig, StudyPart, TokenizerPart
from headstart.data.labelled import read_labelled
from headstart.study.given_data import given_data

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
    files = found.as_files(found.config, tmp_path).finetune
    assert [len(rows_of(path)) for path in (files.train, files.valid, files.test)] == [30, 1, 5]
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
    with refused("bad-value", "[[pretrain]]"):
        given(two_phases, corpus="c.txt")
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    with refused("bad-value", "rows.jsonl"):
        given(train=read_labelled(tmp_path / "rows.jsonl"))
    with refused("unsupported", "int"):
        given(train=3)


# ---- files for the trials -----------------------------------------------------------------------------------


def test_a_table_becomes_a_file_of_its_texts_and_labels(tmp_path):
    frame = pandas.DataFrame(RECORDS).assign(id=range(40), note="private")
    found = given(train=frame, test=dataset())
    files = found.as_files(found.config, tmp_path).finetune
    assert files.train == str(tmp_path / "given" / "train.jsonl")
    assert rows_of(files.train) == RECORDS
    assert rows_of(files.test) == RECORDS  # classes by their names
    assert files.valid == ""
    assert read_labelled(files.train).texts == TEXTS
    assert read_labelled(files.train).labels == LABELS


def test_columns_are_those_that_the_settings_name(tmp_path):
    frame = pandas.DataFrame({"text": ["no"] * 40, "review": TEXTS, "verdict": LABELS, "label": 0})
    config = StudyConfig(reading=RowReading(text_column="review", label_column="verdict"))
    found = given(config, train=frame, corpus=frame)
    as_files = found.as_files(found.config, tmp_path)
    expected = [{"review": text, "verdict": label} for text, label in zip(TEXTS, LABELS, strict=True)]
    assert rows_of(as_files.finetune.train) == expected
    assert rows_of(as_files.pretrain[0].corpus[0]) == [{"review": text} for text in TEXTS]
    with refused("unknown-name", "'verdict'"):
        given(config, train=frame[["review"]]).as_files(config, tmp_path / "other")


def test_a_corpus_of_tables_becomes_files_with_their_weights(tmp_path):
    found = given(corpus=[(dataset(), 2.0), "a.txt", pandas.Series(TEXTS[:3])])
    (phase,) = found.as_files(found.config, tmp_path).pretrain
    first, third = tmp_path / "given" / "corpus-1.jsonl", tmp_path / "given" / "corpus-3.jsonl"
    assert phase.corpus == [f"{first}=2", "a.txt", str(third)]
    assert rows_of(first) == [{"text": text} for text in TEXTS]
    assert rows_of(third) == [{"text": text} for text in TEXTS[:3]]


def test_pairs_of_texts_stay_pairs(tmp_path):
    rows = [{"text_a": text, "text_b": "Vraiment ?", "label": label} for text, label in zip(TEXTS, LABELS, strict=True)]
    found = given(train=rows)
    files = found.as_files(found.config, tmp_path).finetune
    assert rows_of(files.train) == rows
    assert found.config.finetune.train == "list of records"


def test_labels_that_json_does_not_know_are_written_as_words(tmp_path):
    day = datetime.date(2024, 2, 29)
    found = given(train=[{"text": "bissextile", "label": day}, {"text": "É 🚀 \u2028", "label": 3}])
    files = found.as_files(found.config, tmp_path).finetune
    assert rows_of(files.train) == [
        {"text": "bissextile", "label": "2024-02-29"}, {"text": "É 🚀 \u2028", "label": 3},
    ]  # fmt: skip
    assert read_labelled(files.train).labels == ["2024-02-29", "3"]


@pytest.mark.parametrize(
    ("row", "code", "name"),
    [
        ({"text": None, "label": "non"}, "bad-row", "train.jsonl:2"),
        ({"text": "a", "label": None}, "bad-row", "train.jsonl:2"),
        ({"text": "a\ud800", "label": "non"}, "bad-text", "train.jsonl"),
    ],
)
def test_rows_that_are_bad_in_memory_are_bad_in_the_file_and_named(tmp_path, row, code, name):
    found = given(train=pandas.DataFrame([RECORDS[0], row], dtype=object))
    files = found.as_files(found.config, tmp_path).finetune
    with refused(code, name):
        read_labelled(files.train)


def test_the_same_table_is_not_written_again(tmp_path):
    found = given(train=pandas.DataFrame(RECORDS))
    file = tmp_path / "given" / "train.jsonl"
    found.as_files(found.config, tmp_path)
    before = file.stat().st_ino
    found.as_files(found.config, tmp_path)
    assert file.stat().st_ino == before
    other = given(train=pandas.DataFrame(RECORDS[1:]))
    other.as_files(other.config, tmp_path)
    assert rows_of(file) == RECORDS[1:]


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
    found = headstart.study(config, **sources, model=SHAPE, jobs=1, device="cpu")
    assert {trial.status for trial in found.trials} == {"done"}
    settings = (tmp_path / "study" / "study.toml").read_text()
    assert 'train = "pandas.DataFrame"' in settings
    assert 'corpus = ["datasets.Dataset=2"]' in settings
    assert str(tmp_path) not in settings
    assert headstart.study(config, **sources, model=SHAPE, jobs=1, device="cpu") == found
    with refused("bad-value", "content.train"):
        headstart.study(config, **{**sources, "train": frame[1:]}, model=SHAPE, jobs=1, device="cpu")
