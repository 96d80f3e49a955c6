"""torch's AdamW, with what is quicker on a device: rows of an embedding on a CPU, our own kernels on a GPU."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from headstart.kernels.cpu.sparse_adamw import SparseRows
from headstart.kernels.gpu.adamw import Update, Updates, is_available
from headstart.kernels.layers import TokenEmbedding


class AdamW(torch.optim.AdamW):
    """torch's fused AdamW, but for the embeddings that are given: these go by the rows that ever had a gradient."""

    def __init__(
        self, groups: Iterable[dict[str, Any]], embeddings: Sequence[TokenEmbedding] = (), **settings: Any
    ) -> None:
        super().__init__(groups, fused=True, **settings)
        group_of = {id(p): group for group in self.param_groups for p in group["params"]}
        self._sparse = [SparseRows(one, self.state, group_of[id(one.weight)]) for one in embeddings]
        self._updates = Updates(self)

    def row_gradients(self) -> list[Tensor]:
        """The gradients of the embeddings' rows, which stand in no parameter."""
        return [gradient[1] for sparse in self._sparse if (gradient := sparse.gradient()) is not None]

    def by_kernels(self, gradients: Sequence[Tensor]) -> Update | None:
        """Instead of `step`, an update that also computes the norm of all these gradients; None: torch's is used."""
        if self._sparse or not gradients[0].is_cuda or not is_available():
            return None
        return self._updates.next(gradients)

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        super().step()
        for sparse in self._sparse:
            sparse.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        super().zero_grad(set_to_none)
        for sparse in self._sparse:
            sparse.zero_grad()

    def densify_state(self) -> None:
        """Put the state of rows back into whole matrices, where `state` has them; the next step takes them again."""
        for sparse in self._sparse:
            sparse.densify()
