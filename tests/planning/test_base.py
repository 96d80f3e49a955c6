"""The laws of the base: what follows from operations and text."""

import itertools

import pytest

from headstart.planning.base import (
    LEAST_VOCAB,
    MOST_VOCAB,
    SIZES,
    TRIPLED_WORTH,
    base_recipe,
    finetune_recipe,
    largest,
    most_passes,
    worth,
)


def test_more_operations_never_make_a_smaller_base():
    for smaller, larger in itertools.pairwise(SIZES):
        assert (smaller.width, smaller.depth, smaller.batch_tokens) <= (larger.width, larger.depth, larger.batch_tokens)
        assert largest(lambda size, have=larger.operations: have) == larger
        assert largest(lambda size, have=0.99 * larger.operations: have) == smaller


def test_a_shape_is_taken_only_where_all_smaller_ones_get_their_operations_too():
    reached = {SIZES[1]: SIZES[1].operations, SIZES[2]: 0.0}
    assert largest(lambda size: reached.get(size, 1e30)) == SIZES[1]


@pytest.mark.parametrize(
    ("tokens", "vocab"), [(1_000, LEAST_VOCAB), (250_000, 4_000), (1e9, MOST_VOCAB["cooccurrence"])]
)
def test_a_vocabulary_has_a_token_for_each_250_bytes(tokens, vocab):
    assert base_recipe(SIZES[0], tokens, 100).tokenizer["vocab"] == vocab


@pytest.mark.parametrize(("text", "length"), [(20, 128), (100, 256), (320, 512)])
def test_a_block_holds_two_texts_as_far_as_the_context_goes(text, length):
    assert [base_recipe(size, 1e6, text).pretrain["length"] for size in (SIZES[0], SIZES[-1])] == [length] * 2


def test_a_large_base_has_dropout_and_more_masks_and_is_tuned_more_gently():
    small, large = (base_recipe(size, 1e6, 100) for size in (SIZES[0], SIZES[-1]))
    assert small.objective == large.objective == "masked"
    assert (small.model["dropout"], large.model["dropout"]) == (0.0, 0.1)
    assert small.pretrain["mask_prob"] < large.pretrain["mask_prob"]
    assert (small.pretrain["embedding_init"], large.pretrain["embedding_init"]) == ("cooccurrence", "random")
    small, large = (base_recipe(size, 1e9, 100) for size in (SIZES[0], SIZES[-1]))
    assert small.tokenizer["vocab"] > large.tokenizer["vocab"] == MOST_VOCAB["random"]
    first, last = (finetune_recipe(size)["learning_rates"][0] for size in (SIZES[0], SIZES[-1]))
    assert last < first


def test_dropout_lets_a_masked_base_read_a_text_more_often():
    assert most_passes("causal", 0.1) == most_passes("causal", 0.0) < most_passes("masked", 0.0)
    assert most_passes("masked", 0.0) < most_passes("masked", 0.1)


def test_what_more_operations_are_worth_adds_up():
    assert worth(3.0) == pytest.approx(TRIPLED_WORTH)
    assert worth(9.0) == pytest.approx([2 * points for points in TRIPLED_WORTH])
    assert worth(1.0) == (0.0, 0.0)
