"""Corpora that weigh differently: each example as often as its source weighs, whatever was asked before."""

import numpy as np
import pytest
from expected_errors import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from small import store_of

from headstart.data.packing import MixedBlocks, PackedBlocks
from headstart.data.readers.sources import by_weight, weighted_path
from headstart.data.sampler import mixed_at, mixed_count
from headstart.data.sentence_pairs import MixedPairs, SentencePairs
from headstart.tokenizers.templates import Template

WEIGHTS = st.sampled_from([0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0])
SOURCES = st.lists(st.tuples(st.integers(1, 40), WEIGHTS), min_size=1, max_size=4)


def drawn(sources, seed, first, last, batch):
    """What the steps from first to before last are made of."""
    counts, weights = zip(*sources, strict=True)
    return np.concatenate([mixed_at(counts, weights, seed, "x", step, batch) for step in range(first, last)])


@given(SOURCES, st.integers(0, 9), st.integers(1, 5))
@settings(deadline=None)
def test_over_any_epochs_each_example_comes_as_often_as_its_source_weighs(sources, seed, epochs):
    counts, weights = zip(*sources, strict=True)
    size = mixed_count(counts, weights)
    found = drawn(sources, seed, 0, epochs, size)  # a step is an epoch
    for source, (count, weight) in enumerate(sources):
        share = max(1, round(count * weight))
        times = np.bincount(found[found[:, 0] == source, 2], minlength=count)
        assert times.sum() == epochs * share
        assert len(times) == count
        assert {epochs * share // count, -(-epochs * share // count)} >= set(times.tolist())


@given(SOURCES, st.integers(1, 30), st.integers(0, 200), st.integers(0, 9))
@settings(deadline=None)
def test_a_step_is_the_same_whoever_asks_and_steps_are_parts_of_one_order(sources, batch, step, seed):
    alone = drawn(sources, seed, step, step + 1, batch)
    assert alone.tolist() == drawn(sources, seed, step, step + 1, batch).tolist()
    singly = drawn(sources, seed, step * batch, (step + 1) * batch, 1)
    assert alone.tolist() == singly.tolist()


def test_twice_the_weight_is_twice_an_epoch_and_half_of_it_is_the_other_half_next_time():
    sources = [(6, 2.0), (4, 0.5), (3, 1.0)]
    epochs = [drawn(sources, 1, epoch, epoch + 1, 12 + 2 + 3) for epoch in range(2)]
    for found in epochs:
        assert np.bincount(found[found[:, 0] == 0, 2]).tolist() == [2] * 6
        assert np.bincount(found[found[:, 0] == 2, 2]).tolist() == [1] * 3
    halves = [set(found[found[:, 0] == 1, 2].tolist()) for found in epochs]
    assert [len(half) for half in halves] == [2, 2]
    assert halves[0] | halves[1] == {0, 1, 2, 3}


def test_sources_are_mixed_within_an_epoch_and_seeds_differ():
    sources = [(300, 1.0), (100, 3.0)]
    found = drawn(sources, 0, 0, 1, 600)[:, 0]
    assert 0.4 < found[:300].mean() < 0.6  # a half is of the second, from the start
    assert drawn(sources, 1, 0, 1, 600).tolist() != drawn(sources, 0, 0, 1, 600).tolist()


# ---- blocks and pairs ---------------------------------------------------------------------------------------


def blocks_of(first, count, length=4, **options):
    """Blocks of one document of so many blocks, whose tokens count up from the first."""
    store = store_of([[list(range(first, first + count * length + 1))]])
    return PackedBlocks(store, length, Template(None, None), **options)


def test_blocks_come_as_their_source_weighs_and_are_of_one_source():
    mixed = MixedBlocks([blocks_of(0, 5), blocks_of(1000, 6)], [3.0, 0.5])
    assert mixed.count == 15 + 3
    assert mixed.is_one_document
    rows = np.concatenate([mixed.examples_at(2, step, 6).tokens for step in range(3)])
    starts, times = np.unique(rows[:, 0], return_counts=True)
    assert dict(zip(starts.tolist(), times.tolist(), strict=True)).items() >= dict.fromkeys(range(0, 20, 4), 3).items()
    assert (times[starts >= 1000] == 1).all()
    assert (starts >= 1000).sum() == 3
    assert (np.diff(rows, axis=1) == 1).all()  # no block has tokens of both


def test_the_targets_of_a_mixed_block_follow():
    mixed = MixedBlocks([blocks_of(0, 5, shift=True), blocks_of(1000, 6, shift=True)], [2.0, 1.0])
    whole = mixed.examples_at(3, 1, 7)
    assert whole.tokens[:, 1:].tolist() == whole.targets[:, :-1].tolist()


def test_pairs_come_as_their_source_weighs_and_are_of_one_source():
    def pairs_of(first):
        documents = [[[first + 100 * d + s] for s in range(4)] for d in range(3)]
        return SentencePairs(store_of(documents), 12, Template(50_000, 50_001))

    mixed = MixedPairs([pairs_of(0), pairs_of(10_000)], [1.0, 2.0])
    assert mixed.count == 9 + 18
    pairs = [pair for step in range(3) for pair in mixed.examples_at(0, step, 9)]
    firsts = [[t for t in pair.tokens.tolist() if t < 50_000] for pair in pairs]
    assert sum(tokens[0] >= 10_000 for tokens in firsts) == 18
    assert all(len({token >= 10_000 for token in tokens}) == 1 for tokens in firsts)


# ---- the command line's form --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("a.txt", ("a.txt", 1.0)), ("a.txt=2", ("a.txt", 2.0)), ("a.txt=0.5", ("a.txt", 0.5)),
        ("a=b.txt", ("a=b.txt", 1.0)), ("a=b.txt=1e1", ("a=b.txt", 10.0)), ("-", ("-", 1.0)), ("=2", ("=2", 1.0)),
    ],
)  # fmt: skip
def test_a_weight_stands_after_the_last_sign(given, meant):
    assert weighted_path(given) == meant


def test_a_file_whose_whole_name_looks_weighted_is_that_file(tmp_path):
    file = tmp_path / "day=2"
    file.write_text("text")
    assert weighted_path(str(file)) == (str(file), 1.0)
    assert weighted_path(f"{file}=3") == (str(file), 3.0)


@pytest.mark.parametrize("weight", ["0", "-1", "nan", "inf"])
def test_a_weight_that_is_none_is_refused(weight):
    with refused("bad-value", str(weight)):
        weighted_path(f"a.txt={weight}")


def test_files_of_one_weight_are_one_source():
    assert by_weight(["a", "b", "c"], [2.0, 1.0, 2.0]) == {2.0: ["a", "c"], 1.0: ["b"]}
    assert by_weight(["a", "b"], []) == {1.0: ["a", "b"]}
