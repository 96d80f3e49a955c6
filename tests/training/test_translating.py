"""Using a translator: order, blank lines, long lines, other scripts, the n best, drawing, alignment; and the verb."""

import gzip
import inspect
import io
import json
import os
import queue
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import small
import tiny_runs
import torch
import translators
from commands import ask

from headstart.cli import main
from headstart.cli.finetune import finetune as finetune_verb
from headstart.cli.translation_flags import TranslationOptions
from headstart.decoding.beam import Beam
from headstart.decoding.search import Sampling
from headstart.errors import UserError
from headstart.text.files import STRICT_UTF8
from headstart.text.tokenizer_training import train as train_tokenizer
from headstart.training import finetune, translating, translation, windows
from headstart.training.loading import load
from headstart.training.translating import (
    Search,
    Translated,
    Translator,
    aligned,
    cross_attention,
    lines_of,
    translate,
)

TEXTS = ["le livre est belle.", "la fin.", "un roman très long est vraiment triste.", "une histoire."]
GREEDY = Search(beam=Beam(beams=1))


@pytest.fixture(autouse=True)
def _verb(monkeypatch):
    monkeypatch.setitem(main.VERBS, "translate", "headstart.cli.translate:translate")


def translator(kind="joint"):
    run = translators.run_of(kind)
    run.model.double()
    return Translator.of(run, tiny_runs.MACHINE)


def best(texts, search=GREEDY, kind="joint"):
    return [one.candidates[0] for one in translator(kind).translate(texts, search)]


def ids(found):
    return [one.ids for one in found]


@pytest.mark.parametrize("kind", ["joint", "separate"])
@pytest.mark.parametrize("beams", [1, 3])
def test_every_text_has_the_translation_that_it_has_alone(kind, beams):
    search = Search(beam=Beam(beams=beams))
    together = best(TEXTS, search, kind)
    assert ids(together) == [ids(best([text], search, kind))[0] for text in TEXTS]
    assert ids(best(TEXTS[::-1], search, kind)) == ids(together)[::-1]
    assert len({tuple(one) for one in ids(together)}) > 1, "all the same shows no order"


def test_windows_and_batches_change_nothing(monkeypatch):
    texts = [*TEXTS, "", *small.sentences(12, seed=3), " ", "fin"]
    whole = best(texts)
    monkeypatch.setattr(windows, "WINDOW_TEXTS", 3)
    monkeypatch.setattr(translating, "CPU_BATCH_TOKENS", 40)
    assert ids(best(texts)) == ids(whole)


def test_texts_are_asked_for_as_they_are_needed(monkeypatch):
    monkeypatch.setattr(windows, "WINDOW_TEXTS", 2)
    asked = []
    found = translator().translate((asked.append(text) or text for text in TEXTS), GREEDY)
    next(found)
    assert asked == TEXTS[:2]


def test_a_blank_text_stays_blank():
    found = list(translator().translate(["", "   ", "\t", TEXTS[0]], GREEDY))
    assert [one.candidates[0].text for one in found[:3]] == ["", "", ""]
    assert [one.source_ids for one in found[:3]] == [[], [], []]
    assert found[3].source_ids


def test_a_text_longer_than_the_run_is_cut_and_says_so():
    long = " ".join(small.sentences(30, seed=2))
    short, cut = translator().translate([TEXTS[1], long], GREEDY)
    assert (short.is_cut, cut.is_cut) == (False, True)
    assert len(cut.source_ids) == 32
    assert len(cut.candidates[0].ids) <= 31


@pytest.mark.parametrize(
    "text", ["Это по-русски", "日本語のテキスト", "\U0001f600\U0001f600", "e\u0301 \u202e abc", "</s><pad>"]
)
def test_other_scripts_are_bytes_to_a_byte_level_tokenizer(text):
    (found,) = translator().translate([text], GREEDY)
    assert not found.has_unknown
    special = small.tokenizer().special_ids
    assert not special & set(found.source_ids[1:-1])


def test_what_no_piece_is_for_is_read_as_unknown_and_never_written(tmp_path):
    words = train_tokenizer(lambda: iter(small.sentences(50)), vocab=60, kind="char").tokenizer
    translators.train(tmp_path / "run", tokenizer=words)
    run = load(tmp_path / "run")
    plain, strange = translate(run, ["le livre", "日本"], tiny_runs.MACHINE, GREEDY)
    assert (plain.has_unknown, strange.has_unknown) == (False, True)
    assert words.id_of("unknown") in strange.source_ids
    for one in (plain, strange):
        assert not words.special_ids & set(one.candidates[0].ids)


def test_a_translation_is_one_line():
    words = small.tokenizer()
    broken = [int(i) for i in words.encode("un\ndeux\r\ntrois")]
    made = translator()._candidate(translating.Hypothesis(broken, 0.0, 0.0, True), GREEDY)
    assert made.text == "un deux trois"


def test_rules_of_the_search_are_handed_on():
    found = best(TEXTS, Search(beam=Beam(beams=2), min_tokens=5, max_tokens=7, no_repeat=1))
    assert all(5 <= len(one.ids) <= 7 and len(set(one.ids)) == len(one.ids) for one in found)
    begun = best(TEXTS, Search(beam=Beam(beams=2), prefix="La fin", max_tokens=4))
    prefix = [int(i) for i in small.tokenizer().encode("La fin")]
    assert all(one.text.startswith("La fin") and one.ids[: len(prefix)] == prefix for one in begun)
    assert all(len(one.ids) <= len(prefix) + 4 for one in begun)


def test_several_translations_come_best_first():
    for one in translator().translate(TEXTS, Search(beam=Beam(beams=4, n_best=4))):
        scores = [candidate.score for candidate in one.candidates]
        assert len(scores) == 4
        assert scores == sorted(scores, reverse=True)


def test_what_is_drawn_hangs_on_the_seed_and_the_number_of_the_text(monkeypatch):
    def drawn(texts, seed=1):
        sampling = Sampling(temperature=2.0, seed=seed)
        return ids(best(texts, Search(beam=Beam(beams=1), sampling=sampling)))

    texts = [TEXTS[0]] * 5
    one = drawn(texts)
    assert one == drawn(texts)
    assert one != drawn(texts, seed=2)
    assert len({tuple(ids) for ids in one}) > 1
    monkeypatch.setattr(windows, "WINDOW_TEXTS", 2)
    assert drawn(texts) == one


def test_what_is_drawn_is_scored_by_the_model():
    run = translators.run_of()
    run.model.double()
    sampling = Sampling(temperature=1.0, seed=4)
    (found,) = translate(run, [TEXTS[2]], tiny_runs.MACHINE, Search(beam=Beam(beams=1), sampling=sampling))
    end, begin = small.tokenizer().id_of("end"), small.tokenizer().id_of("begin")
    written = found.candidates[0].ids
    whole = torch.tensor([[begin, *written, end]])
    with torch.no_grad():
        logs = run.model(torch.tensor([found.source_ids]), whole[:, :-1])[0].log_softmax(-1)
    each = logs.gather(-1, whole[0, 1:, None])[:, 0]
    assert len(written) < 30, "it has ended"
    assert found.candidates[0].score == pytest.approx(each.mean().item())


@pytest.mark.parametrize(
    "bad",
    [
        {"min_tokens": -1},
        {"max_tokens": 0},
        {"min_tokens": 5, "max_tokens": 4},
        {"no_repeat": -1},
        {"sampling": Sampling(temperature=1.0)},
    ],
)
def test_rules_that_mean_nothing_are_refused(bad):
    with pytest.raises(UserError):
        Search(**bad)


# ---- alignment ----------------------------------------------------------------------------------------------


def test_cross_attention_is_the_mean_over_the_heads_of_a_layer():
    made = translator()
    (found,) = made.translate([TEXTS[0]], GREEDY)
    target = found.candidates[0].ids
    weights = [cross_attention(made, found.source_ids, target, layer) for layer in (1, 2)]
    for one in weights:
        assert one.shape == (len(target), len(found.source_ids))
        assert np.allclose(one.sum(axis=1), 1, atol=1e-6)
    assert not np.allclose(*weights)
    assert np.array_equal(cross_attention(made, found.source_ids, target), weights[0]), (
        "the last but one of two"
    )
    with pytest.raises(UserError, match="give 1 to 2"):
        cross_attention(made, found.source_ids, target, 3)


def test_alignment_by_hand_leaves_special_tokens_aside():
    weights = np.array([[0.7, 0.2, 0.1, 0.0], [0.0, 0.1, 0.2, 0.7]], np.float32)
    pairs = aligned(weights, [False, True, True, False])
    assert [(pair.source, pair.target) for pair in pairs] == [(1, 0), (2, 1)]
    assert [pair.weight for pair in pairs] == pytest.approx([0.2, 0.2])


# ---- the verb -----------------------------------------------------------------------------------------------


def run_verb(capsys, tmp_path, text, *flags):
    (tmp_path / "in.txt").write_text(text, encoding="utf-8")
    path = str(translators.path_of())
    return ask(
        capsys,
        ["translate", path, str(tmp_path / "in.txt"), "--device", "cpu", "--precision", "fp32", *flags],
    )


def test_lines_in_lines_out(capsys, tmp_path):
    answer = run_verb(capsys, tmp_path, f"{TEXTS[0]}\n\n{TEXTS[1]}\n", "--beam", "2")
    assert answer.code == 0, answer.err
    lines = answer.out.split("\n")
    expected = [one.candidates[0].text for one in translate(
        translators.run_of(), [TEXTS[0], "", TEXTS[1]], tiny_runs.MACHINE, Search(beam=Beam(beams=2)))]  # fmt: skip
    assert lines == [*expected, ""]
    assert lines[1] == ""


def test_standard_input_is_the_default(capsys, monkeypatch):
    class Piped(io.TextIOWrapper):
        pass

    monkeypatch.setattr(sys, "stdin", Piped(io.BytesIO(b"la fin.\nla fin.\n")))
    answer = ask(capsys, ["translate", str(translators.path_of()), "--device", "cpu", "--precision", "fp32"])
    assert answer.code == 0, answer.err
    first, second = answer.out.splitlines()
    assert first == second


def test_lines_of_standard_input_are_translated_as_they_come(monkeypatch):
    reading, writing = os.pipe()
    found = queue.Queue()
    with os.fdopen(reading, "rb") as source, os.fdopen(writing, "wb", buffering=0) as sink:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=source))

        def work():
            for one in translator().translate(lines_of("-", STRICT_UTF8), GREEDY):
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
    assert list(lines_of("-", STRICT_UTF8)) == ["né", "", "la fin."]


def test_what_is_printed_is_escaped_for_a_terminal_alone(capsys, tmp_path, monkeypatch):
    text = "می\u200cخواهم\tco\u00adop \x1b[31m"
    made = Translated([translating.Candidate(text, -1.0, [5])] * 2, [5], False, False)
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
    assert [one["score"] for one in first["n_best"]] == sorted(
        (o["score"] for o in first["n_best"]), reverse=True
    )
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
        (["--n-best", "9"], "--n-best"),
        (["--temperature", "1", "--beam", "3"], "give one of them"),
        (["--temperature", "-1"], "temperature is -1"),
        (["--top-k", "3"], "--top-k without --temperature"),
        (["--top-p", "0.5"], "--top-p without --temperature"),
        (["--length-penalty", "11"], "length-penalty is 11"),
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
    answer = ask(capsys, ["translate", str(tiny_runs.path_of("causal")), str(tmp_path / "in.txt")])
    assert answer.code == 2
    assert "translate needs a translation run" in answer.err
    answer = ask(capsys, ["generate", str(translators.path_of()), "la fin"])
    assert answer.code == 2
    assert "`headstart translate` serves it" in answer.err


def test_a_table_is_not_lines(capsys, tmp_path):
    (tmp_path / "in.csv").write_text("text\nla fin\n")
    answer = ask(
        capsys, ["translate", str(translators.path_of()), str(tmp_path / "in.csv"), "--device", "cpu"]
    )
    assert answer.code == 2
    assert "only lines are translated" in answer.err


# ---- finetune and evaluate ----------------------------------------------------------------------------------


def tune(capsys, out, *flags):
    files = translators.files()
    shape = ["--width", "16", "--ffn", "24", "--heads", "2", "--depth", "1", "--decoder-depth", "1"]
    return ask(
        capsys,
        ["finetune", "--task", "translation", "--train", str(files["train"]), "--valid", str(files["valid"]),
         "--test", str(files["test"]), "--out", str(out), *shape, "--vocab", "320", "--length", "32", "--steps", "2",
         "--device", "cpu", "--precision", "fp32", "--threads", "1", *flags],
    )  # fmt: skip


def test_finetune_trains_a_translator_and_prints_its_scores(capsys, tmp_path):
    answer = tune(capsys, tmp_path / "run")
    assert answer.code == 0, answer.err
    for line in ("valid  cross_entropy", "valid  bleu", "test   bleu", "test   chrf", "|tok:13a|"):
        assert line in answer.out
    config = load(tmp_path / "run").config
    assert (config.loop.schedule, config.translation.smoothing) == ("inverse-sqrt", 0.1)
    assert config.model.norm_place == "post", "the preset is transformer-tiny"
    again = tune(capsys, tmp_path / "run", "--json")
    assert json.loads(again.out)["signatures"]["bleu"].startswith("nrefs:1")


def test_flags_of_a_translation_reach_the_run(capsys, tmp_path):
    answer = tune(
        capsys, tmp_path / "run", "--vocabularies", "separate", "--batch-tokens", "200", "--smoothing", "0.2",
        "--labels", "20", "--beam", "1",
    )  # fmt: skip
    assert answer.code == 0, answer.err
    run = load(tmp_path / "run")
    assert not run.vocabularies.is_joint
    assert (run.config.translation.batch_tokens, run.config.translation.smoothing) == (200, 0.2)
    assert run.config.data.labels == 20


@pytest.mark.parametrize(
    "flags",
    [
        ["--pooling", "mean"],
        ["--freeze", "base"],
        ["--batch", "16"],
        ["--text-column", "a"],
        ["--label-column", "b"],
    ],
)
def test_flags_for_labels_are_refused(capsys, tmp_path, flags):
    answer = tune(capsys, tmp_path / "run", *flags)
    assert answer.code == 2
    assert "with --task translation" in answer.err


@pytest.mark.parametrize(
    "flags", [["--smoothing", "0.2"], ["--start-into", "both"], ["--valid-bleu"], ["--beam", "3"]]
)
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_flags_for_translation_are_refused_elsewhere(capsys, tmp_path, flags, task):
    command = ["finetune", "--task", task, "--train", "nowhere.tsv", "--out", str(tmp_path / "run")]
    answer = ask(capsys, [*command, *flags])
    assert answer.code == 2
    assert f"{flags[0]} with --task {task}" in answer.err
    assert not (tmp_path / "run").exists()


def test_what_the_flags_say_is_what_the_training_does():
    flags, search = TranslationOptions(), Search()
    assert flags.smoothing == translation.DEFAULT_SMOOTHING
    assert (flags.beam, flags.length_penalty) == (search.beam.beams, search.beam.length_penalty)
    assert "default: 16;" in inspect.getdoc(finetune_verb)
    assert finetune.DEFAULT_BATCH == 16


def test_evaluate_prints_scores_and_signatures(capsys):
    command = [
        "evaluate",
        str(translators.path_of()),
        "--data",
        str(translators.files()["test"]),
        "--device",
        "cpu",
    ]
    answer = ask(capsys, [*command, "--precision", "fp32"])
    assert answer.code == 0, answer.err
    for name in ("cross_entropy", "perplexity", "bleu", "chrf", "rows"):
        assert name in answer.out
    assert "tok:13a" in answer.out
    found = json.loads(ask(capsys, [*command, "--json", "--beam", "1"]).out)
    assert found["objective"] == "translation"
    assert found["count"] == 15
    assert found["signatures"].keys() == {"bleu", "chrf"}
