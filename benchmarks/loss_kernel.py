"""How long the loss's kernels take on a GPU, beside what moving the bytes once would take, and whether they are right.

With a kernel's time goes that of the sum over its rows' losses: some microseconds.

python benchmarks/loss_kernel.py
"""

import functools
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from headstart.kernels.cpu.logits import IGNORED
from headstart.kernels.cross_entropy import loss_and_grads
from headstart.kernels.gpu.loss import kernels_for, loss_in_place

CHECKED_ROWS = 300  # more than there are processors
ROUNDS, WARM_UP = 20, 3
COPIED_BYTES = 1 << 30


@dataclass(frozen=True)
class Case:
    """Logits in bf16, whose rows may be longer than the vocabulary."""

    tokens: int
    vocab: int
    row: int
    has_bias: bool = False
    wants_correct: bool = False

    def __str__(self) -> str:
        extras = [f"rows of {self.row:,}"] * (self.row > self.vocab)
        extras += ["with a bias"] * self.has_bias + ["and who is right"] * self.wants_correct
        return f"{self.tokens:,} × {self.vocab:,}" + "".join(f", {extra}" for extra in extras)


CASES = [
    Case(16_384, 8_192, 8_192),
    Case(4_096, 50_304, 50_304),
    Case(4_096, 50_257, 50_304),
    Case(2_048, 32_768, 32_768),
    Case(2_048, 32_768, 32_768, has_bias=True, wants_correct=True),
]


def main() -> None:
    if not torch.cuda.is_available():
        sys.exit("There is no GPU here to measure.")
    bandwidth = copied_bytes_per_second()
    print(f"{torch.cuda.get_device_name()}: a copy reads and writes {bandwidth / 1e12:.2f} TB/s")
    for case in CASES:
        logits, bias, targets = inputs(case)
        floor = 2 * 2 * case.tokens * case.vocab / bandwidth
        print(f"{case}: bytes once {1e6 * floor:.0f} µs")
        for kernel in kernels_for(logits, bias):
            loss_error, grad_error = errors(case, kernel)
            compute = functools.partial(loss_in_place, logits, bias, targets, 0.0, case.wants_correct, True, kernel)
            seconds = timed(compute)
            print(
                f"  {kernel:<10}{1e6 * seconds:>7.0f} µs {seconds / floor:>6.2f} × the bytes;"
                f" off by {loss_error:.1e} (loss), {grad_error:.1e} (gradients, relative)"
            )


def inputs(case: Case, tokens: int | None = None) -> tuple[Tensor, Tensor | None, Tensor]:
    """Fresh ones each time; a few targets do not count."""
    tokens = tokens or case.tokens
    wide = 3 * torch.randn(tokens, case.row, device="cuda", dtype=torch.bfloat16)
    targets = torch.randint(case.vocab, (tokens,), device="cuda")
    targets[1::97] = IGNORED
    bias = torch.randn(case.vocab, device="cuda") if case.has_bias else None
    return wide[:, : case.vocab], bias, targets


def errors(case: Case, kernel: str) -> tuple[float, float]:
    """The greatest relative errors of a kernel's loss and gradients against float64; and it has to repeat itself."""
    logits, bias, targets = inputs(case, CHECKED_ROWS)
    rows = logits.as_strided((CHECKED_ROWS, case.row), (case.row, 1))
    before = rows.clone()
    exact = loss_and_grads(
        logits.double(), None if bias is None else bias.double(), targets, 0.0, case.wants_correct, True
    )
    losses = []
    for numbers in (rows, again := before.clone()):
        some = numbers[:, : case.vocab]
        losses.append(loss_in_place(some, bias, targets, 0.0, case.wants_correct, True, kernel))
    assert torch.equal(rows, again), f"{kernel} does not repeat itself"
    assert torch.equal(losses[0].sum, losses[1].sum), f"{kernel} does not repeat itself"
    assert torch.equal(rows[:, case.vocab :], before[:, case.vocab :]), f"{kernel} writes beside its rows"
    assert losses[0].correct is None or losses[0].correct == exact.correct, f"{kernel} miscounts who is right"
    assert exact.grads is not None
    counts = targets != IGNORED
    assert not logits[~counts].any(), f"{kernel} gives gradients to what does not count"
    off = ((logits - exact.grads).abs() / exact.grads.abs().clamp(min=1e-30))[counts].max()
    return abs(float(losses[0].sum / exact.sum) - 1.0), float(off)


def copied_bytes_per_second() -> float:
    source = torch.zeros(COPIED_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * COPIED_BYTES / timed(lambda: target.copy_(source))


def timed(compute: Callable[[], object]) -> float:
    """The median of some rounds in seconds by the GPU's own clock, recorded, so that Python is not measured.

    Between rounds other memory is written, so that nothing is near that would not be near in a training.
    """
    other = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    compute()  # compiles
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        compute()
    seconds = []
    for _ in range(WARM_UP + ROUNDS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        other.zero_()
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        seconds.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(seconds[WARM_UP:])


if __name__ == "__main__":
    main()
