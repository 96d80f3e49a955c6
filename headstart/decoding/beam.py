"""Beam search: the best few ways on, for many texts at once.

At every place each text has a few ways; of all their continuations the likeliest stay. A continuation that ends
among the best is a hypothesis; a text that has as many hypotheses as ways, or whose ways cannot come to anything
better, leaves the batch. A hypothesis is ranked by its log-probability over its length to the power of the penalty.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from headstart.decoding.limits import Limits, forbid_repeats
from headstart.decoding.sampling import NEVER
from headstart.decoding.search import Reader, as_history, pad_left, precise
from headstart.errors import UserError

# Leaving the batch copies what stays of the cache, so some wait for others to leave with them.
LEAVING_SHARE = 0.125
# Tokens of which the highest is found first, when the best continuations are looked for.
CHUNK = 64
# Beyond it the length alone would decide, and its powers leave what a number can hold.
STRONGEST_PENALTY = 10


class BranchingReader(Reader, Protocol):
    """What a model looks like to a search that goes several ways."""

    def branch(self, tokens: Tensor, parents: Tensor) -> Tensor:
        """Read a token in each way, (batch, ways), after the way `parents` names; logits (batch, ways, vocab)."""


class Hypothesis(NamedTuple):
    """A text that the search found."""

    tokens: list[int]
    """Without the prompt and the end."""

    score: float
    """The log-probability over the length to the power of the penalty; the length counts the end."""

    log_probability: float
    has_ended: bool
    """Whether the model ended it; otherwise it broke off at the most tokens."""


@dataclass(frozen=True, kw_only=True)
class Beam:
    """How wide to search, and how to rank."""

    beams: int = 5
    """Ways that a text has at every place; 1 is greedy."""

    length_penalty: float = 1.0
    """0 ranks by probability, which favours short texts; 1 by the mean over the tokens."""

    n_best: int = 1
    """Hypotheses that are given of each text, best first."""

    def __post_init__(self) -> None:
        if self.beams < 1:
            raise UserError(f"beam is {self.beams}", fix="give 1 (greedy) or more")
        if not 1 <= self.n_best <= self.beams:
            raise UserError(
                f"the {self.n_best} best of {self.beams} beams", fix="give --n-best from 1 to the beam"
            )
        if not abs(self.length_penalty) <= STRONGEST_PENALTY:
            raise UserError(
                f"length-penalty is {self.length_penalty}",
                fix=f"give a number from -{STRONGEST_PENALTY} to {STRONGEST_PENALTY}, such as 1",
            )

    def rank(self, log_probability: Tensor, length: Tensor | int) -> Tensor:
        """The score of texts of so many tokens."""
        return log_probability / torch.as_tensor(length, dtype=log_probability.dtype) ** self.length_penalty


@dataclass
class _State:
    """The texts that are still being written, a row each; `places` is the longest that any of them may become."""

    rows: Tensor  # (rows,): the number of each text
    prompts: Tensor  # (rows, longest prompt): NO_TOKEN where it is padded
    limits: Tensor  # (rows,): the most tokens of each
    sums: Tensor  # (rows, ways): log-probabilities so far
    written: Tensor  # (rows, ways, places)
    found_scores: Tensor  # (rows, beams), best first; NEVER where there is none yet
    found_sums: Tensor  # (rows, beams)
    found_lengths: Tensor  # (rows, beams): tokens, the end not counted
    found_ended: Tensor  # (rows, beams)
    found_tokens: Tensor  # (rows, beams, places)
    found_count: Tensor  # (rows,): hypotheses met, also those that better ones have pushed out
    is_done: Tensor  # (rows,): finished, and waiting for others to leave with: nothing is added any more

    def select(self, rows: Tensor) -> None:
        for name, tensor in vars(self).items():
            setattr(self, name, tensor[rows])


@torch.inference_mode()
def beam_search(
    reader: BranchingReader,
    prompts: Sequence[Sequence[int]],
    limits: Limits,
    beam: Beam,
    device: torch.device | str = "cpu",
) -> list[list[Hypothesis]]:
    """The best continuations of every prompt, best first; scores are the model's own log-probabilities."""
    found: list[list[Hypothesis]] = [[] for _ in prompts]
    if not prompts:
        return found
    tokens, present = pad_left(prompts, device)
    logits = precise(reader.read(tokens, present))[:, None]  # (rows, ways, vocab): one way at first
    state = _begin(limits, beam, logits, as_history(tokens, present))
    for place in range(state.written.shape[-1]):
        candidates = _candidates(logits, state, place, limits, beam)
        _note_endings(state, candidates, place, limits, beam)
        parents, tokens = _go_on(state, candidates, place, limits, beam)
        state.is_done = state.is_done | _is_done(state, place, limits, beam)
        if (leaving := int(state.is_done.sum())) == len(state.rows):
            break
        if leaving >= LEAVING_SHARE * len(state.rows):
            _hand_over(state, state.is_done, beam, found)
            staying = (~state.is_done).nonzero()[:, 0]
            reader.select(staying)
            state.select(staying)
            parents, tokens = parents[staying], tokens[staying]
        logits = precise(reader.branch(tokens, parents))
    _hand_over(state, torch.ones_like(state.rows, dtype=torch.bool), beam, found)
    return found


def _begin(limits: Limits, beam: Beam, logits: Tensor, prompts: Tensor) -> _State:
    rows, device, numbers = len(logits), logits.device, logits.dtype
    most = torch.tensor(list(limits.max_tokens), device=device)
    places = max(limits.max_tokens) + 1  # the end has a place too
    empty = torch.full((rows, beam.beams), NEVER, device=device, dtype=numbers)
    none = torch.zeros(rows, beam.beams, dtype=torch.long, device=device)
    return _State(
        rows=torch.arange(rows, device=device), prompts=prompts, limits=most,
        sums=torch.zeros(rows, 1, device=device, dtype=numbers), written=none.new_zeros(rows, 1, places),
        found_scores=empty, found_sums=empty, found_lengths=none, found_ended=none.bool(),
        found_tokens=none.new_zeros(rows, beam.beams, places), found_count=none[:, 0],
        is_done=none[:, 0].bool(),
    )  # fmt: skip


class _Candidates(NamedTuple):
    """The likeliest continuations of each row, best first, (rows, candidates): twice as many as beams.

    A way can end in one of them alone, so at least as many as there are beams go on.
    """

    sums: Tensor
    ways: Tensor
    tokens: Tensor


def _candidates(logits: Tensor, state: _State, place: int, limits: Limits, beam: Beam) -> _Candidates:
    logs = logits.log_softmax(dim=-1)  # over all tokens: what is forbidden does not make the rest likelier
    logs[..., list(limits.never)] = NEVER
    if limits.no_repeat:
        before = state.prompts[:, None].expand(-1, logs.shape[1], -1)
        written = torch.cat([before, state.written[..., :place]], dim=-1)
        logs = forbid_repeats(logs, written, limits.no_repeat, [limits.end])
    at_limit = (state.limits == place)[:, None]
    ends = logs[..., limits.end].clone()
    if place < limits.min_tokens:  # no text ends here, unless nothing else can come
        logs[..., limits.end] = NEVER
        logs[..., limits.end] = ends.masked_fill(logs.amax(dim=-1) > NEVER, NEVER)
    if at_limit.any():
        logs.masked_fill_(at_limit[..., None], NEVER)
        cost = ends if limits.must_end else torch.zeros_like(ends)
        logs[..., limits.end] = torch.where(at_limit, cost, logs[..., limits.end])
    return _Candidates(*best_continuations(logs, state.sums, 2 * beam.beams))


def best_continuations(logs: Tensor, sums: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The highest of `sums` (rows, ways) plus `logs` (rows, ways, vocab): their values, ways and tokens.

    What is among the highest stands in one of the chunks with the highest peaks, and peaks are quick to find: so
    few are compared one by one, instead of sorting all.
    """
    ways, vocab = logs.shape[1:]
    edge = vocab // CHUNK * CHUNK
    peaks = logs[..., :edge].unflatten(-1, (-1, CHUNK)).amax(dim=-1)
    if edge < vocab:
        peaks = torch.cat([peaks, logs[..., edge:].amax(dim=-1, keepdim=True)], dim=-1)
    chunk_count = peaks.shape[-1]
    chunks = (sums[..., None] + peaks).flatten(1)
    chunks = chunks.topk(min(count, chunks.shape[1]), dim=-1).indices[..., None]
    chunk_ways = (chunks // chunk_count).expand(-1, -1, CHUNK).flatten(1)
    tokens = (chunks % chunk_count * CHUNK + torch.arange(CHUNK, device=logs.device)).flatten(1)
    values = logs.flatten(1).gather(1, chunk_ways * vocab + tokens.clamp(max=vocab - 1))
    values = (values + sums.gather(1, chunk_ways)).masked_fill(tokens >= vocab, NEVER)
    values, order = values.topk(min(count, ways * vocab), dim=-1)
    # Where too little is possible, what is beyond the vocabulary fills up, and is never looked at.
    return values, chunk_ways.gather(1, order), tokens.gather(1, order).clamp(max=vocab - 1)


def _note_endings(state: _State, candidates: _Candidates, place: int, limits: Limits, beam: Beam) -> None:
    """Those among the best that end become hypotheses, of which the best are kept."""
    sums, ways, tokens = (part[:, : beam.beams] for part in candidates)
    ends = (tokens == limits.end) & (sums > NEVER) & ~state.is_done[:, None]
    if not ends.any():
        return
    breaks_off = (state.limits == place) & (not limits.must_end)
    lengths = torch.where(breaks_off, max(place, 1), place + 1)[:, None]
    scores = beam.rank(sums, lengths).masked_fill(~ends, NEVER)
    chosen = ways[..., None].expand(-1, -1, state.written.shape[-1])
    scores, best = torch.cat([state.found_scores, scores], dim=1).topk(beam.beams, dim=1)

    def kept(old: Tensor, new: Tensor) -> Tensor:
        both = torch.cat([old, new], dim=1)
        index = best if both.dim() == 2 else best[..., None].expand(-1, -1, both.shape[-1])
        return both.gather(1, index)

    state.found_scores = scores
    state.found_sums = kept(state.found_sums, sums)
    state.found_lengths = kept(state.found_lengths, torch.full_like(tokens, place))
    state.found_ended = kept(state.found_ended, ~breaks_off[:, None].expand_as(ends))
    state.found_tokens = kept(state.found_tokens, state.written.gather(1, chosen))
    state.found_count = state.found_count + ends.sum(dim=1)


def _go_on(
    state: _State, candidates: _Candidates, place: int, limits: Limits, beam: Beam
) -> tuple[Tensor, Tensor]:
    """The ways of the next place: the best candidates that do not end; their parents and their tokens."""
    open_sums = candidates.sums.masked_fill(candidates.tokens == limits.end, NEVER)
    state.sums, order = open_sums.topk(min(beam.beams, open_sums.shape[1]), dim=-1)
    parents, tokens = candidates.ways.gather(1, order), candidates.tokens.gather(1, order)
    chosen = parents[..., None].expand(-1, -1, state.written.shape[-1])
    state.written = state.written.gather(1, chosen)
    state.written[..., place] = tokens
    return parents, tokens


def _is_done(state: _State, place: int, limits: Limits, beam: Beam) -> Tensor:
    """Enough hypotheses, or no way that could still become better than those that will be given, (rows,)."""
    # A log-probability only falls, so the best that a way can become is its sum at the kindest length.
    shortest = place + 1 + limits.must_end  # what breaks off has no end that counts
    kindest = state.limits + 1 if beam.length_penalty >= 0 else torch.full_like(state.limits, shortest)
    attainable = beam.rank(state.sums[:, 0], kindest)
    worst = state.found_scores[:, beam.n_best - 1]
    return (state.found_count >= beam.beams) | (attainable <= worst)


def _hand_over(state: _State, done: Tensor, beam: Beam, found: list[list[Hypothesis]]) -> None:
    """The hypotheses of the rows that are done, to where they belong."""
    columns = [
        tensor[done][:, : beam.n_best].tolist()
        for tensor in (
            state.found_tokens, state.found_lengths, state.found_scores, state.found_sums, state.found_ended
        )
    ]  # fmt: skip
    for row, *hypotheses in zip(state.rows[done].tolist(), *columns, strict=True):
        found[row] = [
            Hypothesis(tokens[:length], score, log_probability, has_ended)
            for tokens, length, score, log_probability, has_ended in zip(*hypotheses, strict=True)
            if score > NEVER
        ]
