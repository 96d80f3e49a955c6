"""Bytes moved besides products, against what every operation of a block reads and writes."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from headstart.model.model import build
from headstart.model.presets import HeadConfig, preset
from headstart.plan import activations, traffic
from headstart.plan.operations import Lengths
from headstart.plan.workload import Workload

TEXTS, LENGTH, LEAST = 8, 256, 40_000
VIEWS = {
    "view", "_unsafe_view", "t", "transpose", "expand", "slice", "select", "split", "split_with_sizes", "unsqueeze",
    "squeeze", "detach", "permute", "as_strided", "alias", "unbind", "empty", "empty_like", "new_empty",
    "_reshape_alias",
}  # fmt: skip
PRODUCTS = ("mm", "addmm", "bmm", "attention")


class Bytes(TorchDispatchMode):
    """Adds up the large tensors that go in and out of each operation, but of products and attention."""

    def __init__(self):
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        found = function(*arguments, **(options or {}))
        name = function.overloadpacket.__name__
        if name not in VIEWS and not any(name == one or (one in name and len(one) > 4) for one in PRODUCTS):
            tensors = [x for x in tree_leaves((arguments, options, found)) if isinstance(x, torch.Tensor)]
            self.total += sum(x.numel() * x.element_size() for x in tensors if x.numel() > LEAST)
        return found


def of_a_block(precision, fields):
    """By two depths, so that only a block is left; its matrices are too small to count."""
    found = []
    for depth in (1, 2):
        config = preset("gpt2", vocab=50, context=LENGTH, depth=depth, **fields)
        model = build(config, HeadConfig(kind="lm")).train()
        with Bytes() as counted:
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
                hidden = model.base(torch.zeros(TEXTS, LENGTH, dtype=torch.long))
            hidden.float().sum().backward()
        found.append(counted.total)
    return found[1] - found[0], config


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
@pytest.mark.parametrize(
    "fields",
    [{}, {"positions": "rotary"}, {"activation": "swiglu"}, {"activation": "relu", "norm_place": "post"}],
    ids=str,
)
def test_a_block_moves_what_its_operations_read_and_write(precision, fields):
    shape = {"width": 64, "heads": 2, "ffn": 128, "dropout": 0.0, "attention_dropout": 0.0}
    measured, config = of_a_block(precision, {**shape, **fields})
    work = Workload(
        config=config, head=HeadConfig(kind="lm"), batch=TEXTS, lengths=Lengths(LENGTH), device="cuda",
        precision=precision, reading="whole",
    )  # fmt: skip
    (reader,) = activations.readers(work)
    planned = traffic.block(work, reader) - traffic._narrow_products(work, reader.tokens, 1)
    assert planned == pytest.approx(measured, rel=0.1)


def test_narrow_products_wait_for_memory_and_wide_ones_do_not():
    def excess(width):
        config = preset("gpt2", vocab=50, width=width, ffn=4 * width)
        work = Workload(
            config=config,
            head=HeadConfig(kind="lm"),
            batch=1,
            lengths=Lengths(64),
            device="cuda",
            precision="bf16",
        )
        return traffic._narrow_products(work, 64, 1)

    assert excess(768) == 0
    shapes = [(96, 288), (96, 96), (96, 384), (384, 96)]
    by_hand = sum(max(0, 6 * 64 * (a + b) - 6 * 64 * a * b / 150) for a, b in shapes)
    assert excess(96) == round(by_hand)
