"""What a decoder has read so far."""

import torch

from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.kernels.kv_cache import Cache, LayerCache
from headstart.model.model import build


def test_keys_and_values_are_held_in_order_however_much_comes():
    torch.manual_seed(0)
    cache, parts = LayerCache(), [torch.randn(2, 3, length, 4) for length in (1, 70, 1, 130)]
    for part in parts:
        keys, values = cache.extend(part, -part)
    assert torch.equal(keys, torch.cat(parts, dim=2))
    assert torch.equal(values, -keys)
    assert cache.length == 202
    assert all(torch.equal(one, other) for one, other in zip(cache.contents(), (keys, values), strict=True))


def test_rows_can_be_chosen_repeated_and_left():
    cache, part = LayerCache(), torch.randn(3, 1, 2, 4)
    cache.extend(part, part)
    cache.select(torch.tensor([2, 0, 2, 2]))
    assert torch.equal(cache.contents()[0], part[[2, 0, 2, 2]])
    LayerCache().select(torch.tensor([0]))  # nothing was read yet


def test_padding_is_noted_from_where_it_is_seen():
    cache = Cache(depth=2)
    assert cache.extend(torch.zeros(2, 3), None) is None
    padded = torch.tensor([[True, False], [True, True]])
    found = cache.extend(torch.zeros(2, 2), padded)
    assert found.tolist() == [[True, True, True, True, False], [True] * 5]
    assert cache.extend(torch.zeros(2, 1), None).tolist() == [
        [True, True, True, True, False, True],
        [True] * 6,
    ]
    cache.select(torch.tensor([1]))
    assert cache.present.tolist() == [[True] * 6]
    assert cache.length == 6


def test_cache_keeps_what_it_was_given_while_it_grows():
    cache, keys, values = LayerCache(), torch.randn(2, 3, 200, 4), torch.randn(2, 3, 200, 4)
    start = 0
    for step in (1, 5, 70, 1, 123):
        held = cache.extend(keys[:, :, start : start + step], values[:, :, start : start + step])
        start += step
        assert torch.equal(held[0], keys[:, :, :start])
        assert torch.equal(held[1], values[:, :, :start])
    cache.select(torch.tensor([1, 1, 0]))
    assert torch.equal(cache.contents()[0], keys[[1, 1, 0]])


def test_a_cache_follows_the_rows_that_are_selected():
    model = build(preset("tiny", vocab=9), HeadConfig(kind="lm"), seed=1).double().eval()
    tokens = torch.randint(9, (3, 6), generator=torch.Generator().manual_seed(0))
    present = torch.arange(6)[None] >= torch.tensor([[0], [2], [3]])
    cache = model.base.new_cache()
    model.base(tokens[:, :5], present=present[:, :5], cache=cache)
    rows = torch.tensor([2, 0])
    cache.select(rows)
    step = model.base(tokens[rows, 5:], cache=cache)
    expected = model.base(tokens, present=present)[rows, 5:]
    torch.testing.assert_close(step, expected, rtol=1e-6, atol=1e-8)
