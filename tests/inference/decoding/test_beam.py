"""Beam search against enumeration, against greedy, against forced re-scoring, and against itself without cache."""

import dataclasses
import itertools

import pytest
import torch
from decoded import write
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import model_configs
from uncached_reader import UncachedReader

from headstart.config.generation import GenerationConfig
from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.errors import UserError
from headstart.inference.decoding import beam as beam_module
from headstart.inference.decoding.beam import beam_search, best_continuations
from headstart.inference.decoding.readers import CachedReader, TranslationReader
from headstart.inference.decoding.search import DecodingLimits
from headstart.model.model import build

END = 0


class Table:
    """A toy model: what comes next is a fixed function of the last two tokens and of the text's own number."""

    def __init__(self, vocab, texts, seed):
        draws = torch.Generator().manual_seed(seed)
        self.table = 2 * torch.randn(texts, vocab, vocab, vocab, generator=draws, dtype=torch.float64)
        self.rows = torch.arange(texts)

    def read(self, tokens, present=None):
        assert tokens.shape[1] == 2, "a prompt of two tokens"
        self.last = tokens[:, None, :]
        return self._logits()[:, 0]

    def branch(self, tokens, parents):
        before = self.last.gather(1, parents[..., None].expand(-1, -1, 2))
        self.last = torch.stack([before[..., 1], tokens], dim=-1)
        return self._logits()

    def select(self, rows):
        self.last, self.rows = self.last[rows], self.rows[rows]

    def _logits(self):
        return self.table[self.rows[:, None], self.last[..., 0], self.last[..., 1]]


def enumerated(table, text, prompt, max_tokens, penalty, must_end=True):
    """Every text that can be written, with its score, best first: the truth."""
    logits = table.table[text]
    found = []
    for length in range(max_tokens + 1):
        for tokens in itertools.product(range(1, logits.shape[-1]), repeat=length):
            steps = [*prompt, *tokens, END]
            whole = sum(
                float(logits[a, b].log_softmax(-1)[c]) for a, b, c in zip(steps, steps[1:], steps[2:], strict=False)
            )
            scored_length = length + 1
            if length == max_tokens and not must_end:
                whole -= float(logits[steps[-3], steps[-2]].log_softmax(-1)[END])
                scored_length = length
            found.append((whole / scored_length**penalty, list(tokens)))
    return sorted(found, reverse=True)


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0, 2.0, -0.5])
@pytest.mark.parametrize("must_end", [True, False])
def test_a_wide_beam_finds_the_true_best_of_all_sequences(penalty, must_end):
    prompts, most = [[1, 2], [3, 1], [2, 2]], [3, 4, 2]
    table = Table(vocab=4, texts=3, seed=5)
    limits = DecodingLimits(end=END, max_tokens=most, must_end=must_end)
    found = beam_search(table, prompts, limits, GenerationConfig(beam=130, count=9, length_penalty=penalty))
    for text, hypotheses in enumerate(found):
        truth = enumerated(table, text, prompts[text], most[text], penalty, must_end)[:9]
        assert [h.tokens for h in hypotheses] == [tokens for _, tokens in truth]
        assert [h.score for h in hypotheses] == pytest.approx([score for score, _ in truth])


@pytest.mark.parametrize("must_end", [True, False])
def test_a_penalty_on_length_stops_no_search_too_early(must_end):
    """With little between the first text and the next: what breaks off is a token shorter than what ends."""
    texts = 200
    table = Table(vocab=3, texts=texts, seed=3)
    limits = DecodingLimits(end=END, max_tokens=[1] * texts, must_end=must_end)
    found = beam_search(table, [[1, 2]] * texts, limits, GenerationConfig(beam=9, length_penalty=-3.0))
    for text, (best,) in enumerate(found):
        score, tokens = enumerated(Table(vocab=3, texts=texts, seed=3), text, [1, 2], 1, -3.0, must_end)[0]
        assert (best.tokens, best.score) == (tokens, pytest.approx(score))


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_who_waits_to_leave_with_others_is_not_changed_by_waiting(monkeypatch, share):
    monkeypatch.setattr(beam_module, "LEAVING_SHARE", share)
    texts, beam = 24, GenerationConfig(beam=3, count=3, length_penalty=2.0)
    limits = DecodingLimits(end=END, max_tokens=[8] * texts)
    together = beam_search(Table(vocab=6, texts=texts, seed=7), [[1, 2]] * texts, limits, beam)
    for text in range(texts):
        alone = Table(vocab=6, texts=texts, seed=7)
        alone.rows = alone.rows[text : text + 1]
        one = DecodingLimits(end=END, max_tokens=[8])
        (found,) = beam_search(alone, [[1, 2]], one, beam)
        assert [h.tokens for h in found] == [h.tokens for h in together[text]]


def test_a_narrow_beam_misses_what_a_wider_one_finds():
    """Otherwise the test above would show nothing about the width."""
    table = Table(vocab=4, texts=20, seed=5)
    limits = DecodingLimits(end=END, max_tokens=[4] * 20)
    best = [
        [row[0].score for row in beam_search(table_again, [[1, 2]] * 20, limits, GenerationConfig(beam=beams))]
        for beams in (1, 3, 400)
        for table_again in [Table(vocab=4, texts=20, seed=5)]
    ]
    truth = [enumerated(table, text, [1, 2], 4, 1.0)[0][0] for text in range(20)]
    assert best[2] == pytest.approx(truth)
    assert sum(best[0]) < sum(best[1]) < sum(best[2])


@given(st.integers(1, 300), st.integers(1, 4), st.integers(1, 20), st.integers(0, 99))
def test_the_best_continuations_are_those_of_a_plain_sort(vocab, beams, count, seed):
    draws = torch.Generator().manual_seed(seed)
    logs = torch.randn(3, beams, vocab, generator=draws, dtype=torch.float64)
    sums = torch.randn(3, beams, generator=draws, dtype=torch.float64)
    values, chosen_beams, tokens = best_continuations(logs, sums, count)
    whole = (sums[..., None] + logs).flatten(1)
    truth, order = whole.sort(dim=-1, descending=True)
    count = min(count, whole.shape[1])
    assert values.shape == (3, count)
    assert torch.equal(values, truth[:, :count])
    assert torch.equal(chosen_beams * vocab + tokens, order[:, :count])


# ---- over real models ---------------------------------------------------------------------------------------


def make(config):
    kind = "translation" if config.decoder_depth else "lm"
    return build(config, HeadConfig(kind=kind), seed=1).double().eval()


@st.composite
def cases(draw):
    """A model of either kind, prompts of several lengths, sources with padding, and how to search."""
    config = draw(model_configs(shapes=["causal", "encoder-decoder"]))
    assume(config.width > 2)  # a norm makes the same of all narrower vectors, and whatever ties has no order
    token = st.integers(0, config.output_vocab - 1)
    prompts = draw(st.lists(st.lists(token, min_size=1, max_size=3), min_size=1, max_size=3))
    words = st.lists(st.integers(0, config.vocab - 1), min_size=1, max_size=4)
    sources = [draw(words) for _ in prompts] if config.decoder_depth else None
    most = draw(st.lists(st.integers(1, 4), min_size=len(prompts), max_size=len(prompts)))
    limits = DecodingLimits(
        end=END,
        max_tokens=most,
        never=[1] if config.output_vocab > 2 and draw(st.booleans()) else [],
    )
    beams = draw(st.integers(1, 4))
    penalty = draw(st.sampled_from([0.0, 0.6, 1.0]))
    search = GenerationConfig(
        beam=beams, count=beams, length_penalty=penalty, min_tokens=draw(st.integers(0, 2)),
        no_repeat=draw(st.integers(0, 2)),
    )  # fmt: skip
    return make(config), prompts, sources, limits, search


def padded(sources):
    width = max(map(len, sources))
    tokens = torch.tensor([source + [0] * (width - len(source)) for source in sources])
    return tokens, torch.arange(width) < torch.tensor([[len(source)] for source in sources])


def reader_of(model, sources, is_cached=True):
    source = () if sources is None else padded(sources)
    if not is_cached:
        return UncachedReader(model, *source)
    return CachedReader(model) if sources is None else TranslationReader(model, *source)


def tokens_of(found):
    return [[hypothesis.tokens for hypothesis in row] for row in found]


def scores_of(found):
    return [hypothesis.score for row in found for hypothesis in row]


@settings(deadline=None, max_examples=60)
@given(cases())
def test_the_cache_changes_nothing(case):
    model, prompts, sources, limits, beam = case
    cached = beam_search(reader_of(model, sources), prompts, limits, beam)
    uncached = beam_search(reader_of(model, sources, is_cached=False), prompts, limits, beam)
    assert tokens_of(cached) == tokens_of(uncached)
    assert scores_of(cached) == pytest.approx(scores_of(uncached), abs=1e-9)


@settings(deadline=None, max_examples=60)
@given(cases())
def test_a_batch_finds_what_each_text_finds_alone(case):
    model, prompts, sources, limits, beam = case
    together = beam_search(reader_of(model, sources), prompts, limits, beam)
    for row, prompt in enumerate(prompts):
        own = dataclasses.replace(limits, max_tokens=[limits.max_tokens[row]])
        alone = beam_search(reader_of(model, sources and [sources[row]]), [prompt], own, beam)
        assert tokens_of(alone)[0] == tokens_of(together)[row]
        assert scores_of(alone) == pytest.approx([h.score for h in together[row]], abs=1e-9)


@settings(deadline=None, max_examples=60)
@given(cases())
def test_beam_1_is_greedy(case):
    model, prompts, sources, limits, search = case
    most, greedy = max(limits.max_tokens), dataclasses.replace(search, beam=1, count=1)
    found = beam_search(
        reader_of(model, sources), prompts,
        dataclasses.replace(limits, max_tokens=[most] * len(prompts)), greedy,
    )  # fmt: skip
    steps = write(reader_of(model, sources), prompts, greedy, max_tokens=most, end=END, never=limits.never)
    assert [row[0].tokens for row in found] == steps


def forced(model, source, prompt, tokens):
    """The log-probability of a text, read at once: no search, no cache, no padding."""
    whole = torch.tensor([[*prompt, *tokens, END]])
    if source is None:
        logits = model(whole[:, :-1])
    else:
        logits = model(torch.tensor([source]), whole[:, :-1])
    each = logits[0].log_softmax(-1).gather(-1, whole[0, 1:, None])
    return float(each[len(prompt) - 1 :].sum())


@settings(deadline=None, max_examples=60)
@given(cases())
@torch.no_grad()
def test_scores_of_the_n_best_match_a_forced_re_scoring(case):
    model, prompts, sources, limits, beam = case
    for row, hypotheses in enumerate(beam_search(reader_of(model, sources), prompts, limits, beam)):
        scores = [hypothesis.score for hypothesis in hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(hypothesis.tokens) for hypothesis in hypotheses}) == len(hypotheses)
        for found in hypotheses:
            expected = forced(model, sources and sources[row], prompts[row], found.tokens)
            assert found.log_probability == pytest.approx(expected, abs=1e-9)
            assert found.score == pytest.approx(expected / (len(found.tokens) + 1) ** beam.length_penalty, abs=1e-9)


def repeats(tokens, size):
    """Whether the last stretch was there before."""
    stretches = [tokens[i : i + size] for i in range(len(tokens) - size + 1)]
    return bool(size and stretches) and stretches[-1] in stretches[:-1]


@settings(deadline=None, max_examples=100)
@given(cases())
def test_every_rule_is_kept(case):
    model, prompts, sources, limits, beam = case
    for row, hypotheses in enumerate(beam_search(reader_of(model, sources), prompts, limits, beam)):
        most, size = limits.max_tokens[row], beam.no_repeat
        assert hypotheses, "there is always one"
        for tokens, _, _, has_ended in hypotheses:
            assert has_ended
            whole = [*prompts[row], *tokens]
            is_stuck = all(
                token in limits.never or repeats([*whole, token], size) for token in range(1, model.config.output_vocab)
            )
            assert len(tokens) <= most
            assert len(tokens) >= min(beam.min_tokens, most) or is_stuck, "too little, and more could come"
            assert END not in tokens
            assert not set(tokens) & set(limits.never)
            for length in range(len(prompts[row]) + 1, len(whole) + 1):
                assert not repeats(whole[:length], size), "the prompt counts too"


def test_a_beam_finds_at_least_the_score_of_greedy():
    gained = 0.0
    for seed in range(6):
        config = preset("transformer-tiny", vocab=11, width=16, heads=2, ffn=16, depth=1, decoder_depth=1)
        model = build(config, HeadConfig(kind="translation"), seed=seed).double().eval()
        sources = [[s, s + 1, 3] for s in range(8)]
        limits = DecodingLimits(end=END, max_tokens=[6] * 8)
        greedy, wide = (
            scores_of(beam_search(reader_of(model, sources), [[1]] * 8, limits, search))
            for search in (GenerationConfig(beam=1, min_tokens=5), GenerationConfig(beam=8, min_tokens=5))
        )
        assert all(b >= a - 1e-12 for a, b in zip(greedy, wide, strict=True))
        gained += sum(wide) - sum(greedy)
    assert gained > 1, "a beam that finds nothing more shows nothing"


def test_a_repeat_that_must_not_come_is_what_came_otherwise():
    model = make(preset("tiny", vocab=9, width=16, heads=2, ffn=16))
    limits, search = DecodingLimits(end=END, max_tokens=[12]), GenerationConfig(beam=3, min_tokens=12)
    free = beam_search(CachedReader(model), [[1]], limits, search)[0][0].tokens
    pairs = list(itertools.pairwise(free))
    assert len(set(pairs)) < len(pairs)
    search = dataclasses.replace(search, no_repeat=2)
    kept = list(itertools.pairwise(beam_search(CachedReader(model), [[1]], limits, search)[0][0].tokens))
    assert len(set(kept)) == len(kept)


def test_no_prompts_give_nothing():
    limits = DecodingLimits(end=END, max_tokens=[])
    assert beam_search(CachedReader(make(preset("tiny", vocab=5))), [], limits, GenerationConfig()) == []


@pytest.mark.parametrize(
    "bad",
    [{"beam": 0}, {"beam": 2, "count": 3}, {"count": 0}]
    + [{"length_penalty": value} for value in (float("nan"), float("inf"), 10.5, -11.0, 1e300)],
)
def test_numbers_that_mean_nothing_are_refused(bad):
    with pytest.raises(UserError):
        GenerationConfig(**bad)
