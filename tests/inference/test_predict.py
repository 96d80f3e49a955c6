"""Predictions and vectors: in a batch as alone, and whatever the text is."""

import json
import math

import numpy as np
import pytest
import tiny_runs
from expected_errors import refused

from headstart.inference import predict as windows
from headstart.inference.evaluate import evaluate_run
from headstart.inference.predict import embed, predict, texts_in_file

MACHINE = tiny_runs.MACHINE


def rows_of(kind):
    return [json.loads(line) for line in tiny_runs.files()[kind, "test"].read_text().splitlines()]


def answers(kind, texts):
    return [found.answer for found in predict(tiny_runs.run_of(kind), texts, MACHINE)]


TEXTS = ["", "une belle histoire", "   ", "livre " * 40, "☺", "un", "très belle fin.", ""]


@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression", "char"])
def test_a_batch_of_predictions_is_what_each_text_gets_alone(kind, monkeypatch):
    together = answers(kind, TEXTS)
    alone = [answers(kind, [text])[0] for text in TEXTS]
    monkeypatch.setattr(windows, "WINDOW_TEXTS", 3)
    in_windows = answers(kind, iter(TEXTS))
    for one, other, third in zip(together, alone, in_windows, strict=True):
        values = [list(answer.get("probabilities", answer).values()) for answer in (one, other, third)]
        assert values[0] == pytest.approx(values[1], abs=1e-5)
        assert values[0] == pytest.approx(values[2], abs=1e-5)
        assert one.keys() == other.keys()
        assert one.get("label") == other.get("label")
    assert together[0] == pytest.approx(together[-1]) if kind == "regression" else together[0] == together[-1]


@pytest.mark.parametrize("kind", ["classification", "char"])
def test_empty_and_unknown_texts_have_a_defined_answer(kind):
    run = tiny_runs.run_of(kind)
    if kind == "char":
        unknown = run.tokenizer.id_of("unknown")
        assert run.tokenizer.encode("☺☺").tolist() == [unknown, unknown]
    for batch in (["", "une fin", ""], ["☺☺"], [""], ["☺☺", ""]):
        for answer in answers(kind, batch):
            probabilities = list(answer["probabilities"].values())
            assert all(math.isfinite(p) for p in probabilities)
            assert sum(probabilities) == pytest.approx(1.0, abs=1e-5)
            assert answer["label"] == max(answer["probabilities"], key=answer["probabilities"].get)


def test_texts_at_the_limit_are_whole_and_longer_ones_are_cut():
    run = tiny_runs.run_of("char")  # a token a character; two for the frame
    room = tiny_runs.LENGTH - 2
    texts = ["e" * (room - 1), "e" * room, "e" * (room + 1), "e" * room * 10]
    found = list(predict(run, texts, MACHINE))
    assert [prediction.is_cut for prediction in found] == [False, False, True, True]
    assert found[1].answer == found[2].answer == found[3].answer


def test_nothing_in_gives_nothing_out():
    assert answers("classification", []) == []


def test_pairs_are_read_as_pairs(tmp_path):
    texts = list(texts_in_file(tiny_runs.files()["pairs", "test"]))
    assert texts == [(row["text_a"], row["text_b"]) for row in rows_of("pairs")]
    accuracy = np.mean(
        [answer["label"] == row["label"] for answer, row in zip(answers("pairs", texts), rows_of("pairs"), strict=True)]
    )  # fmt: skip
    found = evaluate_run(tiny_runs.run_of("pairs"), tiny_runs.files()["pairs", "test"], MACHINE)
    assert found.metrics["accuracy"] == pytest.approx(accuracy)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.txt", "un\n\n  \ndeux", ["un", "", "  ", "deux"]),
        ("a.txt", "un\r\ndeux\r\n", ["un", "deux"]),
        ("a.txt", "", []),
        ("a.jsonl", '{"text": "un"}\n\n{"text": ""}\n{"text": "deux", "label": 7}\n', ["un", "", "deux"]),
        ("a.csv", 'text,n\nun,1\n"",2\n"de,ux",3\n', ["un", "", "de,ux"]),
        ("a.tsv", "n\ttext\n1\tun\n2\t\n", ["un", ""]),
        ("a.spm", "▁Que ▁faire ?\n", ["Que faire?"]),
        ("a.jsonl", '{"text_a": "un", "text_b": ""}\n', [("un", "")]),
    ],
)
def test_every_line_and_row_is_a_text_blank_ones_too(tmp_path, name, content, expected):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8", newline="")
    assert list(texts_in_file(path)) == expected


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ('{"text": 3}\n', "'text' holds 3"),
        ('{"text": null}\n', "'text'"),
        ('{"txt": "un"}\n', "'text'"),
        ('{"text": "\\ud800"}\n', r"'\ud800'"),
        ('{"text": "un"}\nnonsense\n', "a.jsonl:2"),
    ],
)
def test_a_row_that_holds_no_text_is_refused_with_its_line(tmp_path, content, name):
    path = tmp_path / "a.jsonl"
    path.write_text(content)
    with refused("bad-row", name) as caught:
        list(texts_in_file(path))
    assert "a.jsonl:" in caught.value.where
    assert "--skip-bad-rows" not in caught.value.fix, "there is no such flag here"


# ---- vectors ------------------------------------------------------------------------------------------------


def vectors(kind, texts, pool):
    return [found.vectors for found in embed(tiny_runs.run_of(kind), texts, MACHINE, pool)]


@pytest.mark.parametrize("kind", ["causal", "masked", "masked-nsp", "classification"])
def test_one_word_in_two_sentences_gets_two_vectors_and_one_sentence_twice_the_same(kind):
    run = tiny_runs.run_of(kind)
    texts = ["un livre triste", "une belle histoire, un livre triste", "un livre triste"]
    word = [int(i) for i in run.tokenizer.encode(" triste")]
    found = list(embed(run, texts, MACHINE, "tokens"))
    of_word = []
    for one in found:
        tokens = one.tokens.tolist()
        position = next(i for i in range(len(tokens)) if tokens[i : i + len(word)] == word)
        of_word.append(one.vectors[position + len(word) - 1])
    assert np.abs(of_word[0] - of_word[1]).max() > 1e-2
    assert of_word[0] == pytest.approx(of_word[2], abs=1e-6)
    assert np.abs(found[0].vectors - found[2].vectors).max() < 1e-6


@pytest.mark.parametrize("kind", ["causal", "masked", "char"])
def test_pooled_vectors_are_made_of_the_tokens_vectors_and_padding_never_counts(kind):
    for text, tokens in zip(TEXTS, vectors(kind, TEXTS, "tokens"), strict=True):
        assert np.isfinite(tokens).all()
        assert tokens.shape[1] == tiny_runs.SHAPE["width"]
        alone = {pool: vectors(kind, [text], pool)[0] for pool in ("first", "mean", "last")}
        assert alone["first"] == pytest.approx(tokens[0], abs=1e-5)
        assert alone["last"] == pytest.approx(tokens[-1], abs=1e-5)
        assert alone["mean"] == pytest.approx(tokens.mean(axis=0), abs=1e-5)
    for pool in ("first", "mean", "last"):
        together = np.stack(vectors(kind, TEXTS, pool))
        assert together == pytest.approx(np.stack([vectors(kind, [t], pool)[0] for t in TEXTS]), abs=1e-5)
