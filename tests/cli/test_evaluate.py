"""`headstart evaluate` and `headstart compare`: what they print, and what they refuse."""

import csv
import json

import pytest
import tiny_runs
import translators
from commands import invoke

from headstart.inference.evaluate import evaluate_run


@pytest.mark.parametrize("kind", ["causal", "masked", "masked-nsp", "classification", "regression"])
def test_evaluate_prints_one_json_object_by_the_contract(cli, kind):
    data = tiny_runs.files()[(kind, "test") if kind in tiny_runs.LABELLED else "valid"]
    code, out, _ = cli("evaluate", tiny_runs.path_of(kind), "--data", data, "--json")
    found = json.loads(out)
    assert code == 0
    expected = evaluate_run(tiny_runs.run_of(kind), data, tiny_runs.MACHINE)
    assert found["metrics"] == pytest.approx(expected.metrics)
    assert found["count"] == expected.count
    assert all(0 <= v <= 1 for key, v in found["metrics"].items() if "accuracy" in key)


def test_evaluate_prints_a_measure_a_line_and_the_loss_by_position(cli):
    code, out, _ = cli("evaluate", tiny_runs.path_of("causal"), "--data", tiny_runs.files()["valid"])
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == [
        "loss",
        "perplexity",
        "bits_per_byte",
        "predicted",
    ]
    assert "\x1b" not in out
    arguments = ("--data", tiny_runs.files()["long"], "--length", 64)
    _, out, _ = cli("evaluate", tiny_runs.path_of("rotary"), *arguments)
    assert "tokens read" in out
    assert "1–4" in out
    assert "61–64" in out
    assert out.count("beyond the trained length") == 12
    _, out, _ = cli("evaluate", tiny_runs.path_of("rotary"), *arguments, "--json")
    assert len(json.loads(out)["loss_by_position"]) == 64


def test_evaluate_reads_the_columns_that_are_named(cli, tmp_path):
    rows = [json.loads(line) for line in tiny_runs.files()["classification", "test"].read_text().splitlines()]
    table = tmp_path / "test.csv"
    table.write_text("avis;note\n" + "".join(f"{row['text']};{row['label']}\n" for row in rows))
    named = ("--text-column", "avis", "--label-column", "note")
    code, out, _ = cli("evaluate", tiny_runs.path_of("classification"), "--data", table, *named, "--json")
    assert code == 0
    plain = evaluate_run(
        tiny_runs.run_of("classification"), tiny_runs.files()["classification", "test"], tiny_runs.MACHINE
    )
    assert json.loads(out)["metrics"] == pytest.approx(plain.metrics)


def test_evaluate_refuses_what_it_cannot_score_with_exit_2(cli, tmp_path):
    code, out, err = cli("evaluate", tiny_runs.path_of("learned"), "--data", "nowhere.txt", "--length", 96)
    assert (code, out) == (2, "")
    assert "24" in err
    assert "nowhere.txt" not in err, "which is not looked for"
    unseen = tmp_path / "unseen.jsonl"
    unseen.write_text('{"text": "fin", "label": "bof"}\n')
    code, _, err = cli("evaluate", tiny_runs.path_of("classification"), "--data", unseen)
    assert code == 2
    assert "'bof'" in err
    assert "unseen.jsonl:1" in err
    code, _, err = cli("evaluate", tmp_path, "--data", unseen)
    assert code == 2
    assert str(tmp_path) in err


def test_skipped_rows_are_told(cli, tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"text": "une belle fin", "label": "oui"}\n{"text": "", "label": "non"}\n')
    run = tiny_runs.path_of("classification")
    assert cli("evaluate", run, "--data", bad)[0] == 2
    code, out, err = cli("evaluate", run, "--data", bad, "--skip-bad-rows", "--json")
    assert code == 0
    assert json.loads(out)["count"] == 1
    assert "1 bad rows skipped" in err


def test_evaluate_prints_scores_and_signatures(capsys):
    command = [
        "evaluate",
        str(translators.path_of()),
        "--data",
        str(translators.files()["test"]),
        "--device",
        "cpu",
    ]
    answer = invoke(capsys, [*command, "--precision", "fp32"])
    assert answer.code == 0, answer.err
    for name in ("cross_entropy", "perplexity", "bleu", "chrf", "rows"):
        assert name in answer.out
    assert "tok:13a" in answer.out
    found = json.loads(invoke(capsys, [*command, "--json", "--beam", "1"]).out)
    assert found["objective"] == "translation"
    assert found["count"] == 15
    assert found["signatures"].keys() == {"bleu", "chrf"}


def test_compare_two_classifiers(cli):
    runs = (tiny_runs.path_of("classification"), tiny_runs.path_of("char"))
    data = tiny_runs.files()["classification", "test"]
    code, out, _ = cli("compare", *runs, "--data", data, "--json")
    found = json.loads(out)
    assert code == 0
    accuracies = [run["metrics"]["accuracy"] for run in found["runs"]]
    difference = found["difference"]
    assert difference["value"] == pytest.approx(accuracies[1] - accuracies[0])
    assert difference["low"] <= difference["value"] <= difference["high"]
    counts = found["agreement"]
    assert found["count"] == 30 == sum(v for key, v in counts.items() if key != "mcnemar_p")
    assert found["settings"]["start"][1] == "scratch"
    assert found["verdict"][-1].startswith(f"The runs differ in {len(found['settings'])} settings")
    assert found["differences"] == [difference]
    code, out, _ = cli("compare", *runs, "--data", data)
    assert code == 0
    assert "95 % interval" in out
    assert "McNemar's exact p" in out
    assert "Settings that differ" in out
    assert "\x1b" not in out


def test_compare_two_language_models(cli):
    runs = (tiny_runs.path_of("causal"), tiny_runs.path_of("rotary"))
    code, out, _ = cli("compare", *runs, "--data", tiny_runs.files()["corpus"])
    assert code == 0
    assert "bits_per_byte, second minus first" in out
    assert "documents)" in out
    assert "model.positions" in out


def test_compare_two_translators(cli):
    command = ("compare", translators.path_of(), translators.path_of("separate"), "--beam", "1")
    code, out, _ = cli(*command, "--data", translators.files()["test"], "--json")
    found = json.loads(out)
    assert code == 0
    assert [one["measure"] for one in found["differences"]] == ["bleu", "chrf"]
    assert all(0 <= p <= 1 for p in found["bootstrap"]["p"].values())
    assert "bs:1000" in found["bootstrap"]["signatures"]["bleu"]
    code, out, _ = cli(*command, "--data", translators.files()["test"])
    assert code == 0
    assert "chrf, second minus first" in out
    assert "bootstrap p" in out


# ---- what is behind the scores ------------------------------------------------------------------------------


def test_evaluate_shows_intervals_classes_confusion_and_the_worst_mistakes(cli, tmp_path):
    data, run = tiny_runs.files()["classification", "test"], tiny_runs.path_of("classification")
    table, picture = tmp_path / "mistakes.csv", tmp_path / "confusion.svg"
    code, out, _ = cli("evaluate", run, "--data", data, "--mistakes", table, "--picture", picture)
    assert code == 0
    expected = evaluate_run(tiny_runs.run_of("classification"), data, tiny_runs.MACHINE)
    low, high = expected.report.intervals["accuracy"]
    assert f"{expected.metrics['accuracy']:.4f}   {low:.4f} to {high:.4f}" in out
    lines = [line.split() for line in out.splitlines()]
    for label, row in zip(expected.labels, expected.report.confusion, strict=True):
        assert [label, *map(str, row)] in lines
    assert expected.mistakes, "a run of four steps is not always right"
    assert expected.mistakes[0].text[:60] in out
    assert picture.read_text().startswith("<?xml")
    with table.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["text"] for row in rows] == [one.text for one in expected.mistakes]
    assert all(row["label"] != row["predicted"] for row in rows)
    assert [float(row["confidence"]) for row in rows] == sorted((float(r["confidence"]) for r in rows), reverse=True)


def test_the_same_as_json(cli, tmp_path):
    data, run = tiny_runs.files()["classification", "test"], tiny_runs.path_of("classification")
    code, out, _ = cli("evaluate", run, "--data", data, "--json", "--mistakes", tmp_path / "mistakes.jsonl")
    found = json.loads(out)
    assert code == 0
    assert sum(map(sum, found["confusion"]["counts"])) == found["count"] == 30
    assert [one["label"] for one in found["classes"]] == found["confusion"]["labels"]
    assert found["intervals"]["macro_f1"][0] <= found["metrics"]["macro_f1"] <= found["intervals"]["macro_f1"][1]
    assert len(found["mistakes"]) <= 10
    written = [json.loads(line) for line in (tmp_path / "mistakes.jsonl").read_text().splitlines()]
    assert [one["text"] for one in written[:10]] == [one["text"] for one in found["mistakes"]]


@pytest.mark.parametrize(
    ("kind", "data", "flags", "said"),
    [
        ("causal", "valid", ("--mistakes", "m.csv"), "--mistakes"),
        ("regression", ("regression", "test"), ("--picture", "p.svg"), "--picture"),
        ("classification", ("classification", "test"), ("--picture", "p.jpg"), ".png"),
        ("classification", ("classification", "test"), ("--mistakes", "m.xlsx"), ".jsonl"),
    ],
)
def test_what_a_run_cannot_show_is_refused_before_it_is_evaluated(cli, tmp_path, monkeypatch, kind, data, flags, said):
    monkeypatch.chdir(tmp_path)
    code, out, err = cli("evaluate", tiny_runs.path_of(kind), "--data", tiny_runs.files()[data], *flags)
    assert (code, out) == (2, "")
    assert said in err
    assert list(tmp_path.iterdir()) == []
