"""bf16 weights: the same steps to the bit, by matrices that are rounded all at once and leave nothing behind."""

import copy
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
import small
import torch

from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.kernels.gpu.bf16_weights import bf16_weights
from headstart.kernels.layers import Linear
from headstart.kernels.wider_heads import attend_in_wider_heads
from headstart.machine import Machine
from headstart.model.attention import Mask
from headstart.model.blocks import MultiHeadAttention
from headstart.model.model import build
from headstart.objectives.batches import rank_micro_batches, to_device
from headstart.objectives.objective import LossModule, Objective
from headstart.training import compiling, loop
from headstart.training.optimizers.optimizer import build_optimizers, set_learning_rate

BF16 = Machine(torch.device("cpu"), "bf16", 1)
QUIET = {"dropout": 0.0, "attention_dropout": 0.0, "ffn_dropout": 0.0}
SHAPE = {"vocab": 50, "width": 16, "heads": 2, "ffn": 24, "depth": 2, "context": 32}


def a_step(machine=BF16, **fields):
    training = small.training(None, model=fields, clip=1.0)
    training.machine, model = machine, training.model.to(machine.device)
    optimizers = build_optimizers(model, model.config, training.optimizer)
    set_learning_rate(optimizers, 1.0)
    return loop.Step(training, LossModule(model), optimizers)


@contextmanager
def with_copies(step):
    with bf16_weights(step.model, torch.bfloat16) as step.copies:
        yield step


def learnt(step, number, micro_batches):
    """The gradients of a step, and what it found; then the update is made."""
    step.model.train()
    batch = step.objective.batch_at(0, number)
    parts = [to_device(part, step.machine.device) for part, _ in rank_micro_batches(batch, micro_batches, 0, 1)]
    sums = step.forward_backward(parts, number)
    gradients = {name: p.grad.clone() for name, p in step.model.named_parameters() if p.grad is not None}
    return {**gradients, "found": step.update(sums).values}


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


@pytest.mark.parametrize("micro_batches", [1, 2])
@pytest.mark.parametrize(
    "fields", [{}, {"bias": False, "activation": "swiglu", "kv_heads": 1, "positions": "rotary"}], ids=str
)
def test_steps_with_copies_are_the_same_to_the_bit(fields, micro_batches):
    plain = a_step(**fields)
    with with_copies(a_step(**fields)) as copied:
        for number in range(2):
            expected, found = (learnt(step, number, micro_batches) for step in (plain, copied))
            assert any(name.endswith("qkv.weight") for name in expected)
            assert_same(expected, found)
        for layer in (module for module in copied.model.modules() if isinstance(module, Linear)):
            assert layer.weight_copy.grad is None
            assert layer.weight.grad is None
        assert_same(plain.model.state_dict(), copied.model.state_dict())


def gradients_of(model, run):
    model.zero_grad(set_to_none=True)
    with bf16_weights(model, run.dtype) as copies, BF16.autocast():
        out = run.forward(model.train())
        out.float().square().sum().backward()
        if copies is not None:
            assert {p.grad for name, p in model.named_parameters() if "qkv.weight" in name} == {None}
            copies.collect()
    return {"out": out.detach(), **{name: p.grad for name, p in model.named_parameters()}}


def test_wider_heads_are_made_of_copies():
    layer = MultiHeadAttention(preset("gpt2", **{**SHAPE, "width": 20}, attention_dropout=0.0))
    x = torch.randn(2, 9, 20)
    runs = [
        SimpleNamespace(
            dtype=dtype,
            forward=lambda layer: attend_in_wider_heads(
                x, layer.qkv, layer.output, layer.widths, layer.head_width, Mask(causal_square=True), 0.0
            ),
        )
        for dtype in (None, torch.bfloat16)
    ]
    assert_same(*(gradients_of(layer, run) for run in runs))


def test_attention_over_another_text_is_made_of_copies():
    model = build(preset("transformer-tiny", **SHAPE, decoder_depth=1, **QUIET), HeadConfig(kind="translation"))
    source, target = torch.randint(50, (3, 7)), torch.randint(50, (3, 5))
    runs = [SimpleNamespace(dtype=dtype, forward=lambda base: base(source, target)) for dtype in (None, torch.bfloat16)]
    assert_same(*(gradients_of(model.base, run) for run in runs))


def test_what_is_frozen_stays_so_until_it_learns():
    plain, copied = a_step(), a_step()
    with with_copies(copied):
        for number, learns in enumerate((False, True)):
            for step in (plain, copied):
                step.model.base.stack.blocks[0].requires_grad_(learns)
            expected, found = (learnt(step, number, 1) for step in (plain, copied))
            assert ("base.stack.blocks.0.attention.qkv.weight" in found) == learns
            assert_same(expected, found)


def test_copies_are_for_training_alone_and_are_gone_after_it():
    model = build(preset("tiny", **SHAPE), HeadConfig(kind="lm"))
    layer, names = model.base.stack.blocks[0].feed_forward.input, list(model.state_dict())
    parameters = list(model.parameters())
    with bf16_weights(model, torch.bfloat16):
        assert list(model.state_dict()) == names
        assert [*map(id, model.parameters())] == [*map(id, parameters)]
        assert layer.train().compute_weight.dtype == torch.bfloat16
        assert layer.eval().compute_weight is layer.weight
        assert not copy.deepcopy(model).load_state_dict(model.state_dict()).missing_keys
    assert layer.train().compute_weight is layer.weight
    assert isinstance(layer, torch.nn.Linear)
    with pytest.raises(ZeroDivisionError), bf16_weights(model, torch.bfloat16):
        raise ZeroDivisionError
    assert layer.weight_copy is None


def test_memory_that_ends_within_backward_leaves_no_gradient_behind():
    plain, copied = a_step(), a_step()
    ends = [True]

    def end(grad):
        if ends:
            ends.pop()
            assert any(p.grad is not None for p in copied.copies._copies)
            raise torch.OutOfMemoryError

    # The last gradient of a backward pass.
    copied.model.base.stack.blocks[0].attention_norm.weight.register_hook(end)
    plain(0, 2)
    with with_copies(copied):
        assert copied(0, 1)[2] == 2
    assert not ends
    assert_same(plain.model.state_dict(), copied.model.state_dict())


def test_a_run_with_copies_ends_with_the_same_bytes(tmp_path, monkeypatch):
    digests = []
    for dtype in (None, torch.bfloat16):
        training = small.training(tmp_path / str(dtype), steps=4, evaluate_every=2, average="ema")
        training.machine = BF16
        monkeypatch.setattr(loop, "accelerated", lambda model, *_, dtype=dtype: bf16_weights(model, dtype))
        _, scores = loop.train(training)
        digests.append((small.digest(training), scores.values))
    assert digests[0] == digests[1]


def test_layers_on_one_gpu_in_bf16_have_copies(monkeypatch):
    monkeypatch.setattr(compiling, "compiled", lambda model, is_wanted: nullcontext())
    model, gpu = (
        build(preset("tiny", **SHAPE), HeadConfig(kind="lm")),
        replace(BF16, device=torch.device("cuda")),
    )
    several = replace(gpu, ranks=SimpleNamespace(world=2))
    cases = [(gpu, True, True), (gpu, False, True), (BF16, True, False), (several, True, False)]
    cases.append((replace(gpu, precision="fp32"), True, False))
    for machine, is_compiled, expected in cases:
        with compiling.accelerated(model, Objective(), machine, is_compiled) as copies:
            assert (copies is not None) == expected, machine


def test_one_graph_serves_all_blocks_and_casts_no_weight():
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd
    from torch._dynamo.utils import counters

    graphs = []

    def keep(graph, inputs):
        graphs.append(graph)
        return make_boxed_func(graph.forward)

    shape = {**SHAPE, **QUIET, "depth": 3, "direction": "causal"}
    model, backend = build(preset("lab", **shape), HeadConfig(kind="lm")), aot_autograd(fw_compiler=keep)
    blocks = model.train().base.stack.blocks
    counters.clear()
    for block in blocks:
        block.compile(backend=backend)
    with bf16_weights(model, torch.bfloat16) as copies, BF16.autocast():
        model(torch.ones(2, 4, dtype=torch.long)).sum().backward()
        assert {p.grad.dtype for p in copies._copies} == {torch.bfloat16}
    torch._dynamo.reset()
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]
    # Casts are of what the blocks compute, (2, 4, …), never of a weight or its gradient.
    casts = [node.meta["val"].shape for graph in graphs for node in graph.graph.nodes if "_to_copy" in str(node)]
    assert len(graphs) == 2
    assert {len(shape) for shape in casts} == {3}


@pytest.mark.gpu
def test_graphed_steps_with_copies_are_the_same_to_the_bit():
    machine = replace(BF16, device=torch.device("cuda"))
    machine.prepare()
    plain, copied = a_step(machine), a_step(machine)
    with with_copies(copied), closing(plain), closing(copied):
        for number in range(4):
            one, other = (step(number, 1)[1].values for step in (plain, copied))
            assert torch.equal(one, other)
        assert copied.graphs is not None
        assert copied.graphs._graphs
    assert_same(plain.model.state_dict(), copied.model.state_dict())
