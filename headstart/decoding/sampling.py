"""From logits to the next token, in small pure steps: each takes logits and gives logits."""

import torch
from torch import Tensor

from headstart.errors import UserError

NEVER = float("-inf")
# Tokens whose highest is found first, when the likeliest is looked for: several times as quick as to compare all.
GROUP = 128


def with_temperature(logits: Tensor, temperature: float) -> Tensor:
    """Flatter above 1, sharper below."""
    return logits / temperature


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """Only the k likeliest stay possible; those that tie with the last of them stay too."""
    if k >= logits.shape[-1]:
        return logits
    last = logits.topk(k, dim=-1).values[..., -1:]
    return logits.masked_fill(logits < last, NEVER)


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """Only the fewest likeliest whose probabilities reach p together stay possible; one always does."""
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    before = ordered.softmax(dim=-1).cumsum(dim=-1) - ordered.softmax(dim=-1)
    return torch.empty_like(logits).scatter(-1, order, ordered.masked_fill(before >= p, NEVER))


def forbid(logits: Tensor, tokens: list[int]) -> Tensor:
    """These tokens cannot come."""
    return logits.index_fill(-1, torch.tensor(tokens, device=logits.device, dtype=torch.long), NEVER)


def likeliest(logits: Tensor) -> Tensor:
    """The token with the highest logit in each row (rows, vocab), the first of equals."""
    vocab = logits.shape[-1]
    edge = vocab // GROUP * GROUP
    if len(logits) < 4 or not edge:
        return logits.argmax(dim=-1)
    peaks = logits[:, :edge].unflatten(-1, (-1, GROUP)).amax(dim=-1)
    if edge < vocab:
        peaks = torch.cat([peaks, logits[:, edge:].amax(dim=-1, keepdim=True)], dim=-1)
    first = peaks.argmax(dim=-1, keepdim=True) * GROUP
    tokens = (first + torch.arange(GROUP, device=logits.device)).clamp_(max=vocab - 1)
    return tokens.gather(1, logits.gather(1, tokens).argmax(dim=-1, keepdim=True))[:, 0]


def pick(logits: Tensor, chance: Tensor) -> Tensor:
    """The token at which the probabilities added up pass `chance`, a number from 0 to 1 for each row."""
    probabilities = logits.double().softmax(dim=-1)
    reached = probabilities.cumsum(dim=-1)
    # Rounding can leave the last sum under the chance: then it is the last token that is possible at all.
    last = torch.where(probabilities > 0, torch.arange(logits.shape[-1], device=logits.device), -1).amax(
        dim=-1
    )
    token = torch.searchsorted(reached, chance[..., None].double(), right=True)[..., 0]
    return torch.minimum(token, last)


def check_sampling(temperature: float, top_k: int | None, top_p: float | None) -> None:
    """Refuse numbers that mean nothing."""
    if not 0 <= temperature < float("inf"):
        raise UserError(f"temperature is {temperature}", fix="give 0 (the likeliest token) or more")
    if top_k is not None and top_k < 1:
        raise UserError(f"top-k is {top_k}", fix="give 1 or more")
    if top_p is not None and not 0 < top_p <= 1:
        raise UserError(f"top-p is {top_p}", fix="give a share over 0 and up to 1")
