"""How long an update takes on a GPU by kernels and by torch: norm, clip, AdamW; and whether both come to the same.

The last line is the verdict: "same", or "DIFFERENT" (and exit code 1).

python benchmarks/update_kernel.py
"""

import functools
import math
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from loss_kernel import copied_bytes_per_second, timed
from torch import Tensor

from headstart.kernels.adamw import AdamW
from headstart.kernels.gpu.adamw import CHUNK, WARPS, Updates, is_available


class Shape(NamedTuple):
    depth: int
    width: int
    ffn: int
    vocab: int
    length: int


MODELS = {
    "GPT-2 124M": Shape(12, 768, 3072, 50_304, 1024),
    "4 layers, width 200, vocabulary 8,192": Shape(4, 200, 800, 8_192, 256),
}
CUTS = [(CHUNK, WARPS), (1024, (4, 4)), (2048, (4, 16)), (4096, (4, 16)), (4096, (8, 32))]
RATE, STEPS, CLIP, COUNT, EAGER_ROUNDS = 1e-3, 3, 1.0, 1000.0, 20


def main() -> None:
    if not torch.cuda.is_available():
        sys.exit("There is no GPU here to measure.")
    if not is_available():
        sys.exit("DIFFERENT: kernels cannot be made here")
    bandwidth = copied_bytes_per_second()
    print(f"{torch.cuda.get_device_name()}: a copy reads and writes {bandwidth / 1e12:.2f} TB/s")
    found = []
    for name, shape in MODELS.items():
        sizes = tensors_of(shape)
        numbers = sum(math.prod(size) for size in sizes)
        print(f"{name}: {len(sizes)} tensors, {numbers:,} numbers")
        found += [*agreement(sizes), recorded_is_eager(sizes), skipped_is_nothing(sizes)]
        times(sizes, 32 * numbers / bandwidth)
    print("same" if all(found) else "DIFFERENT")
    sys.exit(0 if all(found) else 1)


def tensors_of(shape: Shape) -> list[tuple[int, ...]]:
    """The tensors of a model with tied output, each block's after the other's."""
    width, ffn = shape.width, shape.ffn
    matrices = [(3 * width, width), (width, width), (ffn, width), (width, ffn)]
    block = [size for rows, columns in matrices for size in ((rows, columns), (rows,))] + [(width,)] * 4
    return [(shape.vocab, width), (shape.length, width), *block * shape.depth, (width,), (width,)]


def made(sizes: Sequence[tuple[int, ...]]) -> tuple[list[Tensor], AdamW]:
    """Weights and their optimizer, the same ones every time."""
    draws = torch.Generator("cuda").manual_seed(0)
    weights = [(0.02 * torch.randn(size, generator=draws, device="cuda")).requires_grad_() for size in sizes]
    decaying = [weight for weight in weights[2:] if weight.dim() == 2]
    others = [weight for weight in weights if all(weight is not one for one in decaying)]
    groups = [{"params": decaying, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = AdamW(groups, lr=0.0, betas=(0.9, 0.98), capturable=True)
    for group, rate in zip(optimizer.param_groups, (RATE, RATE / 2), strict=True):
        group["lr"] = torch.tensor(rate, device="cuda")
    return weights, optimizer


def by_torch(optimizer: AdamW, gradients: list[Tensor]) -> Tensor:
    """As headstart/training/loop.py takes it where there are no kernels."""
    norm = torch.nn.utils.get_total_norm(gradients).double() / COUNT
    torch._foreach_mul_(gradients, (clipped(norm) / COUNT).float())
    optimizer.found_inf = (~norm.isfinite()).float()  # type: ignore[attr-defined]
    optimizer.step()
    return norm


def by_kernels(optimizer: AdamW, gradients: list[Tensor], updates: Updates | None = None) -> Tensor:
    """And where there are."""
    update = updates.next(gradients) if updates else optimizer.by_kernels(gradients)
    assert update is not None, "kernels do not serve"
    norm = update.norm() / COUNT
    update.adamw((clipped(norm) / COUNT).float(), norm.isfinite())
    return norm


def clipped(norm: Tensor) -> Tensor:
    return (CLIP / (norm + 1e-6)).clamp(max=1.0)


def give(weights: Sequence[Tensor], seed: int, empty_share: float = 0.1) -> list[Tensor]:
    """Fresh gradients of a sum over many examples, by the seed; some rows have none."""
    draws = torch.Generator("cuda").manual_seed(seed)
    for weight in weights:
        weight.grad = COUNT * torch.randn(weight.shape, generator=draws, device="cuda")
        weight.grad[: int(empty_share * len(weight))] = 0.0
    return [weight.grad for weight in weights if weight.grad is not None]


# ---- whether it is right ------------------------------------------------------------------------------------


def agreement(sizes: Sequence[tuple[int, ...]]) -> list[bool]:
    """After some steps: how far weights, memories and norms are apart, and whether kernels repeat themselves."""
    (weights, adamw), (again, again_adamw), (peers, peer_adamw) = made(sizes), made(sizes), made(sizes)
    norm_off = peer_norm_off = 0.0
    for seed in range(STEPS):
        gradients = give(weights, seed)
        exact = torch.stack([gradient.double().square().sum() for gradient in gradients]).sum().sqrt() / COUNT
        norm_off = max(norm_off, abs(float(by_kernels(adamw, gradients) / exact) - 1))
        by_kernels(again_adamw, give(again, seed))
        peer_norm_off = max(peer_norm_off, abs(float(by_torch(peer_adamw, give(peers, seed)) / exact) - 1))
    off = largest_difference(weights, peers)
    allowed = 4 * 2**-23 * max(float(peer.abs().max()) for peer in peers) + 1e-5 * RATE * STEPS
    print(f"  after {STEPS} steps: weights differ by {off:.1e} at most ({allowed:.1e} allowed)")
    agrees = [off <= allowed]
    for key in ("exp_avg", "exp_avg_sq"):
        ours, theirs = ([o.state[w][key] for w in ws] for o, ws in ((adamw, weights), (peer_adamw, peers)))
        off = largest_difference(ours, theirs) / max(float(one.abs().max()) for one in theirs)
        print(f"  {key} by {off:.1e} of the largest (1e-05 allowed)")
        agrees.append(off <= 1e-5)
    print(f"  norms are off by {norm_off:.1e} (kernels) and {peer_norm_off:.1e} (torch)")
    counts = {float(adamw.state[weight]["step"]) for weight in weights}
    repeats = all(map(torch.equal, weights, again))
    print(f"  kernels repeat themselves: {repeats}; counts of steps: {counts}")
    return [*agrees, norm_off <= 1e-6, repeats, counts == {float(STEPS)}]


def recorded_is_eager(sizes: Sequence[tuple[int, ...]]) -> bool:
    """Whether recorded updates are those that are not recorded, to the bit; each has gradients of its own."""

    def update(weights: Sequence[Tensor], optimizer: AdamW) -> None:
        for weight in weights:
            weight.grad = COUNT * (weight.detach() + 0.01).sin()
        by_kernels(optimizer, [weight.grad for weight in weights if weight.grad is not None])
        optimizer.zero_grad(set_to_none=True)

    (weights, adamw), (others, other_adamw) = made(sizes), made(sizes)
    update(others, other_adamw)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        update(others, other_adamw)
    for _ in range(3):
        graph.replay()
        update(weights, adamw)  # in between, in other memory
    update(weights, adamw)
    same = all(map(torch.equal, weights, others))
    same = same and all(
        torch.equal(one, other_adamw.state[other][key])
        for weight, other in zip(weights, others, strict=True)
        for key, one in adamw.state[weight].items()
    )
    print(f"  recorded once and replayed 3 times, as 4 updates that are not recorded: {same}")
    return same


def skipped_is_nothing(sizes: Sequence[tuple[int, ...]]) -> bool:
    """Whether a gradient that is not a number changes nothing."""
    weights, adamw = made(sizes)
    by_kernels(adamw, give(weights, 0))
    before = [weight.detach().clone() for weight in weights]
    memories = [{key: one.clone() for key, one in adamw.state[weight].items()} for weight in weights]
    gradients = give(weights, 1)
    gradients[-1][-1] = torch.nan
    by_kernels(adamw, gradients)
    same = all(map(torch.equal, weights, before)) and all(
        torch.equal(one, adamw.state[weight][key])
        for weight, memory in zip(weights, memories, strict=True)
        for key, one in memory.items()
    )
    print(f"  a gradient that is not a number changes nothing: {same}")
    return same


def largest_difference(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> float:
    return max(float((one - other).abs().max()) for one, other in zip(ours, theirs, strict=True))


# ---- how long it takes --------------------------------------------------------------------------------------


def times(sizes: Sequence[tuple[int, ...]], floor: float) -> None:
    weights, adamw = made(sizes)
    gradients = give(weights, 0, empty_share=0.0)
    ways: dict[str, Callable[[], object]] = {"torch": functools.partial(by_torch, adamw, gradients)}
    for chunk, warps in CUTS:
        updates = Updates(adamw, chunk, warps)
        ways[f"kernels {chunk} {warps}"] = functools.partial(by_kernels, adamw, gradients, updates)
    print(f"  bytes once: {1e6 * floor:.0f} µs")
    first = None
    for name, compute in ways.items():
        recorded, eager = timed(compute), eager_seconds(compute)
        first = first or recorded
        print(
            f"  {name:<22}{1e6 * recorded:>7.0f} µs recorded ({recorded / floor:.2f} × the bytes,"
            f" {first / recorded:.2f} × as fast as torch){1e6 * eager:>7.0f} µs one by one"
        )


def eager_seconds(compute: Callable[[], object]) -> float:
    """An update's share of some in a row, which Python launches as fast as it can."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    compute()
    begin.record()
    for _ in range(EAGER_ROUNDS):
        compute()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3 / EAGER_ROUNDS


if __name__ == "__main__":
    main()
