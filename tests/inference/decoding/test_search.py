"""Searching: cached equals uncached, batched equals one by one, and a row's luck is its own."""

import pytest
import torch
from decoded import write as write_with
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import model_configs
from uncached_reader import UncachedReader

from headstart.config.generation import GenerationConfig
from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.inference.decoding import search
from headstart.inference.decoding.readers import CachedReader
from headstart.model.model import build

SAMPLED = GenerationConfig(temperature=1.0, top_k=5, top_p=0.95, seed=3)


def make(config):
    return build(config, HeadConfig(kind="lm"), seed=1).double().eval()


def write(model, prompts, reader=CachedReader, max_tokens=6, config=None, **options):
    return write_with(reader(model), prompts, config, max_tokens=max_tokens, **options)


@settings(deadline=None, max_examples=25)
@given(model_configs(shapes=["causal"]), st.sampled_from([None, SAMPLED]), st.data())
def test_the_cache_changes_nothing(config, sampling, data):
    model = make(config)
    token = st.integers(0, config.vocab - 1)
    prompts = data.draw(st.lists(st.lists(token, min_size=1, max_size=4), min_size=1, max_size=3))
    options = {"max_tokens": 4, "end": 0, "config": sampling}
    assert write(model, prompts, CachedReader, **options) == write(model, prompts, UncachedReader, **options)


@pytest.mark.parametrize("name", ["lab", "tiny", "gpt2", "modern-small"])
def test_a_batch_writes_what_each_prompt_writes_alone_when_greedy(name):
    model = make(preset(name, vocab=17, width=32, heads=2, ffn=32, depth=2))
    prompts = [[1], [2, 3, 4, 5], [6, 7]]
    together = write(model, prompts, end=0)
    assert together == [write(model, [prompt], end=0)[0] for prompt in prompts]


def test_a_rows_luck_does_not_depend_on_when_others_finish():
    model = make(preset("tiny", vocab=17))
    prompts = [[1], [2], [3]]
    hot = GenerationConfig(temperature=3.0, seed=5)
    free = write(model, prompts, config=hot, max_tokens=8)
    stop = free[0][0]  # the first row will stop at once
    stopped = write(model, prompts, config=hot, max_tokens=8, end=stop)
    assert stopped[0] == []
    for row in (1, 2):
        expected = free[row][: free[row].index(stop)] if stop in free[row] else free[row]
        assert stopped[row] == expected


@pytest.mark.parametrize("name", ["lab", "tiny", "gpt2", "modern-small"])
@pytest.mark.parametrize("beam", [None, 3])
def test_a_prompt_that_is_read_in_steps_is_the_same_prompt(name, beam, monkeypatch):
    model = make(preset(name, vocab=17, width=32, heads=2, ffn=32, depth=2))
    prompts, read, sizes = [[1, 2], [*range(1, 14)], [5] * 8], CachedReader.read, []
    for config in (GenerationConfig(beam=beam), GenerationConfig(beam=beam, no_repeat=2)):
        monkeypatch.setattr(search, "PROMPT_STEP", 512)
        expected = write(model, prompts, end=0, config=config)
        monkeypatch.setattr(search, "PROMPT_STEP", 4)
        monkeypatch.setattr(CachedReader, "read", lambda *given: sizes.append(given[1].shape[1]) or read(*given))
        assert write(model, prompts, end=0, config=config) == expected
        assert sizes[:3] == [4, 4, 4]
        monkeypatch.setattr(CachedReader, "read", read)


def test_greedy_takes_the_likeliest_and_stops():
    class Counter:
        """Says that after n comes n + 1."""

        def read(self, tokens, present=None):
            return torch.nn.functional.one_hot(tokens[:, -1] + 1, 20).double()

        def select(self, rows):
            pass

    assert write_with(Counter(), [[3], [7]], max_tokens=5, end=9) == [[4, 5, 6, 7, 8], [8]]
    assert 4 not in write_with(Counter(), [[3]], max_tokens=2, never=(4,))[0]


def test_seeds_differ_and_repeat():
    model = make(preset("tiny", vocab=17))
    texts = [write(model, [[1]], config=GenerationConfig(temperature=2.0, seed=s), max_tokens=20) for s in (1, 2, 1)]
    assert texts[0] == texts[2] != texts[1]


def test_no_prompts_give_nothing():
    assert write(make(preset("tiny", vocab=5)), []) == []


@pytest.mark.parametrize("size", [1, 2])
def test_the_prompt_counts_for_what_comes_twice_and_padding_does_not(size):
    class Next:
        """Wants n + 1 after n, and if that cannot be, n + 2, and then n + 3."""

        def read(self, tokens, present=None):
            last = tokens[:, -1:]
            places = torch.arange(20)[None]
            return sum((9.0 - step) * (places == last + step) for step in (1, 2, 3))

        def select(self, rows):
            pass

    prompts = [[3, 4, 5, 3], [7]]
    free, long = three_tokens(Next(), prompts, 0), three_tokens(Next(), prompts, size)
    assert free == [[4, 5, 6], [8, 9, 10]]
    assert long == [[6, 7, 8] if size == 1 else [5, 6, 7], [8, 9, 10]]
    assert long[1:] == three_tokens(Next(), prompts[1:], size), "company and padding change nothing"


def three_tokens(reader, prompts, size):
    return write_with(reader, prompts, GenerationConfig(no_repeat=size), max_tokens=3, end=0)


def test_to_stop_is_no_repeat():
    class Stops:
        def read(self, tokens, present=None):
            return torch.nn.functional.one_hot(torch.zeros(len(tokens), dtype=torch.long), 5).double()

        def select(self, rows):
            pass

    assert three_tokens(Stops(), [[0, 1]], 1) == [[]]
