"""`headstart predict` and `headstart embed`: what they print, and what they refuse."""

import csv
import io
import json
import os
import queue
import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import tiny_runs
from safetensors import safe_open
from safetensors.numpy import load_file

from headstart.cli.predict import is_file
from headstart.data.readers import files
from headstart.inference.predict import predict, texts_in_file

ON_CPU = ("--device", "cpu", "--precision", "fp32", "--threads", "1")


def typed(monkeypatch, text):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text.encode()), isatty=lambda: False))


def json_lines(out):
    return [json.loads(line) for line in out.splitlines()]


def test_lines_of_standard_input_are_predicted_as_they_come_and_nothing_is_kept(monkeypatch):
    texts, found = ["une belle histoire.", "", "livre"], queue.Queue()
    run = tiny_runs.run_of("classification")
    expected = [one.answer for one in predict(run, texts, tiny_runs.MACHINE)]
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as source, os.fdopen(writing, "wb", buffering=0) as sink:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=source))

        def work():
            for one in predict(run, texts_in_file("-"), tiny_runs.MACHINE):
                found.put(one.answer)

        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        for text, answer in zip(texts, expected, strict=True):  # each is waited for before the next is written
            sink.write(f"{text}\n".encode())
            assert found.get(timeout=30) == answer
        sink.close()
        worker.join(30)
    assert source not in files._spools


def test_predict_gives_a_json_line_for_each_line_of_a_file_in_order(cli, tmp_path):
    texts = ["une belle histoire.", "", "livre " * 50, "  ", "☺"]
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(texts) + "\n")
    code, out, err = cli("predict", tiny_runs.path_of("classification"), path)
    assert code == 0
    expected = [p.answer for p in predict(tiny_runs.run_of("classification"), texts, tiny_runs.MACHINE)]
    assert json_lines(out) == expected
    assert set(expected[0]) == {"label", "probabilities"}
    assert "1 text is longer than 16 tokens and was cut there" in err


@pytest.mark.parametrize(("kind", "keys"), [
    ("multilabel", {"labels", "probabilities"}), ("regression", {"value"}), ("pairs", {"label", "probabilities"}),
])  # fmt: skip
def test_predict_reads_rows_and_answers_by_the_task(cli, kind, keys):
    code, out, _ = cli("predict", tiny_runs.path_of(kind), tiny_runs.files()[kind, "test"])
    assert code == 0
    assert [set(answer) for answer in json_lines(out)] == [keys] * 30


@pytest.mark.parametrize("given", [[], ["-"]])
def test_predict_reads_standard_input(cli, monkeypatch, given):
    typed(monkeypatch, "une belle fin\n\n")
    code, out, err = cli("predict", tiny_runs.path_of("classification"), *given)
    assert (code, err) == (0, "")
    assert len(json_lines(out)) == 2


@pytest.mark.slow
def test_predict_into_a_closed_pipe_is_quiet(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("une belle fin\n" * 3000)
    program = (
        "import sys; from headstart.cli import main; main.VERBS['predict'] = 'headstart.cli.predict:predict'; "
        "sys.exit(main.run(sys.argv[1:]))"
    )
    run = tiny_runs.path_of("classification")
    command = f'{sys.executable} -c "{program}" predict {run} {path} {" ".join(ON_CPU)} | head -n 1'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert set(json.loads(done.stdout)) == {"label", "probabilities"}
    assert done.stderr == ""


@pytest.mark.parametrize(("kind", "verb", "serves"), [
    ("masked", "generate", "headstart embed"), ("classification", "generate", "headstart predict"),
    ("causal", "predict", "headstart generate"), ("masked-nsp", "predict", "headstart embed"),
    ("masked", "compare", "headstart embed"),
])  # fmt: skip
def test_a_verb_that_the_run_cannot_serve_exits_2_and_names_one_that_it_can(cli, kind, verb, serves):
    run = tiny_runs.path_of(kind)
    rest = {"generate": ["un"], "predict": [], "compare": [run, "--data", "nowhere.txt"]}[verb]
    code, out, err = cli(verb, run, *rest)
    assert (code, out) == (2, "")
    assert f"is a {kind} run" in err
    assert serves in err


def test_embed_prints_vectors_that_depend_on_the_words_around(cli, monkeypatch):
    typed(monkeypatch, "un livre triste\nune belle histoire, un livre triste\nun livre triste\n")
    code, out, _ = cli("embed", tiny_runs.path_of("masked"), "--pool", "tokens")
    first, second, again = json_lines(out)
    assert code == 0
    assert first["tokens"][-2] == second["tokens"][-2]
    assert len(first["vectors"]) == len(first["tokens"])
    assert first["vectors"][-2] != pytest.approx(second["vectors"][-2], abs=1e-3)
    assert first == again


@pytest.mark.parametrize("pool", ["first", "mean", "last"])
def test_embed_writes_pooled_vectors_to_a_file(cli, tmp_path, pool):
    texts, out_file = tmp_path / "texts.txt", tmp_path / "vectors.safetensors"
    texts.write_text("une fin\nun livre\n\n")
    code, out, err = cli("embed", tiny_runs.path_of("causal"), texts, "--pool", pool, "--out", out_file)
    assert (code, out) == (0, "")
    assert "3 vectors of 16 numbers" in err
    table = load_file(out_file)["vectors"]
    _, out, _ = cli("embed", tiny_runs.path_of("causal"), texts, "--pool", pool)
    assert np.array([line["vector"] for line in json_lines(out)], np.float32).tolist() == table.tolist()
    with safe_open(out_file, "np") as file:
        assert file.metadata()["pool"] == pool
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".tmp")] == []


def test_embed_refuses_an_out_that_cannot_be_before_it_starts(cli, tmp_path):
    run = tiny_runs.path_of("causal")
    for extra, message in (
        (["--pool", "tokens", "--out", tmp_path / "a.safetensors"], "[conflict]: --out with --pool tokens"),
        (["--out", tmp_path / "a.npy"], f"[bad-value]: {tmp_path / 'a.npy'}"),
        (["--out", tmp_path / "no" / "a.safetensors"], f"[no-file]: {tmp_path / 'no'}"),
    ):
        code, out, err = cli("embed", run, "nowhere.txt", *extra)
        assert (code, out) == (2, "")
        assert err.startswith(f"headstart {message}")


# ---- a text instead of a file, and rows that keep their columns ---------------------------------------------


def test_predict_takes_a_text(cli):
    code, out, _ = cli("predict", tiny_runs.path_of("classification"), "une belle histoire, et/ou la fin.")
    assert code == 0
    (found,) = json_lines(out)
    assert found == headstart_answer("une belle histoire, et/ou la fin.")


def headstart_answer(text):
    (expected,) = predict(tiny_runs.run_of("classification"), [text], tiny_runs.MACHINE)
    return expected.answer


@pytest.mark.parametrize(
    "argument", ["nowhere.csv", "nowhere.txt", "my rows.JSONL.gz", "folder/nowhere", "/nowhere", "letter.docx"]
)
def test_what_looks_like_a_file_is_never_a_text(cli, argument):
    assert is_file(argument)
    code, out, err = cli("predict", tiny_runs.path_of("classification"), argument)
    assert (code, out) == (2, "")
    assert argument in err


@pytest.mark.parametrize("argument", ["Un roman", "et/ou bien", "Fin.", "3.5", "J'ai lu reviews.txt hier", ""])
def test_what_does_not_is_a_text(argument):
    assert not is_file(argument)


def test_a_file_that_exists_is_one_whatever_its_name(tmp_path):
    (tmp_path / "un roman").write_text("le livre\n")
    assert is_file(str(tmp_path / "un roman"))
    assert is_file("-")


def test_scored_rows_keep_their_columns_and_their_order(cli, tmp_path):
    texts = ["une belle histoire", "le livre, encore", "=la fin"]
    rows = [{"id": f"00{n}", "text": text, "note": "-3"} for n, text in enumerate(texts)]
    source = tmp_path / "rows.csv"
    with source.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, ["id", "text", "note"])
        table.writeheader()
        table.writerows(rows)
    code, out, err = cli("predict", tiny_runs.path_of("classification"), source, "--out", tmp_path / "scored.csv")
    assert (code, out) == (0, "")
    assert "3 rows" in err
    with (tmp_path / "scored.csv").open(newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    assert list(found[0]) == ["id", "text", "note", "label", "p_non", "p_oui"]
    assert [row["id"] for row in found] == ["000", "001", "002"]
    assert [row["text"] for row in found] == [*texts[:2], "'=la fin"]
    assert {row["note"] for row in found} == {"-3"}
    for row, text in zip(found, texts, strict=True):
        expected = headstart_answer(text)
        assert row["label"] == expected["label"]
        assert float(row["p_oui"]) == pytest.approx(expected["probabilities"]["oui"], rel=1e-5)


def test_a_column_that_is_there_keeps_its_name(cli, tmp_path):
    data = tiny_runs.files()["classification", "test"]
    code, _, _ = cli("predict", tiny_runs.path_of("classification"), data, "--out", tmp_path / "scored.jsonl")
    assert code == 0
    rows = json_lines((tmp_path / "scored.jsonl").read_text())
    assert [(row["text"], row["label"]) for row in rows] == [
        (row["text"], row["label"]) for row in json_lines(data.read_text())
    ]
    assert all(row["predicted_label"] in ("oui", "non") for row in rows)
    again = ("--out", tmp_path / "again.JSONL")
    assert cli("predict", tiny_runs.path_of("classification"), tmp_path / "scored.jsonl", *again)[0] == 0
    for row, scored in zip(json_lines((tmp_path / "again.JSONL").read_text()), rows, strict=True):
        assert scored.items() <= row.items()
        assert row["predicted_predicted_label"] == scored["predicted_label"]


@pytest.mark.parametrize(("kind", "column"), [("multilabel", "labels"), ("regression", "value")])
def test_other_tasks_add_their_own_columns(cli, tmp_path, kind, column):
    (tmp_path / "t.txt").write_text("le livre\n\nla fin\n")
    code, _, _ = cli("predict", tiny_runs.path_of(kind), tmp_path / "t.txt", "--out", tmp_path / "scored.tsv")
    assert code == 0
    with (tmp_path / "scored.tsv").open(newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file, delimiter="\t"))
    assert [row["text"] for row in found] == ["le livre", "", "la fin"]
    assert all(row[column] for row in found)


def test_an_out_that_cannot_be_written_is_refused_before_the_run_is_read(cli, tmp_path):
    code, _, err = cli("predict", tmp_path / "no-run", "le livre", "--out", tmp_path / "scored.xlsx")
    assert code == 2
    assert ".csv" in err
