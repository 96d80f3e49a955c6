"""What a run thought of each token: the same text as generate writes, the same loss as evaluate measures."""

import json
import math

import numpy as np
import pytest
import tiny_runs
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.decoding.readers import CachedReader
from headstart.decoding.search import Sampling
from headstart.errors import UserError
from headstart.training.generating import generate
from headstart.training.token_steps import score_tokens, token_steps
from headstart.training.using import evaluate_run

MACHINE = tiny_runs.MACHINE
WILD = Sampling(temperature=2.0, seed=5)  # bytes of characters that never become whole, and ends, all come


@pytest.fixture(autouse=True)
def own_cache(monkeypatch):
    monkeypatch.setenv("HEADSTART_CACHE", str(tiny_runs.place() / "cache"))


def steps_of(run, prompt="une", **options):
    return list(token_steps(run, prompt, MACHINE, **{"max_tokens": 20, "sampling": WILD, **options}))


@pytest.mark.parametrize("kind", ["causal", "learned"])
@pytest.mark.parametrize("seed", range(6))
def test_the_steps_joined_are_what_generate_writes(kind, seed):
    run, sampling = tiny_runs.run_of(kind), Sampling(temperature=1.5, top_k=40, top_p=0.9, seed=seed)
    rules = {"max_tokens": 40, "min_tokens": 2, "no_repeat": 3, "sampling": sampling}
    (expected,) = generate(run, "une belle", MACHINE, **rules)
    steps = list(token_steps(run, "une belle", MACHINE, **rules))
    assert "".join(step.text for step in steps) == expected.text
    assert (steps[-1].stop, steps[-1].token_count) == (expected.stop, expected.token_count)
    assert [step.stop for step in steps[:-1]] == [None] * (len(steps) - 1)
    assert [step.token_count for step in steps] == [*range(1, len(steps)), steps[-1].token_count]


def test_every_stop_comes_and_the_end_has_its_probability():
    stops, runs = {}, [tiny_runs.run_of("causal"), tiny_runs.run_of("learned")]
    for seed in range(30):
        for run in runs:
            last = steps_of(run, max_tokens=24, sampling=Sampling(temperature=2.0, seed=seed))[-1]
            stops[last.stop] = last
        if len(stops) == 3:
            break
    assert set(stops) == {"end", "max-tokens", "context"}
    end = stops["end"]
    assert (end.text, end.token) == ("", tiny_runs.run_of("causal").tokenizer.id_of("end"))
    assert 0 < end.probability < 1


def test_probabilities_are_the_models_own_whatever_was_drawn_by():
    run = tiny_runs.run_of("causal")
    ids = [run.tokenizer.id_of("begin"), *map(int, run.tokenizer.encode("une"))]
    for step in steps_of(
        run, max_tokens=8, sampling=Sampling(temperature=0.5, top_k=3, seed=1), alternatives=4
    ):
        with torch.no_grad():
            expected = run.model(torch.tensor([ids]))[0, -1].double().softmax(-1).numpy()
        assert step.probability == pytest.approx(expected[step.token], rel=1e-4)
        best = np.argsort(-expected)[:4]
        assert [a.probability for a in step.alternatives] == pytest.approx(expected[best].tolist(), rel=1e-4)
        assert [a.text for a in step.alternatives] == run.tokenizer.pieces_of(best)
        ids.append(step.token)


def test_whoever_closes_the_iterator_stops_the_work(monkeypatch):
    run, reads, read = tiny_runs.run_of("causal"), [], CachedReader.read
    monkeypatch.setattr(CachedReader, "read", lambda *given: reads.append(1) or read(*given))
    steps = token_steps(run, "une", MACHINE, max_tokens=10_000, min_tokens=10_000, sampling=WILD)
    assert not reads, "nothing is computed before it is asked for"
    next(steps)
    next(steps)
    steps.close()
    assert len(reads) == 2
    with pytest.raises(StopIteration):
        next(steps)
    assert not torch.is_inference_mode_enabled()


def test_after_half_a_character_the_alternatives_are_what_would_be_complete(monkeypatch):
    run = tiny_runs.run_of("causal")
    first, second, third = map(int, run.tokenizer.encode("☺"))
    order = iter([first, second, third] * 3)  # the model writes the three bytes, in a circle
    monkeypatch.setattr(
        CachedReader,
        "read",
        lambda *given: torch.nn.functional.one_hot(torch.tensor([next(order)]), run.tokenizer.size) * 9.0,
    )
    steps = steps_of(run, max_tokens=6, sampling=Sampling(), alternatives=1)
    assert [step.text for step in steps] == ["", "", "☺"] * 2
    assert [step.alternatives[0].text for step in steps] == ["<E2>", "<98>", "☺"] * 2


def test_no_alternatives_and_too_many_and_other_runs():
    run = tiny_runs.run_of("causal")
    assert steps_of(run, alternatives=0)[0].alternatives == []
    with pytest.raises(UserError, match="51 alternatives"):
        token_steps(run, "une", MACHINE, max_tokens=5, alternatives=51)
    with pytest.raises(UserError, match="max-tokens is 0"):
        token_steps(run, "une", MACHINE, max_tokens=0)
    with pytest.raises(UserError, match="cannot serve"):
        token_steps(tiny_runs.run_of("masked"), "une", MACHINE, max_tokens=5)
    told = []
    token_steps(tiny_runs.run_of("learned"), "une " * 60, MACHINE, max_tokens=5, tell=told.append)
    assert "oldest" in told[0]


# ---- a text that is there -----------------------------------------------------------------------------------


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
    for place, token in enumerate(found.tokens, 1):
        with torch.no_grad():
            shares = run.model(torch.tensor([ids[:place]]))[0, -1].double().softmax(-1)
        assert token.probability == pytest.approx(float(shares[ids[place]]), rel=1e-4)
        assert token.rank == 1 + int((shares > shares[ids[place]]).sum())
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
    with pytest.raises(UserError, match="not finite"):
        score_tokens(run, "une", MACHINE)
    with pytest.raises(UserError, match="cannot serve"):
        score_tokens(tiny_runs.run_of("classification"), "une", MACHINE)
