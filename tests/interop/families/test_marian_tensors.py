"""The order of Marian's columns: sines first, then cosines; ours take turns."""

import math

import torch

from headstart.interop.families.marian import marian_order, marian_positions, our_order, reordered


def test_even_columns_come_first():
    assert marian_order(6).tolist() == [0, 2, 4, 1, 3, 5]
    assert our_order(6).tolist() == [0, 3, 1, 4, 2, 5]


def test_positions_are_sines_and_then_cosines():
    found = marian_positions(3, 4)
    for position in range(3):
        angles = [position, position / 10_000**0.5]
        wanted = [*map(math.sin, angles), *map(math.cos, angles)]
        assert torch.allclose(found[position], torch.tensor(wanted), atol=1e-6)


def test_columns_move_where_the_stream_is_and_nowhere_else():
    order = torch.tensor([1, 0])
    tensors = {
        "base.encoder.blocks.0.feed_forward.input.weight": torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
        "base.encoder.blocks.0.feed_forward.output.weight": torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
        "base.encoder.blocks.0.feed_forward.input.bias": torch.tensor([1.0, 2.0]),
        "base.encoder.blocks.0.attention_norm.bias": torch.tensor([1.0, 2.0]),
    }
    moved = [tensor.tolist() for tensor in reordered(tensors, order).values()]
    assert moved == [[[2, 1], [4, 3]], [[3, 4], [1, 2]], [1, 2], [2, 1]]
