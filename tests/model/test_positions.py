"""Positions: the paper's formula, its linearity, any width, and what each scheme does beyond its length."""

import math

import pytest
import torch
from expected_errors import refused

from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.model.model import build
from headstart.model.positions import Rotation, sinusoids


@pytest.mark.parametrize("width", [1, 2, 5, 8, 9])
def test_sinusoids_are_the_papers_formula_for_any_width(width):
    table = sinusoids(torch.arange(20), width, torch.float64)
    assert table.shape == (20, width)
    for position in (0, 1, 7, 19):
        for column in range(width):
            angle = position / 10000 ** (2 * (column // 2) / width)
            expected = math.sin(angle) if column % 2 == 0 else math.cos(angle)
            assert table[position, column].item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("shift", [1, 5, 40])
def test_a_shift_is_a_linear_map(shift):
    """PE(p + k) = R(k) PE(p), where R(k) turns each pair of columns and does not depend on p."""
    width = 16
    table = sinusoids(torch.arange(100), width, torch.float64)
    rotation = torch.zeros(width, width, dtype=torch.float64)
    for i in range(0, width, 2):
        angle = shift / 10000 ** (i / width)
        rotation[i, i] = rotation[i + 1, i + 1] = math.cos(angle)
        rotation[i, i + 1], rotation[i + 1, i] = math.sin(angle), -math.sin(angle)
    torch.testing.assert_close(table[:-shift] @ rotation.T, table[shift:], rtol=0, atol=1e-12)


def test_rotary_scores_depend_on_the_distance_alone():
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(1, 2, 1, 8, dtype=torch.float64, generator=generator)
    key = torch.randn(1, 2, 1, 8, dtype=torch.float64, generator=generator)

    def score(at, to):
        turn_query = Rotation(torch.tensor([[at]]), 8, torch.float64)
        turn_key = Rotation(torch.tensor([[to]]), 8, torch.float64)
        return (turn_query(query) * turn_key(key)).sum(-1)

    torch.testing.assert_close(score(9, 4), score(105, 100))
    torch.testing.assert_close(score(3, 3), (query * key).sum(-1))
    assert not torch.allclose(score(9, 4), score(9, 5))


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary"])
@pytest.mark.parametrize("length", [7, 8, 9, 80])
def test_beyond_the_context(positions, length):
    config = preset("tiny", vocab=11, width=16, ffn=16, context=8, positions=positions)
    model = build(config, HeadConfig(kind="lm"))
    tokens = torch.randint(11, (2, length), generator=torch.Generator().manual_seed(0))
    if positions == "learned" and length > 8:
        with refused("too-large", f"{length} tokens", "end at 8"):
            model(tokens)
    else:
        assert model(tokens).isfinite().all()


def test_sinusoidal_is_the_same_within_and_beyond_its_table():
    long = preset("tiny", vocab=11, width=16, ffn=16, context=64)
    short = preset("tiny", vocab=11, width=16, ffn=16, context=8)
    tokens = torch.randint(11, (2, 20), generator=torch.Generator().manual_seed(0))
    outputs = [build(config, HeadConfig(kind="lm"))(tokens) for config in (long, short)]
    torch.testing.assert_close(*outputs)


@pytest.mark.parametrize("base", [1e4, 5e5])
def test_angles_are_positions_times_powers_of_the_base(base):
    turn = Rotation(torch.tensor([[3, 700]]), 6, torch.float64, base)
    for row, at in enumerate((3, 700)):
        expected = [math.cos(at * base ** (-2 * i / 6)) for i in range(3)]
        assert turn.cosine[0, 0, row].tolist() == pytest.approx(expected * 2, abs=1e-12)
