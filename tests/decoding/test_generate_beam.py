"""`generate` by a beam: the likeliest continuations, and the rules of limits for what is drawn too."""

import itertools
import json

import pytest
import tiny_runs
import torch
from commands import ask

from headstart.decoding.beam import Beam
from headstart.decoding.search import Sampling
from headstart.errors import UserError
from headstart.training.generating import generate, generate_best

GREEDY = Sampling()


def run_of(kind="causal"):
    run = tiny_runs.run_of(kind)
    run.model.double()
    return run


@pytest.mark.parametrize("kind", ["causal", "rotary"])
def test_a_beam_of_one_writes_what_greedy_writes(kind):
    run = run_of(kind)
    (greedy,) = generate(run, "le livre", tiny_runs.MACHINE, max_tokens=9, sampling=GREEDY)
    (found,) = generate_best(run, "le livre", tiny_runs.MACHINE, beam=Beam(beams=1), max_tokens=9)
    assert (found.text, found.token_count, found.stop) == (greedy.text, greedy.token_count, greedy.stop)


def test_scores_are_the_mean_log_probability():
    run = run_of()
    words = run.tokenizer
    beam = Beam(beams=4, n_best=4)
    found = generate_best(run, "le livre", tiny_runs.MACHINE, beam=beam, max_tokens=5, min_tokens=5)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    prompt = [words.id_of("begin"), *map(int, words.encode("le livre"))]
    for one in found:
        assert one.token_count == 5
        whole = torch.tensor([[*prompt, *map(int, words.encode(one.text))]])
        if whole.shape[1] != len(prompt) + 5:
            continue  # the text can be written in other tokens too
        with torch.no_grad():
            logs = run.model(whole[:, :-1])[0].log_softmax(-1).gather(-1, whole[0, 1:, None])[:, 0]
        assert one.score == pytest.approx(logs[len(prompt) - 1 :].mean().item(), abs=1e-5)


def test_a_beam_stops_where_learned_positions_end():
    run = run_of("learned")
    found = generate_best(
        run, "le livre " * 3, tiny_runs.MACHINE, beam=Beam(beams=3), max_tokens=90, min_tokens=90
    )
    assert found[0].stop == "context"


def test_a_prompt_that_is_cut_leaves_a_beam_room_for_all_that_it_reads():
    rules = {"max_tokens": 10, "min_tokens": 10}
    for words in range(1, 30):
        (found,) = generate_best(
            run_of("learned"), "livre " * words, tiny_runs.MACHINE, beam=Beam(beams=3), **rules
        )
        assert (found.token_count, found.stop) == (10, "max-tokens")


def test_a_prompt_is_not_repeated_where_nothing_may_be():
    run, prompt = run_of(), "le livre est belle"
    before = set(map(int, run.tokenizer.encode(prompt)))
    rules = {"max_tokens": 20, "min_tokens": 20, "no_repeat": 1}
    for found in (
        generate(run, prompt, tiny_runs.MACHINE, sampling=GREEDY, **rules),
        generate_best(run, prompt, tiny_runs.MACHINE, beam=Beam(beams=2), **rules),
    ):
        assert not before & set(map(int, run.tokenizer.encode(found[0].text)))


def test_what_is_drawn_keeps_to_the_rules():
    run = run_of()
    (found,) = generate(
        run,
        "le",
        tiny_runs.MACHINE,
        max_tokens=30,
        min_tokens=20,
        no_repeat=2,
        sampling=Sampling(temperature=0.3),
    )
    assert found.token_count >= 20
    (free,) = generate(run, "le", tiny_runs.MACHINE, max_tokens=30, min_tokens=20, sampling=GREEDY)
    pairs = list(itertools.pairwise(map(int, run.tokenizer.encode(free.text))))
    assert len(set(pairs)) < len(pairs), "without the rule it repeats itself"


@pytest.mark.parametrize("rules", [{"min_tokens": 9, "max_tokens": 8}, {"no_repeat": -1}, {"min_tokens": -1}])
def test_rules_that_mean_nothing_are_refused(rules):
    with pytest.raises(UserError):
        generate(run_of(), "le", tiny_runs.MACHINE, **rules)
    with pytest.raises(UserError):
        generate_best(run_of(), "le", tiny_runs.MACHINE, beam=Beam(), **rules)


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
    answer = ask(capsys, [*command, "--beam", "3", "--count", "2", "--max-tokens", "5", "--json"])
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)["continuations"]
    assert len(found) == 2
    assert found[0]["score"] >= found[1]["score"]
    plain = ask(capsys, [*command, "--beam", "3", "--max-tokens", "5"])
    assert plain.out == f"le livre{found[0]['text']}\n"
    refused = ask(capsys, [*command, "--beam", "3", "--greedy"])
    assert (refused.code, "give one of them" in refused.err) == (2, True)
    assert ask(capsys, [*command, "--beam", "2", "--count", "3"]).code == 2
