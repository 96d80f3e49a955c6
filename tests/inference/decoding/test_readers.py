"""What is read with a cache is what is read without one."""

import pytest
import random_runs
import tiny_runs
import torch
import translators
from uncached_reader import UncachedReader

from headstart.inference.decoding.readers import CachedReader, TranslationReader

PROMPT = torch.tensor([[5, 6, 7], [0, 8, 9]])
PRESENT = torch.tensor([[True, True, True], [False, True, True]])


def check(cached, uncached):
    """Read a prompt, branch twice, leave a row, and branch again."""
    parents = torch.zeros(2, 3, dtype=torch.int64)
    with torch.no_grad():
        assert torch.allclose(cached.read(PROMPT, PRESENT), uncached.read(PROMPT, PRESENT), atol=1e-8)
        for step in range(2):
            tokens = torch.tensor([[10, 11, 12], [13, 14, 15]]) + step
            assert torch.allclose(cached.branch(tokens, parents), uncached.branch(tokens, parents), atol=1e-8)
            parents = torch.tensor([[2, 0, 0], [1, 1, 2]])
        for reader in (cached, uncached):
            reader.select(torch.tensor([1]))
        tokens, parents = torch.tensor([[9, 8, 7]]), torch.tensor([[0, 2, 1]])
        assert torch.allclose(cached.branch(tokens, parents), uncached.branch(tokens, parents), atol=1e-8)


@pytest.mark.parametrize("kind", ["causal", "rotary", "learned"])
def test_a_language_model_branches_as_if_it_read_each_way_anew(kind):
    model = tiny_runs.run_of(kind).model.double()
    check(CachedReader(model), UncachedReader(model))


def test_a_model_of_another_form_too(tmp_path):
    model = random_runs.write(tmp_path / "run", "gpt2").model.double()
    check(CachedReader(model), UncachedReader(model))


def test_a_translator_reads_its_sources_once():
    model = translators.run_of().model.double()
    source = torch.tensor([[4, 5, 6, 0], [7, 8, 9, 10]])
    check(TranslationReader(model, source, source != 0), UncachedReader(model, source, source != 0))


def test_the_likeliest_is_that_of_the_logits_but_for_what_never_comes():
    model = tiny_runs.run_of("causal").model.double()
    with torch.no_grad():
        logits = UncachedReader(model).read(PROMPT, PRESENT)
        best = logits.argmax(dim=1)
        found = CachedReader(model).likeliest(PROMPT, PRESENT, best)
    wanted = logits.index_fill(1, best, -torch.inf).argmax(dim=1)
    assert torch.equal(found, wanted)
