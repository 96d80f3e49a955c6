"""Cross-entropy over a large vocabulary without ever holding all of its logits.

The output layer and the loss in one: tokens are taken a chunk at a time, and of each chunk loss and gradients are
computed at once, so that its logits can be forgotten. The same operations as by the book, in another order.
"""

import functools
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from headstart.model import gpu_loss
from headstart.model.cpu_logits import IGNORED, ChunkLoss, CpuLogits

CHUNK_NUMBERS = 1 << 22  # logits of a chunk on a CPU: 16 MB of them stay near the processor …
CHUNK_TOKENS = 256  # … but a product of few rows is slow, and each chunk adds to the whole matrix's gradient
GPU_CHUNK_NUMBERS = 1 << 28
BLOCK_ROWS = 8_192
ROW_MULTIPLE = 64


class TokenLoss(NamedTuple):
    """The loss of all tokens together, and how many of them had the highest logit."""

    sum: Tensor
    right: Tensor


def output_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    smoothing: float = 0.0,
    *,
    wants_right: bool = True,
) -> TokenLoss:
    """Cross-entropy of hidden (tokens, width) under the output layer; `smoothing` is shared by all tokens alike.

    A token whose target is IGNORED adds nothing to the loss, and gets no gradient. Who does not want to know how many
    were right is told 0, and saves a pass over the logits.
    """
    if torch.is_autocast_enabled(hidden.device.type):
        hidden = hidden.to(torch.get_autocast_dtype(hidden.device.type))
    return TokenLoss(*_OutputLoss.apply(hidden, weight, bias, targets, smoothing, wants_right))


@functools.cache
def unit_slope(device: torch.device) -> Tensor:
    """The 1 to go backward from: `loss.backward(unit_slope(loss.device))`. It is never to be written to.

    That a number on a GPU is 1 one cannot know without waiting for it; that it is this very tensor, one can. Then the
    gradients are not multiplied by it, which would be another pass over a matrix as large as the vocabulary.
    """
    return torch.ones((), device=device)


def _is_one(slope: Tensor) -> bool:
    """Whether it is known to be 1."""
    return slope is unit_slope(slope.device) or (slope.device.type == "cpu" and bool(slope == 1))


class _OutputLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        wants_right: bool,
    ) -> tuple[Tensor, Tensor]:
        wants_hidden, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        matrix = weight.to(hidden.dtype)
        exact = torch.promote_types(hidden.dtype, torch.float32)
        loss_sum = hidden.new_zeros((), dtype=exact)
        right = hidden.new_zeros((), dtype=torch.int64)
        to_hidden = torch.empty_like(hidden) if wants_hidden else None
        to_weight = _total_like(weight, exact, len(hidden)) if wants_weight else None
        to_bias = torch.zeros_like(bias, dtype=exact) if wants_bias and bias is not None else None
        chunks, wants_slopes = _chunks(len(hidden), len(weight), hidden.device), any(ctx.needs_input_grad)
        on_cpu = CpuLogits(_longest(chunks), matrix, exact) if hidden.device.type == "cpu" else None
        room = None if on_cpu else _room(_longest(chunks), len(weight), hidden)
        for some in chunks:
            rows = hidden[some]
            if on_cpu is not None:
                found = on_cpu.loss(
                    rows, bias, targets[some], targets[some] == IGNORED, smoothing,
                    wants_right=wants_right, wants_slopes=wants_slopes,
                )  # fmt: skip
            else:
                assert room is not None
                has_kernel = exact == torch.float32 and hidden.is_cuda and gpu_loss.is_available()
                function = gpu_loss.loss_in_place if has_kernel else loss_and_slopes
                logits = torch.mm(rows, matrix.T, out=room[: len(rows), : len(weight)])
                found = function(logits, bias, targets[some], smoothing, wants_right, wants_slopes)
            loss_sum += found.sum
            if found.right is not None:
                right += found.right
            slopes = found.slopes
            if slopes is None:
                continue
            if to_hidden is not None:
                torch.mm(slopes, matrix, out=to_hidden[some])
            if to_weight is not None:
                _add_product(to_weight, slopes.T, rows, is_first=some.start == 0)
            if to_bias is not None:
                to_bias += (slopes if found.exact_slopes is None else found.exact_slopes).sum(
                    dim=0, dtype=exact
                )
        ctx.save_for_backward(to_hidden, to_weight, to_bias)
        ctx.mark_non_differentiable(right)
        return loss_sum, right

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        found = ctx.saved_tensors
        if not _is_one(slope):
            found = [None if gradient is None else gradient.mul_(slope) for gradient in found]
        return *found, None, None, None


def loss_and_slopes(
    logits: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    smoothing: float,
    wants_right: bool,
    wants_slopes: bool,
) -> ChunkLoss:
    """The loss of a chunk's logits, which are used up."""
    dtype, ignored = logits.dtype, (targets == IGNORED)[:, None]
    wanted = targets[:, None].clamp(min=0)
    logits = logits.to(torch.promote_types(dtype, torch.float32))
    if bias is not None:
        logits += bias
    right = (logits.argmax(dim=-1) == targets).sum() if wants_right else None
    normaliser = logits.logsumexp(dim=-1, keepdim=True)
    losses = normaliser - (1 - smoothing) * logits.gather(-1, wanted)
    if smoothing:
        losses -= smoothing * logits.mean(dim=-1, keepdim=True)
    loss_sum = losses.masked_fill(ignored, 0.0).sum()
    if not wants_slopes:
        return ChunkLoss(loss_sum, right, None, None)
    # Probabilities less what they should have been.
    logits -= normaliser.masked_fill(ignored, torch.inf)
    logits.exp_()
    counted = (~ignored).to(logits.dtype)
    if smoothing:
        logits -= counted * (smoothing / logits.shape[-1])
    rows = torch.arange(len(logits), device=logits.device)
    logits[rows, wanted[:, 0]] -= counted[:, 0] * (1 - smoothing)
    return ChunkLoss(loss_sum, right, logits.to(dtype), None)


def _total_like(weight: Tensor, dtype: torch.dtype, tokens: int) -> Tensor:
    """What products are added to: zeros, but on a GPU anything, since the first product is written over it."""
    return (torch.empty_like if weight.is_cuda and tokens else torch.zeros_like)(weight, dtype=dtype)


def _add_product(total: Tensor, left: Tensor, right: Tensor, is_first: bool) -> None:
    """Add a product to what may be in more exact numbers than its factors."""
    if is_first and total.is_cuda:
        if total.dtype == left.dtype:
            torch.mm(left, right, out=total)
        else:
            torch.mm(left, right, out_dtype=total.dtype, out=total)
    elif total.dtype == left.dtype:
        total.addmm_(left, right)
    elif total.is_cuda:
        torch.addmm(total, left, right, out_dtype=total.dtype, out=total)
    else:  # a block at a time: what is added is in other numbers, and would be copied whole
        for first in range(0, len(total), BLOCK_ROWS):
            total[first : first + BLOCK_ROWS] += left[first : first + BLOCK_ROWS] @ right


def _room(rows: int, vocab: int, like: Tensor) -> Tensor:
    """For the logits of a chunk, one after the other; a GPU reads rows that begin at even places quicker."""
    return like.new_empty(rows, -(-vocab // ROW_MULTIPLE) * ROW_MULTIPLE)


def _longest(chunks: list[slice]) -> int:
    return max((chunk.stop - chunk.start for chunk in chunks), default=0)


def _chunks(tokens: int, vocab: int, device: torch.device) -> list[slice]:
    size = max(CHUNK_TOKENS, CHUNK_NUMBERS // vocab)
    if device.type != "cpu":
        # Of one size where that can be: a compiler then has one case, and products have even sides.
        count = max(1, -(-tokens * vocab // GPU_CHUNK_NUMBERS))
        count = next((more for more in range(count, 2 * count) if tokens % more == 0), count)
        size = max(1, -(-tokens // count))
    return [slice(first, min(first + size, tokens)) for first in range(0, tokens, size)]
