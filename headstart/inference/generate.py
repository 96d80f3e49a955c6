"""A causal run continues a text, token by token, in whole characters.

The prompt and the new tokens share the context. Learned positions end there: generation stops, and a prompt that
leaves too little room (the tokens to write, up to half the context) loses its oldest tokens. Sinusoidal and rotary
positions have no end; beyond the trained length the model extrapolates.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import Tensor

from headstart.config.generation import SAMPLED, GenerationConfig
from headstart.errors import Log, UserError
from headstart.inference.decoding.beam import beam_search
from headstart.inference.decoding.readers import CachedReader
from headstart.inference.decoding.sampling import NEVER, likeliest
from headstart.inference.decoding.search import DecodingLimits, decode
from headstart.machine import Machine
from headstart.model.model import Model
from headstart.runs.load import LoadedRun, require
from headstart.tokenizers.token_texts import HALF_A_CHARACTER
from headstart.tokenizers.tokenizer import Tokenizer

DEFAULT_MAX_TOKENS = 200
MOST_ALTERNATIVES = 50
_CONTEXT_TOKENS = 8  # to decode a token by, since some lose their space at the start of a text
Stop = Literal["end", "max-tokens", "context"]


class Prompt(NamedTuple):
    """What the model reads before it writes."""

    ids: list[int]
    max_tokens: int
    limit: Stop  # why no more may follow: the context ends before the requested number of tokens, or not


class Alternative(NamedTuple):
    """A token that could have come."""

    text: str
    probability: float


class TokenStep(NamedTuple):
    """A new token of one of the texts; the last one of a text has its stop reason."""

    row: int
    text: str  # the whole characters that it completes: empty for half of one, and for the end of the text
    token: int
    token_count: int  # tokens of the text so far; the end is not counted
    stop: Stop | None
    probability: float | None  # under the model at temperature 1; None unless alternatives are requested
    alternatives: list[Alternative]  # the most probable here, best first; the chosen one may be among them


@dataclass(frozen=True)
class Continuation:
    """The text after a prompt."""

    text: str
    token_count: int
    stop: Stop
    score: float | None = None  # of a beam: the log-probability over the length to the power of the penalty


def generate(
    run: LoadedRun, prompt: str, machine: Machine, config: GenerationConfig = SAMPLED, log: Log = lambda line: None
) -> list[Continuation]:
    """`config.count` continuations of a prompt: independent samples, or the best of a beam, best first."""
    if config.beam is not None:
        return _beam_continuations(run, prompt, machine, config, log)
    texts = [""] * config.count
    done: dict[int, Continuation] = {}
    for step in stream_tokens(run, prompt, machine, config, log=log):
        texts[step.row] += step.text
        if step.stop is not None:
            done[step.row] = Continuation(texts[step.row], step.token_count, step.stop)
    return [done[row] for row in range(config.count)]


def _beam_continuations(
    run: LoadedRun, prompt: str, machine: Machine, config: GenerationConfig, log: Log
) -> list[Continuation]:
    start = read_prompt(run, prompt, config, log)
    (hypotheses,) = beam_search(_OnMachine(run.model, machine), [start.ids], _limits(run, start, 1), config)
    continuations = []
    for tokens, score, _, has_ended in hypotheses:
        characters = WholeCharacters(run.tokenizer, start.ids)
        stop: Stop = "end" if has_ended else start.limit
        continuations.append(Continuation("".join(map(characters.add, tokens)), len(tokens), stop, score))
    return continuations


def stream_tokens(
    run: LoadedRun, prompt: str, machine: Machine, config: GenerationConfig = SAMPLED, *,
    alternatives: int | None = None, within_context: bool = False, log: Log = lambda line: None,
) -> Iterator[TokenStep]:  # fmt: skip
    """What `generate` writes without a beam, token by token; closing the iterator stops the computation.

    With `alternatives` each token has its probability, and this many of the most probable tokens at its position.
    `within_context` bounds the prompt by the context, also where positions have no end.
    """
    if alternatives is not None and not 0 <= alternatives <= MOST_ALTERNATIVES:
        raise UserError(f"{alternatives} alternatives", fix=f"give 0 to {MOST_ALTERNATIVES}")
    if config.beam is not None:
        fix = "leave the beam out"
        raise UserError("a beam search has no tokens to stream before its end", fix=fix, code="conflict")
    start = read_prompt(run, prompt, config, log, within_context=within_context)
    return _steps(run, start, machine, config, alternatives)


def _steps(
    run: LoadedRun, prompt: Prompt, machine: Machine, config: GenerationConfig, alternatives: int | None
) -> Iterator[TokenStep]:
    tokenizer, count = run.tokenizer, config.count
    limits = _limits(run, prompt, count)
    characters = [WholeCharacters(tokenizer, prompt.ids) for _ in range(count)]
    token_counts, pending = [0] * count, [list[int]() for _ in range(count)]
    reader, has_logits = _OnMachine(run.model, machine), alternatives is not None
    steps = decode(reader, [prompt.ids] * count, limits, config, with_logits=has_logits)
    with contextlib.closing(steps):  # type: ignore[type-var]
        for step in steps:
            for index, (row, token) in enumerate(zip(step.rows, step.tokens, strict=True)):
                probability, best = None, list[Alternative]()
                if alternatives is not None:
                    assert step.logits is not None
                    probabilities = step.logits[index].double().softmax(dim=-1)
                    best = _most_probable(tokenizer, probabilities, alternatives, pending[row])
                    probability = float(probabilities[token])
                if token == limits.end:
                    yield TokenStep(row, "", token, token_counts[row], "end", probability, best)
                    continue
                token_counts[row] += 1
                text = characters[row].add(token)
                pending[row] = [] if text else [*pending[row], token]
                stop = prompt.limit if token_counts[row] == prompt.max_tokens else None
                yield TokenStep(row, text, token, token_counts[row], stop, probability, best)


def _limits(run: LoadedRun, prompt: Prompt, count: int) -> DecodingLimits:
    end = run.tokenizer.id_of("end")
    never = sorted(run.tokenizer.special_ids - {end})
    return DecodingLimits(end=end, max_tokens=[prompt.max_tokens] * count, never=never, must_end=False)


def _most_probable(tokenizer: Tokenizer, probabilities: Tensor, count: int, pending: list[int]) -> list[Alternative]:
    """The most probable tokens; after half a character, those that complete it appear as the whole character."""
    values, ids = probabilities.topk(min(count, len(probabilities)))
    texts = tokenizer.pieces_of(ids.tolist())
    if pending:
        completed = [tokenizer.decode([*pending, token]) for token in ids.tolist()]
        texts = [old if HALF_A_CHARACTER in new else new for old, new in zip(texts, completed, strict=True)]
    return [Alternative(text, value) for text, value in zip(texts, values.tolist(), strict=True)]


def read_prompt(
    run: LoadedRun, prompt: str, config: GenerationConfig, log: Log = lambda _: None, *, within_context: bool = False
) -> Prompt:
    """The ids of a prompt after the begin token, and how many may follow them."""
    require(run.config.objective, "generate", str(run.path))
    model = run.config.model
    max_tokens = config.max_tokens or max(config.min_tokens, DEFAULT_MAX_TOKENS)
    ids = [run.tokenizer.id_of("begin"), *map(int, run.tokenizer.encode(prompt))]
    if model.positions != "learned":
        if within_context:
            ids = _newest(ids, model.context, f"the context is {model.context:,} tokens", log)
        if len(ids) + max_tokens - 1 > run.config.length:
            log(f"the run was trained on {run.config.length:,} tokens; beyond them it extrapolates")
        return Prompt(ids, max_tokens, "max-tokens")
    positions = model.context + (config.beam is None)  # only a beam reads the last new token
    kept = max(1, positions - min(max_tokens, max(1, model.context // 2)))
    why = f"the learned positions end at {model.context:,}, and the new tokens need room"
    ids = _newest(ids, kept, why, log)
    room = max(1, positions - len(ids))
    return Prompt(ids, min(max_tokens, room), "context" if room < max_tokens else "max-tokens")


def _newest(ids: list[int], count: int, why: str, log: Log) -> list[int]:
    """The begin token and the newest of the others, so many in all."""
    if len(ids) <= count:
        return ids
    log(f"the oldest {len(ids) - count:,} tokens of the prompt are dropped: {why}")
    return [ids[0], *ids[len(ids) - count + 1 :]]


class WholeCharacters:
    """Text from tokens as they come: half a character waits for its other half."""

    def __init__(self, tokenizer: Tokenizer, before: list[int]) -> None:
        """`before` are the tokens before the first one."""
        self._tokenizer, self._ids = tokenizer, before[-_CONTEXT_TOKENS:]
        self._known = tokenizer.decode(self._ids)

    def add(self, token: int) -> str:
        """The characters that this token completes; half of one that never gets its other half is left out."""
        self._ids = [*self._ids, token]
        text, known = self._tokenizer.decode(self._ids), self._known
        if text.endswith(HALF_A_CHARACTER):
            return ""
        self._ids = self._ids[-_CONTEXT_TOKENS:]
        self._known = self._tokenizer.decode(self._ids)
        return text[len(known) :]


class _OnMachine(CachedReader):
    """The model on its device, its logits on the CPU: tokens are chosen alike for every device."""

    def __init__(self, model: Model, machine: Machine) -> None:
        super().__init__(model.to(machine.device).eval())
        self._machine, self._device = machine, machine.device

    def read(self, tokens: Tensor, present: Tensor | None = None) -> Tensor:
        seen = None if present is None else present.to(self._device)
        with self._machine.autocast_steps():
            return super().read(tokens.to(self._device), seen).float().cpu()

    def likeliest(self, tokens: Tensor, present: Tensor | None, never: Tensor) -> Tensor:
        if self._device.type == "cpu":
            return super().likeliest(tokens, present, never)
        return likeliest(self.read(tokens, present).index_fill_(1, never, NEVER))

    def branch(self, tokens: Tensor, parents: Tensor) -> Tensor:
        with self._machine.autocast_steps():
            return super().branch(tokens.to(self._device), parents.to(self._device)).float().cpu()

    def select(self, rows: Tensor) -> None:
        super().select(rows.to(self._device))
