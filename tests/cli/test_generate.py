"""`headstart generate` and `headstart translate`: what they print, and what they refuse."""

import dataclasses
import gzip
import io
import json
import os
import queue
import sys
import threading
from types import SimpleNamespace

import pytest
import small
import tiny_runs
import translators
from commands import invoke

from headstart.config.generation import GenerationConfig
from headstart.config.reading import DEFAULT_READING
from headstart.errors import visible
from headstart.inference.generate import generate
from headstart.inference.translate import Candidate, Translated, Translator, lines_of, translate


def typed(monkeypatch, text):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text.encode()), isatty=lambda: False))


def test_generate_prints_the_prompt_and_what_follows(cli):
    run = tiny_runs.path_of("causal")
    code, out, _ = cli("generate", run, "une belle", "--max-tokens", 10, "--seed", 4)
    config = GenerationConfig(temperature=0.8, top_p=0.95, seed=4, max_tokens=10)
    (expected,) = generate(tiny_runs.run_of("causal"), "une belle", tiny_runs.MACHINE, config)
    assert code == 0
    assert out == "une belle" + expected.text + "\n"
    _, again, _ = cli("generate", run, "une belle", "--max-tokens", 10, "--seed", 4)
    _, other, _ = cli("generate", run, "une belle", "--max-tokens", 10, "--seed", 5)
    assert out == again != other


def test_greedy_is_temperature_0_and_json_tells_all(cli):
    run = tiny_runs.path_of("causal")
    found = []
    for flags in (["--greedy"], ["--temperature", 0]):
        code, out, _ = cli("generate", run, "un", "--max-tokens", 6, "--json", *flags)
        assert code == 0
        found.append(json.loads(out))
    assert found[0] == found[1]
    assert found[0]["prompt"] == "un"
    (one,) = found[0]["continuations"]
    assert set(one) == {"text", "tokens", "stop"}
    assert (one["tokens"], one["stop"]) == (6, "max-tokens") or one["stop"] == "end"


def test_generate_writes_several_and_from_standard_input(cli, monkeypatch):
    typed(monkeypatch, "une belle\n")
    run = tiny_runs.path_of("causal")
    code, out, _ = cli("generate", run, "-", "--count", 3, "--max-tokens", 5, "--json")
    assert code == 0
    assert json.loads(out)["prompt"] == "une belle"
    assert len(json.loads(out)["continuations"]) == 3
    code, out, _ = cli("generate", run, "une", "--count", 3, "--max-tokens", 3)
    assert code == 0
    assert out.count("une") >= 3


def test_what_is_written_cannot_drive_the_terminal(cli, monkeypatch):
    command = ["generate", tiny_runs.path_of("causal"), "un\x1b[31m\u200c", "--temperature", 5, "--top-p", 1]
    _, piped, _ = cli(*command, "--max-tokens", 200)
    assert piped.startswith("un\x1b[31m\u200c"), "a file gets what was written"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    code, out, _ = cli(*command, "--max-tokens", 200)
    assert code == 0
    assert out.startswith("un\\x1b[31m\\u200c")
    assert "\x1b" not in out
    assert set(visible(out)) == set(out)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--beam", 2, "--count", 3], "count is 3 of a beam of 2"),
        (["--beam", 2, "--count", 0], "count is 0"),
        (["--beam", 5, "--temperature", 1.3], "headstart [conflict]: --temperature with --beam"),
        (["--beam", 5, "--top-k", 3], "headstart [conflict]: --top-k with --beam"),
        (["--beam", 5, "--top-p", 0.5], "headstart [conflict]: --top-p with --beam"),
        (["--greedy", "--top-k", 3], "headstart [conflict]: --top-k with --greedy"),
    ],
)
def test_flags_that_another_way_of_writing_would_ignore_are_refused(cli, flags, says):
    code, out, err = cli("generate", tiny_runs.path_of("causal"), "un", *flags)
    assert (code, out) == (2, "")
    assert says in err
    assert "--n-best" not in err


def test_generate_says_when_the_prompt_is_cut_and_when_the_context_ends(cli):
    run = tiny_runs.path_of("learned")
    code, _, err = cli("generate", run, "le livre " * 100, "--max-tokens", 500, "--seed", 1)
    assert code == 0
    assert "tokens of the prompt are dropped" in err
    errors = [cli("generate", run, "", "--max-tokens", 500, "--seed", seed)[2] for seed in range(8)]
    assert any("the learned positions end here" in err for err in errors)


@pytest.mark.parametrize(("flags", "message"), [
    (["--temperature", -1], "temperature is -1"), (["--top-p", 0], "top_p is 0"), (["--top-k", 0], "top_k is 0"),
    (["--max-tokens", 0], "max_tokens is 0"), (["--count", 0], "count is 0"),
])  # fmt: skip
def test_generate_refuses_numbers_that_mean_nothing(cli, flags, message):
    code, out, err = cli("generate", tiny_runs.path_of("causal"), "un", *flags)
    assert (code, out) == (2, "")
    assert message in err


def test_the_verb_prints_the_best_with_their_scores(capsys):
    command = [
        "generate",
        str(tiny_runs.path_of("causal")),
        "le livre",
        "--device",
        "cpu",
        "--precision",
        "fp32",
    ]
    answer = invoke(capsys, [*command, "--beam", "3", "--count", "2", "--max-tokens", "5", "--json"])
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)["continuations"]
    assert len(found) == 2
    assert found[0]["score"] >= found[1]["score"]
    plain = invoke(capsys, [*command, "--beam", "3", "--max-tokens", "5"])
    assert plain.out == f"le livre{found[0]['text']}\n"
    refused = invoke(capsys, [*command, "--beam", "3", "--greedy"])
    assert (refused.code, "[conflict]: --greedy with --beam" in refused.err) == (2, True)
    assert invoke(capsys, [*command, "--beam", "2", "--count", "3"]).code == 2


# ---- translate: lines in, their translations out -----------------------------------------------------------

TEXTS = ["le livre est belle.", "la fin.", "un roman très long est vraiment triste.", "une histoire."]
GREEDY = GenerationConfig(beam=1)


def translator(kind="joint"):
    run = translators.run_of(kind)
    run.model.double()
    return Translator.of(run, tiny_runs.MACHINE)


def best(texts, search=GREEDY, kind="joint", prefix=""):
    made = dataclasses.replace(translator(kind), prefix=prefix)
    return [one.candidates[0] for one in made.translate(texts, search)]


def ids(found):
    return [one.ids for one in found]


def run_verb(capsys, tmp_path, text, *flags):
    (tmp_path / "in.txt").write_text(text, encoding="utf-8")
    path = str(translators.path_of())
    return invoke(
        capsys,
        ["translate", path, str(tmp_path / "in.txt"), "--device", "cpu", "--precision", "fp32", *flags],
    )


def test_lines_in_lines_out(capsys, tmp_path):
    answer = run_verb(capsys, tmp_path, f"{TEXTS[0]}\n\n{TEXTS[1]}\n", "--beam", "2")
    assert answer.code == 0, answer.err
    lines = answer.out.split("\n")
    expected = [one.candidates[0].text for one in translate(
        translators.run_of(), [TEXTS[0], "", TEXTS[1]], tiny_runs.MACHINE, GenerationConfig(beam=2))]  # fmt: skip
    assert lines == [*expected, ""]
    assert lines[1] == ""


def test_standard_input_is_the_default(capsys, monkeypatch):
    class Piped(io.TextIOWrapper):
        pass

    monkeypatch.setattr(sys, "stdin", Piped(io.BytesIO(b"la fin.\nla fin.\n")))
    answer = invoke(capsys, ["translate", str(translators.path_of()), "--device", "cpu", "--precision", "fp32"])
    assert answer.code == 0, answer.err
    first, second = answer.out.splitlines()
    assert first == second


def test_lines_of_standard_input_are_translated_as_they_come(monkeypatch):
    reading, writing = os.pipe()
    found = queue.Queue()
    with os.fdopen(reading, "rb") as source, os.fdopen(writing, "wb", buffering=0) as sink:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=source))

        def work():
            for one in translator().translate(lines_of("-", DEFAULT_READING), GREEDY):
                found.put(one.candidates[0].ids)

        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        for text in ("la", TEXTS[0], "", TEXTS[2]):  # each is waited for before the next is written
            sink.write(f"{text}\n".encode())
            assert found.get(timeout=30) == ids(best([text]))[0]
        sink.write(b"la fin.\nun livre")
        sink.close()
        worker.join(30)
        assert [found.get(timeout=1) for _ in range(2)] == ids(best(["la fin.", "un livre"]))


def test_gzip_on_standard_input_is_read_as_a_whole(monkeypatch):
    data = io.BufferedReader(io.BytesIO(gzip.compress("né\n\nla fin.\n".encode())))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=data))
    assert list(lines_of("-", DEFAULT_READING)) == ["né", "", "la fin."]


def test_what_is_printed_is_escaped_for_a_terminal_alone(capsys, tmp_path, monkeypatch):
    text = "می\u200cخواهم\tco\u00adop \x1b[31m"
    made = Translated([Candidate(text, -1.0, [5])] * 2, [5], False, False)
    monkeypatch.setattr(Translator, "translate", lambda *_: iter([made]))
    assert run_verb(capsys, tmp_path, "x\n").out == text + "\n"
    listed = run_verb(capsys, tmp_path, "x\n", "--n-best", "2").out
    assert listed == f"1\t-1.0000\t{text.replace(chr(9), ' ')}\n" * 2
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    shown = run_verb(capsys, tmp_path, "x\n").out
    assert "\x1b" not in shown
    assert "\\x1b[31m" in shown


def test_long_lines_and_unknown_ones_are_counted_on_stderr(capsys, tmp_path):
    answer = run_verb(capsys, tmp_path, " ".join(small.sentences(30)) + "\nla fin.\n")
    assert answer.code == 0
    assert "1 text is longer than 32 tokens and was cut there" in answer.err
    assert len(answer.out.splitlines()) == 2


def test_json_has_text_score_tokens_and_alignment(capsys, tmp_path):
    answer = run_verb(capsys, tmp_path, f"{TEXTS[0]}\n\n", "--json", "--beam", "3", "--n-best", "2")
    first, blank = map(json.loads, answer.out.splitlines())
    assert {"text", "score", "tokens", "alignment", "source_tokens", "n_best"} == set(first)
    assert len(first["alignment"]) == len(first["tokens"])
    assert "".join(first["tokens"]) == first["text"]
    for source, target, weight in first["alignment"]:
        assert first["source_tokens"][source] not in ("<s>", "</s>")
        assert 0 <= target < len(first["tokens"])
        assert 0 < weight <= 1
    assert [one["score"] for one in first["n_best"]] == sorted((o["score"] for o in first["n_best"]), reverse=True)
    assert blank == {"text": "", "score": 0.0, "tokens": [], "alignment": [], "source_tokens": []}


def test_the_n_best_are_numbered_lines(capsys, tmp_path):
    answer = run_verb(capsys, tmp_path, f"{TEXTS[0]}\n{TEXTS[1]}\n", "--n-best", "2", "--beam", "2")
    cells = [line.split("\t") for line in answer.out.splitlines()]
    assert [number for number, _, _ in cells] == ["1", "1", "2", "2"]
    assert float(cells[0][1]) >= float(cells[1][1])


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--beam", "0"], "beam is 0"),
        (["--n-best", "9"], "headstart [conflict]: --n-best 9 with a beam of 5"),
        (["--temperature", "1", "--beam", "3"], "headstart [conflict]: --temperature with --beam 3"),
        (["--temperature", "-1"], "temperature is -1"),
        (["--top-k", "3"], "headstart [conflict]: --top-k without --temperature"),
        (["--top-p", "0.5"], "headstart [conflict]: --top-p without --temperature"),
        (["--length-penalty", "11"], "length_penalty is 11"),
        (["--max-tokens", "0"], "max-tokens"),
        (["--alignment-layer", "7", "--json"], "give 1 to 2"),
        (["--prefix", "mot " * 60], "leaves no room"),
    ],
)
def test_flags_that_cannot_be_are_refused(capsys, tmp_path, flags, says):
    answer = run_verb(capsys, tmp_path, "la fin.\n", *flags)
    assert answer.code == 2
    assert says in answer.err


def test_a_run_that_does_not_translate_says_what_it_is_for(capsys, tmp_path):
    (tmp_path / "in.txt").write_text("la fin.\n")
    answer = invoke(capsys, ["translate", str(tiny_runs.path_of("causal")), str(tmp_path / "in.txt")])
    assert answer.code == 2
    assert str(tiny_runs.path_of("causal")) in answer.err
    answer = invoke(capsys, ["generate", str(translators.path_of()), "la fin"])
    assert answer.code == 2
    assert "`headstart translate` serves it" in answer.err


def test_a_table_is_not_lines(capsys, tmp_path):
    (tmp_path / "in.csv").write_text("text\nla fin\n")
    answer = invoke(capsys, ["translate", str(translators.path_of()), str(tmp_path / "in.csv"), "--device", "cpu"])
    assert answer.code == 2
    assert str(tmp_path / "in.csv") in answer.err
