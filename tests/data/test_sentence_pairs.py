"""Next-sentence pairs: true by construction, half and half, each boundary once an epoch."""

import numpy as np
import pytest
from expected_errors import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from small import store_of

from headstart.data.sentence_pairs import SentencePairs
from headstart.tokenizers.templates import Template

CLS, SEP = 100_000, 100_001


def numbered(shape):
    """Documents whose every token is unique, so that a pair can be traced back: shape[d][s] tokens in a segment."""
    counter = iter(range(10**6))
    return [[[next(counter) for _ in range(size)] for size in document] for document in shape]


SHAPES = st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=5), min_size=2, max_size=6).filter(
    lambda shape: any(len(document) > 1 for document in shape)
)


def pairs_of(documents, length):
    return SentencePairs(store_of(documents), length, Template(CLS, SEP))


def parts(pair):
    """The two texts of a framed pair, checked on the way."""
    tokens, segments = pair.tokens.tolist(), pair.segments.tolist()
    assert tokens[0] == CLS
    assert tokens[-1] == SEP
    middle = tokens.index(SEP)
    assert tokens.count(SEP) == 2
    assert segments == [0] * (middle + 1) + [1] * (len(tokens) - middle - 1)
    return tokens[1:middle], tokens[middle + 1 : -1]


@given(SHAPES, st.integers(5, 30), st.integers(0, 9))
@settings(deadline=None)
def test_what_is_called_next_is_next_and_the_other_is_of_another_document(shape, length, seed):
    documents = numbered(shape)
    flat = [[i for segment in document for i in segment] for document in documents]
    home = {i: number for number, document in enumerate(flat) for i in document}
    starts = {segment[0] for document in documents for segment in document}
    pairs = pairs_of(documents, length)
    boundaries = {s[0] - 1 for document in documents for s in document[1:]}
    assert pairs.count == len(boundaries)
    for step in range(3):
        ends = []
        for pair in pairs.examples_at(seed, step, pairs.count):
            a, b = parts(pair)
            assert len(pair.tokens) <= length
            assert a
            assert b
            assert b[0] in starts
            assert a == list(range(a[0], a[-1] + 1))
            assert b == list(range(b[0], b[-1] + 1))
            assert len({home[i] for i in a}) == len({home[i] for i in b}) == 1
            assert pair.is_next == (b[0] == a[-1] + 1)
            assert pair.is_next == (home[a[0]] == home[b[0]])
            ends.append(a[-1])
        assert set(ends) == boundaries  # every boundary once an epoch


def test_both_texts_are_as_long_as_there_is_room():
    documents = numbered([[10, 10], [3]])
    for pair in pairs_of(documents, 13).examples_at(0, 0, 20):
        a, b = parts(pair)
        if pair.is_next:
            assert (a, b) == (list(range(5, 10)), list(range(10, 15)))
        else:
            assert (a, b) == (list(range(3, 10)), [20, 21, 22])


def test_half_are_next():
    pairs = pairs_of(numbered([[2] * 20] * 50), 16)
    labels = [pair.is_next for step in range(4) for pair in pairs.examples_at(0, step, 1_000)]
    assert abs(np.mean(labels) - 0.5) < 4 * 0.5 / np.sqrt(len(labels))


def test_another_document_is_any_other_with_the_same_chance():
    documents = numbered([[1, 1], [1], [5, 5, 5], [2, 2]])
    number_of = {i: n for n, document in enumerate(documents) for segment in document for i in segment}
    pairs = pairs_of(documents, 16)
    others = [pair for step in range(40) for pair in pairs.examples_at(0, step, 100) if not pair.is_next]
    draws = [(number_of[a[0]], number_of[b[0]]) for a, b in map(parts, others)]
    for home in (0, 2, 3):
        others = np.bincount([b for a, b in draws if a == home], minlength=4)
        assert others[home] == 0
        expected = others.sum() / 3
        assert (np.abs(np.delete(others, home) - expected) < 5 * np.sqrt(expected)).all()


def test_a_pair_depends_on_seed_and_step_only():
    pairs = pairs_of(numbered([[2, 3, 4]] * 9), 12)

    def told(found):
        return [(pair.tokens.tolist(), pair.is_next) for pair in found]

    direct = told(pairs.examples_at(5, 7, 6))
    pairs.examples_at(5, 3, 6)
    assert told(pairs.examples_at(5, 7, 6)) == direct
    assert told(pairs.examples_at(1, 5, 6)) != told(pairs.examples_at(2, 4, 6))


@pytest.mark.parametrize("shape", [[[3], [4]], [[3, 4, 5]], []])
def test_without_segments_or_other_documents_there_are_no_pairs(shape):
    with refused("too-few"):
        pairs_of(numbered(shape), 12)
