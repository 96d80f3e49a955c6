"""Text that a causal run writes: greedy, sampled and by a beam, in whole characters, within its context."""

import dataclasses
import itertools

import numpy as np
import pytest
import small
import tiny_runs
import torch
from expected_errors import refused
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.config.generation import GenerationConfig
from headstart.errors import UserError
from headstart.inference.decoding.readers import CachedReader
from headstart.inference.generate import WholeCharacters, generate, read_prompt, stream_tokens
from headstart.tokenizers.token_texts import HALF_A_CHARACTER
from headstart.tokenizers.training import train as train_tokenizer

MACHINE = tiny_runs.MACHINE


def silenced(run):
    """The same run with every weight zero: it knows nothing, and all tokens are equally likely to it."""
    with torch.no_grad():
        for parameter in run.model.parameters():
            parameter.zero_()
    return run


def greedy_by_hand(run, prompt, count):
    tokenizer = run.tokenizer
    ids = [tokenizer.id_of("begin"), *map(int, tokenizer.encode(prompt))]
    allowed = [i for i in range(tokenizer.size) if i not in tokenizer.special_ids or i == tokenizer.id_of("end")]
    written = []
    for _ in range(count):
        with torch.no_grad():
            logits = run.model(torch.tensor([ids]))[0, -1]
        token = allowed[int(logits[allowed].argmax())]
        if token == tokenizer.id_of("end"):
            break
        ids.append(token)
        written.append(token)
    return written


@pytest.mark.parametrize("kind", ["causal", "rotary", "learned"])
def test_greedy_writing_is_a_loop_over_the_likeliest_token(kind):
    run = tiny_runs.run_of(kind)
    for prompt in ("", "une belle", "le roman est"):
        expected = greedy_by_hand(run, prompt, 8)
        (found,) = generate(run, prompt, MACHINE, GenerationConfig(max_tokens=8))
        assert found.token_count == len(expected)
        assert found.stop == ("max-tokens" if len(expected) == 8 else "end")
        whole = run.tokenizer.decode([*run.tokenizer.encode(prompt), *expected])
        assert prompt + found.text == whole.rstrip(HALF_A_CHARACTER)


def test_the_same_seed_writes_the_same_and_each_text_has_luck_of_its_own():
    run = tiny_runs.run_of("causal")
    hot = [GenerationConfig(temperature=1.5, top_p=0.99, seed=seed, max_tokens=20, count=3) for seed in (1, 2, 1)]
    texts = [[one.text for one in generate(run, "un", MACHINE, config)] for config in hot]
    assert texts[0] == texts[2] != texts[1]
    assert len(set(texts[0])) == 3
    alone = [one.text for one in generate(run, "un", MACHINE, dataclasses.replace(hot[0], count=1))]
    assert alone == texts[0][:1]


def test_writing_stops_at_the_end_token_which_is_not_shown():
    run = silenced(tiny_runs.run_of("causal"))
    # All are equally likely; of those that may come, the end token has the lowest number.
    may_come = set(range(run.tokenizer.size)) - run.tokenizer.special_ids
    assert run.tokenizer.id_of("end") < min(may_come)
    (found,) = generate(run, "un", MACHINE, GenerationConfig())
    assert (found.text, found.token_count, found.stop) == ("", 0, "end")


def prompt_of(run, token_count):
    """A prompt that is so many tokens long with its begin token."""
    words = [w for w in small.WORDS if len(run.tokenizer.encode(" " + w)) == 1]
    text = "".join(" " + words[i % len(words)] for i in range(token_count - 1))
    assert len(run.tokenizer.encode(text)) == token_count - 1
    return text


@pytest.mark.parametrize("kind", ["causal", "rotary", "learned"])
@pytest.mark.parametrize(("times", "more"), [(1, -1), (1, 0), (1, 1), (10, 0)])
@pytest.mark.parametrize("max_tokens", [1, 5, 200])
def test_a_prompt_of_any_length_is_gone_on_with_and_never_an_index_error(kind, times, more, max_tokens):
    run = tiny_runs.run_of(kind)
    context = run.config.model.context
    prompt = prompt_of(run, times * context + more)
    told = []
    config = GenerationConfig(temperature=1.0, seed=3, max_tokens=max_tokens)
    (found,) = generate(run, prompt, MACHINE, config, told.append)
    if kind != "learned":
        assert found.stop in ("end", "max-tokens")
        assert any("trained on 16 tokens" in line for line in told)
        return
    begun = read_prompt(run, prompt, config)
    original = [run.tokenizer.id_of("begin"), *map(int, run.tokenizer.encode(prompt))]
    assert begun.ids[0] == original[0]
    assert begun.ids[1:] == original[len(original) - len(begun.ids) + 1 :], "the newest tokens stay"
    assert len(begun.ids) + begun.max_tokens - 1 <= context, "the last token that is read has a position"
    assert begun.max_tokens >= min(max_tokens, context // 2)
    dropped = len(original) - len(begun.ids)
    assert bool(told) == bool(dropped)
    if dropped:
        assert f"the oldest {dropped:,} tokens" in told[0]
    assert found.token_count <= begun.max_tokens
    if found.stop == "context":
        assert found.token_count == begun.max_tokens < max_tokens


def test_writing_fills_the_learned_context_to_its_last_position_and_says_so():
    run = tiny_runs.run_of("learned")
    context = run.config.model.context
    config = GenerationConfig(max_tokens=200, count=20, temperature=2.0)
    begun = read_prompt(run, "", config)
    assert (len(begun.ids), begun.max_tokens, begun.limit) == (1, context, "context")
    texts = generate(run, "", MACHINE, config)
    full = [one for one in texts if one.stop == "context"]
    assert full
    assert {one.token_count for one in full} == {context}
    assert all(one.token_count < context for one in texts if one.stop == "end")


def test_what_is_read_as_it_is_written_adds_up_to_the_text_and_can_be_left():
    run, config = tiny_runs.run_of("causal"), GenerationConfig(temperature=3.0, seed=5, max_tokens=60)
    pieces = list(stream_tokens(run, "été", MACHINE, config))
    (whole,) = generate(run, "été", MACHINE, config)
    assert "".join(piece.text for piece in pieces) == whole.text
    assert [piece.stop for piece in pieces[:-1]] == [None] * (len(pieces) - 1)
    assert any(piece.text == "" for piece in pieces[:-1]), "some tokens are half a character"
    going = stream_tokens(run, "été", MACHINE, config)
    next(going)
    going.close()
    assert list(going) == []


@pytest.fixture(scope="module", params=["bpe", "unigram", "wordpiece", "char"])
def tokenizer(request):
    return train_tokenizer(lambda: iter(small.sentences(200)), vocab=400, kind=request.param).tokenizer


@settings(deadline=None, max_examples=60)
@given(before=st.text("un été☺ 日\u0301-", max_size=6), after=st.text("un été☺ 日\u0301-", max_size=12))
def test_characters_come_whole_whatever_the_tokenizer(tokenizer, before, after):
    first, rest = ([int(i) for i in tokenizer.encode(text)] for text in (before, after))
    stream = WholeCharacters(tokenizer, [tokenizer.id_of("begin"), *first])
    pieces = [stream.add(token) for token in rest]
    whole = tokenizer.decode([*first, *rest])
    assert tokenizer.decode(first) + "".join(pieces) == whole
    assert not any(HALF_A_CHARACTER in piece for piece in pieces)


def test_a_byte_that_never_becomes_a_character_is_shown_as_such_once_more_follows():
    tokenizer = small.tokenizer()
    half = int(tokenizer.encode("☺")[0])
    stream = WholeCharacters(tokenizer, [])
    assert stream.add(half) == ""
    assert stream.add(int(tokenizer.encode("a")[0])) == HALF_A_CHARACTER + "a"


@pytest.mark.parametrize(("options", "names"), [
    ({"max_tokens": 0}, ["--max-tokens", "0", "100,000"]),
    ({"max_tokens": 10**9}, ["--max-tokens", "1000000000"]),
    ({"count": 0}, ["count", "0", "1,000"]),
    ({"count": 10**6}, ["count", "1000000"]),
])  # fmt: skip
def test_numbers_that_mean_nothing_are_refused(options, names):
    with refused("bad-value", *names):
        GenerationConfig(**options)


# ---- by a beam, and the rules of every search ---------------------------------------------------------------


def double_run(kind="causal"):
    run = tiny_runs.run_of(kind)
    run.model.double()
    return run


@pytest.mark.parametrize("kind", ["causal", "rotary"])
def test_a_beam_of_one_writes_what_greedy_writes(kind):
    run = double_run(kind)
    (greedy,) = generate(run, "le livre", MACHINE, GenerationConfig(max_tokens=9))
    (found,) = generate(run, "le livre", MACHINE, GenerationConfig(beam=1, max_tokens=9))
    assert (found.text, found.token_count, found.stop) == (greedy.text, greedy.token_count, greedy.stop)


def test_scores_are_the_mean_log_probability():
    run = double_run()
    tokenizer = run.tokenizer
    config = GenerationConfig(beam=4, count=4, max_tokens=5, min_tokens=5)
    found = generate(run, "le livre", MACHINE, config)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    prompt = [tokenizer.id_of("begin"), *map(int, tokenizer.encode("le livre"))]
    for one in found:
        assert one.token_count == 5
        whole = torch.tensor([[*prompt, *map(int, tokenizer.encode(one.text))]])
        if whole.shape[1] != len(prompt) + 5:
            continue  # the text can be written in other tokens too
        with torch.no_grad():
            logs = run.model(whole[:, :-1])[0].log_softmax(-1).gather(-1, whole[0, 1:, None])[:, 0]
        assert one.score == pytest.approx(logs[len(prompt) - 1 :].mean().item(), abs=1e-5)


def test_a_beam_stops_where_learned_positions_end():
    run = double_run("learned")
    found = generate(run, "le livre " * 3, MACHINE, GenerationConfig(beam=3, max_tokens=90, min_tokens=90))
    assert found[0].stop == "context"


def test_a_prompt_that_is_cut_leaves_a_beam_room_for_all_that_it_reads():
    config = GenerationConfig(beam=3, max_tokens=10, min_tokens=10)
    for words in range(1, 30):
        (found,) = generate(double_run("learned"), "livre " * words, MACHINE, config)
        assert (found.token_count, found.stop) == (10, "max-tokens")


def test_a_prompt_is_not_repeated_where_nothing_may_be():
    run, prompt = double_run(), "le livre est belle"
    before = set(map(int, run.tokenizer.encode(prompt)))
    rules = {"max_tokens": 20, "min_tokens": 20, "no_repeat": 1}
    for beam in (None, 2):
        found = generate(run, prompt, MACHINE, GenerationConfig(beam=beam, **rules))
        assert not before & set(map(int, run.tokenizer.encode(found[0].text)))


def test_what_is_drawn_keeps_to_the_rules():
    run = double_run()
    config = GenerationConfig(temperature=0.3, max_tokens=30, min_tokens=20, no_repeat=2)
    (found,) = generate(run, "le", MACHINE, config)
    assert found.token_count >= 20
    (free,) = generate(run, "le", MACHINE, GenerationConfig(max_tokens=30, min_tokens=20))
    pairs = list(itertools.pairwise(map(int, run.tokenizer.encode(free.text))))
    assert len(set(pairs)) < len(pairs), "without the rule it repeats itself"


@pytest.mark.parametrize("rules", [{"min_tokens": 9, "max_tokens": 8}, {"no_repeat": -1}, {"min_tokens": -1}])
def test_rules_that_mean_nothing_are_refused(rules):
    with pytest.raises(UserError):
        GenerationConfig(**rules)


# ---- token by token -----------------------------------------------------------------------------------------


# Bytes of characters that never become whole, and ends, all come.
WILD = GenerationConfig(temperature=2.0, seed=5, max_tokens=20)


def steps_of(run, alternatives=5, **options):
    config = dataclasses.replace(WILD, **options)
    return list(stream_tokens(run, "une", MACHINE, config, alternatives=alternatives))


@pytest.mark.parametrize("kind", ["causal", "learned"])
@pytest.mark.parametrize("seed", range(6))
def test_the_steps_joined_are_what_generate_writes(kind, seed):
    run = tiny_runs.run_of(kind)
    config = GenerationConfig(temperature=1.5, top_k=40, top_p=0.9, seed=seed, max_tokens=40, min_tokens=2, no_repeat=3)
    (expected,) = generate(run, "une belle", MACHINE, config)
    steps = list(stream_tokens(run, "une belle", MACHINE, config, alternatives=5))
    assert "".join(step.text for step in steps) == expected.text
    assert (steps[-1].stop, steps[-1].token_count) == (expected.stop, expected.token_count)
    assert [step.stop for step in steps[:-1]] == [None] * (len(steps) - 1)
    assert [step.token_count for step in steps] == [*range(1, len(steps)), steps[-1].token_count]


def test_every_stop_comes_and_the_end_has_its_probability():
    stops, runs = {}, [tiny_runs.run_of("causal"), tiny_runs.run_of("learned")]
    for seed in range(30):
        for run in runs:
            last = steps_of(run, max_tokens=24, seed=seed)[-1]
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
    for step in steps_of(run, max_tokens=8, temperature=0.5, top_k=3, seed=1, alternatives=4):
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
    steps = stream_tokens(run, "une", MACHINE, dataclasses.replace(WILD, max_tokens=10_000, min_tokens=10_000))
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
    steps = steps_of(run, max_tokens=6, temperature=0.0, alternatives=1)
    assert [step.text for step in steps] == ["", "", "☺"] * 2
    assert [step.alternatives[0].text for step in steps] == ["<E2>", "<98>", "☺"] * 2


def test_no_alternatives_and_too_many_and_other_runs():
    run = tiny_runs.run_of("causal")
    assert steps_of(run, alternatives=0)[0].alternatives == []
    with refused("bad-value", "51", "50"):
        stream_tokens(run, "une", MACHINE, WILD, alternatives=51)
    with refused("conflict", "beam"):
        stream_tokens(run, "une", MACHINE, GenerationConfig(beam=2))
    assert steps_of(run, alternatives=None)[0].probability is None
    with refused("wrong-run", "masked run", "headstart generate"):
        stream_tokens(tiny_runs.run_of("masked"), "une", MACHINE)
    told = []
    stream_tokens(tiny_runs.run_of("learned"), "une " * 60, MACHINE, WILD, log=told.append)
    assert "oldest" in told[0]
