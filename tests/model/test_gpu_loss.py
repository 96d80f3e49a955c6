"""The kernels of the loss against the plain loss in float64: on a GPU, or else as triton's interpreter runs them."""

import importlib.util
from typing import NamedTuple

import forked
import pytest
import torch
from torch import Tensor

from headstart.model.chunked_loss import IGNORED, loss_and_slopes, output_loss

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed, and the plain loss serves"
)
# In a child, since triton asks once for all whether it interprets.
PROGRAM = """
import sys, torch
from headstart.model.gpu_loss import loss_in_place
cases, results = torch.load(sys.argv[1], map_location=sys.argv[2]), {}
for name, (wide, vocab, *rest) in cases.items():
    loss = loss_in_place(wide[:, :vocab], *rest)
    assert loss.slopes is None or loss.slopes.data_ptr() == wide.data_ptr()
    results[name] = (loss.sum, loss.right, loss.slopes is not None, wide)
torch.save(results, sys.argv[3])
"""
GAP = 7.0  # what stands between rows, and stays


class Case(NamedTuple):
    wide: Tensor
    vocab: int
    bias: Tensor | None
    targets: Tensor
    smoothing: float = 0.0
    wants_right: bool = True
    wants_slopes: bool = True


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


def tied(vocab: int) -> Case:
    """Every row's highest logit stands at 3 and near the end; the first of them is the target of all but one."""
    given = case(4, vocab, ignored=0)
    given.wide[:, [3, vocab - 5]] = 50.0
    given.targets[:] = torch.tensor([3, vocab - 5, 3, 3])
    return given


VOCABS = [(5, 1), (5, 40), (3, 8_192), (3, 16_385), (2, 50_257)]
CASES = {
    f"{vocab} {bias=} {smoothing=}": case(rows, vocab, bias=bias, smoothing=smoothing)
    for rows, vocab in VOCABS
    for bias in (False, True)
    for smoothing in (0.0, 0.1)
}
for rows, vocab in ((5, 40), (3, 16_384), (3, 20_000)):
    CASES |= {
        f"{vocab} bf16": case(rows, vocab, bias=True, dtype=torch.bfloat16, smoothing=0.1),
        f"{vocab} fp16": case(rows, vocab, dtype=torch.float16),
        f"{vocab} huge": case(rows, vocab, scale=1e4),
        f"{vocab} of equal logits": case(rows, vocab, scale=0.0),
        f"{vocab} rows apart": case(rows, vocab, gap=24, smoothing=0.1),
        f"{vocab} minus infinity": with_values(case(rows, vocab), {(0, 7): -torch.inf, (2, 31): -torch.inf}),
        f"{vocab} all ignored": case(rows, vocab, ignored=rows)._replace(
            targets=torch.full((rows,), IGNORED)
        ),
        f"{vocab} without slopes": case(rows, vocab, bias=True, smoothing=0.1, wants_slopes=False),
        f"{vocab} without right": case(rows, vocab, wants_right=False),
        f"{vocab} tied": tied(vocab),
    }
NOT_FINITE = {
    f"{vocab} {value}": with_values(case(2, vocab, ignored=0), {(1, vocab - 20): value})
    for vocab in (40, 20_000)
    for value in (torch.nan, torch.inf)
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    place = tmp_path_factory.mktemp("kernels")
    torch.save({name: tuple(given) for name, given in (CASES | NOT_FINITE).items()}, place / "cases")
    on_gpu = torch.cuda.is_available()
    device, environment = ("cuda", {}) if on_gpu else ("cpu", {"TRITON_INTERPRET": "1"})
    program = (PROGRAM, place / "cases", device, place / "results")
    code = forked.run(*program, output=place / "output", environment=environment, seconds=300)
    assert code == 0, (place / "output").read_text()
    return torch.load(place / "results", map_location="cpu")


@pytest.mark.parametrize("name", CASES)
def test_loss_right_and_slopes_are_those_of_the_plain_loss(name, found):
    wide, vocab, bias, targets, smoothing, wants_right, wants_slopes = CASES[name]
    loss_sum, right, has_slopes, now = found[name]
    logits, exact_bias = wide[:, :vocab].double(), None if bias is None else bias.double()
    expected = loss_and_slopes(logits, exact_bias, targets, smoothing, wants_right, True)
    assert loss_sum.dtype == torch.float32
    torch.testing.assert_close(loss_sum, expected.sum.float())
    assert right == expected.right
    assert has_slopes == wants_slopes
    slopes = expected.slopes.to(wide.dtype) if wants_slopes else wide[:, :vocab]
    near = 1e-4 if wide.dtype == torch.float32 else 1e-2
    torch.testing.assert_close(now[:, :vocab], slopes, rtol=near, atol=3e-7)
    assert (now[:, vocab:] == GAP).all(), "what is beside a row is not the kernel's"
    if wants_slopes:
        assert not now[:, :vocab][targets == IGNORED].any()


@pytest.mark.parametrize("name", NOT_FINITE)
def test_a_loss_that_is_not_finite_says_so(name, found):
    loss_sum, _, _, now = found[name]
    assert not loss_sum.isfinite()
    assert not now[1].isfinite().all()
    assert now[0].isfinite().all()


def test_of_equal_highest_logits_the_first_counts(found):
    assert [int(found[f"{vocab} tied"][1]) for vocab in (40, 16_384, 20_000)] == [3, 3, 3]


def test_a_cpu_needs_no_triton(tmp_path):
    program = """
import sys, torch
from headstart.model.chunked_loss import output_loss
output_loss(torch.ones(2, 3), torch.ones(4, 3), None, torch.tensor([0, 1]))
assert "triton" not in sys.modules
"""
    assert forked.run(program, output=tmp_path / "output") == 0, (tmp_path / "output").read_text()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("vocab", [300, 20_000])
def test_on_a_gpu_loss_and_gradients_are_those_of_a_cpu(vocab):
    draws = torch.Generator().manual_seed(0)
    exact = [
        torch.randn(*shape, generator=draws, dtype=torch.float64)
        for shape in ((9, 16), (vocab, 16), (vocab,))
    ]
    targets = torch.randint(vocab, (9,), generator=draws)
    targets[4] = IGNORED
    results = []
    for device, dtype in (("cpu", torch.float64), ("cuda", torch.float32)):
        inputs = [tensor.to(device, dtype).requires_grad_() for tensor in exact]
        loss = output_loss(*inputs, targets.to(device), 0.1)
        results.append([loss.sum.detach(), *torch.autograd.grad(3 * loss.sum, inputs), loss.right])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(other.cpu().double(), one.double(), rtol=1e-4, atol=1e-4)
