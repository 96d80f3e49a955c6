"""The likeliest token without the logits of all: greedy search needs nothing else.

The output layer is the largest matrix of a small model, and most of a step is to read it. A copy in whole numbers of
8 bits takes a quarter of that. What it says of a logit is wrong by no more than a bound: with ŵ for a row w of the
layer as the copy has it and x̂ for a vector x rounded likewise, |x·w − x̂·ŵ| ≤ |x|·|w − ŵ| + |x − x̂|·|ŵ|. Only tokens
that can be the likeliest by this bound, a handful, are computed in full. So the answer is that of the full product.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.decoding.sampling import NEVER

LARGEST = 127
# Tokens whose highest is found first, so that few are compared one by one.
GROUP = 64
# Of the length of a vector times that of a row: far more than what numbers of 32 bits round away.
ROUNDING = 1e-5
# With fewer tokens the plain product is as quick; and torch 2.13 multiplies vectors of one whole number wrongly.
FEWEST_TOKENS, LEAST_WIDTH = 4_096, 2
_PIECE = 1 << 18  # numbers that are made at once: they stay in the processor's cache


def can_shortlist(layer: nn.Linear) -> bool:
    """Whether it pays: where the CPU has VNNI, whole numbers are multiplied fast and without overflow."""
    is_large = layer.out_features >= FEWEST_TOKENS and layer.in_features >= LEAST_WIDTH
    return is_large and bool(torch.cpu._is_vnni_supported())


class Shortlist:
    """An output layer in whole numbers."""

    def __init__(self, layer: nn.Linear) -> None:
        self.weight, self.bias = layer.weight, layer.bias
        vocab, width = self.weight.shape
        filled = -(-vocab // GROUP) * GROUP  # by rows of zeros, which are never chosen
        self.whole, self.scales = torch.zeros(filled, width, dtype=torch.int8), self.weight.new_zeros(filled)
        lost, kept = [], []
        for start in range(0, vocab, step := max(1, _PIECE // width)):
            rows = self.weight[start : start + step]
            scales = rows.abs().amax(dim=1).clamp_(min=1e-30) / LARGEST
            whole = (rows / scales[:, None]).round_()
            here = slice(start, start + len(rows))
            self.whole[here], self.scales[here] = whole, scales
            whole *= scales[:, None]
            kept.append(whole.norm(dim=1).max())
            lost.append((rows - whole).norm(dim=1).max())
        # A bound is |x| times the first and, since rounding moves a number by half at most, scale times the second.
        self.by_length = float(max(lost)) + ROUNDING * float(max(kept))
        self.by_scale = float(max(kept)) * width**0.5 / 2
        self.filling = torch.arange(vocab, filled)

    def best(self, x: Tensor, never: Tensor) -> Tensor:
        """The token with the highest logit for each vector (rows, width), the first of equals, `never` left out."""
        scales = x.abs().amax(dim=1, keepdim=True).clamp_(min=1e-30) / LARGEST
        scaled = x / scales
        rough = self._rough(scaled, scales, never)  # in units of the row's scale, as is all that follows
        wrong = torch.add(scaled.norm(dim=1, keepdim=True) * self.by_length, self.by_scale)
        groups = rough.view(len(x), -1, GROUP)
        peaks = groups.amax(dim=-1)
        surely = peaks.amax(dim=1, keepdim=True) - 2 * wrong  # who is below it is not the likeliest
        rows, numbers = (peaks >= surely).nonzero(as_tuple=True)
        at, inside = (groups[rows, numbers] >= surely[rows]).nonzero(as_tuple=True)
        found = self._best_of(x, rows[at], numbers[at] * GROUP + inside)
        return self._by_the_book(x, never) if found is None else found

    def _rough(self, scaled: Tensor, scales: Tensor, never: Tensor) -> Tensor:
        """What the whole numbers say of every logit."""
        whole, tokens = scaled.round().to(torch.int8), len(self.whole)
        rough = scaled.new_empty(len(whole), tokens)
        for start in range(0, tokens, step := max(1, _PIECE // len(whole))):
            size = min(step, tokens - start)
            products = torch._int_mm(whole, self.whole.narrow(0, start, size).t())
            torch.mul(products, self.scales.narrow(0, start, size), out=rough.narrow(1, start, size))
        if self.bias is not None:
            rough[:, : len(self.bias)] += self.bias / scales
        return rough.index_fill_(1, torch.cat([never, self.filling]), NEVER)

    def _best_of(self, x: Tensor, rows: Tensor, tokens: Tensor) -> Tensor | None:
        """Of each row's tokens the best by its exact logit; None where numbers that are none compare with nothing."""
        logits = (x[rows] * self.weight[tokens]).sum(dim=1)
        if self.bias is not None:
            logits += self.bias[tokens]
        best: dict[int, tuple[float, int]] = {}
        for row, token, logit in zip(rows.tolist(), tokens.tolist(), logits.tolist(), strict=True):
            if row not in best or logit > best[row][0]:
                best[row] = logit, token
        return torch.tensor([best[row][1] for row in range(len(x))]) if len(best) == len(x) else None

    def _by_the_book(self, x: Tensor, never: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias).index_fill_(1, never, NEVER).argmax(dim=1)
