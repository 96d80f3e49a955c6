"""The kernels of the update against torch's AdamW in float64: on a GPU, or else as triton's interpreter runs them."""

import importlib.util
from typing import NamedTuple
from unittest.mock import Mock

import interpreted
import pytest
import torch
from torch import Tensor

from headstart.kernels.gpu.adamw import Updates
from headstart.training.optimizers.muon import Muon

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed, and torch's update serves"
)
CHUNK = 64
BETAS, EPS = (0.9, 0.98), 1e-8
PROGRAM = """
from torch import nn
from headstart.config.training import LoopConfig
import headstart.kernels.gpu.adamw
from headstart.kernels.gpu.adamw import Updates
from headstart.machine import Machine
from headstart.training.optimizers.muon import Muon
from headstart.training.loop import Step, Training
from headstart.kernels.adamw import AdamW
headstart.kernels.gpu.adamw.ADDRESSES = 4  # so that several launches write them
for name in ("add_param_group", "zero_grad"):  # which would import torch's compiler: a second
    setattr(torch.optim.Optimizer, name, getattr(torch.optim.Optimizer, name).__wrapped__)
device = torch.device(sys.argv[2])
(cases, whole_steps), results = torch.load(sys.argv[1], map_location=device), {"device": device.type}

def adamw(kind, weights, groups):
    given = [
        {"params": [weights[n] for n in members], "weight_decay": decay, "lr": torch.tensor(rate, device=device)}
        for members, decay, rate in groups
    ]
    return kind(given, lr=0.0, betas=(0.9, 0.98), eps=1e-8)

for name, (weights, groups, others, steps) in cases.items():
    weights = [weight.clone().requires_grad_() for weight in weights]
    optimizer = adamw(AdamW, weights, groups)
    updates, results[name] = Updates(optimizer, chunk=64), []
    for gradients, factor, is_taken in steps:
        for weight, gradient in zip(weights, gradients):
            weight.grad = None if gradient is None else gradient.clone()
        update = updates.next([weight.grad for weight in weights if weight.grad is not None] + others)
        norm = update.norm()
        update.adamw(torch.tensor(factor, device=device), torch.tensor(is_taken, device=device))
        memory = [{key: one.clone() for key, one in optimizer.state[weight].items()} for weight in weights]
        results[name].append((norm, [weight.detach().clone() for weight in weights], memory))
    results[name].append((len(updates._tables), [weight._version for weight in weights]))

class Kernels(AdamW):
    def by_kernels(self, gradients):
        return Updates(self, chunk=64).next(gradients)

for has_muon in (False, True):
    model = nn.ParameterList(weight.clone() for weight in whole_steps[0])
    optimizers = [adamw(Kernels, model, [([0], 0.1, 0.01), ([1] if has_muon else [1, 2], 0.0, 0.02)])]
    optimizers += [Muon([{"params": [model[2]], "weight_decay": 0.1}], lr=0.02)] if has_muon else []
    machine = Machine(device, "fp32", 1)
    training = Training(
        directory=None, model=model, objective=None, valid=None, optimizer=None,
        loop=LoopConfig(clip=0.5), machine=machine,
    )
    step = Step(training, nn.Identity(), optimizers)
    results[has_muon] = []
    for total, count, gradients in whole_steps[1]:
        for weight, gradient in zip(model, gradients):
            weight.grad = gradient.clone()
        result = step.update({"loss": (total, count)}, limit=5.0)
        assert all(weight.grad is None for weight in model)
        results[has_muon].append((result.values, [weight.detach().clone() for weight in model]))
torch.save(results, sys.argv[3])
"""


class Case(NamedTuple):
    weights: list[Tensor]
    groups: list[tuple[list[int], float, float]]
    others: list[Tensor]
    steps: list[tuple[list[Tensor | None], float, bool]]


def case(sizes, *, groups=None, factors=(0.5, 2.0, 0.01), scale=1.0, others=(), untaken=(), missing=None) -> Case:
    draws = torch.Generator().manual_seed(len(sizes))

    def numbers(shape, size=scale):
        return size * torch.randn(shape, generator=draws)

    steps = [
        (
            [None if (step, n) == missing else numbers(s) for n, s in enumerate(sizes)],
            factor,
            step not in untaken,
        )
        for step, factor in enumerate(factors)
    ]
    weights = [numbers(size, 1.0) for size in sizes]
    groups = groups or [(list(range(len(sizes))), 0.1, 0.01)]
    return Case(weights, groups, [numbers(size) for size in others], steps)


ODD = [
    (7,),
    (64,),
    (65,),
    (33, 5),
    (128,),
    (1,),
]  # chunks of 64 that end before, with and behind their tensors
CASES = {
    "groups": case(ODD, groups=[([0, 3], 0.1, 0.01), ([1, 2], 0.0, 0.03), ([5, 4], 0.3, 0.002)], untaken=(1,)),
    "others": case([(70,), (3,)], others=[(65,), (9,)], factors=(0.5,)),
    "large": case([(130,)], scale=1e8, factors=(1e-8, 1e-9)),
    "small": case([(130,)], scale=1e-9, factors=(1.0, 0.5)),
    "no gradient": case([(20,), (70,)], missing=(1, 0)),
    "one too late": case([(20,), (70,)], missing=(0, 1)),
    "nan": case([(70,), (64,)], factors=(0.5, 2.0), untaken=(1,)),
    "infinite": case([(70,), (64,)], factors=(torch.nan, 1.0), untaken=(0,)),
}
CASES["nan"].steps[1][0][0][66] = torch.nan
CASES["infinite"].steps[0][0][1][5] = torch.inf

DRAWS = torch.Generator().manual_seed(0)
WEIGHTS = [torch.randn(6, 8, generator=DRAWS) for _ in range(3)]
WHOLE_STEPS = [  # the loss's sum and count, and the gradients: over the limit, clipped, not clipped, not a number
    (
        torch.tensor(total, dtype=torch.float64),
        torch.tensor(count, dtype=torch.float64),
        [scale * torch.randn(6, 8, generator=DRAWS) for _ in range(3)],
    )
    for total, count, scale in ((30.0, 4.0, 1.0), (10.0, 4.0, 9.0), (1.0, 0.0, 0.001), (1.0, 2.0, torch.nan))
]


@pytest.fixture(scope="module", params=interpreted.DEVICES)
def found(request, tmp_path_factory):
    place = tmp_path_factory.mktemp("kernels")
    cases = {name: tuple(given) for name, given in CASES.items()}
    return interpreted.results(PROGRAM, (cases, (WEIGHTS, WHOLE_STEPS)), place, request.param)


def exact(given: Case):
    """torch's plain AdamW in float64: weights and memories after each step."""
    weights = [weight.double().requires_grad_() for weight in given.weights]
    groups = [
        {"params": [weights[n] for n in members], "weight_decay": decay, "lr": rate}
        for members, decay, rate in given.groups
    ]
    optimizer = torch.optim.AdamW(groups, betas=BETAS, eps=EPS, foreach=False)
    for gradients, factor, is_taken in given.steps:
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = None if gradient is None else gradient.double() * factor
        if is_taken:
            optimizer.step()
        memories = [{key: one.clone() for key, one in optimizer.state[weight].items()} for weight in weights]
        yield [weight.detach().clone() for weight in weights], memories


@needs_triton
@pytest.mark.parametrize("name", CASES)
def test_weights_and_memories_are_those_of_torch(name, found):
    by_step = zip(found[name][:-1], exact(CASES[name]), strict=True)
    for (_, weights, memories), (exact_weights, exact_memories) in by_step:
        for weight, exact_weight in zip(weights, exact_weights, strict=True):
            torch.testing.assert_close(weight.double(), exact_weight, rtol=3e-7, atol=1e-7)
        for memory, exact_memory in zip(memories, exact_memories, strict=True):
            if exact_memory:
                same_memory(memory, exact_memory)


def same_memory(memory, exact_memory):
    assert set(memory) == set(exact_memory) == {"step", "exp_avg", "exp_avg_sq"}
    assert all(one.dtype == torch.float32 for one in memory.values())
    assert memory["step"] == exact_memory["step"]
    largest = float(exact_memory["exp_avg"].abs().max())
    torch.testing.assert_close(memory["exp_avg"].double(), exact_memory["exp_avg"], rtol=1e-6, atol=1e-6 * largest)
    torch.testing.assert_close(memory["exp_avg_sq"].double(), exact_memory["exp_avg_sq"], rtol=1e-6, atol=1e-44)


@needs_triton
@pytest.mark.parametrize("name", CASES)
def test_the_norm_is_that_of_all_gradients(name, found):
    given = CASES[name]
    for (norm, *_), (gradients, _, _) in zip(found[name][:-1], given.steps, strict=True):
        numbers = [one.double().flatten() for one in [*gradients, *given.others] if one is not None]
        assert norm.dtype == torch.float64
        torch.testing.assert_close(norm, torch.cat(numbers).norm(), rtol=2e-7, atol=0, equal_nan=True)


@needs_triton
@pytest.mark.parametrize(("name", "step"), [("groups", 1), ("nan", 1)])
def test_a_step_that_is_not_taken_changes_nothing(name, step, found):
    (_, weights, memories), (_, weights_then, memories_then) = found[name][step - 1 : step + 1]
    for one, other in zip(weights, weights_then, strict=True):
        assert torch.equal(one, other)
    for memory, memory_then in zip(memories, memories_then, strict=True):
        for key, one in memory.items():
            assert torch.equal(one, memory_then[key]), key


@needs_triton
def test_a_first_step_that_is_not_taken_begins_nothing(found):
    _, weights, memories = found["infinite"][0]
    assert all(map(torch.equal, weights, CASES["infinite"].weights))
    assert not any(one.any() for memory in memories for one in memory.values())


@needs_triton
def test_tables_are_made_once_for_each_choice_of_gradients(found):
    assert found["groups"][-1][0] == 1
    assert found["no gradient"][-1][0] == 2


def test_addresses_are_written_again_when_they_change_and_in_every_captured_graph(monkeypatch):
    write = Mock(side_effect=lambda addresses, _: torch.tensor(addresses))
    monkeypatch.setattr("headstart.kernels.gpu.adamw.write", write)
    optimizer, _ = adamw(torch.zeros(4))
    updates = Updates(optimizer)
    params = updates._params()
    for is_capturing, addresses in (
        (False, 16),
        (False, 16),
        (True, 16),
        (True, 32),
        (False, 16),
        (False, 32),
    ):
        monkeypatch.setattr("headstart.kernels.gpu.adamw._is_capturing", lambda params, answer=is_capturing: answer)
        assert updates._on_device([addresses], params).tolist() == [addresses]
    assert [call.args[0] for call in write.call_args_list] == [[16], [16], [32], [32]]


@needs_triton
def test_whoever_asks_sees_that_weights_have_changed(found):
    assert all(version > 0 for version in found["groups"][-1][1])


@needs_triton
@pytest.mark.parametrize("has_muon", [False, True])
def test_a_whole_step_clips_divides_and_leaves_matrices_to_muon(has_muon, found):
    weights = [weight.double().requires_grad_() for weight in WEIGHTS]
    groups = [
        {"params": weights[:1], "weight_decay": 0.1, "lr": 0.01},
        {"params": weights[1 : 2 if has_muon else 3], "weight_decay": 0.0, "lr": 0.02},
    ]
    optimizers = [torch.optim.AdamW(groups, betas=BETAS, eps=EPS, foreach=False)]
    if has_muon:
        optimizers.append(Muon([{"params": weights[2:], "weight_decay": 0.1}], lr=0.02))
    taken = []
    for (values, now), (total, count, gradients) in zip(found[has_muon], WHOLE_STEPS, strict=True):
        divisor = max(float(count), 1.0)
        norm = torch.cat([one.double().flatten() for one in gradients]).norm() / divisor
        is_taken = bool(norm.isfinite()) and float(total) / divisor <= 5.0
        torch.testing.assert_close(
            values,
            torch.stack([norm, torch.tensor(is_taken), total, count]),
            rtol=1e-6,
            atol=0,
            equal_nan=True,
        )
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = gradient.double() * min(1.0, 0.5 / (float(norm) + 1e-6)) / divisor
        for optimizer in optimizers if is_taken else ():
            optimizer.step()
        for number, (one, exact_one) in enumerate(zip(now, weights, strict=True)):
            near = 3e-7
            if has_muon and number == 2:  # Muon computes in bf16; a GPU rounds its products in another order
                near = 1e-3 if found["device"] == "cuda" else 1e-4
            torch.testing.assert_close(one.double(), exact_one.detach(), rtol=near, atol=near)
        taken.append(is_taken)
    assert taken == [False, True, True, False]


# ---- where torch's update serves --------------------------------------------------------------------------------


def adamw(gradient: Tensor, rate: float | Tensor | None = None) -> tuple[torch.optim.AdamW, Tensor]:
    weight = torch.zeros(gradient.shape, dtype=gradient.dtype, requires_grad=True)
    weight.grad = gradient
    rate = torch.tensor(0.1) if rate is None else rate
    return torch.optim.AdamW([weight], lr=rate, fused=True), weight.grad


@pytest.mark.parametrize(
    "gradient",
    [torch.zeros(6, 4).mT, torch.zeros(9)[1:], torch.zeros(8, dtype=torch.float64), torch.zeros(0)],
    ids=["in columns", "begins anywhere", "float64", "empty"],
)
def test_gradients_that_kernels_cannot_read_are_left_to_torch(gradient):
    optimizer, own = adamw(gradient)
    assert Updates(optimizer).next([own]) is None
    optimizer, own = adamw(torch.zeros(4))
    assert Updates(optimizer).next([own, gradient]) is None


def test_a_rate_that_is_no_tensor_is_left_to_torch():
    optimizer, own = adamw(torch.zeros(4), 0.1)
    assert Updates(optimizer).next([own]) is None


def test_a_gradient_that_does_not_count_is_left_to_torch():
    optimizer, _ = adamw(torch.zeros(4))
    assert Updates(optimizer).next([torch.zeros(4)]) is None


def test_tables_are_not_made_while_a_graph_is_captured(monkeypatch):
    optimizer, own = adamw(torch.zeros(4))
    monkeypatch.setattr("headstart.kernels.gpu.adamw._is_capturing", lambda params: True)
    assert Updates(optimizer).next([own]) is None


@pytest.mark.gpu
def test_a_captured_update_is_the_same_to_the_bit():
    def made():
        weights = [torch.linspace(-1, 1, n, device="cuda").requires_grad_() for n in (5000, 3)]
        optimizer = torch.optim.AdamW(weights, lr=torch.tensor(0.1, device="cuda"), fused=True, capturable=True)
        return weights, Updates(optimizer), optimizer

    def update(weights, updates):
        for weight in weights:
            weight.grad = (weight.detach() + 0.5).contiguous()
        following = updates.next([weight.grad for weight in weights])
        norm = following.norm()
        following.adamw((1 / norm).float(), norm.isfinite())

    (weights, updates, _), (others, other_updates, _) = made(), made()
    for _ in range(4):
        update(weights, updates)
    update(others, other_updates)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        update(others, other_updates)
    for _ in range(3):
        graph.replay()
    assert all(map(torch.equal, weights, others))
