"""What may be written: how long a text may be, which tokens never come, which would repeat."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headstart.decoding.sampling import NEVER, forbid
from headstart.errors import UserError

# Where a shorter prompt of a batch has no token.
NO_TOKEN = -1


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The rules of a search; what breaks one cannot come, the probabilities of the rest stay as they are."""

    end: int
    """The token that ends a text."""

    max_tokens: Sequence[int]
    """For each text the most tokens to write, the end not counted."""

    min_tokens: int = 0
    """The fewest tokens to write, the end not counted."""

    never: Sequence[int] = ()
    """Tokens that never come."""

    no_repeat: int = 0
    """No stretch of so many tokens comes twice in a prompt and its text together (0: any may)."""

    must_end: bool = True
    """At the most tokens only the end may come; otherwise a text may break off there, at no cost."""


def check_limits(min_tokens: int, max_tokens: int | None, no_repeat: int) -> None:
    """Refuse numbers that mean nothing."""
    if min_tokens < 0:
        raise UserError(f"min-tokens is {min_tokens}", fix="give 0 or more")
    if max_tokens is not None and max_tokens < max(1, min_tokens):
        raise UserError(
            f"max-tokens is {max_tokens}, min-tokens {min_tokens}",
            fix="give at least 1, and no less than min-tokens",
        )
    if no_repeat < 0:
        raise UserError(f"no-repeat is {no_repeat}", fix="give 0 (anything may repeat) or more")


def forbid_ending(logits: Tensor, stop: Sequence[int]) -> Tensor:
    """No text ends here, unless nothing else can come."""
    going_on = forbid(logits, list(stop))
    return torch.where(going_on.amax(dim=-1, keepdim=True) > NEVER, going_on, logits)


def forbid_repeats(logits: Tensor, written: Tensor, size: int, stop: Sequence[int] = ()) -> Tensor:
    """A token that would write a stretch of `size` tokens a second time cannot come; to stop is no repeat.

    `written` (…, length) are the tokens so far, the prompt's too, NO_TOKEN where there is none; `logits` (…, vocab)
    those of the next one.
    """
    if not 1 <= size <= written.shape[-1]:
        return logits
    stretches = written.unfold(-1, size, 1)  # (…, stretches, size)
    last = written[..., written.shape[-1] - size + 1 :]
    is_begun = (stretches[..., :-1] == last[..., None, :]).all(dim=-1)
    # What no stretch bars gets a place aside, in a column that is then dropped.
    vocab = logits.shape[-1]
    barred = torch.zeros(*logits.shape[:-1], vocab + 1, dtype=torch.bool, device=logits.device)
    is_begun &= stretches[..., -1] != NO_TOKEN
    barred.scatter_(-1, torch.where(is_begun, stretches[..., -1], vocab), True)
    barred[..., list(stop)] = False
    return logits.masked_fill(barred[..., :vocab], NEVER)
