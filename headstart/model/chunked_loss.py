"""Cross-entropy over a large vocabulary without ever holding all of its logits.

The output layer and the loss in one: tokens are taken a chunk at a time, and of each chunk loss and gradients are
computed at once, so that its logits can be forgotten. The same operations as by the book, in another order.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK_NUMBERS = 1 << 22  # logits of a chunk on a CPU: 16 MB of them stay near the processor
GPU_CHUNK_NUMBERS = 1 << 28
IGNORED = -100  # a target that does not count


class TokenLoss(NamedTuple):
    """The loss of all tokens together, and how many of them had the highest logit."""

    sum: Tensor
    right: Tensor


def output_loss(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float = 0.0
) -> TokenLoss:
    """Cross-entropy of hidden (tokens, width) under the output layer; `smoothing` is shared by all tokens alike.

    A token whose target is IGNORED adds nothing to the loss, and gets no gradient.
    """
    if torch.is_autocast_enabled(hidden.device.type):
        hidden = hidden.to(torch.get_autocast_dtype(hidden.device.type))
    return TokenLoss(*_OutputLoss.apply(hidden, weight, bias, targets, smoothing))


class _OutputLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        wants_hidden, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        matrix = weight.to(hidden.dtype)
        exact = torch.promote_types(hidden.dtype, torch.float32)
        loss_sum = hidden.new_zeros((), dtype=exact)
        right = hidden.new_zeros((), dtype=torch.int64)
        to_hidden = torch.empty_like(hidden) if wants_hidden else None
        to_weight = torch.zeros_like(weight, dtype=exact) if wants_weight else None
        to_bias = torch.zeros_like(bias, dtype=exact) if wants_bias and bias is not None else None
        for some in _chunks(len(hidden), len(weight), hidden.device):
            rows, ignored = hidden[some], targets[some, None] == IGNORED
            wanted = targets[some, None].clamp(min=0)
            logits = (rows @ matrix.T).to(exact)
            if bias is not None:
                logits += bias
            right += ((logits.argmax(dim=-1, keepdim=True) == wanted) & ~ignored).sum()
            normaliser = logits.logsumexp(dim=-1, keepdim=True)
            losses = normaliser - (1 - smoothing) * logits.gather(-1, wanted)
            if smoothing:
                losses -= smoothing * logits.mean(dim=-1, keepdim=True)
            loss_sum += losses.masked_fill_(ignored, 0.0).sum()
            if not any(ctx.needs_input_grad):
                continue
            # From here on the logits are their own gradient: probabilities less what they should have been.
            logits -= normaliser.masked_fill_(ignored, torch.inf)
            logits.exp_()
            counted = (~ignored).to(exact)
            if smoothing:
                logits -= counted * (smoothing / logits.shape[-1])
            logits[torch.arange(len(rows), device=rows.device), wanted[:, 0]] -= counted[:, 0] * (1 - smoothing)
            slopes = logits.to(hidden.dtype)
            if to_hidden is not None:
                torch.mm(slopes, matrix, out=to_hidden[some])
            if to_weight is not None:
                if exact == hidden.dtype:
                    to_weight.addmm_(slopes.T, rows)
                else:
                    to_weight += slopes.T @ rows
            if to_bias is not None:
                to_bias += logits.sum(dim=0)
        ctx.save_for_backward(to_hidden, to_weight, to_bias)
        ctx.mark_non_differentiable(right)
        return loss_sum, right

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        found = ctx.saved_tensors
        if slope.device.type != "cpu" or slope != 1:  # on a GPU to look would be to wait
            found = [None if gradient is None else gradient.mul_(slope) for gradient in found]
        return *found, None, None


def _chunks(tokens: int, vocab: int, device: torch.device) -> list[slice]:
    numbers = CHUNK_NUMBERS if device.type == "cpu" else GPU_CHUNK_NUMBERS
    size = max(1, numbers // vocab)
    return [slice(first, min(first + size, tokens)) for first in range(0, tokens, size)]
