"""AdamW that leaves alone the rows of a token table that no batch has touched.

A row without a gradient until now has memories of zero, and without weight decay AdamW does not move it: to pass it
by is exact. A row that was touched once goes on moving by its memory, and so is updated at every step. The arithmetic
is that of the whole table, number by number, so weights and memories are the same to the bit; only the gradient's
norm is added up in another order.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from headstart.model.token_table import TokenTable
from headstart.training import gpu_update

MEMORIES = ("exp_avg", "exp_avg_sq")
# The kernel takes a last few numbers otherwise than the rest: with whole groups of rows there are none such.
ROWS_MULTIPLE = 16


class AdamW(torch.optim.AdamW):
    """torch's AdamW, but for the tables that are given: these go by the rows that were ever touched."""

    def __init__(
        self, groups: Iterable[dict[str, Any]], tables: Sequence[TokenTable] = (), **settings: Any
    ) -> None:
        super().__init__(groups, fused=True, **settings)
        group_of = {id(p): group for group in self.param_groups for p in group["params"]}
        self._tables = [_TouchedRows(table, self.state, group_of[id(table.weight)]) for table in tables]
        self._updates = gpu_update.Updates(self)

    def row_gradients(self) -> list[Tensor]:
        """The gradients of the tables' rows, which stand in no parameter."""
        return [table.slopes for table in self._tables if table.has_gradient()]

    def by_kernels(self, gradients: Sequence[Tensor]) -> gpu_update.Update | None:
        """In place of `step`, an update that finds the norm of all these gradients too; None where torch's serves."""
        if self._tables or not gradients[0].is_cuda or not gpu_update.is_available():
            return None
        return self._updates.next(gradients)

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        super().step()
        for table in self._tables:
            if table.has_gradient():
                table.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        super().zero_grad(set_to_none)
        for table in self._tables:
            table.forget_gradient()

    def spread(self) -> None:
        """Put the memories of rows back into whole tables, where `state` has them; the next step takes them again."""
        for table in self._tables:
            table.spread()


class _TouchedRows:
    """One table, and for the rows that were touched, in the order of their first time, their memories."""

    def __init__(self, table: TokenTable, state: Any, group: dict[str, Any]) -> None:
        self.table, self._state, self._group = table, state, group
        self.table.looked_up = []
        self._gradient: tuple[Tensor, Tensor] | None = None
        self._rows: Tensor | None = (
            None  # None: the memories are whole tables in the state, or there are none yet
        )

    # ---- the gradient -----------------------------------------------------------------------------------------

    def has_gradient(self) -> bool:
        found = [(rows, part.grad) for rows, part in self.table.looked_up or () if part.grad is not None]
        if found and self._gradient is None:
            self._gradient = found[0] if len(found) == 1 else _added_up(found)
        return self._gradient is not None

    @property
    def slopes(self) -> Tensor:
        assert self._gradient is not None
        return self._gradient[1]

    def forget_gradient(self) -> None:
        self.table.looked_up, self._gradient = [], None

    # ---- the update -------------------------------------------------------------------------------------------

    @torch.no_grad()
    def step(self) -> None:
        assert self._gradient is not None
        rows, slopes = self._gradient
        self._gather()
        places = self._places(rows)
        assert self._rows is not None
        count = len(self._rows)
        padded = -(-count // ROWS_MULTIPLE) * ROWS_MULTIPLE
        weights, gradient = self._weights[:padded], self._slopes[:padded]
        torch.index_select(self.table.weight, 0, self._rows, out=weights[:count])
        gradient.index_copy_(0, places, slopes)
        memory, group = self._state[self.table.weight], self._group
        memory["step"] += 1
        torch._fused_adamw_(
            [weights], [gradient], [self._first[:padded]], [self._second[:padded]], [], [memory["step"]],
            lr=group["lr"], beta1=group["betas"][0], beta2=group["betas"][1], eps=group["eps"],
            weight_decay=group["weight_decay"], amsgrad=False, maximize=False,
        )  # fmt: skip
        self.table.weight.index_copy_(0, self._rows, weights[:count])
        gradient.index_fill_(0, places, 0.0)

    def _places(self, rows: Tensor) -> Tensor:
        """Where the memories of these rows are; those that come for the first time get a place."""
        assert self._rows is not None
        new = rows[self._place_of[rows] < 0]
        if len(new):
            before = len(self._rows)
            self._rows = torch.cat([self._rows, new])
            self._place_of[new] = torch.arange(before, len(self._rows))
            self._make_room(len(self._rows))
        return self._place_of[rows]

    def _make_room(self, count: int) -> None:
        if count <= len(self._weights):
            return
        room = -(-min(2 * count, len(self._place_of)) // ROWS_MULTIPLE) * ROWS_MULTIPLE
        for name in ("_weights", "_slopes", "_first", "_second"):
            before: Tensor = getattr(self, name)
            larger = before.new_zeros(room, before.shape[1])
            larger[: len(before)] = before
            setattr(self, name, larger)

    # ---- what is saved ----------------------------------------------------------------------------------------

    def _gather(self) -> None:
        """Take the memories out of the state, where a checkpoint (or `spread`) has put them as whole tables."""
        if self._rows is not None:
            return
        weight, memory = self.table.weight, self._state[self.table.weight]
        whole = [memory.pop(name, None) for name in MEMORIES]
        memory.setdefault("step", torch.zeros((), dtype=torch.float32))
        self._place_of = torch.full((len(weight),), -1)
        self._rows = self._place_of.new_empty(0)
        self._weights = self._slopes = self._first = self._second = weight.new_empty(0, weight.shape[1])
        if whole[0] is not None and whole[1] is not None:
            rows = ((whole[0] != 0) | (whole[1] != 0)).any(dim=1).nonzero()[:, 0]
            self._places(rows)
            self._first[: len(rows)], self._second[: len(rows)] = whole[0][rows], whole[1][rows]

    def spread(self) -> None:
        if self._rows is None:
            return
        for name, compact in zip(MEMORIES, (self._first, self._second), strict=True):
            whole = torch.zeros_like(self.table.weight)
            whole[self._rows] = compact[: len(self._rows)]
            self._state[self.table.weight][name] = whole
        self._rows = None
        del self._weights, self._slopes, self._first, self._second, self._place_of


def _added_up(found: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """The gradients of several look-ups as one, each row once."""
    rows, row_of = torch.cat([rows for rows, _ in found]).unique(return_inverse=True)
    slopes = found[0][1].new_zeros(len(rows), found[0][1].shape[1])
    return rows, slopes.index_add_(0, row_of, torch.cat([part for _, part in found]))
