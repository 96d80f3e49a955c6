"""Token after token: greedy or sampled, over a reader that takes tokens and returns the logits of the next one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from headstart.cancellation import stop_if_cancelled
from headstart.config.generation import GenerationConfig
from headstart.inference.decoding.sampling import NEVER, NO_TOKEN, forbid_end, forbid_repeats, sample
from headstart.randomness import stream
from headstart.tokenizers.templates import pad

# Tokens of a prompt that are read at once: a long one takes little memory, and can be stopped.
PROMPT_STEP = 512


class Reader(Protocol):
    """A model as a search sees it."""

    def read(self, tokens: Tensor, present: Tensor | None = None) -> Tensor:
        """Read (batch, new tokens) after all that was read before; logits of the next token, (batch, vocab)."""

    def branch(self, tokens: Tensor, parents: Tensor) -> Tensor:
        """Read a token for each beam (batch, beams) after its parent beam; logits (batch, beams, vocab)."""

    def select(self, rows: Tensor) -> None:
        """Continue with these rows only, in this order."""


@runtime_checkable
class GreedyReader(Reader, Protocol):
    """A reader that finds the most probable token without computing all logits."""

    def likeliest(self, tokens: Tensor, present: Tensor | None, never: Tensor) -> Tensor:
        """Read as `read` does; the most probable next token of each row except those in `never`, (batch,)."""


@dataclass(frozen=True, kw_only=True)
class DecodingLimits:
    """What the tokenizer and the context allow, besides the configuration."""

    end: int  # the token that ends a text
    max_tokens: Sequence[int]  # for each text the most tokens to write, the end not counted
    never: Sequence[int] = ()  # never written; the probabilities of the others stay as they are
    must_end: bool = True  # in a beam: at the most tokens only the end may come; else a text may break off


class DecodingStep(NamedTuple):
    """The result of one step: the rows that continue, their tokens, and their logits."""

    rows: list[int]
    tokens: list[int]
    logits: Tensor | None  # (rows, vocab), before temperature and the like; None without `with_logits`


@torch.inference_mode()
def decode(
    reader: Reader, prompts: Sequence[Sequence[int]], limits: DecodingLimits, config: GenerationConfig, *,
    numbers: Sequence[int] | None = None, device: torch.device | str = "cpu", with_logits: bool = True,
) -> Iterator[DecodingStep]:  # fmt: skip
    """Continue every prompt, one token a step; a row leaves after its end token, which is yielded too.

    All rows may go on to the largest of `limits.max_tokens`. A row's samples are a function of the seed, its number
    (by default its index among the prompts) and the step, so they depend on nothing else in the batch. Without
    logits a greedy search may be faster.
    """
    is_greedy = config.temperature == 0 and not (with_logits or config.no_repeat or config.min_tokens)
    rows, most = list(range(len(prompts))), max(limits.max_tokens, default=0)
    chances = _chances(config, rows if numbers is None else numbers, most)
    tokens, present = pad_left(prompts, device)
    history = as_history(tokens, present)
    tokens, present = read_all_but_last(reader, tokens, present)
    never = torch.tensor(list(limits.never), device=device, dtype=torch.long)
    for index in range(most):
        if not rows:
            return
        stop_if_cancelled()
        logits = None
        if is_greedy and isinstance(reader, GreedyReader):
            chosen = reader.likeliest(tokens, present, never)
        else:
            logits = in_fp32(reader.read(tokens, present))
            allowed = logits.index_fill(-1, never, NEVER) if len(never) else logits
            if config.no_repeat:
                allowed = forbid_repeats(allowed, history, config.no_repeat, limits.end)
            if index < config.min_tokens:
                allowed = forbid_end(allowed, limits.end)
            chosen = sample(allowed, torch.from_numpy(chances[rows, index]).to(device), config)
        chosen_ids = chosen.tolist()
        yield DecodingStep(rows, chosen_ids, logits)
        if config.no_repeat:
            history = torch.cat([history, chosen[:, None]], dim=1)
        remaining = [i for i, token in enumerate(chosen_ids) if token != limits.end]
        if len(remaining) < len(rows):
            kept = torch.tensor(remaining, device=device, dtype=torch.long)
            reader.select(kept)
            chosen, rows, history = chosen[kept], [rows[i] for i in remaining], history[kept]
        tokens, present = chosen[:, None], None


def _chances(config: GenerationConfig, numbers: Sequence[int], max_tokens: int) -> np.ndarray:
    """Random numbers for each row and step; zeros where nothing is sampled."""
    if config.temperature == 0 or not len(numbers):
        return np.zeros((len(numbers), max_tokens))
    return np.stack([stream(config.seed, "sample", number).random(max_tokens) for number in numbers])


def in_fp32(logits: Tensor) -> Tensor:
    """Logits in fp32 at least: sums of log-probabilities need more digits than half precision has."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def pad_left(prompts: Sequence[Sequence[int]], device: torch.device | str) -> tuple[Tensor, Tensor | None]:
    """Prompts padded on the left, so that the next token follows each of them."""
    assert all(prompts), "a prompt has at least its begin token"
    tokens, present = (torch.from_numpy(one).flip(1) for one in pad([np.flip(prompt) for prompt in prompts], 0))
    return tokens.to(device), None if present.all() else present.to(device)


def read_all_but_last(reader: Reader, tokens: Tensor, present: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Read prompts step by step; gives their last step, which is still to be read."""
    while tokens.shape[1] > PROMPT_STEP:
        stop_if_cancelled()
        reader.read(tokens[:, :PROMPT_STEP], None if present is None else present[:, :PROMPT_STEP])
        tokens, present = tokens[:, PROMPT_STEP:], None if present is None else present[:, PROMPT_STEP:]
    return tokens, present


def as_history(prompts: Tensor, present: Tensor | None) -> Tensor:
    """Padded prompts as tokens that must not be repeated: NO_TOKEN at padding."""
    return prompts if present is None else prompts.masked_fill(~present, NO_TOKEN)
