"""Data wherever it is: frames, datasets, folders of them, each the same rows as the file they could have been."""

import json
import os
import sys
from functools import cache

import pytest
import small
import tiny_runs
from expected_errors import refused

import headstart
from headstart.cli import main
from headstart.config.reading import Reading
from headstart.data import store_building
from headstart.data.check import check_data
from headstart.data.fingerprints import fingerprint
from headstart.data.in_memory import source_of, sources_by_role, split_for
from headstart.data.labelled import read_labelled, read_pairs
from headstart.data.readers.documents import pieces
from headstart.data.readers.sources import form_of
from headstart.data.store_building import build_stores, write_stores
from headstart.inference.evaluate import evaluate_run

pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
parquet, datasets = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("datasets")

TEXTS = small.sentences(40, seed=4)
LABELS = ["oui" if "belle" in text else "non" for text in TEXTS]
RECORDS = [{"text": text, "label": label} for text, label in zip(TEXTS, LABELS, strict=True)]
SHAPE = {"width": 16, "ffn": 24, "heads": 2, "depth": 1, "context": 64}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path / "cache"))


@cache
def dataset():
    """With a column of classes, which is kept as numbers."""
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["non", "oui"])})
    return datasets.Dataset.from_list(RECORDS, features=features)


def tune(train, out, **more):
    return headstart.finetune(
        train, out=out, model=SHAPE, tokenizer=small.tokenizer(), length=24, steps=2,
        machine=tiny_runs.MACHINE, **more,
    )  # fmt: skip


# ---- the same rows ------------------------------------------------------------------------------------------


def written(folder):
    """The same rows in every form, by its name."""
    frame = pandas.DataFrame(RECORDS)
    (folder / "rows.jsonl").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    frame.to_parquet(folder / "rows.parquet")
    dataset().to_parquet(folder / "classes.parquet")
    dataset().save_to_disk(folder / "saved", num_shards=3)
    (folder / "parts").mkdir()
    for number in range(2):
        frame[20 * number : 20 * number + 20].to_parquet(folder / "parts" / f"part-{number}.parquet")
    paths = [folder / name for name in ("rows.jsonl", "rows.parquet", "classes.parquet", "saved", "parts")]
    objects = [frame, frame.astype({"label": "category"}), dataset(), dataset().with_format("numpy"), RECORDS]
    return {
        **{path.name: path for path in paths},
        **{f"{type(one).__name__}-{number}": one for number, one in enumerate(objects)},
        "table": pyarrow.table(frame),
        "shuffled back": dataset().select(range(39, -1, -1)).select(range(39, -1, -1)),
    }


def test_every_form_gives_the_same_rows(tmp_path):
    forms = written(tmp_path)
    expected = read_labelled(forms["rows.jsonl"])
    for name, form in forms.items():
        found = read_labelled(source_of(form))
        assert found.texts == TEXTS, name
        assert found.fingerprint == expected.fingerprint, name
        assert [piece.text for piece in pieces([source_of(form)])] == TEXTS, name


def test_places_are_rows_of_the_table_and_of_the_file(tmp_path):
    forms = written(tmp_path)
    assert read_labelled(source_of(forms["table"])).locations[39] == "pyarrow.Table:40"
    assert read_labelled(source_of(pandas.DataFrame(RECORDS))).locations[0] == "pandas.DataFrame:1"
    assert read_labelled(forms["parts"]).locations[20] == f"{forms['parts'] / 'part-1.parquet'}:1"
    assert read_labelled(forms["saved"]).locations[-1].endswith("data-00002-of-00003.arrow:13")


def test_lists_of_classes_are_lists_of_names(tmp_path):
    kind = datasets.List(datasets.ClassLabel(names=["sad", "long"]))
    features = datasets.Features({"text": datasets.Value("string"), "label": kind})
    found = datasets.Dataset.from_list([{"text": "a", "label": [1, 0]}, {"text": "b", "label": []}], features)
    found.save_to_disk(tmp_path / "saved")
    for source in (source_of(found), tmp_path / "saved"):
        assert read_labelled(source, task="multilabel").labels == [("long", "sad"), ()]


def test_a_class_of_minus_one_is_a_missing_label():
    rows = datasets.Dataset.from_dict({"text": ["a"], "label": [-1]}, features=dataset().features)
    with refused("bad-row", "datasets.Dataset:1", "'label'"):
        read_labelled(source_of(rows))


@pytest.mark.parametrize(
    ("frame", "code", "names"),
    [
        ({"text": ["a", None], "label": [1, 1]}, "bad-row", ["pandas.DataFrame:2", "'text'"]),
        ({"text": ["a", 3], "label": [1, 1]}, "bad-row", ["pandas.DataFrame:2", "'text'", "3"]),
        ({"text": ["a", "b"], "label": [1, None]}, "bad-row", ["pandas.DataFrame:1", "'label'", "1.0"]),
        ({"texte": ["a", "b"], "label": [1, 1]}, "unknown-name", ["'text'", '"texte", "label"']),
    ],
)
def test_a_bad_row_of_a_frame_is_named(frame, code, names):
    with refused(code, *names):
        read_labelled(source_of(pandas.DataFrame(frame)))


def test_bad_rows_of_a_frame_can_be_skipped():
    frame = pandas.DataFrame({"text": ["a", None, "c"], "label": ["x", "y", "z"]})
    found = read_labelled(source_of(frame), Reading(skip_bad_rows=True))
    assert found.labels == ["x", "z"]
    assert found.skipped.counts == {"empty text": 1}


def test_columns_of_a_frame_have_names_of_any_type():
    frame = pandas.DataFrame([["a", 1], ["b", 2]])
    found = read_labelled(source_of(frame), Reading(text_column="0", label_column="1"))
    assert (found.texts, found.labels) == (["a", "b"], ["1", "2"])
    with refused("conflict", "'a'"):
        source_of(pandas.DataFrame([[1, 2]], columns=["a", "a"]))


def test_pairs_for_translation_are_read_from_tables_too(tmp_path):
    frame = pandas.DataFrame({"source": ["the book"], "target": ["le livre"]})
    frame.to_parquet(tmp_path / "pairs.parquet")
    for source in (source_of(frame), tmp_path / "pairs.parquet"):
        found = read_pairs(source)
        assert (found.sources, found.targets) == (["the book"], ["le livre"])


def test_what_is_nothing_to_read_from_is_refused():
    for given in (3, ["a", "b"], {"a", "b"}, None):
        with refused("unsupported"):
            source_of(given)
    with refused("unsupported", "Dataset.from_generator"):
        source_of(dataset().to_iterable_dataset())


# ---- splits and folders -------------------------------------------------------------------------------------


def test_splits_have_the_roles_of_their_names():
    splits = datasets.DatasetDict(
        {"train": dataset().select(range(30)), "validation": dataset().select([30]), "test": dataset()}
    )
    found = sources_by_role(splits)
    assert {role: len(read_labelled(source)) for role, source in found.items()} == {
        "train": 30, "valid": 1, "test": 40,
    }  # fmt: skip
    assert len(read_labelled(sources_by_role(splits, test=splits["validation"])["test"])) == 1
    assert len(read_labelled(split_for(splits, "valid"))) == 1
    with refused("missing", "validation", "train"):
        sources_by_role({"validation": dataset()})


@pytest.mark.parametrize("layout", ["saved", "files", "data", "folders"])
def test_a_folder_of_splits_is_taken_apart(tmp_path, layout):
    folder = tmp_path / "reviews"
    splits = {"train": dataset().select(range(30)), "test": dataset().select(range(30, 40))}
    if layout == "saved":
        datasets.DatasetDict(splits).save_to_disk(folder)
    for name, rows in splits.items() if layout != "saved" else ():
        directory = {"files": folder, "data": folder / "data", "folders": folder / name}[layout]
        directory.mkdir(parents=True, exist_ok=True)
        for part in range(2):
            file = f"{part:04}.parquet" if layout == "folders" else f"{name}-{part:05}-of-00002.parquet"
            rows.shard(2, part, contiguous=True).to_parquet(directory / file)
    with refused("missing", "train", "test"):
        read_labelled(folder)
    assert read_labelled(folder / "test").texts == TEXTS[30:]
    found = sources_by_role(str(folder))
    assert {role: read_labelled(source).texts for role, source in found.items()} == {
        "train": TEXTS[:30], "test": TEXTS[30:],
    }  # fmt: skip
    assert str(found["test"]) == str(folder / "test")
    assert check_data({"train": folder}).sets["test"].rows == 10


def test_a_folder_that_is_no_dataset_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("text")
    with refused("no-file"):
        read_labelled(tmp_path)


@pytest.mark.parametrize("name", ["x" * 5_000, "a\0b", "nothing"])
def test_a_name_that_no_file_can_have_is_no_dataset(tmp_path, name):
    assert form_of(tmp_path / name) == "text"
    assert form_of(name) == "text"


@pytest.mark.parametrize("name", ["../rows.arrow", "/etc/passwd", "..", "a/b.arrow"])
def test_a_saved_dataset_cannot_name_files_elsewhere(tmp_path, name):
    dataset().save_to_disk(tmp_path / "saved")
    (tmp_path / "saved" / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}]}))
    with refused("bad-format"):
        read_labelled(tmp_path / "saved")


@pytest.mark.parametrize("state", ["[]", "{", '{"_data_files": 3}', '{"_data_files": [{}]}'])
def test_a_broken_saved_dataset_is_refused(tmp_path, state):
    dataset().save_to_disk(tmp_path / "saved")
    (tmp_path / "saved" / "state.json").write_text(state)
    with refused("bad-format"):
        read_labelled(tmp_path / "saved")


def test_a_broken_arrow_file_is_refused(tmp_path):
    dataset().save_to_disk(tmp_path / "saved")
    (file,) = (tmp_path / "saved").glob("*.arrow")
    file.write_bytes(file.read_bytes()[:100])
    with refused("bad-format", "Arrow"):
        read_labelled(tmp_path / "saved")


def test_files_left_over_from_an_earlier_save_are_not_read(tmp_path):
    dataset().save_to_disk(tmp_path / "saved", num_shards=2)
    dataset().select(range(5)).save_to_disk(tmp_path / "saved")
    assert read_labelled(tmp_path / "saved").texts == TEXTS[:5]


def test_without_the_extra_a_folder_says_what_to_install(tmp_path, monkeypatch):
    dataset().save_to_disk(tmp_path / "saved")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with refused("no-package", "headstart[data]"):
        read_labelled(tmp_path / "saved")


# ---- fingerprints -------------------------------------------------------------------------------------------


def test_a_table_is_known_by_its_rows():
    frame, same = pandas.DataFrame(RECORDS), pandas.DataFrame(RECORDS, index=range(40, 80))
    changed = frame.copy()
    changed.loc[39, "text"] = "une autre fin."
    digests = [fingerprint(source_of(one)).sha256 for one in (frame, same, changed, frame[::-1])]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def test_a_folder_is_known_by_its_files(tmp_path):
    dataset().save_to_disk(tmp_path / "saved", num_shards=2)
    before = fingerprint(tmp_path / "saved")
    dataset().save_to_disk(tmp_path / "again", num_shards=2)
    assert fingerprint(tmp_path / "again").identity() == before.identity()
    dataset().select(range(39)).save_to_disk(tmp_path / "saved", num_shards=2)
    assert fingerprint(tmp_path / "saved").sha256 != before.sha256


def test_a_folder_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch):
    dataset().save_to_disk(tmp_path / "saved")
    (file,) = (tmp_path / "saved").glob("*.arrow")

    def touched(*given):
        os.utime(file, ns=(0, 5))
        write_stores(*given)

    monkeypatch.setattr(store_building, "write_stores", touched)
    with refused("changed"):
        build_stores([tmp_path / "saved"], small.tokenizer(), tmp_path / "stores")


# ---- runs ---------------------------------------------------------------------------------------------------


def test_finetuning_on_a_frame_goes_on_and_a_changed_frame_is_noticed(tmp_path):
    frame = pandas.DataFrame(RECORDS)
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    first, from_file = tune(frame, tmp_path / "run"), tune(tmp_path / "rows.jsonl", tmp_path / "file")
    assert first["weights_sha256"] == from_file["weights_sha256"]
    assert headstart.load(tmp_path / "run").config.data.train == "pandas.DataFrame"
    assert tune(frame.copy(), tmp_path / "run") == first
    with refused("changed", "data.fingerprint"):
        tune(frame.assign(label=LABELS[::-1]), tmp_path / "run")


def test_finetuning_takes_the_splits_of_a_dict(tmp_path):
    splits = datasets.DatasetDict(
        {
            "train": dataset().select(range(30)),
            "validation": dataset().select(range(30, 36)),
            "test": dataset(),
        }
    )
    result = tune(splits, tmp_path / "run")
    assert set(result) >= {"valid", "test"}
    assert headstart.load(tmp_path / "run").config.label_names == ["non", "oui"]
    scores = evaluate_run(headstart.load(tmp_path / "run").loaded, splits["test"], tiny_runs.MACHINE).metrics
    assert scores["accuracy"] == pytest.approx(result["test"]["accuracy"])


def pretrained(corpus, out, **more):
    return headstart.pretrain(
        corpus, out=out, model=SHAPE, tokenizer=small.tokenizer(), length=16, batch_tokens=64,
        steps=2, machine=tiny_runs.MACHINE, **more,
    )  # fmt: skip


def test_pretraining_on_a_dataset_is_pretraining_on_its_texts(tmp_path):
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    expected = pretrained([tmp_path / "texts.jsonl"], tmp_path / "file")
    found = pretrained(dataset(), tmp_path / "run")
    assert found["weights_sha256"] == expected["weights_sha256"]
    assert pretrained(dataset().add_column("id", range(40)), tmp_path / "run") == found  # not a text
    with refused("changed", "data.fingerprint"):
        pretrained(dataset().select(range(1, 40)), tmp_path / "run")
    assert headstart.load(tmp_path / "run").config.data.corpus == ["datasets.Dataset"]


def test_pretraining_mixes_frames_and_files_by_weight(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(small.sentences(30, seed=9)))
    pretrained([(pandas.Series(TEXTS), 2.0), tmp_path / "a.txt"], tmp_path / "run", valid=dataset())
    data = headstart.load(tmp_path / "run").config.data
    assert (data.corpus, data.weights) == (["pandas.Series", str(tmp_path / "a.txt")], [2.0, 1.0])
    assert data.valid == "datasets.Dataset"
    with refused("bad-value", "-1"):
        pretrained([(dataset(), -1)], tmp_path / "other")


def test_the_command_line_reads_folders_and_parquet(tmp_path, capsys):
    datasets.DatasetDict({"train": dataset(), "test": dataset().select(range(8))}).save_to_disk(tmp_path / "reviews")
    small.tokenizer().save(tmp_path / "words")
    shared = ["--tokenizer", tmp_path / "words", "--device", "cpu", "--precision", "fp32", "--threads", 1, "--depth", 1,
              "--width", 16, "--heads", 2, "--ffn", 24, "--steps", 1, "--json"]  # fmt: skip
    code = main.run(["finetune", "--train", *map(str, [tmp_path / "reviews", "--out", tmp_path / "tuned", *shared])])
    tuned = json.loads(capsys.readouterr().out)
    assert (code, 0 <= tuned["test"]["accuracy"] <= 1) == (0, True)
    dataset().to_parquet(tmp_path / "a.parquet")
    corpus = [
        tmp_path / "reviews",
        tmp_path / "a.parquet",
        "--length",
        16,
        "--out",
        tmp_path / "base",
        *shared,
    ]
    assert main.run(["pretrain", "--corpus", *map(str, corpus)]) == 0
    assert headstart.load(tmp_path / "base").config.data.corpus[0] == str(tmp_path / "reviews" / "train")
