"""R-Drop (Liang and others, 2021): read everything twice with different dropout, and pay for what the two differ in."""

import math
from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from headstart.errors import UserError
from headstart.model.chunked_loss import CHUNK_NUMBERS, GPU_CHUNK_NUMBERS
from headstart.objectives.objective import Tensors

CHUNK_LOGITS = {"cpu": CHUNK_NUMBERS, "cuda": GPU_CHUNK_NUMBERS // 2}


def check_weight(r_drop: float) -> None:
    if not 0 <= r_drop < math.inf:
        raise UserError(f"--r-drop {r_drop}", fix="give 0 or more, such as 1")


def doubled(batch: Tensors, names: Iterable[str]) -> Tensors:
    """These arrays as one batch of twice the rows: each row then has dropout of its own."""
    return {name: torch.cat([batch[name]] * 2) for name in names}


def disagreement(first: Tensor, second: Tensor) -> Tensor:
    """How far the probabilities of two readings are from each other, by row: the mean of both divergences, in nats."""
    p, q = F.log_softmax(first.float(), dim=-1), F.log_softmax(second.float(), dim=-1)
    return ((p.exp() - q.exp()) * (p - q)).sum(dim=-1) / 2


def token_disagreement(
    logits_of: Callable[[Tensor], Tensor], first: Tensor, second: Tensor, counts: Tensor, vocab: int
) -> Tensor:
    """The sum over tokens that count, from vectors (tokens, width); the logits of some tokens are held at a time."""

    def of_chunk(first: Tensor, second: Tensor, counts: Tensor) -> Tensor:
        return disagreement(logits_of(first), logits_of(second)).masked_fill(~counts, 0.0).sum()

    size = max(1, CHUNK_LOGITS.get(first.device.type, CHUNK_LOGITS["cpu"]) // vocab)
    chunks = list(zip(first.split(size), second.split(size), counts.split(size), strict=True))
    if len(chunks) == 1:
        return of_chunk(*chunks[0])
    found = [checkpoint(of_chunk, *chunk, use_reentrant=False, preserve_rng_state=False) for chunk in chunks]
    return torch.stack(found).sum()
