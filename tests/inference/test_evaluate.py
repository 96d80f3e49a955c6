"""Scores of a run, against truth found another way: token by token, text by text, by hand."""

import dataclasses
import json
import math

import numpy as np
import pytest
import tiny_runs
import torch
from expected_errors import refused
from sklearn import metrics as sklearn_metrics

from headstart.inference.evaluate import corpus_store, evaluate_run
from headstart.inference.predict import predict

MACHINE = tiny_runs.MACHINE


@pytest.fixture(autouse=True)
def own_cache(monkeypatch):
    monkeypatch.setenv("HEADSTART_CACHE", str(tiny_runs.directory() / "cache"))


def silenced(run):
    """The same run with every weight zero: it knows nothing, and all tokens are equally likely to it."""
    with torch.no_grad():
        for parameter in run.model.parameters():
            parameter.zero_()
    return run


def one_line(name, text):
    path = tiny_runs.directory() / name
    path.write_text(text, encoding="utf-8")
    return path


# ---- language models ----------------------------------------------------------------------------------------


def losses_by_hand(run, path, length):
    """(tokens read, nats) of every token, one at a time: each text alone, cut where blocks of the stream are."""
    begin, end = run.tokenizer.id_of("begin"), run.tokenizer.id_of("end")
    found, position = [], 0
    for text in path.read_text().splitlines():
        tokens = [begin, *map(int, run.tokenizer.encode(text)), end]
        for i in range(1, len(tokens)):
            block_start = (position + i - 1) // length * length
            context = tokens[max(0, block_start - position) : i]
            with torch.no_grad():
                logits = run.model(torch.tensor([context]))[0, -1].double()
            found.append((len(context), -float(logits.log_softmax(-1)[tokens[i]])))
        position += len(tokens)
    return found


@pytest.mark.parametrize("kind", ["causal", "rotary", "learned"])
def test_loss_perplexity_and_bits_per_byte_are_those_of_a_loop_over_tokens(kind):
    run, path = tiny_runs.run_of(kind), tiny_runs.files()["valid"]
    by_hand = [nats for _, nats in losses_by_hand(run, path, tiny_runs.LENGTH)]
    found = evaluate_run(run, path, MACHINE)
    assert found.count == len(by_hand)
    assert found.metrics["loss"] == pytest.approx(np.mean(by_hand), rel=1e-5)
    assert found.metrics["perplexity"] == pytest.approx(math.exp(np.mean(by_hand)), rel=1e-4)
    text_bytes = sum(len(line.encode()) for line in path.read_text().splitlines())
    assert found.details["text_bytes"] == text_bytes
    assert found.metrics["bits_per_byte"] == pytest.approx(sum(by_hand) / math.log(2) / text_bytes, rel=1e-5)


@pytest.mark.parametrize("kind", ["causal", "masked", "masked-nsp"])
def test_a_run_scores_on_its_valid_set_what_it_scored_in_training(kind):
    result = json.loads((tiny_runs.path_of(kind) / "result.json").read_text())
    found = evaluate_run(tiny_runs.run_of(kind), tiny_runs.files()["valid"], MACHINE)
    for measure, value in result["valid"].items():
        assert found.metrics[measure] == pytest.approx(value, rel=1e-6), measure
    assert ("masked_accuracy" in found.metrics) == (kind != "causal")
    assert ("pair_accuracy" in found.metrics) == (kind == "masked-nsp")


@pytest.mark.parametrize("kind", ["causal", "masked"])
def test_a_run_that_knows_nothing_loses_log_v(kind):
    run, path = silenced(tiny_runs.run_of(kind)), tiny_runs.files()["valid"]
    found = evaluate_run(run, path, MACHINE)
    vocab = run.tokenizer.size
    assert found.metrics["loss"] == pytest.approx(math.log(vocab), rel=1e-6)
    if kind == "causal":
        lines = path.read_text().splitlines()
        tokens = sum(len(ids) + 1 for ids in run.tokenizer.encode_many(lines))
        text_bytes = sum(len(line.encode()) for line in lines)
        assert found.count == tokens
        assert found.metrics["perplexity"] == pytest.approx(vocab, rel=1e-5)
        assert found.metrics["bits_per_byte"] == pytest.approx(math.log2(vocab) * tokens / text_bytes, rel=1e-6)


@pytest.mark.parametrize("kind", ["causal", "rotary"])
def test_loss_by_position_at_four_times_the_trained_length(kind):
    run, path = tiny_runs.run_of(kind), tiny_runs.files()["long"]
    length = 4 * tiny_runs.LENGTH
    by_hand = losses_by_hand(run, path, length)
    found = evaluate_run(run, path, MACHINE, length=length)
    by_position = found.details["loss_by_position"]
    assert len(by_position) == length
    for read in (1, 2, tiny_runs.LENGTH, tiny_runs.LENGTH + 1, length):
        expected = [nats for seen, nats in by_hand if seen == read]
        assert found.details["count_by_position"][read - 1] == len(expected) > 0
        assert by_position[read - 1] == pytest.approx(np.mean(expected), rel=1e-4)
    for bucket in found.details["buckets"]:
        inside = [nats for seen, nats in by_hand if bucket["first"] <= seen <= bucket["last"]]
        assert bucket["count"] == len(inside)
        assert bucket["loss"] == pytest.approx(np.mean(inside), rel=1e-4)
    firsts = [bucket["first"] for bucket in found.details["buckets"]]
    assert tiny_runs.LENGTH + 1 in firsts, "the trained length is an edge"


def test_positions_are_those_in_the_document_and_not_in_the_block():
    run, path = tiny_runs.run_of("causal"), tiny_runs.files()["corpus"]
    lengths = [len(ids) + 1 for ids in run.tokenizer.encode_many(path.read_text().splitlines())]
    found = evaluate_run(run, path, MACHINE, length=64)
    counts = found.details["count_by_position"]
    assert sum(counts) == sum(lengths)
    assert counts[max(lengths) :] == [0] * (64 - max(lengths))
    assert found.details["loss_by_position"][-1] is None


def test_where_no_text_is_longer_than_the_trained_length_that_is_said():
    run, told = tiny_runs.run_of("causal"), []
    evaluate_run(run, one_line("short.txt", "une fin.\nun livre.\n"), MACHINE, length=64, log=told.append)
    assert "--documents file" in told[0]
    evaluate_run(run, tiny_runs.files()["long"], MACHINE, length=64, log=told.append)
    assert len(told) == 1


def test_learned_positions_beyond_the_table_are_refused_before_the_data_is_looked_at():
    run = tiny_runs.run_of("learned")
    with refused("too-large", "96", "--length 24"):
        evaluate_run(run, "there-is-no-such-file.txt", MACHINE, length=96)
    assert evaluate_run(run, tiny_runs.files()["long"], MACHINE, length=24).details["count_by_position"][23] > 0
    with refused("bad-value", "length is 0"):
        evaluate_run(run, "there-is-no-such-file.txt", MACHINE, length=0)


@pytest.mark.parametrize("kind", ["causal", "masked"])
def test_a_text_shorter_than_a_block_is_scored_all_the_same(kind):
    path = one_line("short.txt", "une fin.\n")
    run = tiny_runs.run_of(kind)
    found = evaluate_run(run, path, MACHINE)
    tokens = len(run.tokenizer.encode("une fin.")) + 1
    assert tokens < tiny_runs.LENGTH
    assert found.count == tokens if kind == "causal" else found.count >= 1


def test_unknown_tokens_are_told_because_they_flatter_the_scores():
    run, told = tiny_runs.run_of("char"), []
    run = dataclasses.replace(run, config=dataclasses.replace(run.config, objective="causal"))
    corpus_store(run, one_line("signs.txt", "belle ☺☺ fin\n"), log=told.append)
    assert "2 of 12 tokens are unknown" in told[0]


# ---- fine-tuned runs ----------------------------------------------------------------------------------------


def rows_of(kind):
    return [json.loads(line) for line in tiny_runs.files()[kind, "test"].read_text().splitlines()]


def answers(kind, texts):
    return [found.answer for found in predict(tiny_runs.run_of(kind), texts, MACHINE)]


def test_classification_measures_are_scikit_learns_over_the_predictions():
    rows = rows_of("classification")
    found = evaluate_run(tiny_runs.run_of("classification"), tiny_runs.files()["classification", "test"], MACHINE)
    predicted = [answer["label"] for answer in answers("classification", [row["text"] for row in rows])]
    true = [row["label"] for row in rows]
    assert found.count == len(rows)
    assert found.metrics["accuracy"] == pytest.approx(sklearn_metrics.accuracy_score(true, predicted))
    assert found.metrics["macro_f1"] == pytest.approx(
        sklearn_metrics.f1_score(true, predicted, average="macro", zero_division=0)
    )
    assert found.metrics["mcc"] == pytest.approx(sklearn_metrics.matthews_corrcoef(true, predicted))
    majority = max(true.count("oui"), true.count("non")) / len(true)
    assert found.metrics["majority_accuracy"] == pytest.approx(majority)


def test_multilabel_and_regression_are_scored_by_their_own_measures():
    rows = rows_of("multilabel")
    found = evaluate_run(tiny_runs.run_of("multilabel"), tiny_runs.files()["multilabel", "test"], MACHINE)
    said = answers("multilabel", [row["text"] for row in rows])
    exact = np.mean([set(answer["labels"]) == set(row["label"]) for answer, row in zip(said, rows, strict=True)])
    assert found.metrics["accuracy"] == pytest.approx(exact)
    rows = rows_of("regression")
    found = evaluate_run(tiny_runs.run_of("regression"), tiny_runs.files()["regression", "test"], MACHINE)
    said = [answer["value"] for answer in answers("regression", [row["text"] for row in rows])]
    errors = np.array(said) - np.array([row["label"] for row in rows])
    assert found.metrics["mae"] == pytest.approx(np.abs(errors).mean(), rel=1e-5)


def test_a_label_that_the_run_does_not_know_is_refused_before_anything_is_computed(monkeypatch):
    run = tiny_runs.run_of("classification")
    monkeypatch.setattr(run.model, "forward", lambda *arguments, **options: pytest.fail("computed"))
    path = one_line("unseen.jsonl", '{"text": "une fin", "label": "peut-être"}\n')
    with refused("unknown-name", "'peut-être' (1 rows", "unseen.jsonl:1"):
        evaluate_run(run, path, MACHINE)


def test_every_kind_of_run_evaluates_itself_and_pairs_too():
    for kind in tiny_runs.LABELLED:
        found = evaluate_run(tiny_runs.run_of(kind), tiny_runs.files()[kind, "test"], MACHINE)
        assert found.count == 30
        assert all(math.isfinite(value) for value in found.metrics.values())
