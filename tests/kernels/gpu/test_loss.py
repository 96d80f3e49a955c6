"""The kernels of the loss against the plain loss in float64: on a GPU, or else as triton's interpreter runs them."""

import importlib.util
from typing import NamedTuple

import forked
import interpreted
import pytest
import torch
from torch import Tensor

from headstart.kernels.cpu.logits import IGNORED
from headstart.kernels.cross_entropy import loss_and_grads, output_loss, unit_grad
from headstart.kernels.gpu.loss import kernels_for

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed, and the plain loss serves"
)
PROGRAM = """
from headstart.kernels.gpu.loss import kernels_for, loss_in_place
cases, results = torch.load(sys.argv[1], map_location=sys.argv[2]), {}
for name, (given, vocab, *rest) in cases.items():
    results[name] = {}
    kernels = kernels_for(given[:, :vocab], rest[0])
    for kernel in kernels[:2] if "kept" in name else kernels[:1] if vocab < 20_000 else kernels[-1:]:
        wide = given.clone()
        loss = loss_in_place(wide[:, :vocab], *rest, kernel)
        assert loss.grads is None or loss.grads.data_ptr() == wide.data_ptr()
        results[name][kernel] = (loss.sum, loss.correct, loss.grads is not None, wide)
torch.save(results, sys.argv[3])
"""
GAP = 7.0  # what stands between rows, and stays


class Case(NamedTuple):
    wide: Tensor
    vocab: int
    bias: Tensor | None
    targets: Tensor
    smoothing: float = 0.0
    wants_correct: bool = True
    wants_grads: bool = True


def case(rows, vocab, *, bias=False, dtype=torch.float32, scale=3.0, gap=0, ignored=1, **rest) -> Case:
    draws = torch.Generator().manual_seed(rows * vocab)
    wide = torch.full((rows, vocab + gap), GAP, dtype=dtype)
    wide[:, :vocab] = (scale * torch.randn(rows, vocab, generator=draws)).to(dtype)
    offset = torch.randn(vocab, generator=draws) if bias else None
    targets = torch.randint(vocab, (rows,), generator=draws)
    logits = wide[:, :vocab].float() if offset is None else wide[:, :vocab].float() + offset
    targets[::2] = logits.argmax(dim=-1)[::2]  # some are right
    targets[1 : 1 + ignored] = IGNORED
    return Case(wide, vocab, offset, targets, **rest)


def with_values(given: Case, values: dict[tuple[int, int], float]) -> Case:
    for place, value in values.items():
        given.wide[place] = value
    return given


def tied(vocab: int, dtype: torch.dtype = torch.float32) -> Case:
    """Every row's highest logit stands at 3 and near the end; the first of them is the target of all but one."""
    given = case(4, vocab, ignored=0, dtype=dtype)
    given.wide[:, [3, vocab - 5]] = 50.0
    given.targets[:] = torch.tensor([3, vocab - 5, 3, 3])
    return given


VOCABS = [(3, 1), (3, 40), (2, 16_384), (2, 16_385), (2, 50_257)]
CASES = {
    f"{vocab} {bias=} {smoothing=}": case(rows, vocab, bias=bias, smoothing=smoothing)
    for rows, vocab in VOCABS
    for bias in (False, True)
    for smoothing in (0.0, 0.1)
}
for rows, vocab in ((3, 40), (3, 4_096), (3, 20_000)):
    CASES |= {
        f"{vocab} bf16": case(rows, vocab, bias=True, dtype=torch.bfloat16, smoothing=0.1),
        f"{vocab} fp16": case(rows, vocab, dtype=torch.float16),
        f"{vocab} huge": case(rows, vocab, scale=1e4),
        f"{vocab} of equal logits": case(rows, vocab, scale=0.0),
        f"{vocab} rows apart": case(rows, vocab, gap=24, smoothing=0.1),
        f"{vocab} minus infinity": with_values(case(rows, vocab), {(0, 7): -torch.inf, (2, 31): -torch.inf}),
        f"{vocab} all ignored": case(rows, vocab, ignored=rows)._replace(targets=torch.full((rows,), IGNORED)),
        f"{vocab} without grads": case(rows, vocab, bias=True, smoothing=0.1, wants_grads=False),
        f"{vocab} without correct": case(rows, vocab, wants_correct=False),
        f"{vocab} tied": tied(vocab),
    }
KEPT = {  # in the registers as bf16; an odd row ends within a pair
    "odd, kept": case(3, 16_385, dtype=torch.bfloat16, gap=63, smoothing=0.1),
    "large, kept": case(3, 16_385, dtype=torch.bfloat16, gap=1, scale=1e3, wants_correct=False),
    "without grads, kept": case(1, 20_000, dtype=torch.bfloat16, wants_grads=False),
    "tied, kept": with_values(tied(20_000, torch.bfloat16), {(0, 7): -torch.inf, (1, 19_999): -torch.inf}),
    "longest, kept": case(1, 65_535, dtype=torch.bfloat16, gap=1),
}
CASES |= KEPT
NOT_FINITE = {
    f"{vocab} {value}{kept}": with_values(case(2, vocab, ignored=0, dtype=dtype), {(1, vocab - 20): value})
    for vocab, dtype, kept in (
        (40, torch.float32, ""),
        (20_000, torch.float32, ""),
        (20_000, torch.bfloat16, ", kept"),
    )
    for value in (torch.nan, torch.inf)
}


@pytest.fixture(scope="module", params=interpreted.DEVICES)
def found(request, tmp_path_factory):
    place = tmp_path_factory.mktemp("kernels")
    cases = {name: tuple(given) for name, given in (CASES | NOT_FINITE).items()}
    return interpreted.results(PROGRAM, cases, place, request.param)


@pytest.mark.parametrize("name", CASES)
def test_loss_count_and_gradients_are_those_of_the_plain_loss(name, found):
    wide, vocab, bias, targets, smoothing, wants_correct, wants_grads = CASES[name]
    logits, exact_bias = wide[:, :vocab].double(), None if bias is None else bias.double()
    expected = loss_and_grads(logits, exact_bias, targets, smoothing, wants_correct, True)
    near = 1e-4 if wide.dtype == torch.float32 else 1e-2
    for kernel, (loss_sum, correct, has_grads, now) in found[name].items():
        assert loss_sum.dtype == torch.float32
        torch.testing.assert_close(loss_sum, expected.sum.float())
        assert correct == expected.correct, kernel
        assert has_grads == wants_grads
        grads = expected.grads.to(wide.dtype) if wants_grads else wide[:, :vocab]
        torch.testing.assert_close(now[:, :vocab], grads, rtol=near, atol=3e-7)
        assert (now[:, vocab:] == GAP).all(), "what is beside a row is not the kernel's"
        if wants_grads:
            assert not now[:, :vocab][targets == IGNORED].any()


@pytest.mark.parametrize("name", NOT_FINITE)
def test_a_loss_that_is_not_finite_says_so(name, found):
    for loss_sum, _, _, now in found[name].values():
        assert not loss_sum.isfinite()
        assert not now[1].isfinite().all()
        assert now[0].isfinite().all()


def test_of_equal_highest_logits_the_first_counts(found):
    for name in ("40 tied", "4096 tied", "20000 tied", "tied, kept"):
        assert {int(correct) for _, correct, _, _ in found[name].values()} == {3}


def test_every_kernel_is_tested(found):
    assert {kernel for kernels in found.values() for kernel in kernels} == {
        "whole_row", "next_row", "kept_row", "long_row",
    }  # fmt: skip
    assert list(found["16385 bias=True smoothing=0.1"]) == ["whole_row"]
    assert list(found["20000 huge"]) == ["long_row"]


def test_a_long_row_of_bf16_is_kept_and_both_ways_are_tested(found):
    assert all(set(found[name]) == {"next_row", "kept_row"} for name in KEPT)


@pytest.mark.parametrize(
    ("bias", "dtype", "vocab", "gap", "offset"),
    [
        (True, torch.bfloat16, 20_000, 0, 0),
        (False, torch.float32, 20_000, 0, 0),
        (False, torch.float16, 20_000, 0, 0),
        (False, torch.bfloat16, 65_537, 1, 0),
        (False, torch.bfloat16, 20_001, 0, 0),  # every other row begins within a pair
        (False, torch.bfloat16, 20_000, 2, 1),  # and here all
    ],
)
def test_what_is_not_in_pairs_is_not_kept(bias, dtype, vocab, gap, offset):
    logits = torch.empty(2, vocab + gap, dtype=dtype)[:, offset : offset + vocab]
    kernels = kernels_for(logits, torch.empty(vocab) if bias else None)
    assert kernels == (["whole_row", "long_row"] if vocab < 32_768 else ["long_row"])


def test_a_cpu_needs_no_triton(tmp_path):
    program = """
import sys, torch
for name in [name for name in sys.modules if name.split(".")[0] in ("headstart", "triton")]:
    del sys.modules[name]  # it is born with them
from headstart.kernels.cross_entropy import output_loss
output_loss(torch.ones(2, 3), torch.ones(4, 3), None, torch.tensor([0, 1]))
assert "triton" not in sys.modules
"""
    assert forked.run(program, output=tmp_path / "output") == 0, (tmp_path / "output").read_text()


@pytest.mark.gpu
@pytest.mark.parametrize("vocab", [300, 20_000])
def test_on_a_gpu_loss_and_gradients_are_those_of_a_cpu(vocab):
    draws = torch.Generator().manual_seed(0)
    exact = [torch.randn(*shape, generator=draws, dtype=torch.float64) for shape in ((9, 16), (vocab, 16), (vocab,))]
    targets = torch.randint(vocab, (9,), generator=draws)
    targets[4] = IGNORED
    results = []
    for device, dtype in (("cpu", torch.float64), ("cuda", torch.float32)):
        inputs = [tensor.to(device, dtype).requires_grad_() for tensor in exact]
        loss = output_loss(*inputs, targets.to(device), 0.1)
        results.append([loss.sum.detach(), *torch.autograd.grad(3 * loss.sum, inputs), loss.correct])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(other.cpu().double(), one.double(), rtol=1e-4, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("tokens", [0, 12])
def test_on_a_gpu_chunks_add_up_and_a_gradient_of_one_is_left_out(tokens, monkeypatch):
    """Of bf16 products in float32; the first chunk is written over whatever was there, the others are added."""
    vocab, draws = 300, torch.Generator().manual_seed(0)
    exact = [torch.randn(*shape, generator=draws) / 2 for shape in ((tokens, 16), (vocab, 16), (vocab,))]
    targets = torch.randint(vocab, (tokens,), generator=draws)
    results = []
    for device in ("cpu", "cuda"):
        inputs = [tensor.to(device).requires_grad_() for tensor in exact]
        one = unit_grad(inputs[0].device)
        for chunk_tokens, grad in ((tokens + 1, one), (4, one), (4, torch.ones_like(one))):
            monkeypatch.setattr("headstart.kernels.cross_entropy.GPU_CHUNK_NUMBERS", chunk_tokens * vocab)
            with torch.autocast(device, dtype=torch.bfloat16):
                loss = output_loss(*inputs, targets.to(device)).sum
            results.append([loss.detach(), *torch.autograd.grad(loss, inputs, grad)])
    for result in results[1:]:
        for found, expected in zip(result, results[0], strict=True):
            assert found.dtype == expected.dtype
            torch.testing.assert_close(found.cpu(), expected.cpu(), rtol=0.02, atol=0.05)
    for found, expected in zip(results[-1], results[-2], strict=True):
        assert torch.equal(found, expected)
