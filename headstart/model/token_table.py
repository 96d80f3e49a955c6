"""The table of token vectors, which can keep the gradient of the looked-up rows apart."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class TokenTable(nn.Embedding):
    """A vector for each token.

    A batch looks up a few hundred rows of perhaps fifty thousand. Where `looked_up` is a list, training appends to it
    the numbers of those rows and a copy of them that receives their gradient, and the table itself receives none.
    """

    looked_up: list[tuple[Tensor, Tensor]] | None = None

    def forward(self, tokens: Tensor) -> Tensor:
        is_kept_apart = self.training and torch.is_grad_enabled() and self.weight.requires_grad
        if self.looked_up is None or not is_kept_apart:
            return super().forward(tokens)
        rows, row_of = tokens.unique(return_inverse=True)
        part = self.weight.detach()[rows].requires_grad_()
        self.looked_up.append((rows, part))
        return F.embedding(row_of, part)
