"""AdamW that leaves alone the rows of an embedding that had no gradient yet.

Such a row has averages of zero, and without weight decay AdamW does not move it: to pass it by is exact. A row that
had a gradient once moves on by its average, and so is updated at every step. The arithmetic is that of the whole
matrix, number by number, so weights and state are the same to the bit; only the gradient's norm is added up in another
order.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from headstart.kernels.layers import TokenEmbedding

STATE = ("exp_avg", "exp_avg_sq")

# The kernel takes a last few numbers otherwise than the rest: with whole groups of rows there are none such.
ROWS_MULTIPLE = 16


class SparseRows:
    """One embedding, and the AdamW state of the rows that had a gradient, in the order of their first one."""

    def __init__(self, embedding: TokenEmbedding, state: Any, group: dict[str, Any]) -> None:
        self.embedding, self._state, self._group = embedding, state, group
        self.embedding.sparse_rows = []
        self._gradient: tuple[Tensor, Tensor] | None = None
        # None: the averages are whole matrices in the optimizer's state, or there are none yet.
        self._rows: Tensor | None = None

    def gradient(self) -> tuple[Tensor, Tensor] | None:
        """The rows that were looked up and their gradients, once backward has computed them."""
        looked_up = self.embedding.sparse_rows or ()
        parts = [(rows, part.grad) for rows, part in looked_up if part.grad is not None]
        if parts and self._gradient is None:
            self._gradient = parts[0] if len(parts) == 1 else _added_up(parts)
        return self._gradient

    def zero_grad(self) -> None:
        self.embedding.sparse_rows, self._gradient = [], None

    @torch.no_grad()
    def step(self) -> None:
        if (gradient_of_rows := self.gradient()) is None:
            return
        rows, grads = gradient_of_rows
        self._sparsify()
        slots = self._slots(rows)
        assert self._rows is not None
        count = len(self._rows)
        padded = -(-count // ROWS_MULTIPLE) * ROWS_MULTIPLE
        weights, gradient = self._weights[:padded], self._grads[:padded]
        torch.index_select(self.embedding.weight, 0, self._rows, out=weights[:count])
        gradient.index_copy_(0, slots, grads)
        state, group = self._state[self.embedding.weight], self._group
        state["step"] += 1
        torch._fused_adamw_(
            [weights], [gradient], [self._exp_avg[:padded]], [self._exp_avg_sq[:padded]], [], [state["step"]],
            lr=group["lr"], beta1=group["betas"][0], beta2=group["betas"][1], eps=group["eps"],
            weight_decay=group["weight_decay"], amsgrad=False, maximize=False,
        )  # fmt: skip
        self.embedding.weight.index_copy_(0, self._rows, weights[:count])
        gradient.index_fill_(0, slots, 0.0)

    def _slots(self, rows: Tensor) -> Tensor:
        """Where the state of these rows is; those that come for the first time get a slot."""
        assert self._rows is not None
        new = rows[self._slot_of[rows] < 0]
        if len(new):
            before = len(self._rows)
            self._rows = torch.cat([self._rows, new])
            self._slot_of[new] = torch.arange(before, len(self._rows))
            self._make_room(len(self._rows))
        return self._slot_of[rows]

    def _make_room(self, count: int) -> None:
        if count <= len(self._weights):
            return
        room = -(-min(2 * count, len(self._slot_of)) // ROWS_MULTIPLE) * ROWS_MULTIPLE
        for name in ("_weights", "_grads", "_exp_avg", "_exp_avg_sq"):
            before: Tensor = getattr(self, name)
            larger = before.new_zeros(room, before.shape[1])
            larger[: len(before)] = before
            setattr(self, name, larger)

    def _sparsify(self) -> None:
        """Take the averages out of the state, where a checkpoint (or `densify`) has put them as whole matrices."""
        if self._rows is not None:
            return
        weight, state = self.embedding.weight, self._state[self.embedding.weight]
        exp_avg, exp_avg_sq = (state.pop(name, None) for name in STATE)
        state.setdefault("step", torch.zeros((), dtype=torch.float32))
        self._slot_of = torch.full((len(weight),), -1)
        self._rows = self._slot_of.new_empty(0)
        self._weights = self._grads = self._exp_avg = self._exp_avg_sq = weight.new_empty(0, weight.shape[1])
        if exp_avg is not None and exp_avg_sq is not None:
            rows = ((exp_avg != 0) | (exp_avg_sq != 0)).any(dim=1).nonzero()[:, 0]
            self._slots(rows)
            self._exp_avg[: len(rows)], self._exp_avg_sq[: len(rows)] = exp_avg[rows], exp_avg_sq[rows]

    def densify(self) -> None:
        """Put the averages into the state as whole matrices."""
        if self._rows is None:
            return
        for name, compact in zip(STATE, (self._exp_avg, self._exp_avg_sq), strict=True):
            whole = torch.zeros_like(self.embedding.weight)
            whole[self._rows] = compact[: len(self._rows)]
            self._state[self.embedding.weight][name] = whole
        self._rows = None
        del self._weights, self._grads, self._exp_avg, self._exp_avg_sq, self._slot_of


def _added_up(parts: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """The gradients of several look-ups as one, each row once."""
    rows, row_of = torch.cat([rows for rows, _ in parts]).unique(return_inverse=True)
    grads = parts[0][1].new_zeros(len(rows), parts[0][1].shape[1])
    return rows, grads.index_add_(0, row_of, torch.cat([grad for _, grad in parts]))
