"""Masking: the given shares, never special tokens, and words as a whole."""

import numpy as np
import pytest
import small
from expected_errors import refused
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.config.training import Masking
from headstart.data.packing import PackedBlocks
from headstart.model.heads import IGNORED
from headstart.objectives.pretraining import Corruptor
from headstart.tokenizers.templates import template_of


@pytest.mark.parametrize(("random", "kept"), [(0.1, 0.1), (0.0, 0.0), (0.3, 0.0), (0.0, 1.0)])
def test_masking_keeps_the_shares_and_never_touches_special_tokens(random, kept):
    tokenizer = small.tokenizer()
    corruptor = Corruptor(tokenizer, Masking(mask_random=random, mask_kept=kept))
    draws = np.random.default_rng(0)
    tokens = draws.integers(tokenizer.size, size=(200, 100))
    special = np.isin(tokens, sorted(tokenizer.special_ids))
    seen, targets = corruptor(tokens, draws)
    hidden = targets != IGNORED
    assert not (hidden & special).any()
    assert (seen[~hidden] == tokens[~hidden]).all()
    assert (targets[hidden] == tokens[hidden]).all()
    assert np.array_equal(hidden.sum(1), np.round(0.15 * (~special).sum(1)))
    became_mask = (seen == corruptor.mask_id) & hidden
    assert became_mask.sum() / hidden.sum() == pytest.approx(1 - random - kept, abs=0.02)
    stayed = (seen == tokens) & hidden
    assert stayed.sum() / hidden.sum() == pytest.approx(kept, abs=0.02)
    assert not np.isin(seen[hidden & ~became_mask], sorted(tokenizer.special_ids)).any()


@settings(deadline=None, max_examples=30)
@given(st.floats(0.05, 0.6), st.integers(0, 1000))
def test_whole_words_are_masked_whole(share, seed):
    tokenizer = small.tokenizer()
    corruptor = Corruptor(tokenizer, Masking(mask_prob=share, whole_words=True))
    batch = PackedBlocks(small.store(), 40, template_of(tokenizer, "masked")).examples_at(seed, 0, 3)
    _, targets = corruptor(batch.tokens, np.random.default_rng(seed))
    starts = tokenizer.word_starts
    for row, wanted in zip(batch.tokens, targets, strict=True):
        for position in range(1, len(row)):
            joined = (
                not starts[row[position]] and not np.isin(row[[position - 1, position]], [*tokenizer.special_ids]).any()
            )
            if joined:
                assert (wanted[position] == IGNORED) == (wanted[position - 1] == IGNORED)


def test_one_token_is_always_masked():
    corruptor = Corruptor(small.tokenizer(), Masking(mask_prob=0.01))
    _, targets = corruptor(np.full((3, 5), 50), np.random.default_rng(0))
    assert ((targets != IGNORED).sum(1) == 1).all()


@pytest.mark.parametrize(
    "bad",
    [{"mask_prob": 0.0}, {"mask_prob": 1.0}, {"mask_random": 0.9, "mask_kept": 0.2}, {"mask_random": -0.1}],
)
def test_shares_that_mean_nothing_are_refused(bad):
    with refused("bad-value", next(iter(bad))):
        Masking(**bad)
