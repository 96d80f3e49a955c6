"""The verbs that use a run, as a person or a script meets them."""

import io
import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import tiny_runs
from safetensors import safe_open
from safetensors.numpy import load_file

from headstart.cli import main
from headstart.decoding.search import Sampling
from headstart.training.generating import generate
from headstart.training.predicting import predict
from headstart.training.using import evaluate_run

VERBS = ("evaluate", "predict", "embed", "generate", "runs", "compare")
ON_CPU = ("--device", "cpu", "--precision", "fp32", "--threads", "1")


@pytest.fixture(autouse=True)
def at_home(monkeypatch):
    monkeypatch.setenv("HEADSTART_CACHE", str(tiny_runs.place() / "cache"))
    for verb in VERBS:
        monkeypatch.setitem(main.VERBS, verb, f"headstart.cli.{verb}:{verb}")


@pytest.fixture
def called(capsys):
    def call(*arguments):
        extra = () if arguments[0] == "runs" else ON_CPU
        code = main.run([*map(str, arguments), *extra])
        return code, *capsys.readouterr()

    return call


def typed(monkeypatch, text):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text.encode()), isatty=lambda: False))


def json_lines(out):
    return [json.loads(line) for line in out.splitlines()]


# ---- evaluate ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["causal", "masked", "masked-nsp", "classification", "regression"])
def test_evaluate_prints_one_json_object_by_the_contract(called, kind):
    data = tiny_runs.files()[(kind, "test") if kind in tiny_runs.LABELLED else "valid"]
    code, out, _ = called("evaluate", tiny_runs.path_of(kind), "--data", data, "--json")
    found = json.loads(out)
    assert code == 0
    expected = evaluate_run(tiny_runs.run_of(kind), data, tiny_runs.MACHINE)
    assert found["metrics"] == pytest.approx(expected.metrics)
    assert found["count"] == expected.count
    assert all(0 <= v <= 1 for key, v in found["metrics"].items() if "accuracy" in key)


def test_evaluate_prints_a_measure_a_line_and_the_loss_by_position(called):
    code, out, _ = called("evaluate", tiny_runs.path_of("causal"), "--data", tiny_runs.files()["valid"])
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == [
        "loss",
        "perplexity",
        "bits_per_byte",
        "predicted",
    ]
    assert "\x1b" not in out
    arguments = ("--data", tiny_runs.files()["long"], "--length", 64)
    _, out, _ = called("evaluate", tiny_runs.path_of("rotary"), *arguments)
    assert "tokens read" in out
    assert "1–4" in out
    assert "61–64" in out
    assert out.count("beyond the trained length") == 12
    _, out, _ = called("evaluate", tiny_runs.path_of("rotary"), *arguments, "--json")
    assert len(json.loads(out)["loss_by_position"]) == 64


def test_evaluate_reads_the_columns_that_are_named(called, tmp_path):
    rows = [json.loads(line) for line in tiny_runs.files()["classification", "test"].read_text().splitlines()]
    table = tmp_path / "test.csv"
    table.write_text("avis;note\n" + "".join(f"{row['text']};{row['label']}\n" for row in rows))
    named = ("--text-column", "avis", "--label-column", "note")
    code, out, _ = called("evaluate", tiny_runs.path_of("classification"), "--data", table, *named, "--json")
    assert code == 0
    plain = evaluate_run(
        tiny_runs.run_of("classification"), tiny_runs.files()["classification", "test"], tiny_runs.MACHINE
    )
    assert json.loads(out)["metrics"] == pytest.approx(plain.metrics)


def test_evaluate_refuses_what_it_cannot_score_with_exit_2(called, tmp_path):
    code, out, err = called("evaluate", tiny_runs.path_of("learned"), "--data", "nowhere.txt", "--length", 96)
    assert (code, out) == (2, "")
    assert "learned positions end at 24" in err
    unseen = tmp_path / "unseen.jsonl"
    unseen.write_text('{"text": "fin", "label": "bof"}\n')
    code, _, err = called("evaluate", tiny_runs.path_of("classification"), "--data", unseen)
    assert code == 2
    assert "'bof'" in err
    assert "unseen.jsonl:1" in err
    code, _, err = called("evaluate", tmp_path, "--data", unseen)
    assert code == 2
    assert "is not a run" in err


def test_skipped_rows_are_told(called, tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"text": "une belle fin", "label": "oui"}\n{"text": "", "label": "non"}\n')
    run = tiny_runs.path_of("classification")
    assert called("evaluate", run, "--data", bad)[0] == 2
    code, out, err = called("evaluate", run, "--data", bad, "--skip-bad-rows", "--json")
    assert code == 0
    assert json.loads(out)["count"] == 1
    assert "1 bad rows skipped" in err


# ---- predict ----------------------------------------------------------------------------------------------


def test_predict_gives_a_json_line_for_each_line_of_a_file_in_order(called, tmp_path):
    texts = ["une belle histoire.", "", "livre " * 50, "  ", "☺"]
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(texts) + "\n")
    code, out, err = called("predict", tiny_runs.path_of("classification"), path)
    assert code == 0
    expected = [p.answer for p in predict(tiny_runs.run_of("classification"), texts, tiny_runs.MACHINE)]
    assert json_lines(out) == expected
    assert set(expected[0]) == {"label", "probabilities"}
    assert "1 text is longer than 16 tokens and was cut there" in err


@pytest.mark.parametrize(("kind", "keys"), [
    ("multilabel", {"labels", "probabilities"}), ("regression", {"value"}), ("pairs", {"label", "probabilities"}),
])  # fmt: skip
def test_predict_reads_rows_and_answers_by_the_task(called, kind, keys):
    code, out, _ = called("predict", tiny_runs.path_of(kind), tiny_runs.files()[kind, "test"])
    assert code == 0
    assert [set(answer) for answer in json_lines(out)] == [keys] * 30


@pytest.mark.parametrize("given", [[], ["-"]])
def test_predict_reads_standard_input(called, monkeypatch, given):
    typed(monkeypatch, "une belle fin\n\n")
    code, out, err = called("predict", tiny_runs.path_of("classification"), *given)
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


# ---- embed ------------------------------------------------------------------------------------------------


def test_embed_prints_vectors_that_depend_on_the_words_around(called, monkeypatch):
    typed(monkeypatch, "un livre triste\nune belle histoire, un livre triste\nun livre triste\n")
    code, out, _ = called("embed", tiny_runs.path_of("masked"), "--pool", "tokens")
    first, second, again = json_lines(out)
    assert code == 0
    assert first["tokens"][-2] == second["tokens"][-2]
    assert len(first["vectors"]) == len(first["tokens"])
    assert first["vectors"][-2] != pytest.approx(second["vectors"][-2], abs=1e-3)
    assert first == again


@pytest.mark.parametrize("pool", ["first", "mean", "last"])
def test_embed_writes_pooled_vectors_to_a_file(called, tmp_path, pool):
    texts, out_file = tmp_path / "texts.txt", tmp_path / "vectors.safetensors"
    texts.write_text("une fin\nun livre\n\n")
    code, out, err = called("embed", tiny_runs.path_of("causal"), texts, "--pool", pool, "--out", out_file)
    assert (code, out) == (0, "")
    assert "3 vectors of 16 numbers" in err
    table = load_file(out_file)["vectors"]
    _, out, _ = called("embed", tiny_runs.path_of("causal"), texts, "--pool", pool)
    assert np.array([line["vector"] for line in json_lines(out)], np.float32).tolist() == table.tolist()
    with safe_open(out_file, "np") as file:
        assert file.metadata()["pool"] == pool
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".tmp")] == []


def test_embed_refuses_an_out_that_cannot_be_before_it_starts(called, tmp_path):
    run = tiny_runs.path_of("causal")
    for extra, message in (
        (["--pool", "tokens", "--out", tmp_path / "a.safetensors"], "different number"),
        (["--out", tmp_path / "a.npy"], "is a .safetensors file"),
        (["--out", tmp_path / "no" / "a.safetensors"], "no such directory"),
    ):
        code, out, err = called("embed", run, "nowhere.txt", *extra)
        assert (code, out) == (2, "")
        assert message in err


# ---- generate ---------------------------------------------------------------------------------------------


def test_generate_prints_the_prompt_and_what_follows(called):
    run = tiny_runs.path_of("causal")
    code, out, _ = called("generate", run, "une belle", "--max-tokens", 10, "--seed", 4)
    sampling = Sampling(temperature=0.8, top_p=0.95, seed=4)
    (expected,) = generate(
        tiny_runs.run_of("causal"), "une belle", tiny_runs.MACHINE, max_tokens=10, sampling=sampling
    )
    assert code == 0
    assert out == "une belle" + expected.text + "\n"
    _, again, _ = called("generate", run, "une belle", "--max-tokens", 10, "--seed", 4)
    _, other, _ = called("generate", run, "une belle", "--max-tokens", 10, "--seed", 5)
    assert out == again != other


def test_greedy_is_temperature_0_and_json_tells_all(called):
    run = tiny_runs.path_of("causal")
    found = []
    for flags in (["--greedy"], ["--temperature", 0]):
        code, out, _ = called("generate", run, "un", "--max-tokens", 6, "--json", *flags)
        assert code == 0
        found.append(json.loads(out))
    assert found[0] == found[1]
    assert found[0]["prompt"] == "un"
    (one,) = found[0]["continuations"]
    assert set(one) == {"text", "tokens", "stop"}
    assert (one["tokens"], one["stop"]) == (6, "max-tokens") or one["stop"] == "end"


def test_generate_writes_several_and_from_standard_input(called, monkeypatch):
    typed(monkeypatch, "une belle\n")
    run = tiny_runs.path_of("causal")
    code, out, _ = called("generate", run, "-", "--count", 3, "--max-tokens", 5, "--json")
    assert code == 0
    assert json.loads(out)["prompt"] == "une belle"
    assert len(json.loads(out)["continuations"]) == 3
    code, out, _ = called("generate", run, "une", "--count", 3, "--max-tokens", 3)
    assert code == 0
    assert out.count("une") >= 3


def test_what_is_written_cannot_drive_the_terminal(called, monkeypatch):
    command = ["generate", tiny_runs.path_of("causal"), "un\x1b[31m\u200c", "--temperature", 5, "--top-p", 1]
    _, piped, _ = called(*command, "--max-tokens", 200)
    assert piped.startswith("un\x1b[31m\u200c"), "a file gets what was written"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    code, out, _ = called(*command, "--max-tokens", 200)
    assert code == 0
    assert out.startswith("un\\x1b[31m\\u200c")
    assert "\x1b" not in out
    assert set(main.visible(out)) == set(out)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--beam", 2, "--count", 3], "--count 3 with --beam 2"),
        (["--beam", 2, "--count", 0], "--count 0 with --beam 2"),
        (["--beam", 5, "--temperature", 1.3], "--temperature with --beam"),
        (["--beam", 5, "--top-k", 3], "--top-k with --beam"),
        (["--beam", 5, "--top-p", 0.5], "--top-p with --beam"),
        (["--greedy", "--top-k", 3], "--top-k with --greedy"),
    ],
)
def test_flags_that_another_way_of_writing_would_ignore_are_refused(called, flags, says):
    code, out, err = called("generate", tiny_runs.path_of("causal"), "un", *flags)
    assert (code, out) == (2, "")
    assert says in err
    assert "--n-best" not in err


def test_generate_says_when_the_prompt_is_cut_and_when_the_context_ends(called):
    run = tiny_runs.path_of("learned")
    code, _, err = called("generate", run, "le livre " * 100, "--max-tokens", 500, "--seed", 1)
    assert code == 0
    assert "tokens of the prompt are dropped" in err
    errors = [called("generate", run, "", "--max-tokens", 500, "--seed", seed)[2] for seed in range(8)]
    assert any("the learned positions end here" in err for err in errors)


@pytest.mark.parametrize(("flags", "message"), [
    (["--temperature", -1], "temperature is -1"), (["--top-p", 0], "top-p is 0"), (["--top-k", 0], "top-k is 0"),
    (["--max-tokens", 0], "max-tokens is 0"), (["--count", 0], "count is 0"),
])  # fmt: skip
def test_generate_refuses_numbers_that_mean_nothing(called, flags, message):
    code, out, err = called("generate", tiny_runs.path_of("causal"), "un", *flags)
    assert (code, out) == (2, "")
    assert message in err


# ---- verbs that a run cannot serve ------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "verb", "serves"), [
    ("masked", "generate", "headstart embed"), ("classification", "generate", "headstart predict"),
    ("causal", "predict", "headstart generate"), ("masked-nsp", "predict", "headstart embed"),
    ("masked", "compare", "headstart embed"),
])  # fmt: skip
def test_a_verb_that_the_run_cannot_serve_exits_2_and_names_one_that_it_can(called, kind, verb, serves):
    run = tiny_runs.path_of(kind)
    rest = {"generate": ["un"], "predict": [], "compare": [run, "--data", "nowhere.txt"]}[verb]
    code, out, err = called(verb, run, *rest)
    assert (code, out) == (2, "")
    assert f"is a {kind} run" in err
    assert serves in err


# ---- runs -------------------------------------------------------------------------------------------------


@pytest.fixture
def zoo(tmp_path):
    """A good run, one that started from it, one that stopped on its way, and five that are broken."""
    top = tmp_path / "runs"
    for kind in ("causal", "classification"):
        shutil.copytree(tiny_runs.path_of(kind), top / kind)
    shutil.copytree(tiny_runs.path_of("causal"), top / "study" / "trials" / "halfway")
    (top / "study" / "trials" / "halfway" / "result.json").unlink()
    with (top / "study" / "trials" / "halfway" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "loss')
    for name, file, content in (
        ("b-config", "config.toml", "width = ["),
        ("b-key", "config.toml", 'colour = "blue"\n'),
        ("b-result", "result.json", "[1, 2]"),
        ("b-result-json", "result.json", "{"),
        ("b-\x1b[31mbytes", "config.toml", None),
    ):
        shutil.copytree(tiny_runs.path_of("masked"), top / name)
        (top / name / file).write_bytes(b"\xff\xfe" if content is None else content.encode())
    shutil.copytree(tiny_runs.path_of("masked"), top / "b-weights")
    (top / "b-weights" / "weights.safetensors").unlink()
    shutil.copytree(tiny_runs.path_of("masked"), top / "b-lost")
    (top / "b-lost" / "config.toml").unlink()
    (top / "notes").mkdir()
    (top / "notes" / "diary.txt").write_text("not a run")
    return top


def test_runs_lists_what_is_there_and_what_is_broken_and_why(called, zoo):
    code, out, _ = called("runs", zoo, "--json")
    assert code == 0
    found = {run["name"]: run for run in json.loads(out)["runs"]}
    assert "notes" not in found
    causal, tuned, halfway = found["causal"], found["classification"], found["study/trials/halfway"]
    result = json.loads((zoo / "causal" / "result.json").read_text())
    assert (causal["state"], causal["objective"], causal["start"]) == ("finished", "causal", "scratch")
    assert causal["parameters"] == result["parameters"]
    assert (causal["step"], causal["steps"]) == (4, 4)
    assert causal["valid"] == pytest.approx(result["valid"])
    assert tuned["start"] == "causal"
    assert (halfway["state"], halfway["step"]) == ("unfinished", 4)
    assert halfway["valid"]["loss"] == pytest.approx(result["valid"]["loss"])
    assert causal["last_write"].startswith("20")
    reasons = {name: run["reason"] for name, run in found.items() if run["state"] == "broken"}
    assert set(reasons) == {name for name in found if name.startswith("b-")}
    assert len(reasons) == 7
    assert "TOML" in reasons["b-config"]
    assert "unknown key 'colour'" in reasons["b-key"]
    assert "weights.safetensors is missing" in reasons["b-weights"]
    assert "no config.toml" in reasons["b-lost"]
    assert "not UTF-8" in reasons["b-\x1b[31mbytes"]


def test_runs_as_a_table_shows_escapes_and_reasons(called, zoo):
    code, out, _ = called("runs", zoo)
    assert code == 0
    assert "\x1b" not in out
    assert "b-\\x1b[31mbytes" in out
    line = next(line for line in out.splitlines() if line.startswith("classification"))
    assert "accuracy" in line
    assert "4/4" in line
    assert "finished" in line
    assert "b-weights: weights.safetensors is missing" in out


def test_runs_of_a_run_itself_of_nothing_and_of_nowhere(called, tmp_path):
    _, out, _ = called("runs", tiny_runs.path_of("causal"), "--json")
    assert [run["name"] for run in json.loads(out)["runs"]] == ["causal"]
    code, out, _ = called("runs", tmp_path)
    assert (code, out) == (0, f"no runs under {tmp_path}\n")
    code, out, err = called("runs", tmp_path / "nowhere")
    assert (code, out) == (2, "")
    assert "no such directory" in err


# ---- compare ----------------------------------------------------------------------------------------------


def test_compare_two_classifiers(called):
    runs = (tiny_runs.path_of("classification"), tiny_runs.path_of("char"))
    data = tiny_runs.files()["classification", "test"]
    code, out, _ = called("compare", *runs, "--data", data, "--json")
    found = json.loads(out)
    assert code == 0
    accuracies = [run["metrics"]["accuracy"] for run in found["runs"]]
    difference = found["difference"]
    assert difference["value"] == pytest.approx(accuracies[1] - accuracies[0])
    assert difference["low"] <= difference["value"] <= difference["high"]
    counts = found["agreement"]
    assert found["count"] == 30 == sum(v for key, v in counts.items() if key != "mcnemar_p")
    assert found["settings"]["start"][1] == "scratch"
    code, out, _ = called("compare", *runs, "--data", data)
    assert code == 0
    assert "95 % interval" in out
    assert "McNemar's exact p" in out
    assert "Settings that differ" in out
    assert "\x1b" not in out


def test_compare_two_language_models(called):
    runs = (tiny_runs.path_of("causal"), tiny_runs.path_of("rotary"))
    code, out, _ = called("compare", *runs, "--data", tiny_runs.files()["corpus"])
    assert code == 0
    assert "bits_per_byte, second less first" in out
    assert "documents)" in out
    assert "model.positions" in out


# ---- help -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_help_answers_with_an_example_and_without_torch(verb):
    program = (
        "import sys; from headstart.cli import main; verb = sys.argv[1]; "
        "main.VERBS[verb] = f'headstart.cli.{verb}:{verb}'; code = main.run([verb, '--help']); "
        "sys.exit(code or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, verb], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"headstart {verb}" in done.stdout.split("Usage:")[1].partition("\n")[2]
