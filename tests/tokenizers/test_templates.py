"""Frames and padding: special tokens stay, texts are cut, masks say what is there."""

import french_sentences
import numpy as np
import pytest
from expected_errors import refused
from hypothesis import given
from hypothesis import strategies as st

from headstart.tokenizers.templates import (
    Template,
    pad,
    target_template_of,
    template_of,
    trimmed_lengths,
    truncated_share,
)
from headstart.tokenizers.training import train

TEMPLATE = Template(101, 102)
IDS = st.lists(st.integers(0, 99), max_size=12).map(lambda ids: np.array(ids, np.uint32))


def trimmed_by_hand(a, b, room):
    """BERT's own loop: take one from the longer until both fit."""
    while a + b > room:
        if a > b:
            a -= 1
        else:
            b -= 1
    return a, b


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 60))
def test_lengths_are_trimmed_as_berts_loop_does(a, b, room):
    assert trimmed_lengths(a, b, room) == trimmed_by_hand(a, b, room)


def test_one_text_between_its_specials():
    framed = TEMPLATE.one(np.array([1, 2, 3, 4]), 5)
    assert framed.tokens.tolist() == [101, 1, 2, 3, 102]
    assert framed.is_truncated
    whole = TEMPLATE.one(np.array([1, 2, 3]), 5)
    assert (whole.tokens.tolist(), whole.is_truncated) == ([101, 1, 2, 3, 102], False)
    assert TEMPLATE.one(np.array([], np.uint32), 5).tokens.tolist() == [101, 102]
    assert Template(None, 102).one(np.array([1, 2]), 9).tokens.tolist() == [1, 2, 102]
    assert truncated_share([framed, whole]) == 0.5


def test_two_texts_with_their_segments():
    framed = TEMPLATE.pair(np.array([1, 2, 3, 4, 5]), np.array([6, 7]), 8)
    assert framed.tokens.tolist() == [101, 1, 2, 3, 102, 6, 7, 102]
    assert framed.segments.tolist() == [0, 0, 0, 0, 0, 1, 1, 1]
    assert framed.is_truncated
    tail = TEMPLATE.pair(np.array([1, 2, 3, 4, 5]), np.array([6, 7]), 8, keep_a="tail")
    assert tail.tokens.tolist() == [101, 3, 4, 5, 102, 6, 7, 102]


@given(IDS, IDS, st.integers(5, 30))
def test_a_frame_is_never_cut_and_never_too_long(a, b, length):
    one, two = TEMPLATE.one(a, length), TEMPLATE.pair(a, b, length)
    assert one.tokens[0] == two.tokens[0] == 101
    assert (one.tokens == 102).sum() == 1
    assert (two.tokens == 102).sum() == 2
    assert len(one.tokens) == min(length, len(a) + 2)
    assert len(two.tokens) == min(length, len(a) + len(b) + 3)
    assert one.is_truncated == (len(a) + 2 > length)
    assert two.is_truncated == (len(a) + len(b) + 3 > length)


@pytest.mark.parametrize("length", [0, 2])
def test_a_length_without_room_for_text_is_refused(length):
    with refused("bad-value", f"--length {length} "):
        TEMPLATE.one(np.array([1]), length)
    with refused("bad-value", f"--length {length + 2} ", "5"):
        TEMPLATE.pair(np.array([1]), np.array([1]), length + 2)


def test_frames_are_found_by_role():
    tokenizer = train(lambda: french_sentences.lines(9), vocab=270).tokenizer
    assert template_of(tokenizer, "causal") == Template(2, 3)
    assert template_of(tokenizer, "masked") == Template(5, 6)
    assert template_of(tokenizer, "causal") == target_template_of(tokenizer, "causal") == Template(2, 3)
    assert template_of(tokenizer, "masked") == target_template_of(tokenizer, "masked") == Template(5, 6)


def test_roberta_has_two_separators_between_texts():
    tokenizer = train(lambda: iter(french_sentences.lines(50)), vocab=300).tokenizer
    frame = template_of(tokenizer, "roberta")
    assert frame.one(np.array([10, 11]), 8).tokens.tolist() == [5, 10, 11, 6]
    pair = frame.pair(np.array([10, 11, 12]), np.array([20]), 7)
    assert pair.tokens.tolist() == [5, 10, 11, 6, 6, 20, 6]
    assert pair.segments.tolist() == [0, 0, 0, 0, 0, 1, 1]
    assert pair.is_truncated


def test_marian_reads_without_a_first_token_and_writes_after_the_padding():
    tokenizer = train(lambda: iter(french_sentences.lines(50)), vocab=300).tokenizer
    ids = np.array([10, 11])
    assert template_of(tokenizer, "marian").one(ids, 8).tokens.tolist() == [10, 11, 3]
    assert target_template_of(tokenizer, "marian").one(ids, 8).tokens.tolist() == [0, 10, 11, 3]
    assert template_of(tokenizer, "marian").one(np.arange(10, 20), 4).tokens.tolist() == [10, 11, 12, 3]


def test_padding_follows_the_examples():
    examples = [np.array([1, 2, 3]), np.array([4]), np.array([], np.int64)]
    tokens, present = pad(examples, 0)
    assert tokens.tolist() == [[1, 2, 3], [4, 0, 0], [0, 0, 0]]
    assert present.tolist() == [[True, True, True], [True, False, False], [False, False, False]]
    assert pad([], 0)[0].shape == (0, 0)


@given(st.lists(IDS, max_size=5))
def test_what_is_present_is_the_examples(examples):
    tokens, present = pad(examples, 7)
    assert [row[here].tolist() for row, here in zip(tokens, present, strict=True)] == [e.tolist() for e in examples]
    assert (tokens[~present] == 7).all()
