"""Cross-entropy over a large vocabulary without ever holding all of its logits.

The output layer and the loss in one: tokens are taken a chunk at a time, and of each chunk loss and gradients are
computed at once, so that its logits can be forgotten. The same operations as by the book, in another order.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from headstart.kernels.constants import BLOCK_ROWS, CHUNK_NUMBERS, CHUNK_TOKENS, GPU_CHUNK_NUMBERS
from headstart.kernels.cpu.logits import IGNORED, ROW_MULTIPLE, ChunkLoss, CpuLogits
from headstart.kernels.gpu.loss import is_available, loss_in_place


class TokenLoss(NamedTuple):
    """The loss of all tokens together, and how many of them had the highest logit."""

    sum: Tensor
    correct: Tensor


def output_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    smoothing: float = 0.0,
    *,
    wants_correct: bool = True,
) -> TokenLoss:
    """Cross-entropy of hidden (tokens, width) under the output layer; `smoothing` is shared by all tokens alike.

    A token whose target is IGNORED adds nothing to the loss, and gets no gradient. Without `wants_correct` the
    count is 0, which saves a pass over the logits.
    """
    if torch.is_autocast_enabled(hidden.device.type):
        hidden = hidden.to(torch.get_autocast_dtype(hidden.device.type))
    return TokenLoss(*_OutputLoss.apply(hidden, weight, bias, targets, smoothing, wants_correct))


@functools.cache
def unit_grad(device: torch.device) -> Tensor:
    """The 1 to go backward from: `loss.backward(unit_grad(loss.device))`. It is never to be written to.

    To know that a number on a GPU is 1, one has to wait for it; not so to know that it is this very tensor. Then the
    gradients are not multiplied by it, which would be another pass over a matrix as large as the vocabulary.
    """
    return torch.ones((), device=device)


def _is_one(grad: Tensor) -> bool:
    """Whether it is known to be 1."""
    return grad is unit_grad(grad.device) or (grad.device.type == "cpu" and bool(grad == 1))


class _OutputLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        wants_correct: bool,
    ) -> tuple[Tensor, Tensor]:
        wants_hidden, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        matrix = weight.to(hidden.dtype)
        exact = torch.promote_types(hidden.dtype, torch.float32)
        loss_sum = hidden.new_zeros((), dtype=exact)
        correct = hidden.new_zeros((), dtype=torch.int64)
        to_hidden = torch.empty_like(hidden) if wants_hidden else None
        to_weight = _total_like(weight, exact, len(hidden)) if wants_weight else None
        to_bias = torch.zeros_like(bias, dtype=exact) if wants_bias and bias is not None else None
        chunks = _chunks(len(hidden), len(weight), hidden.device)
        chunk_loss = _chunk_loss(chunks, matrix, exact)
        for some in chunks:
            rows = hidden[some]
            chunk = chunk_loss(rows, bias, targets[some], smoothing, wants_correct, any(ctx.needs_input_grad))
            loss_sum += chunk.sum
            if chunk.correct is not None:
                correct += chunk.correct
            grads = chunk.grads
            if grads is None:
                continue
            if to_hidden is not None:
                torch.mm(grads, matrix, out=to_hidden[some])
            if to_weight is not None:
                _add_product(to_weight, grads.T, rows, is_first=some.start == 0)
            if to_bias is not None:
                to_bias += (grads if chunk.exact_grads is None else chunk.exact_grads).sum(dim=0, dtype=exact)
        ctx.save_for_backward(to_hidden, to_weight, to_bias)
        ctx.mark_non_differentiable(correct)
        return loss_sum, correct

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        grads = ctx.saved_tensors
        if not _is_one(grad):
            grads = [None if one is None else one.mul_(grad) for one in grads]
        return *grads, None, None, None


def _chunk_loss(chunks: list[slice], matrix: Tensor, exact: torch.dtype) -> Callable[..., ChunkLoss]:
    """How a device computes the loss of a chunk's vectors; the room for its logits is used again for the next."""
    longest, vocab = max((chunk.stop - chunk.start for chunk in chunks), default=0), len(matrix)
    if matrix.device.type == "cpu":
        return CpuLogits(longest, matrix, exact).loss
    # A GPU reads rows faster that begin at even addresses.
    room = matrix.new_empty(longest, -(-vocab // ROW_MULTIPLE) * ROW_MULTIPLE)
    has_kernel = exact == torch.float32 and matrix.is_cuda and is_available()
    function = loss_in_place if has_kernel else loss_and_grads

    def loss(rows: Tensor, *rest: Any) -> ChunkLoss:
        return function(torch.mm(rows, matrix.T, out=room[: len(rows), :vocab]), *rest)

    return loss


def loss_and_grads(
    logits: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    smoothing: float,
    wants_correct: bool,
    wants_grads: bool,
) -> ChunkLoss:
    """The loss of a chunk's logits, which are used up."""
    dtype, ignored = logits.dtype, (targets == IGNORED)[:, None]
    wanted = targets[:, None].clamp(min=0)
    logits = logits.to(torch.promote_types(dtype, torch.float32))
    if bias is not None:
        logits += bias
    correct = (logits.argmax(dim=-1) == targets).sum() if wants_correct else None
    normaliser = logits.logsumexp(dim=-1, keepdim=True)
    losses = normaliser - (1 - smoothing) * logits.gather(-1, wanted)
    if smoothing:
        losses -= smoothing * logits.mean(dim=-1, keepdim=True)
    loss_sum = losses.masked_fill(ignored, 0.0).sum()
    if not wants_grads:
        return ChunkLoss(loss_sum, correct, None, None)
    # Probabilities less what they should have been.
    logits -= normaliser.masked_fill(ignored, torch.inf)
    logits.exp_()
    counted = (~ignored).to(logits.dtype)
    if smoothing:
        logits -= counted * (smoothing / logits.shape[-1])
    rows = torch.arange(len(logits), device=logits.device)
    logits[rows, wanted[:, 0]] -= counted[:, 0] * (1 - smoothing)
    return ChunkLoss(loss_sum, correct, logits.to(dtype), None)


def _total_like(weight: Tensor, dtype: torch.dtype, tokens: int) -> Tensor:
    """What products are added to: zeros, but on a GPU anything, since the first product is written over it."""
    return (torch.empty_like if weight.is_cuda and tokens else torch.zeros_like)(weight, dtype=dtype)


def _add_product(total: Tensor, left: Tensor, right: Tensor, is_first: bool) -> None:
    """Add a product to what may be of a higher precision than its factors."""
    if is_first and total.is_cuda:
        if total.dtype == left.dtype:
            torch.mm(left, right, out=total)
        else:
            torch.mm(left, right, out_dtype=total.dtype, out=total)
    elif total.dtype == left.dtype:
        total.addmm_(left, right)
    elif total.is_cuda:
        torch.addmm(total, left, right, out_dtype=total.dtype, out=total)
    else:  # a block at a time: what is added is of another precision, and would be copied whole
        for first in range(0, len(total), BLOCK_ROWS):
            total[first : first + BLOCK_ROWS] += left[first : first + BLOCK_ROWS] @ right


def _chunks(tokens: int, vocab: int, device: torch.device) -> list[slice]:
    size = max(CHUNK_TOKENS, CHUNK_NUMBERS // vocab)
    if device.type != "cpu":
        # Of one size where that can be: a compiler then has one case, and products have even sides.
        count = max(1, -(-tokens * vocab // GPU_CHUNK_NUMBERS))
        count = next((more for more in range(count, 2 * count) if tokens % more == 0), count)
        size = max(1, -(-tokens // count))
    return [slice(first, min(first + size, tokens)) for first in range(0, tokens, size)]
