"""Counts of n-grams against scikit-learn's own."""

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer

from headstart.randomness import stream
from headstart.tokenizers import ngrams as ngrams_module
from headstart.tokenizers.ngrams import Ngrams

TEXTS = [
    "A book, a good  book.",
    "",
    "!",
    "Un livre\n\n triste\tet long ; ÉTÉ",
    "书很好。书",
    "İ \ud800 𝄞𝄞 ok ok",
    "a",
]
OTHERS = ["a good film, a bad book", "书", "", "nothing of this xyz"]
UNITS = {"words": (1, 2), "characters": (2, 5)}


def sklearns(unit, **settings):
    analyzer = {"words": "word", "characters": "char"}[unit]
    return CountVectorizer(analyzer=analyzer, ngram_range=UNITS[unit], **settings)


def names(ngrams):
    """The text of each column."""
    blank = " " if ngrams.unit == "words" else ""
    found, before = list(ngrams.symbols), ngrams.symbols
    for keys in ngrams.grams:
        pairs = (divmod(int(key), len(ngrams.symbols)) for key in keys)
        before = [before[first] + blank + ngrams.symbols[last] for first, last in pairs]
        found += before
    return found[len(ngrams.symbols) if ngrams.shortest > 1 else 0 :]


def assert_same(ours, theirs, table, reference):
    columns = [theirs.vocabulary_[name] for name in names(ours)]
    assert len(columns) == len(theirs.vocabulary_)
    assert (table.toarray() == reference.toarray()[:, columns]).all()
    assert table.has_sorted_indices
    assert table.has_canonical_format


def random_texts(seed, count=60):
    draws = stream(seed, "texts")
    letters = np.array(list("aab c\n.éx 1"))
    return ["".join(letters[draws.integers(0, len(letters), size)]) for size in draws.integers(0, 80, count)]


@pytest.mark.parametrize("dense", [2**25, 0], ids=["table", "search"])
@pytest.mark.parametrize("unit", UNITS)
def test_counts_are_scikit_learns(unit, dense, monkeypatch):
    monkeypatch.setattr(ngrams_module, "_DENSE", dense)
    for texts, others in ((TEXTS, OTHERS), (random_texts(0), random_texts(1))):
        ours, theirs = Ngrams(unit, *UNITS[unit]), sklearns(unit)
        assert_same(ours, theirs, ours.fit_transform(texts), theirs.fit_transform(texts))
        assert_same(ours, theirs, ours.transform(others), theirs.transform(others))


@pytest.mark.parametrize("unit", UNITS)
def test_rare_ngrams_are_left_out_as_scikit_learn_does(unit):
    texts, others = random_texts(2), random_texts(3)
    ours, theirs = Ngrams(unit, *UNITS[unit]), sklearns(unit, min_df=4)
    table, reference = ours.fit_transform(texts, min_df=4), theirs.fit_transform(texts)
    # A character may be in four texts and in no pair that is.
    assert_same(ours, theirs, table, reference)
    assert_same(ours, theirs, ours.transform(others), theirs.transform(others))


def test_texts_without_any_symbol_have_no_columns():
    ours = Ngrams("words", 1, 2)
    assert ours.fit_transform(["", "!", "a"]).shape == (3, 0)
    assert ours.transform(["a word"]).shape == (1, 0)
    assert Ngrams("characters", 2, 5).fit_transform([""]).shape == (1, 0)


@pytest.mark.parametrize("unit", UNITS)
def test_what_was_learnt_is_kept_as_arrays(unit):
    ours = Ngrams(unit, *UNITS[unit])
    ours.fit_transform(TEXTS)
    again = Ngrams(unit, *UNITS[unit]).load(ours.arrays())
    assert names(again) == names(ours)
    assert (again.transform(OTHERS) != ours.transform(OTHERS)).nnz == 0
