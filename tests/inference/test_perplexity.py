"""How well a run predicts a text: the same loss as evaluate measures, token by token."""

import itertools
import json
import math

import numpy as np
import pytest
import small
import tiny_runs
import torch
from expected_errors import refused
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.config.training import Masking
from headstart.inference import perplexity
from headstart.inference.evaluate import evaluate_run
from headstart.inference.perplexity import LanguageScores, ngram_entropies, score_tokens

MACHINE = tiny_runs.MACHINE


@pytest.fixture(autouse=True)
def own_cache(monkeypatch):
    monkeypatch.setenv("HEADSTART_CACHE", str(tiny_runs.directory() / "cache"))


def test_buckets_stay_few_and_cover_every_position_once():
    scores = LanguageScores(np.ones(1000), np.full(1000, 2), 1)
    buckets = scores.buckets(trained_length=16)
    assert len(buckets) <= 32
    assert buckets[0]["first"] == 1
    assert buckets[-1]["last"] == 1000
    assert all(a["last"] + 1 == b["first"] for a, b in itertools.pairwise(buckets))
    assert sum(bucket["count"] for bucket in buckets) == 2000


@pytest.mark.parametrize("kind", ["causal", "rotary", "learned"])
@pytest.mark.parametrize("name", ["long", "short"])
def test_the_loss_is_what_evaluate_measures_on_the_same_text(kind, name, tmp_path):
    run, path = tiny_runs.run_of(kind), tiny_runs.files()["long"]
    if name == "short":
        path = tmp_path / "short.txt"
        path.write_text("une fin ☺.\n")
    expected = evaluate_run(run, path, MACHINE)
    found = score_tokens(run, path.read_text().removesuffix("\n"), MACHINE)
    assert len(found.tokens) == expected.count
    assert found.loss == pytest.approx(expected.metrics["loss"], rel=1e-5)
    assert found.perplexity == pytest.approx(expected.metrics["perplexity"], rel=1e-4)
    assert found.loss == pytest.approx(-np.mean([math.log(token.probability) for token in found.tokens]))


def test_probability_and_rank_are_those_of_a_loop_over_tokens():
    run, text = tiny_runs.run_of("causal"), "une belle fin."
    ids = [run.tokenizer.id_of("begin"), *map(int, run.tokenizer.encode(text)), run.tokenizer.id_of("end")]
    found = score_tokens(run, text, MACHINE)
    assert len(ids) <= tiny_runs.LENGTH + 1
    for position, token in enumerate(found.tokens, 1):
        with torch.no_grad():
            shares = run.model(torch.tensor([ids[:position]]))[0, -1].double().softmax(-1)
        assert token.probability == pytest.approx(float(shares[ids[position]]), rel=1e-4)
        assert token.rank == 1 + int((shares > shares[ids[position]]).sum())
    assert "".join(token.text for token in found.tokens[:-1]) == text
    assert [token.is_special for token in found.tokens] == [False] * (len(ids) - 2) + [True]


@settings(max_examples=25, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_text_has_scores_that_are_plain_numbers(text):
    found = score_tokens(tiny_runs.run_of("causal"), text, MACHINE)
    plain = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert len(plain["tokens"]) == len(tiny_runs.run_of("causal").tokenizer.encode(text)) + 1
    assert all(0 < token["probability"] <= 1 and token["rank"] >= 1 for token in plain["tokens"])


def test_a_perplexity_that_is_no_number_is_left_out():
    run = tiny_runs.run_of("causal")
    with torch.no_grad():
        run.model.head.output.weight.mul_(1e6)
    found = score_tokens(run, "une belle fin.", MACHINE)
    assert found.loss > 709
    assert found.perplexity is None
    with torch.no_grad():
        run.model.head.output.weight.fill_(torch.nan)
    with refused("not-finite"):
        score_tokens(run, "une", MACHINE)
    with refused("wrong-run", "classification run", "headstart generate"):
        score_tokens(tiny_runs.run_of("classification"), "une", MACHINE)


# ---- entropies by counts, against sums by hand and a loop over tokens ------------------------------------------

TRAIN = small.store_of([[[0, 1, 0]], [[0, 2]]])
VALID = small.store_of([[[0, 1]]])
ALL_MASKED = Masking(mask_random=0, mask_kept=0)


def test_the_frequency_of_each_token_and_of_each_end_with_one_added():
    # Of three kinds of token and the boundary: 3, 1, 1, and 3 around two documents; one added to each is 12 in all.
    expected = -np.mean(np.log([4 / 12, 2 / 12, 4 / 12]))  # 0, 1, the end
    assert ngram_entropies([TRAIN], VALID, "causal", ALL_MASKED)["unigram"] == pytest.approx(expected)


def test_a_masked_base_predicts_no_ends():
    expected = -np.mean(np.log([4 / 9, 2 / 9]))
    assert ngram_entropies([TRAIN], VALID, "masked", ALL_MASKED)["unigram"] == pytest.approx(expected)


def test_pairs_are_discounted_and_the_rest_goes_by_frequency():
    # After the boundary: 0 twice. After 0: 1, 2 and the boundary, once each. After 1: 0.
    first = (2 - 0.75) / 2 + 0.75 * 1 / 2 * 4 / 12
    second = (1 - 0.75) / 3 + 0.75 * 3 / 3 * 2 / 12
    end = 0.75 * 1 / 1 * 4 / 12  # it never came after 1
    found = ngram_entropies([TRAIN], VALID, "causal", ALL_MASKED)["bigram"]
    assert found == pytest.approx(-np.mean(np.log([first, second, end])))


def test_probabilities_after_every_token_sum_to_one():
    counted = np.array([3, 0, 1, 0, 3, 0, 2, 3])
    unigram = np.array([0.4, 0.2, 0.2, 0.2])
    for before in range(4):
        found = perplexity._bigram(counted, np.full(4, before), np.arange(4), unigram)
        assert found.sum() == pytest.approx(1)


def test_tokens_that_masking_shows_are_guessed_to_be_themselves():
    hidden = ngram_entropies([TRAIN], VALID, "masked", ALL_MASKED)["unigram"]
    shown = ngram_entropies([TRAIN], VALID, "masked", Masking())["unigram"]
    # 80 % hidden; 10 % kept, guessed with one half; 10 % random, where the other half goes by frequency.
    assert shown == pytest.approx(0.8 * hidden + 0.1 * math.log(2) + 0.1 * (hidden + math.log(2)))


def test_a_large_store_is_sampled_at_equal_distances(monkeypatch):
    store = small.store(documents=200)
    whole = ngram_entropies([store], store, "causal", ALL_MASKED)
    monkeypatch.setattr(perplexity, "MOST_TOKENS", len(store) // 2)
    monkeypatch.setattr(perplexity, "_WINDOW", 64)
    sample = perplexity._sample(store, 10_000)
    assert len(store) // 3 < (sample < 10_000).sum() <= len(store) // 2 + 64
    assert ngram_entropies([store], store, "causal", ALL_MASKED)["unigram"] == pytest.approx(whole["unigram"], rel=0.02)
