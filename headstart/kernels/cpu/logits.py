"""The logits of a chunk on a CPU, and their loss: buffers that are used again, and as few passes as torch allows.

A row is a little longer than the vocabulary. Rows of 50,001 numbers begin anywhere in a line of the cache, and the
product that writes them takes half as long again; and memory that is asked for anew costs a fault for every page.
What is beyond the vocabulary is minus infinity, and so takes no part.
"""

from typing import NamedTuple

import torch
from torch import Tensor

ROW_MULTIPLE = 64
IGNORED = -100  # a target that does not count


class ChunkLoss(NamedTuple):
    """Of a chunk: its loss, how many tokens had the highest logit (or None), and the gradients of its logits."""

    sum: Tensor
    correct: Tensor | None
    grads: Tensor | None  # in the precision of the product, (tokens, vocabulary)
    exact_grads: Tensor | None


class CpuLogits:
    """Room for the logits of so many tokens, in fp32 and, where products are in bf16, in that too."""

    def __init__(self, tokens: int, matrix: Tensor, exact: torch.dtype) -> None:
        self.matrix, self.vocab = matrix, len(matrix)
        length = -(-self.vocab // ROW_MULTIPLE) * ROW_MULTIPLE
        self._numbers = torch.empty(tokens, length, dtype=exact)
        self._product = self._numbers
        if matrix.dtype != exact:
            self._product = torch.empty(tokens, length, dtype=matrix.dtype)

    def loss(
        self,
        rows: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        wants_correct: bool,
        wants_grads: bool,
    ) -> ChunkLoss:
        """The loss of these rows (tokens, width); the logits of the rows before are written over."""
        ignored = targets == IGNORED
        numbers, product = self._numbers[: len(rows)], self._product[: len(rows)]
        logits = numbers[:, : self.vocab]
        torch.mm(rows, self.matrix.T, out=product[:, : self.vocab])
        if product is not numbers:
            numbers.copy_(product)
        numbers[:, self.vocab :] = -torch.inf
        if bias is not None:
            logits += bias
        correct = (logits.argmax(dim=-1) == targets).sum() if wants_correct else None
        wanted = targets.masked_fill(ignored, 0)[:, None]
        highest, own = numbers.amax(dim=-1, keepdim=True), logits.gather(-1, wanted)
        mean = logits.mean(dim=-1, keepdim=True) if smoothing else 0.0
        # One kernel for the whole softmax. The largest probability is never small, so that its logarithm gives
        # the normaliser to the last digit.
        torch.softmax(numbers, dim=-1, out=numbers)
        normaliser = highest - numbers.amax(dim=-1, keepdim=True).log()
        losses = normaliser - (1 - smoothing) * own - smoothing * mean
        loss_sum = losses.masked_fill(ignored[:, None], 0.0).sum()
        if not wants_grads:
            return ChunkLoss(loss_sum, correct, None, None)
        # Probabilities less what they should have been.
        if smoothing:
            logits -= smoothing / self.vocab
        logits.scatter_add_(-1, wanted, torch.full_like(own, smoothing - 1))
        if ignored.any():
            logits[ignored] = 0.0
        if product is not numbers:
            product.copy_(numbers)
        return ChunkLoss(loss_sum, correct, product[:, : self.vocab], logits)
