"""The share of runs of three words that two texts have in common, against Python's own sets."""

import pytest

from headstart.data.leakage.near_duplicates import NearDuplicateIndex, containment, shingles_of
from headstart.randomness import stream

WORDS = [f"word{number}" for number in range(500)]


def text(seed, length=60):
    return [WORDS[position] for position in stream(seed, "near").integers(len(WORDS), size=length)]


def runs(words):
    return {tuple(words[position : position + 3]) for position in range(len(words) - 2)}


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 60])
def test_as_many_runs_as_there_are_different_ones(length):
    words = (text(1) * 2)[:length]
    assert len(shingles_of(words)) == len(runs(words))
    found = shingles_of(words).tolist()
    assert found == sorted(found)


@pytest.mark.parametrize("changed", [0, 1, 10, 30, 59])
def test_containment_is_the_share_of_the_smaller_set(changed):
    one = text(1)
    other = one[:changed] + text(2)[: 60 - changed]
    smaller, larger = sorted((runs(one), runs(other)), key=len)
    assert containment(shingles_of(one), shingles_of(other)) == pytest.approx(len(smaller & larger) / len(smaller))


def test_common_phrases_are_not_copies():
    short = text(1, 8)
    assert containment(shingles_of(short), shingles_of(short)) == 0, "too short to tell"
    middle = text(1, 20)
    assert containment(shingles_of(middle), shingles_of(middle + text(2))) == 0, "inside a much longer one"
    assert containment(shingles_of(middle), shingles_of(middle)) == 1


def test_the_index_finds_the_texts_that_are_near_and_no_others():
    texts = [text(seed) for seed in range(20)]
    index = NearDuplicateIndex([shingles_of(words) for words in texts])
    asked = shingles_of([*texts[7][:50], *text(99, 10)])
    assert index.candidates(asked)[0] == 7
    assert index.share(7, asked) > 0.8
    assert index.candidates(shingles_of(text(100))) == []
    assert NearDuplicateIndex([]).candidates(asked) == []
