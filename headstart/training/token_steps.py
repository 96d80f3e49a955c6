"""What a causal run thought of each token: of those that it writes, and of those of a text that is there.

Probabilities are those of the model itself, at temperature 1 over the whole vocabulary, whatever the tokens were
drawn by.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headstart.decoding.limits import check_limits
from headstart.decoding.search import Sampling
from headstart.errors import UserError
from headstart.text.token_texts import HALF_A_CHARACTER, shown_tokens
from headstart.text.tokenizer import Tokenizer
from headstart.training.generating import (
    DEFAULT_SAMPLING,
    Prompt,
    Stop,
    WholeCharacters,
    decoded,
    read_prompt,
)
from headstart.training.loading import LoadedRun
from headstart.training.machine import Machine
from headstart.training.using import require

MOST_ALTERNATIVES = 50
# Beyond a loss of 709 a perplexity is no number any more.
_LARGEST_LOSS = 709


class Alternative(NamedTuple):
    """A token that could have come."""

    text: str
    probability: float


class TokenStep(NamedTuple):
    """A token that was written; the last one says why it is the last."""

    text: str
    """The whole characters that it completes: empty for half of one, and for the end of the text."""

    token: int
    probability: float
    alternatives: list[Alternative]
    """The most probable tokens at this place, best first; the one that was written may be among them."""

    stop: Stop | None
    token_count: int
    """How many were written so far; the end of the text is not counted."""


def token_steps(
    run: LoadedRun,
    prompt: str,
    machine: Machine,
    *,
    max_tokens: int = 200,
    min_tokens: int = 0,
    no_repeat: int = 0,
    sampling: Sampling = DEFAULT_SAMPLING,
    alternatives: int = 5,
    tell: Callable[[str], None] = lambda line: None,
) -> Iterator[TokenStep]:
    """What `generate` writes, token by token, each with its probability and the tokens that were likeliest.

    Whoever closes the iterator stops the writing.
    """
    require(run.config.objective, "generate", str(run.path))
    if not 0 <= alternatives <= MOST_ALTERNATIVES:
        raise UserError(f"{alternatives} alternatives", fix=f"give 0 to {MOST_ALTERNATIVES}")
    begun = read_prompt(run, prompt, max_tokens)
    check_limits(min_tokens, max_tokens, no_repeat)
    for note in begun.notes:
        tell(note)
    return _steps(run, begun, machine, sampling, min_tokens, no_repeat, alternatives)


def _steps(
    run: LoadedRun,
    prompt: Prompt,
    machine: Machine,
    sampling: Sampling,
    min_tokens: int,
    no_repeat: int,
    alternatives: int,
) -> Iterator[TokenStep]:
    words, end = run.tokenizer, run.tokenizer.id_of("end")
    characters, waiting, count = WholeCharacters(words, prompt.ids), list[int](), 0
    at_most: Stop = "context" if prompt.is_short_of_room else "max-tokens"
    steps = decoded(run, prompt, machine, 1, sampling, min_tokens, no_repeat)
    with contextlib.closing(steps):  # type: ignore[type-var]
        for step in steps:
            assert step.logits is not None
            (token,), probabilities = step.tokens, step.logits[0].double().softmax(dim=-1)
            likeliest = _likeliest(words, probabilities, alternatives, waiting)
            probability = float(probabilities[token])
            if token == end:
                yield TokenStep("", token, probability, likeliest, "end", count)
                return
            count, text = count + 1, characters.add(token)
            waiting = [] if text else [*waiting, token]
            stop = at_most if count == prompt.max_tokens else None
            yield TokenStep(text, token, probability, likeliest, stop, count)


def _likeliest(words: Tokenizer, probabilities: Tensor, count: int, waiting: list[int]) -> list[Alternative]:
    """The most probable tokens; after half a character, those that complete it are shown as what they complete."""
    if not count:
        return []
    values, ids = probabilities.topk(min(count, len(probabilities)))
    texts = words.pieces_of(ids.tolist())
    if waiting:
        completed = [words.decode([*waiting, token]) for token in ids.tolist()]
        texts = [old if HALF_A_CHARACTER in new else new for old, new in zip(texts, completed, strict=True)]
    return [Alternative(text, value) for text, value in zip(texts, values.tolist(), strict=True)]


# ---- a text that is there -----------------------------------------------------------------------------------


class TokenScore(NamedTuple):
    """A token of a text, and how much the run expected it."""

    text: str
    probability: float
    rank: int
    """1 where no other token was more probable."""

    is_special: bool
    """The end of the text is the last token that is predicted."""


@dataclass(frozen=True)
class TokenScores:
    """How well a run expected a text."""

    tokens: list[TokenScore]
    loss: float
    """Nats a token, as `evaluate` has it."""

    perplexity: float | None
    """None where it is too large for a number."""

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {**dataclasses.asdict(self), "tokens": [token._asdict() for token in self.tokens]}


@torch.inference_mode()
def score_tokens(run: LoadedRun, text: str, machine: Machine) -> TokenScores:
    """How probable each token of a text was to a causal run after those before it, and the end after all.

    A text that is longer than the run's length is read in blocks of it, each from nothing, as `evaluate` does.
    """
    require(run.config.objective, "generate", str(run.path))
    words, model = run.tokenizer, run.model.to(machine.device).eval()
    ids = [words.id_of("begin"), *map(int, words.encode(text)), words.id_of("end")]
    nats, ranks = list[float](), list[int]()
    for start in range(0, len(ids) - 1, run.config.length):
        block = torch.tensor(ids[start : start + run.config.length + 1], device=machine.device)
        read, targets = block[:-1], block[1:, None]
        with machine.autocast():
            logits = model(read[None])[0]
        logs = logits.float().log_softmax(dim=-1)
        true = logs.gather(-1, targets)
        nats += (-true[:, 0].double()).tolist()
        ranks += (1 + (logs > true).sum(dim=-1)).tolist()
    if not all(map(math.isfinite, nats)):
        raise UserError("its weights are not finite", where=str(run.path), fix="train it again")
    loss = sum(nats) / len(nats)
    tokens = [
        TokenScore(shown.text, math.exp(-lost), rank, shown.is_special)
        for shown, lost, rank in zip(shown_tokens(words, ids[1:]), nats, ranks, strict=True)
    ]
    return TokenScores(tokens, loss, math.exp(loss) if loss < _LARGEST_LOSS else None)
