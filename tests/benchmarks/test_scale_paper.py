"""The page about many GPUs: its tables are what the script prints, and the formulas hold where they can be checked."""

import dataclasses
from pathlib import Path

import pytest
import torch

from headstart.config.presets import preset
from headstart.model.base import Base

ROOT = Path(__file__).parents[2]


@pytest.fixture
def scale_paper(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import scale_paper

    return scale_paper


def test_the_page_has_the_tables_that_the_script_prints(scale_paper):
    page = (ROOT / "docs" / "scale.md").read_text()
    for name, table in scale_paper.tables().items():
        assert table in page, f"{name}: run python benchmarks/scale_paper.py and put the table into docs/scale.md"


def test_the_sizes_are_those_of_a_count_by_hand(scale_paper):
    small, large = scale_paper.BASES
    assert small.parameters == 18 * (4 * 2048**2 + 3 * 2048 * 5632 + 2 * 2048) + 2048 + 32_768 * 2048
    assert large.parameters == 32 * (4 * 4096**2 + 3 * 4096 * 11_008 + 2 * 4096) + 4096 + 32_768 * 4096
    matrices = 32 * (4 * 4096**2 + 3 * 4096 * 11_008) + 32_768 * 4096
    assert large.operations == 6 * matrices + 12 * 32 * 2048 * 4096


def test_memory_is_sixteen_bytes_a_parameter_shared_out(scale_paper):
    base = scale_paper.BASES[1]
    for strategy, parts in (("DDP", 1), ("FSDP2", 64), ("hybrid", 8)):
        found = scale_paper.memory(base, strategy, 64)
        assert found.weights + found.gradients + found.optimizer == pytest.approx(16 * base.parameters / parts)


def test_every_device_sends_what_a_ring_makes_it_send(scale_paper):
    base = scale_paper.BASES[0]
    size = base.parameters
    assert scale_paper.traffic(base, "DDP", 8, 4).sent == pytest.approx(2 * 7 / 8 * 4 * size)
    assert scale_paper.traffic(base, "FSDP2", 64, 4).sent == pytest.approx(4 * 63 / 64 * (2 + 2 + 4) * size)
    within, between = 7 / 8 * 8 * size, 2 * 7 / 8 * 4 * size / 8
    assert scale_paper.traffic(base, "hybrid", 64, 1).sent == pytest.approx(within + between)


def test_a_slower_link_never_makes_a_step_quicker_and_no_step_beats_its_own_work(scale_paper, monkeypatch):
    base = scale_paper.BASES[0]
    before = {world: scale_paper.step(base, "FSDP2", world) for world in scale_paper.WORLDS}
    monkeypatch.setattr(scale_paper, "MACHINE", dataclasses.replace(scale_paper.MACHINE, network=5e9))
    for world, step in before.items():
        assert step.seconds >= step.computing
        assert scale_paper.step(base, "FSDP2", world).seconds >= step.seconds
    assert scale_paper.step(base, "FSDP2", 512).seconds > 2 * before[512].seconds
    assert scale_paper.step(base, "FSDP2", 8).seconds == before[8].seconds  # one node has no network


def bytes_kept(depth, tokens, **shape):
    """What autograd keeps of a base under bf16 for the backward pass, without weights and their copies."""
    model = Base(preset("modern-base", vocab=64, depth=depth, context=tokens, **shape))
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept = {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t), torch.autocast("cpu", torch.bfloat16):
        model(torch.zeros(1, tokens, dtype=torch.long))
    copies = 2 * depth * (4 * shape["width"] ** 2 + 3 * shape["width"] * shape["ffn"])
    return sum(t.untyped_storage().nbytes() for at, t in kept.items() if at not in weights) - copies


def test_activations_are_what_autograd_keeps_of_a_block():
    d, f, tokens = 64, 176, 96
    shape = {"width": d, "heads": 4, "ffn": f}
    block = (bytes_kept(3, tokens, **shape) - bytes_kept(1, tokens, **shape)) / 2 / tokens
    in_parts = 8 * d  # a norm on a CPU is not one kernel
    assert block == pytest.approx(24 * d + 8 * f + in_parts, rel=0.02)
