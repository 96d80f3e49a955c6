"""Blocks with documents side by side: one long row, with the places where documents begin."""

import numpy as np
import torch
from torch import Tensor

from headstart.model.masks import Cuts
from headstart.model.model import Model
from headstart.objectives.objective import Batch, Tensors

OFFSETS_MULTIPLE = 256


def with_offsets(batch: Batch) -> Batch:
    """The batch and where its documents begin in the row of all blocks, up to a multiple of so many.

    A document that goes on in the next block begins anew there. What fills up are documents without a token.
    """
    documents = batch.get("documents")
    if documents is None:
        return batch
    begins = np.ones(documents.shape, bool)
    begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
    starts = np.flatnonzero(begins)
    missing = OFFSETS_MULTIPLE - len(starts) % OFFSETS_MULTIPLE  # one at least: where the last one ends
    offsets = np.pad(starts, (0, missing), constant_values=documents.size)
    return {**batch, "offsets": offsets.astype(np.int32)}


def read_blocks(model: Model, batch: Tensors) -> Tensor:
    """A vector for each token of the batch, (tokens, width)."""
    tokens, offsets = batch["tokens"], batch.get("offsets")
    # Dropout on attention's weights wants the square that the offsets would spare, and so do exact numbers on a GPU,
    # whose kernel for offsets is of half precision alone: without it every document would be filled up to a block.
    has_dropout = model.training and model.config.attention_dropout > 0
    is_exact = tokens.is_cuda and not torch.is_autocast_enabled("cuda")
    if offsets is None or has_dropout or is_exact:
        return model.base(tokens, documents=batch.get("documents")).flatten(0, 1)
    # On a GPU nobody asks for the ends: they would have to be fetched.
    ends = (tokens.numel(),) if offsets.is_cuda else tuple(offsets[1:].tolist())
    return model.base(tokens.view(1, -1), cuts=Cuts(ends, offsets, tokens.shape[1])).flatten(0, 1)
