"""Going on with a text: a causal run writes, token by token, in whole characters.

What is written and the prompt share the context. Learned positions end there: writing stops, and of a prompt that
leaves too little room (as much as is to be written, up to half the context) the oldest tokens are dropped.
Sinusoidal and rotary positions have no end; beyond the trained length they are on their own.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import Tensor

from headstart.decoding.beam import Beam, beam_search
from headstart.decoding.limits import Limits, check_limits
from headstart.decoding.readers import CachedReader
from headstart.decoding.sampling import NEVER, likeliest
from headstart.decoding.search import Sampling, Step, decode
from headstart.errors import UserError
from headstart.model.model import Model
from headstart.text.token_texts import HALF_A_CHARACTER
from headstart.text.tokenizer import Tokenizer
from headstart.training.loading import LoadedRun
from headstart.training.machine import Machine
from headstart.training.using import require

DEFAULT_SAMPLING = Sampling(temperature=0.8, top_p=0.95)
MOST_TOKENS, MOST_TEXTS = 100_000, 100
_CONTEXT_TOKENS = 8  # to decode a token by, since some lose their space at the start of a text

Stop = Literal["end", "max-tokens", "context"]


class Prompt(NamedTuple):
    """What the model reads before it writes."""

    ids: list[int]
    max_tokens: int
    is_short_of_room: bool
    """Whether the context ends before all that was asked for."""

    notes: list[str]


class Written(NamedTuple):
    """A stretch of whole characters that one of the texts goes on with; the last one says why it stops."""

    row: int
    text: str
    token_count: int
    stop: Stop | None


@dataclass(frozen=True)
class Continuation:
    """What a prompt became: the text after it."""

    text: str
    token_count: int
    stop: Stop
    score: float | None = None
    """Of a beam: the log-probability over the length to the power of the penalty."""


def generate(
    run: LoadedRun,
    prompt: str,
    machine: Machine,
    *,
    max_tokens: int = 200,
    min_tokens: int = 0,
    no_repeat: int = 0,
    count: int = 1,
    sampling: Sampling = DEFAULT_SAMPLING,
    tell: Callable[[str], None] = lambda line: None,
) -> list[Continuation]:
    """So many continuations of a prompt; each has luck of its own, from the sampling's seed."""
    pieces = writing(
        run, prompt, machine, max_tokens=max_tokens, min_tokens=min_tokens, no_repeat=no_repeat, count=count,
        sampling=sampling, tell=tell,
    )  # fmt: skip
    texts: list[list[str]] = [[] for _ in range(count)]
    done: dict[int, Continuation] = {}
    for row, text, token_count, stop in pieces:
        texts[row].append(text)
        if stop is not None:
            done[row] = Continuation("".join(texts[row]), token_count, stop)
    return [done[row] for row in range(count)]


def generate_best(
    run: LoadedRun,
    prompt: str,
    machine: Machine,
    *,
    beam: Beam,
    max_tokens: int = 200,
    min_tokens: int = 0,
    no_repeat: int = 0,
    tell: Callable[[str], None] = lambda line: None,
) -> list[Continuation]:
    """The best continuations of a prompt that a beam finds, best first; they may break off at the most tokens."""
    require(run.config.objective, "generate", str(run.path))
    begun = read_prompt(run, prompt, max_tokens, is_last_read=True)
    check_limits(min_tokens, max_tokens, no_repeat)
    for note in begun.notes:
        tell(note)
    words, end = run.tokenizer, run.tokenizer.id_of("end")
    limits = Limits(
        end=end, max_tokens=[begun.max_tokens], min_tokens=min_tokens, no_repeat=no_repeat, must_end=False,
        never=sorted(words.special_ids - {end}),
    )  # fmt: skip
    (found,) = beam_search(_OnMachine(run.model, machine), [begun.ids], limits, beam)
    continuations = []
    for tokens, score, _, has_ended in found:
        characters = WholeCharacters(words, begun.ids)
        stop: Stop = "end" if has_ended else "context" if begun.is_short_of_room else "max-tokens"
        continuations.append(Continuation("".join(map(characters.add, tokens)), len(tokens), stop, score))
    return continuations


def writing(
    run: LoadedRun,
    prompt: str,
    machine: Machine,
    *,
    max_tokens: int = 200,
    min_tokens: int = 0,
    no_repeat: int = 0,
    count: int = 1,
    sampling: Sampling = DEFAULT_SAMPLING,
    tell: Callable[[str], None] = lambda line: None,
) -> Iterator[Written]:
    """The same as it is written; whoever closes the iterator stops the writing."""
    require(run.config.objective, "generate", str(run.path))
    if not 1 <= count <= MOST_TEXTS:
        raise UserError(f"count is {count:,}", fix=f"give 1 to {MOST_TEXTS}")
    begun = read_prompt(run, prompt, max_tokens)
    check_limits(min_tokens, max_tokens, no_repeat)
    for note in begun.notes:
        tell(note)
    return _written(run, begun, machine, count, sampling, min_tokens, no_repeat)


def read_prompt(run: LoadedRun, prompt: str, max_tokens: int, is_last_read: bool = False) -> Prompt:
    """The ids of a prompt after the begin token, and how many may follow them.

    The last token that is written needs a position only where it is read too, as a beam does.
    """
    if not 1 <= max_tokens <= MOST_TOKENS:
        raise UserError(f"max-tokens is {max_tokens:,}", fix=f"give 1 to {MOST_TOKENS:,}")
    config, notes = run.config.model, list[str]()
    ids = [run.tokenizer.id_of("begin"), *map(int, run.tokenizer.encode(prompt))]
    if config.positions != "learned":
        if len(ids) + max_tokens - 1 > run.config.length:
            notes.append(f"the run was trained on {run.config.length:,} tokens; beyond them it is on its own")
        return Prompt(ids, max_tokens, False, notes)
    places = config.context + (not is_last_read)
    kept = max(1, places - min(max_tokens, max(1, config.context // 2)))
    if len(ids) > kept:
        dropped = len(ids) - kept
        notes.append(
            f"the oldest {dropped:,} tokens of the prompt are dropped: the learned positions end at "
            f"{config.context:,}, and what is written needs room"
        )
        ids = [ids[0], *ids[dropped + 1 :]]
    room = max(1, places - len(ids))
    return Prompt(ids, min(max_tokens, room), room < max_tokens, notes)


def _written(
    run: LoadedRun,
    prompt: Prompt,
    machine: Machine,
    count: int,
    sampling: Sampling,
    min_tokens: int,
    no_repeat: int,
) -> Iterator[Written]:
    words, end = run.tokenizer, run.tokenizer.id_of("end")
    characters = [WholeCharacters(words, prompt.ids) for _ in range(count)]
    token_counts, going_on = [0] * count, set(range(count))
    for step in decoded(run, prompt, machine, count, sampling, min_tokens, no_repeat, with_logits=False):
        for row, token in zip(step.rows, step.tokens, strict=True):
            if token == end:
                going_on.remove(row)
                yield Written(row, "", token_counts[row], "end")
            else:
                token_counts[row] += 1
                yield Written(row, characters[row].add(token), token_counts[row], None)
    for row in sorted(going_on):
        yield Written(row, "", token_counts[row], "context" if prompt.is_short_of_room else "max-tokens")


def decoded(
    run: LoadedRun,
    prompt: Prompt,
    machine: Machine,
    count: int,
    sampling: Sampling,
    min_tokens: int,
    no_repeat: int,
    with_logits: bool = True,
) -> Iterator[Step]:
    """The steps of so many continuations of a prompt, until all have ended or there are enough tokens."""
    words, end = run.tokenizer, run.tokenizer.id_of("end")
    return decode(
        _OnMachine(run.model, machine), [prompt.ids] * count, max_tokens=prompt.max_tokens, stop=[end],
        never=sorted(words.special_ids - {end}), sampling=sampling, min_tokens=min_tokens, no_repeat=no_repeat,
        with_logits=with_logits,
    )  # fmt: skip


class WholeCharacters:
    """Text from tokens as they come: a token may hold half a character, which waits for its other half."""

    def __init__(self, tokenizer: Tokenizer, before: list[int]) -> None:
        """`before` are the tokens that stand before the first one."""
        self._tokenizer, self._ids = tokenizer, before[-_CONTEXT_TOKENS:]
        self._known = tokenizer.decode(self._ids)

    def add(self, token: int) -> str:
        """The characters that this token completes; half of one that never gets its other half is left out."""
        self._ids = [*self._ids, token]
        text = self._tokenizer.decode(self._ids)
        if text.endswith(HALF_A_CHARACTER):
            return ""
        new = text[len(self._known) :]
        self._ids = self._ids[-_CONTEXT_TOKENS:]
        self._known = self._tokenizer.decode(self._ids)
        return new


class _OnMachine:
    """The model where it computes, its logits where tokens are chosen: on the CPU, the same on every device."""

    def __init__(self, model: Model, machine: Machine) -> None:
        self._machine, self._reader = machine, CachedReader(model.to(machine.device).eval())
        self._is_cpu = machine.device.type == "cpu"

    def read(self, tokens: Tensor, present: Tensor | None = None) -> Tensor:
        with self._machine.autocast_steps():
            return self._back(
                self._reader.read(self._there(tokens), None if present is None else self._there(present))
            )

    def likeliest(self, tokens: Tensor, present: Tensor | None, never: Tensor) -> Tensor:
        if self._is_cpu:
            return self._reader.likeliest(tokens, present, never)
        return likeliest(self.read(tokens, present).index_fill_(1, never, NEVER))

    def branch(self, tokens: Tensor, parents: Tensor) -> Tensor:
        with self._machine.autocast_steps():
            return self._back(self._reader.branch(self._there(tokens), self._there(parents)))

    def select(self, rows: Tensor) -> None:
        self._reader.select(self._there(rows))

    def _there(self, tensor: Tensor) -> Tensor:
        return tensor.to(self._machine.device)

    @staticmethod
    def _back(logits: Tensor) -> Tensor:
        return logits.float().to("cpu")
