"""The benchmark of translation: a length penalty is chosen on valid, and test is translated once, with that one."""

import gzip
import json
import shutil
import sys
from pathlib import Path

import pytest
import tiny_runs
import translators
from expected_errors import refused

from headstart.config.generation import GenerationConfig
from headstart.data.labelled import read_pairs
from headstart.inference.evaluate import score_pairs
from headstart.inference.metrics import TranslationScores
from headstart.inference.translate import Translator
from headstart.runs.load import load

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SMALLER = [
    "width=16", "ffn=24", "heads=2", "depth=1", "decoder-depth=1", "vocab=320", "length=32", "batch-tokens=300",
    "beam=2",
]  # fmt: skip


@pytest.fixture
def multi30k(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import multi30k

    return multi30k


@pytest.mark.parametrize("has_test", [True, False])
def test_the_best_on_valid_is_chosen_before_test_is_looked_at(multi30k, monkeypatch, has_test):
    bleu = {0.6: 10.0, 1.0: 12.0, 1.4: 12.0, 1.8: 9.0}
    asked = []

    def scored(translator, pairs, search):
        asked.append((len(pairs), search))
        return TranslationScores({"bleu": bleu[search.length_penalty]}, {})

    monkeypatch.setattr(multi30k, "score_pairs", scored)
    files = {name: path for name, path in translators.files().items() if name != "test"}
    if has_test:
        files["test"] = translators.files()["train"]  # of another size than valid
    searches = multi30k.searches_of(GenerationConfig(beam=3), multi30k.numbers("0.6,1.0,1.4,1.8"))
    found = multi30k.chosen_on_valid(None, files, searches)
    assert (found["penalties"], found["length_penalty"]) == (bleu, 1.0)
    on_valid = [(15, GenerationConfig(beam=3, length_penalty=penalty)) for penalty in bleu]
    assert asked == on_valid + [(60, GenerationConfig(beam=3, length_penalty=1.0))] * has_test
    assert ("test" in found) == has_test


def test_a_penalty_that_cannot_be_is_refused_before_the_training(multi30k):
    with refused("bad-value", "--length-penalty", "60"):
        multi30k.searches_of(GenerationConfig(beam=5), [1.0, 60.0])


def test_the_line_has_what_the_run_that_is_kept_scores(multi30k, tmp_path, monkeypatch, capsys):
    directory = tmp_path / "multi30k-en-de"
    directory.mkdir()
    for name, path in translators.files().items():
        shutil.copy(path, directory / f"{name}.tsv")
    monkeypatch.setenv("HEADSTART_DATA", str(tmp_path))

    def ask(*more):
        words = ["multi30k.py", "--steps", "2", "--device", "cpu", "--precision", "fp32", "--fast", *more]
        monkeypatch.setattr(sys, "argv", [*words, *(word for one in SMALLER for word in ("--set", one))])
        multi30k.main()
        out, err = capsys.readouterr()
        assert "exact, although --fast was asked for" in err
        return json.loads(out.splitlines()[-1]), out

    line, out = ask("--choose-penalty", "0,1.5", "--out", str(tmp_path / "run"))
    chosen = line["length_penalty"]
    assert line["penalties"][str(chosen)] == max(line["penalties"].values()) == line["valid"]["bleu"]
    assert set(line["penalties"]) == {"0.0", "1.5"}
    assert "with a length penalty of 1.5" in out
    translator = Translator.of(load(tmp_path / "run"), tiny_runs.MACHINE)
    search = GenerationConfig(beam=2, length_penalty=chosen)
    for name in ("valid", "test"):
        again = score_pairs(translator, read_pairs(directory / f"{name}.tsv"), search).values
        assert again == {key: line[name][key] for key in ("bleu", "chrf")}
    assert "test" not in json.loads((tmp_path / "run" / "result.json").read_text())

    (directory / "test.tsv").unlink()
    line, _ = ask("--valid-only")
    assert (line["test"], line["penalties"], line["length_penalty"]) == (None, {}, 1.0)


def test_what_it_starts_from_knows_the_three_languages_and_leaves_test_alone(multi30k, tmp_path, monkeypatch, capsys):
    sides = {"multi30k-en-de": ("a dog", "ein Hund"), "multi30k-en-fr": ("a dog", "un chien"),
             "tatoeba-en-fr": ("good evening", "bonsoir")}  # fmt: skip
    for folder, (source, target) in sides.items():
        (tmp_path / folder).mkdir()
        with gzip.open(tmp_path / folder / "train.tsv.gz", "wt") as file:
            file.write(f"{source}\t{target}\n" * 50)
        for name in ("valid", "test"):
            (tmp_path / folder / f"{name}.tsv").write_text(f"{source}\t{target}\n")
    monkeypatch.setenv("HEADSTART_DATA", str(tmp_path))
    small = [word for one in SMALLER for word in ("--set", one)]
    common = ["multi30k.py", "--steps", "2", "--device", "cpu", "--precision", "fp32"]
    start = tmp_path / "start"
    monkeypatch.setattr(sys, "argv", [*common, *small, "--pair", "start", "--out", str(start)])
    multi30k.main()
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["test"] is None
    tokenizer = load(start).tokenizer
    assert [len(tokenizer.encode(text)) for text in ("a dog", "ein Hund", "un chien", "bonsoir")] == [2, 2, 2, 1]
    given = [
        "--pair",
        "start",
        "--set",
        f"tokenizer={start}",
        "--out",
        str(tmp_path / "again"),
        "--steps",
        "1",
    ]
    monkeypatch.setattr(sys, "argv", [*common, *small, *given])
    monkeypatch.setattr(multi30k, "shared_tokenizer", None)  # nobody may train another
    multi30k.main()
    capsys.readouterr()
    of_search = ["--set", "batch-tokens=300", "--set", "length=32"]
    monkeypatch.setattr(sys, "argv", [*common, *of_search, "--pair", "fr", "--start", str(start)])
    multi30k.main()
    out, err = capsys.readouterr()
    assert "0 tensors made anew" in err
    assert json.loads(out.splitlines()[-1])["start"] == str(start)
