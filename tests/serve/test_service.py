"""Texts that are computed together, and the values that are answered."""

import tiny_runs

from headstart.serve.messages import GenerateRequest
from headstart.serve.service import alike, classified


def test_texts_of_like_length_are_one_batch():
    # 40 is within 1.25 times 33; 60 is not, and 100 is not within 1.25 times 60.
    assert list(alike([40, 100, 33, 60], budget=10_000)) == [[2, 0], [3], [1]]


def test_short_texts_are_alike_whatever_their_lengths():
    assert list(alike([32, 1, 5], budget=10_000)) == [[1, 2, 0]]


def test_a_batch_holds_no_more_tokens_than_its_budget_padding_counted():
    assert list(alike([10] * 5, budget=20)) == [[0, 1], [2, 3], [4]]
    assert list(alike([99], budget=20)) == [[0]], "a text that is longer alone"
    assert list(alike([], budget=20)) == []


def test_every_text_is_answered_with_its_place():
    run = tiny_runs.run_of("classification")
    texts = ["une belle histoire. " * 30, "livre", "un roman très long."]
    found = dict(classified(run, texts, tiny_runs.MACHINE))
    assert sorted(found) == [0, 1, 2]
    assert [found[index].is_cut for index in range(3)] == [True, False, False]
    for prediction in found.values():
        assert abs(sum(prediction.answer["probabilities"].values()) - 1) < 1e-5


def test_a_top_k_of_0_is_any_token():
    assert GenerateRequest(top_k=0).generation.top_k is None
    sampling = GenerateRequest(top_k=7, top_p=0.5, temperature=0.25, seed=9).generation
    assert (sampling.top_k, sampling.top_p, sampling.temperature, sampling.seed) == (7, 0.5, 0.25, 9)
