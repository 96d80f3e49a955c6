"""Packed blocks: together they are the stream, each once an epoch, whoever asks and when."""

import numpy as np
from expected_errors import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from small import store_of

from headstart.data.packing import PackedBlocks
from headstart.tokenizers.templates import Template

BEGIN, END = 101, 102
FRAMES = st.sampled_from([Template(BEGIN, END), Template(None, END), Template(BEGIN, None), Template(None, None)])
DOCUMENTS = st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=9), min_size=1, max_size=8)


def stream_of(documents, frame):
    """The stream and the document of each token, written out."""
    tokens, numbers = [], []
    for number, document in enumerate(documents):
        framed = [i for i in (frame.first, *document, frame.last) if i is not None]
        tokens += framed
        numbers += [number] * len(framed)
    return tokens, numbers


def blocks_of(documents, length, frame, **options):
    return PackedBlocks(store_of([[d] for d in documents]), length, frame, **options)


@settings(deadline=None)
@given(DOCUMENTS, st.integers(1, 12), FRAMES, st.integers(0, 5))
def test_the_blocks_of_an_epoch_are_the_stream(documents, length, frame, seed):
    tokens, numbers = stream_of(documents, frame)
    if len(tokens) <= length:
        return
    blocks = blocks_of(documents, length, frame)
    assert blocks.count == (len(tokens) - 1) // length
    found = [blocks.examples_at(seed, step, 1) for step in range(blocks.count)]
    expected = {
        (
            tuple(tokens[i : i + length]),
            tuple(tokens[i + 1 : i + length + 1]),
            tuple(numbers[i : i + length]),
        ): 0
        for i in range(0, blocks.count * length, length)
    }
    for batch in found:
        expected[tuple(tuple(part[0].tolist()) for part in batch)] += 1
    assert all(times > 0 for times in expected.values())
    assert sum(expected.values()) == blocks.count


@settings(deadline=None)
@given(DOCUMENTS, st.integers(1, 5), st.integers(1, 7), st.integers(0, 9))
def test_batches_keep_their_size_and_epochs_follow_each_other(documents, length, batch, seed):
    frame = Template(BEGIN, END)
    tokens, _ = stream_of(documents, frame)
    if len(tokens) <= length:
        return
    blocks = blocks_of(documents, length, frame)
    starts = {}
    for block in range(blocks.count):
        starts.setdefault(tuple(blocks.stretches(np.array([block * length]))[0][0].tolist()), []).append(block)
    steps = -(-2 * blocks.count // batch)
    rows = []
    for step in range(steps):
        found = blocks.examples_at(seed, step, batch)
        assert found.tokens.shape == found.targets.shape == found.documents.shape == (batch, length)
        rows += [(*row, after[-1]) for row, after in zip(found.tokens.tolist(), found.targets.tolist(), strict=True)]
    for epoch in range(2):
        seen = rows[epoch * blocks.count : (epoch + 1) * blocks.count]
        assert sorted(seen) == sorted(row for row, numbers in starts.items() for _ in numbers)


def test_epochs_and_seeds_differ():
    blocks = blocks_of([list(range(90))], 3, Template(None, None))
    epochs = [blocks.examples_at(seed, epoch, blocks.count).tokens.tolist() for seed in (0, 1) for epoch in (0, 1)]
    assert len({str(epoch) for epoch in epochs}) == 4
    assert blocks.examples_at(1, 5, 4).tokens.tolist() != blocks.examples_at(2, 4, 4).tokens.tolist()


@settings(deadline=None)
@given(DOCUMENTS, st.integers(1, 6), st.integers(0, 9))
def test_with_a_shift_every_epoch_cuts_the_circle_elsewhere(documents, length, seed):
    frame = Template(BEGIN, END)
    tokens, _ = stream_of(documents, frame)
    if len(tokens) <= length:
        return
    blocks = blocks_of(documents, length, frame, shift=True)
    circle = tokens * 3
    windows = {tuple(circle[i : i + length + 1]) for i in range(len(tokens))}
    for step in range(2 * blocks.count):
        found = blocks.examples_at(seed, step, 1)
        assert (*found.tokens[0].tolist(), found.targets[0, -1]) in windows


def test_a_shift_moves_the_cuts():
    blocks = blocks_of([list(range(100))], 10, Template(None, None), shift=True)
    offsets = {int(blocks.examples_at(0, epoch, blocks.count).tokens[0, 0]) % 10 for epoch in range(20)}
    assert len(offsets) > 3


def test_less_than_a_block_is_refused_with_what_is_needed():
    documents = [[1, 2, 3], [4]]
    assert blocks_of(documents, 7, Template(BEGIN, END)).count == 1
    with refused("too-few", "9 tokens", "8 came", "4 of text") as caught:
        blocks_of(documents, 8, Template(BEGIN, END))
    assert "--length 7" in caught.value.fix
    with refused("too-few", "0 "):
        PackedBlocks(store_of([]), 8, Template(BEGIN, END))
