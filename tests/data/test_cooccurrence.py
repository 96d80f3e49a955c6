"""First token vectors: against pairs counted one by one and an exact SVD."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from small import store_of

import headstart.data.cooccurrence as cooccurrence
from headstart.data.cooccurrence import STRETCH, token_vectors

VOCAB, WIDTH = 24, 6


@pytest.fixture(scope="module")
def documents():
    draws = np.random.default_rng(0)
    return [[draws.zipf(1.6, size=int(length)) % (VOCAB - 1)] for length in draws.integers(2, 3 * STRETCH, size=60)]


def table_of(documents):
    """log(1 + 4 · ratio) of all tokens by all that occur, the most frequent first."""
    pairs, frequency = Counter(), Counter()
    for (document,) in documents:
        ids = document.tolist()
        frequency.update(ids)
        for start in range(0, len(ids), STRETCH):
            for a, b in combinations(ids[start : start + STRETCH], 2):
                pairs[a, b] += 1
                pairs[b, a] += 1
    contexts = sorted(frequency, key=lambda token: (-frequency[token], token))
    counts = np.array([[pairs[token, context] for context in contexts] for token in range(VOCAB)], float)
    ratio = counts * counts.sum() / np.maximum(counts.sum(1, keepdims=True) * counts.sum(0), 1e-9)
    return np.log1p(4 * ratio)


def test_vectors_are_those_of_an_exact_svd_of_pairs_counted_one_by_one(documents):
    left, values, _ = np.linalg.svd(table_of(documents))
    expected = left[:, :WIDTH] * np.sqrt(values[:WIDTH])
    found = token_vectors([store_of(documents)], VOCAB, WIDTH)
    occurs = found.any(axis=1)
    assert occurs.tolist() == [token in np.concatenate([d for (d,) in documents]) for token in range(VOCAB)]
    expected, found = expected[occurs], found[occurs]
    assert np.allclose((found**2).mean(axis=1), 1.0, atol=1e-5)
    expected /= np.sqrt((expected**2).mean(axis=1, keepdims=True))
    # An SVD knows no signs: the products of the vectors have none.
    assert np.allclose(found @ found.T, expected @ expected.T, atol=1e-2)


def test_a_corpus_in_two_files_is_one_corpus(documents):
    whole = token_vectors([store_of(documents)], VOCAB, WIDTH)
    halves = token_vectors([store_of(documents[:30]), store_of(documents[30:])], VOCAB, WIDTH)
    assert np.allclose(whole, halves, atol=1e-5)


def test_of_a_large_corpus_even_parts_are_counted(documents, monkeypatch):
    pieces = [[[np.concatenate([d for (d,) in documents])[start : start + 128]]] for start in range(0, 1_280, 128)]
    store = store_of([document for piece in pieces for document in piece])
    monkeypatch.setattr(cooccurrence, "PIECE", 128)
    monkeypatch.setattr(cooccurrence, "MOST_TOKENS", 640)
    found = token_vectors([store], VOCAB, WIDTH)
    assert np.allclose(found, token_vectors([store_of([d for p in pieces[::2] for d in p])], VOCAB, WIDTH), atol=1e-5)


def test_a_text_of_few_different_tokens_has_no_vectors():
    assert not token_vectors([store_of([[[1, 2, 3, 1, 2]]])], VOCAB, WIDTH).any()
