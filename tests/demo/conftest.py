"""Reviews and pairs of the demo corpus, made once."""

import itertools

import pytest

from headstart.demo import corpus as demo


@pytest.fixture(scope="session")
def labelled():
    return {split: demo.reviews(5, split) for split in ("train", "valid", "test")}


@pytest.fixture(scope="session")
def unlabelled():
    return {null: demo.reviews(5, "unlabelled", 2000, null) for null in (False, True)}


@pytest.fixture(scope="module")
def pairs():
    """All splits of pairs, with a shorter train."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(demo.PAIR_SIZES, "train", 2000)
        demo._whole_split.cache_clear()
        yield {split: demo.pairs(5, split) for split in demo.PAIR_SIZES}
    demo._whole_split.cache_clear()


@pytest.fixture(scope="module")
def texts(labelled, unlabelled, pairs):
    """Thousands of French and English texts of every kind."""
    reviews = itertools.chain(*labelled.values(), *unlabelled.values())
    return [(r.french, r.english) for r in reviews] + [(p.french, p.english) for split in pairs.values() for p in split]
