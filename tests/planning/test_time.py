"""Seconds from counts: what is counted, by hand, and prices in, seconds out."""

import ast
import dataclasses
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.kernels.gpu import adamw
from headstart.kernels.gpu.bf16_weights import Bf16Weights
from headstart.kernels.layers import Linear
from headstart.model.model import build
from headstart.planning import operations, time
from headstart.planning.activations import stack_batches
from headstart.planning.machines import CARDS, cpu
from headstart.planning.time import _narrow_products, block_bytes_moved
from headstart.planning.workload import Lengths, Workload


def workload(**rest):
    fields = {"vocab": 100, "dropout": 0.0, "attention_dropout": 0.0, "ffn_dropout": 0.0}
    config = preset("lab", **{**fields, **rest.pop("fields", {})})
    defaults = {"head": HeadConfig(kind="lm"), "batch": 4, "lengths": Lengths(16), "reading": "whole"}
    return Workload(**{"config": config, **defaults, **rest})


def test_operations_are_those_of_the_plan():
    work = workload()
    text = operations.per_text(work.config, work.head, work.lengths)
    found = time.counts(work)
    assert found["products"] + found["attention"] == 4 * (text.forward + text.backward)
    assert found["attention"] == 4 * 3 * 16 * 4 * 4 * 16 * 200  # 4·n·d in each of 4 layers, back twice as much
    assert found["logits"] == 4 * 16 * 100
    assert found["update"] == 1_008_100
    assert found["dropout"] == found["kept weights"] == found["orthogonal"] == 0


def test_a_head_that_reads_one_token_spares_the_last_block_the_others_on_a_cpu():
    work = workload(head=HeadConfig(kind="classification"), reading="padded")
    whole = time.counts(dataclasses.replace(work, device="cuda"))
    spared = time.counts(work)
    assert whole["products"] - spared["products"] == 4 * 3 * 15 * (4 * 200 * 200 + 4 * 200 * 200)
    assert whole["masked attention"] - spared["attention"] == 4 * 3 * 15 * 4 * 16 * 200


def test_micro_batches_change_kernels_alone():
    whole, cut = (time.counts(workload(accumulate=parts)) for parts in (1, 4))
    assert cut["kernels"] == 4 * whole["kernels"]
    for kind in ("products", "attention", "logits", "update"):
        assert cut[kind] == whole[kind]
    assert cut["activations"] == pytest.approx(whole["activations"], rel=0.01)


def test_dropout_and_kept_weights_are_counted_where_they_are():
    work = workload(fields={"dropout": 0.1, "ffn_dropout": 0.1, "attention_dropout": 0.1})
    found = time.counts(work)
    assert found["dropout"] == 4 * 16 * 4 * (2 * 200 + 200)  # two residual branches and the inner layer, in 4 layers
    assert found["kept weights"] == 4 * 4 * 2 * 16 * 16  # texts, layers, heads, pairs
    on_gpu = time.counts(dataclasses.replace(work, device="cuda"))
    assert on_gpu["kept weights"] == 0
    assert on_gpu["dropped weights"] == found["kept weights"]


def test_a_gpu_reads_a_mask_or_each_document_alone():
    packed = workload(device="cuda", precision="bf16", reading="packed", document=4)
    whole = time.counts(dataclasses.replace(packed, reading="whole"))
    alone = time.counts(packed)
    masked = time.counts(dataclasses.replace(packed, precision="fp32"))
    assert alone["attention"] == whole["attention"] / 4  # documents of 4 tokens in texts of 16
    assert (masked["attention"], masked["masked attention"]) == (0, whole["attention"])


def test_what_a_bias_over_the_vocabulary_costs_is_counted_on_a_gpu():
    work = workload(device="cuda")
    without = dataclasses.replace(work, config=dataclasses.replace(work.config, output_bias=False))
    assert time.counts(work)["bias"] == time.counts(work)["logits"]
    assert time.counts(without)["bias"] == time.counts(dataclasses.replace(work, device="cpu"))["bias"] == 0


def test_python_launches_micro_batches_while_the_device_computes():
    work = workload(device="cuda", accumulate=4)
    found = time.counts(work)
    assert found["kernels"] == 0
    assert found["launches"] == 4 * time.counts(workload(device="cuda"))["kernels"]
    for launch, expected in ((1.0, found["launches"]), (0.0, found["products"])):
        prices = dict.fromkeys(time.UNITS, 0.0) | {"products": 1.0, "launches": launch}
        planned = time.step_seconds(work, time.Prices(prices, 1.0, "made up", True))
        assert planned.total == max(expected, found["products"])


def test_muons_operations_by_hand():
    found = time.counts(workload(optimizer="muon"))
    d = 200
    square, wide = 4 * d * d * d + 2 * d**3, 4 * d * d * 3 * d + 2 * d**3
    assert found["orthogonal"] == 5 * 4 * (3 * square + wide)


def test_muons_operations_where_each_matrix_is_apart_by_hand():
    found = time.counts(workload(optimizer="muon-split"))
    d = 200  # four squares of attention and two of the feed-forward layer, in each of four blocks
    assert found["orthogonal"] == 5 * 4 * 6 * (4 * d * d * d + 2 * d**3)
    gated = time.counts(workload(optimizer="muon-split", fields={"activation": "swiglu", "ffn": 300}))
    tall = 4 * d * d * 300 + 2 * d**3
    assert gated["orthogonal"] == 5 * 4 * (4 * (4 * d**3 + 2 * d**3) + 3 * tall)


def test_each_kind_of_work_has_its_price():
    work = workload()
    prices = time.Prices(dict.fromkeys(time.UNITS, 0.0) | {"logits": 2.0, "steps": 5.0}, 1.0, "made up", True)
    planned = time.step_seconds(work, prices)
    assert planned.total == 2.0 * 4 * 16 * 100 + 5.0
    assert planned.kinds["logits"] == 2.0 * 4 * 16 * 100


def test_a_card_of_twice_the_rate_halves_what_is_computed():
    slow = CARDS["1050ti"]
    fast = dataclasses.replace(slow, peak={"fp32": 2 * slow.peak["fp32"]}, bandwidth=2 * slow.bandwidth)
    work = workload(device="cuda", batch=1024)
    once, twice = (time.step_seconds(work, time.paper_prices(card, "fp32")) for card in (slow, fast))
    for kind in ("products", "attention", "activations", "update"):
        assert twice.kinds[kind] == pytest.approx(once.kinds[kind] / 2)


def test_products_on_paper_are_operations_over_peak_and_utilisation():
    work = workload(device="cuda")
    planned = time.step_seconds(work, time.paper_prices(CARDS["1050ti"], "fp32"))
    assert planned.kinds["products"] == pytest.approx(time.counts(work)["products"] / (2.1e12 * 0.6))


def test_evaluation_is_a_part_of_a_step_and_decoding_grows_with_tokens():
    work, prices = workload(), time.paper_prices(cpu(2), "fp32")
    assert 0 < time.evaluation_seconds(work, prices, 4) < time.step_seconds(work, prices).total
    one, ten = (time.decoding_seconds(work, prices, tokens) for tokens in (1, 10))
    assert ten == pytest.approx(10 * one)


def test_padding_is_computed_on_a_gpu_and_not_on_a_cpu():
    work = workload(reading="padded", device="cuda", lengths=Lengths(100))
    assert time.with_padding(work).lengths == Lengths(110)
    assert time.with_padding(dataclasses.replace(work, device="cpu")).lengths == Lengths(100)


def test_a_frozen_base_costs_no_backward():
    head = HeadConfig(kind="classification")
    whole, frozen = (time.counts(workload(head=head, freeze=freeze, reading="padded")) for freeze in (None, "base"))
    assert frozen["products"] == pytest.approx(whole["products"] / 3, rel=0.01)
    assert frozen["update"] == 402


# ---- bytes moved besides products, against what every operation of a block reads and writes -----------------

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
    (stack,) = stack_batches(work)
    planned = block_bytes_moved(work, stack) - _narrow_products(work, stack.tokens, 1)
    assert planned == pytest.approx(measured, rel=0.1)


def test_an_update_on_a_gpu_moves_what_its_kernels_and_the_copies_read_and_write():
    kernels = ast.parse(Path(adamw.__file__).with_name("adamw_kernel.py").read_text())
    names = [
        call.func.id for function in kernels.body
        if isinstance(function, ast.FunctionDef) and function.name in ("_sum_of_squares", "_adamw")
        for call in ast.walk(function) if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
    ]  # fmt: skip
    assert (names.count("_load"), names.count("_store")) == (5, 3)
    layer = Linear(300, 300, bias=False)
    copies = Bf16Weights(layer, torch.bfloat16)
    layer.weight_copy.grad = torch.ones_like(layer.weight_copy)
    with Bytes() as counted:
        copies.refresh()
        copies.collect()
    card = CARDS["h200"]
    for precision, expected in (("fp32", 8 * 4), ("bf16", 8 * 4 + counted.total / 300**2)):
        prices = time.paper_prices(card, precision)
        assert prices.seconds["update"] * prices.bandwidth == pytest.approx(expected)


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
        return _narrow_products(work, 64, 1)

    assert excess(768) == 0
    shapes = [(96, 288), (96, 96), (96, 384), (384, 96)]
    by_hand = sum(max(0, 6 * 64 * (a + b) - 6 * 64 * a * b / 150) for a, b in shapes)
    assert excess(96) == round(by_hand)
