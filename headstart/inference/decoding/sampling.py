"""From logits to the next token, in small pure steps: each takes logits and returns logits."""

import torch
from torch import Tensor

from headstart.config.generation import GenerationConfig

NEVER = float("-inf")

# Where a shorter prompt of a batch has no token.
NO_TOKEN = -1

# The maximum of each group of tokens comes first: several times as quick as one argmax over the vocabulary.
GROUP = 128


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """Keep the k most probable tokens, and those that tie with the last of them."""
    if k >= logits.shape[-1]:
        return logits
    last = logits.topk(k, dim=-1).values[..., -1:]
    return logits.masked_fill(logits < last, NEVER)


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """Keep the fewest most probable tokens whose probabilities reach p together: at least one."""
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    before = ordered.softmax(dim=-1).cumsum(dim=-1) - ordered.softmax(dim=-1)
    return torch.empty_like(logits).scatter(-1, order, ordered.masked_fill(before >= p, NEVER))


def forbid_end(logits: Tensor, end: int) -> Tensor:
    """No text ends here, unless no other token is possible."""
    others = logits.index_fill(-1, torch.tensor([end], device=logits.device), NEVER)
    return torch.where(others.amax(dim=-1, keepdim=True) > NEVER, others, logits)


def forbid_repeats(logits: Tensor, history: Tensor, size: int, end: int) -> Tensor:
    """Forbid tokens that would complete an n-gram of `size` tokens a second time; the end is always allowed.

    `history` (…, length) are the tokens so far, the prompt's too, NO_TOKEN where there is none; `logits` (…, vocab)
    those of the next one.
    """
    if not 1 <= size <= history.shape[-1]:
        return logits
    ngrams = history.unfold(-1, size, 1)  # (…, n-grams, size)
    last = history[..., history.shape[-1] - size + 1 :]
    is_begun = (ngrams[..., :-1] == last[..., None, :]).all(dim=-1) & (ngrams[..., -1] != NO_TOKEN)
    # N-grams that forbid nothing point to an extra column, which is dropped.
    vocab = logits.shape[-1]
    forbidden = torch.zeros(*logits.shape[:-1], vocab + 1, dtype=torch.bool, device=logits.device)
    forbidden.scatter_(-1, torch.where(is_begun, ngrams[..., -1], vocab), True)
    forbidden[..., end] = False
    return logits.masked_fill(forbidden[..., :vocab], NEVER)


def group_peaks(logits: Tensor, size: int) -> Tensor:
    """The maximum of each group of so many tokens, (…, groups); the last group may be smaller."""
    edge = logits.shape[-1] // size * size
    peaks = logits[..., :edge].unflatten(-1, (-1, size)).amax(dim=-1)
    if edge < logits.shape[-1]:
        peaks = torch.cat([peaks, logits[..., edge:].amax(dim=-1, keepdim=True)], dim=-1)
    return peaks


def likeliest(logits: Tensor) -> Tensor:
    """The token with the highest logit in each row (rows, vocab), the first of equals."""
    vocab = logits.shape[-1]
    if len(logits) < 4 or vocab < GROUP:
        return logits.argmax(dim=-1)
    first = group_peaks(logits, GROUP).argmax(dim=-1, keepdim=True) * GROUP
    tokens = (first + torch.arange(GROUP, device=logits.device)).clamp_(max=vocab - 1)
    return tokens.gather(1, logits.gather(1, tokens).argmax(dim=-1, keepdim=True))[:, 0]


def pick(logits: Tensor, chance: Tensor) -> Tensor:
    """The token at which the cumulative probability passes `chance`, a number from 0 to 1 for each row."""
    probabilities = logits.double().softmax(dim=-1)
    cumulative = probabilities.cumsum(dim=-1)
    # Rounding can leave the last sum below the chance: then it is the last token that is possible at all.
    numbers = torch.arange(logits.shape[-1], device=logits.device)
    last = torch.where(probabilities > 0, numbers, -1).amax(dim=-1)
    token = torch.searchsorted(cumulative, chance[..., None].double(), right=True)[..., 0]
    return torch.minimum(token, last)


def sample(logits: Tensor, chance: Tensor, config: GenerationConfig) -> Tensor:
    """The next token of each row; `chance` decides where the temperature is above 0."""
    if config.temperature == 0:
        return likeliest(logits)
    logits = logits / config.temperature
    if config.top_k is not None:
        logits = keep_top_k(logits, config.top_k)
    if config.top_p is not None:
        logits = keep_top_p(logits, config.top_p)
    return pick(logits, chance)
