"""Token after token: greedy or sampled, over one function that reads tokens and gives the next one's logits."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from headstart.decoding.limits import NO_TOKEN, forbid_ending, forbid_repeats
from headstart.decoding.sampling import (
    NEVER,
    check_sampling,
    keep_top_k,
    keep_top_p,
    likeliest,
    pick,
    with_temperature,
)
from headstart.randomness import stream


class Reader(Protocol):
    """What a model looks like to a search."""

    def read(self, tokens: Tensor, present: Tensor | None = None) -> Tensor:
        """Read (batch, new tokens) after all that was read before; logits of the next token, (batch, vocab)."""

    def select(self, rows: Tensor) -> None:
        """Go on with these rows alone, in this order."""


@runtime_checkable
class GreedyReader(Reader, Protocol):
    """One that knows the likeliest token sooner than all logits."""

    def likeliest(self, tokens: Tensor, present: Tensor | None, never: Tensor) -> Tensor:
        """Read as `read` does; the next token of each row, the likeliest but for those that never come, (batch,)."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How a token is chosen; the default is the likeliest one, always."""

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_sampling(self.temperature, self.top_k, self.top_p)

    def choose(self, logits: Tensor, chance: Tensor) -> Tensor:
        """The next token of each row; `chance` decides where there is a choice."""
        if self.temperature == 0:
            return likeliest(logits)
        logits = with_temperature(logits, self.temperature)
        if self.top_k is not None:
            logits = keep_top_k(logits, self.top_k)
        if self.top_p is not None:
            logits = keep_top_p(logits, self.top_p)
        return pick(logits, chance)


class Step(NamedTuple):
    """What one step of a search gave: the rows that are still going on, their tokens, and all their logits."""

    rows: list[int]
    tokens: list[int]
    logits: Tensor | None  # (rows, vocab), before temperature and the like; None where nobody asked for them


@torch.inference_mode()
def decode(
    reader: Reader,
    prompts: Sequence[Sequence[int]],
    *,
    max_tokens: int,
    stop: Sequence[int] = (),
    never: Sequence[int] = (),
    min_tokens: int = 0,
    no_repeat: int = 0,
    sampling: Sampling | None = None,
    numbers: Sequence[int] | None = None,
    device: torch.device | str = "cpu",
    with_logits: bool = True,
) -> Iterator[Step]:
    """Continue every prompt, one token a step; a row that writes a stop token, which is yielded too, leaves.

    No stop token comes before `min_tokens`, no stretch of `no_repeat` tokens twice, those of the prompt counted. A
    row's chances are a function of the seed, its number (by default its place among the prompts) and the place, so
    that what it becomes depends neither on its company nor on how many steps others take. Without logits the
    likeliest token may be found sooner.
    """
    sampling = sampling or Sampling()
    is_greedy = sampling.temperature == 0 and not (with_logits or no_repeat or min_tokens)
    rows = list(range(len(prompts)))
    chances = _chances(sampling, rows if numbers is None else numbers, max_tokens)
    tokens, present = pad_left(prompts, device)
    written_ids, barred = (
        as_history(tokens, present),
        torch.tensor(list(never), device=device, dtype=torch.long),
    )
    for place in range(max_tokens):
        if not rows:
            return
        logits = None
        if is_greedy and isinstance(reader, GreedyReader):
            chosen = reader.likeliest(tokens, present, barred)
        else:
            logits = precise(reader.read(tokens, present))
            allowed = logits.index_fill(-1, barred, NEVER) if never else logits
            if no_repeat:
                allowed = forbid_repeats(allowed, written_ids, no_repeat, stop)
            if place < min_tokens:
                allowed = forbid_ending(allowed, stop)
            chosen = sampling.choose(allowed, torch.from_numpy(chances[rows, place]).to(device))
        written = chosen.tolist()
        yield Step(rows, written, logits)
        if no_repeat:
            written_ids = torch.cat([written_ids, chosen[:, None]], dim=1)
        going_on = [i for i, token in enumerate(written) if token not in stop]
        if len(going_on) < len(rows):
            kept = torch.tensor(going_on, device=device, dtype=torch.long)
            reader.select(kept)
            chosen, rows, written_ids = chosen[kept], [rows[i] for i in going_on], written_ids[kept]
        tokens, present = chosen[:, None], None


def _chances(sampling: Sampling, numbers: Sequence[int], max_tokens: int) -> np.ndarray:
    """The luck of each row at every place; none is needed where nothing is drawn."""
    if sampling.temperature == 0 or not len(numbers):
        return np.zeros((len(numbers), max_tokens))
    return np.stack([stream(sampling.seed, "sample", number).random(max_tokens) for number in numbers])


def continuations(steps: Iterator[Step], count: int, stop: Sequence[int] = ()) -> list[list[int]]:
    """What `decode` wrote after each of the prompts, stop tokens left out."""
    written: list[list[int]] = [[] for _ in range(count)]
    for step in steps:
        for row, token in zip(step.rows, step.tokens, strict=True):
            if token not in stop:
                written[row].append(token)
    return written


def precise(logits: Tensor) -> Tensor:
    """In fp32 at least: sums of log-probabilities need more digits than half precision has."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def pad_left(prompts: Sequence[Sequence[int]], device: torch.device | str) -> tuple[Tensor, Tensor | None]:
    """Prompts of several lengths end at the same place, so that the next token follows each of them."""
    longest = max((len(prompt) for prompt in prompts), default=0)
    tokens = torch.zeros(len(prompts), longest, dtype=torch.long)
    present = torch.zeros(len(prompts), longest, dtype=torch.bool)
    for row, prompt in enumerate(prompts):
        assert prompt, "a prompt has at least its begin token"
        tokens[row, longest - len(prompt) :] = torch.tensor(prompt)
        present[row, longest - len(prompt) :] = True
    return tokens.to(device), None if present.all() else present.to(device)


def as_history(prompts: Tensor, present: Tensor | None) -> Tensor:
    """Padded prompts as what was written before, which must not be repeated."""
    return prompts if present is None else prompts.masked_fill(~present, NO_TOKEN)
