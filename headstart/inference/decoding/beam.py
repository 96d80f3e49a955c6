"""Beam search: the most probable continuations, for many texts at once.

At every step each text has a few hypotheses; of all their continuations the most probable stay. A continuation that
ends among the best is finished. A text with as many finished hypotheses as beams, or whose open hypotheses cannot
score better, leaves the batch. The score is the log-probability over the length to the power of the penalty.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from headstart.cancellation import stop_if_cancelled
from headstart.config.generation import GenerationConfig
from headstart.inference.decoding.sampling import NEVER, forbid_repeats, group_peaks
from headstart.inference.decoding.search import (
    DecodingLimits,
    Reader,
    as_history,
    in_fp32,
    pad_left,
    read_all_but_last,
)

# Leaving the batch copies what stays of the cache, so finished texts wait until this share can leave together.
LEAVING_SHARE = 0.125

# The maximum of each chunk of tokens comes first, when the best continuations are looked for.
CHUNK = 64


class Hypothesis(NamedTuple):
    """A text that the search found."""

    tokens: list[int]  # without the prompt and the end
    score: float  # the log-probability over the length to the power of the penalty; the length counts the end
    log_probability: float
    has_ended: bool  # whether the model ended it; otherwise it broke off at the most tokens


def normalised(log_probability: Tensor, length: Tensor | int, penalty: float) -> Tensor:
    """The scores of texts of this many tokens."""
    return log_probability / torch.as_tensor(length, dtype=log_probability.dtype) ** penalty


@torch.inference_mode()
def beam_search(
    reader: Reader, prompts: Sequence[Sequence[int]], limits: DecodingLimits, config: GenerationConfig,
    device: torch.device | str = "cpu",
) -> list[list[Hypothesis]]:  # fmt: skip
    """The best `config.count` continuations of every prompt, best first, scored by the model's log-probabilities."""
    results: list[list[Hypothesis]] = [[] for _ in prompts]
    if not prompts:
        return results
    tokens, present = pad_left(prompts, device)
    history = as_history(tokens, present)
    logits = in_fp32(reader.read(*read_all_but_last(reader, tokens, present)))[:, None]  # (rows, beams, vocab)
    state = _begin(limits, config, logits, history)
    for step in range(state.tokens.shape[-1]):
        stop_if_cancelled()
        candidates = state.candidates(logits, step)
        state.finish(candidates, step)
        parents, tokens = state.advance(candidates, step)
        state.mark_done(step)
        if (leaving := int(state.is_done.sum())) == len(state.rows):
            break
        if leaving >= LEAVING_SHARE * len(state.rows):
            state.collect(state.is_done, results)
            staying = (~state.is_done).nonzero()[:, 0]
            reader.select(staying)
            state.select(staying)
            parents, tokens = parents[staying], tokens[staying]
        logits = in_fp32(reader.branch(tokens, parents))
    state.collect(torch.ones_like(state.is_done), results)
    return results


class _Candidates(NamedTuple):
    """The most probable continuations of each row, best first, (rows, candidates): twice as many as beams.

    Each beam can end in only one of them, so at least as many as there are beams continue.
    """

    sums: Tensor
    beams: Tensor
    tokens: Tensor


class _Finished(NamedTuple):
    """The best finished hypotheses of each row, best first, (rows, beams)."""

    scores: Tensor  # NEVER where there is none yet
    sums: Tensor
    lengths: Tensor  # tokens, the end not counted
    has_ended: Tensor
    tokens: Tensor  # (rows, beams, longest)


@dataclass
class _State:
    """The texts that are still being written, a row each; `longest` is the most tokens of any of them."""

    limits: DecodingLimits
    config: GenerationConfig
    width: int
    rows: Tensor  # (rows,): the number of each text
    prompts: Tensor  # (rows, longest prompt): NO_TOKEN where it is padded
    most: Tensor  # (rows,): the most tokens of each
    sums: Tensor  # (rows, beams): log-probabilities so far
    tokens: Tensor  # (rows, beams, longest)
    finished: _Finished
    finished_count: Tensor  # (rows,): also those that better ones have replaced
    is_done: Tensor  # (rows,): waits for others to leave with; nothing is added any more

    def select(self, rows: Tensor) -> None:
        """Continue with these rows only."""
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(self, name, value[rows])
        self.finished = _Finished(*(part[rows] for part in self.finished))

    def candidates(self, logits: Tensor, step: int) -> _Candidates:
        """The best continuations of the beams."""
        limits, config, end = self.limits, self.config, self.limits.end
        logs = logits.log_softmax(dim=-1)  # over all: what is forbidden does not make the rest likelier
        logs[..., list(limits.never)] = NEVER
        if config.no_repeat:
            before = self.prompts[:, None].expand(-1, logs.shape[1], -1)
            history = torch.cat([before, self.tokens[..., :step]], dim=-1)
            logs = forbid_repeats(logs, history, config.no_repeat, end)
        at_limit = (self.most == step)[:, None]
        ends = logs[..., end].clone()
        if step < config.min_tokens:  # no text ends here, unless no other token is possible
            logs[..., end] = NEVER
            logs[..., end] = ends.masked_fill(logs.amax(dim=-1) > NEVER, NEVER)
        if at_limit.any():
            logs.masked_fill_(at_limit[..., None], NEVER)
            cost = ends if limits.must_end else torch.zeros_like(ends)
            logs[..., end] = torch.where(at_limit, cost, logs[..., end])
        return _Candidates(*best_continuations(logs, self.sums, 2 * self.width))

    def finish(self, candidates: _Candidates, step: int) -> None:
        """Keep the best of the finished hypotheses and of the candidates that end."""
        sums, beams, tokens = (part[:, : self.width] for part in candidates)
        ends = (tokens == self.limits.end) & (sums > NEVER) & ~self.is_done[:, None]
        if not ends.any():
            return
        breaks_off = (self.most == step) & (not self.limits.must_end)
        lengths = torch.where(breaks_off, max(step, 1), step + 1)[:, None]
        scores = normalised(sums, lengths, self.config.length_penalty).masked_fill(~ends, NEVER)
        has_ended = ~breaks_off[:, None].expand_as(ends)
        new = (scores, sums, torch.full_like(tokens, step), has_ended, _beams_of(self.tokens, beams))
        both = [torch.cat(pair, dim=1) for pair in zip(self.finished, new, strict=True)]
        best = both[0].topk(self.width, dim=1).indices
        self.finished = _Finished._make([*(part.gather(1, best) for part in both[:-1]), _beams_of(both[-1], best)])
        self.finished_count = self.finished_count + ends.sum(dim=1)

    def advance(self, candidates: _Candidates, step: int) -> tuple[Tensor, Tensor]:
        """The beams of the next step are the best candidates that do not end: their parents and tokens."""
        open_sums = candidates.sums.masked_fill(candidates.tokens == self.limits.end, NEVER)
        self.sums, order = open_sums.topk(min(self.width, open_sums.shape[1]), dim=-1)
        parents, tokens = candidates.beams.gather(1, order), candidates.tokens.gather(1, order)
        self.tokens = _beams_of(self.tokens, parents)
        self.tokens[..., step] = tokens
        return parents, tokens

    def mark_done(self, step: int) -> None:
        """Rows with enough finished hypotheses, or whose beams cannot score better than what is returned."""
        # A log-probability only falls, so the best score of a beam is its sum at the most favourable length.
        penalty = self.config.length_penalty
        shortest = step + 1 + self.limits.must_end  # a text that breaks off does not count an end
        favourable = self.most + 1 if penalty >= 0 else torch.full_like(self.most, shortest)
        attainable = normalised(self.sums[:, 0], favourable, penalty)
        worst = self.finished.scores[:, self.config.count - 1]
        self.is_done = self.is_done | (self.finished_count >= self.width) | (attainable <= worst)

    def collect(self, done: Tensor, results: list[list[Hypothesis]]) -> None:
        """Put the hypotheses of the rows that are done into the results."""
        columns = [part[done][:, : self.config.count].tolist() for part in self.finished]
        for row, *hypotheses in zip(self.rows[done].tolist(), *columns, strict=True):
            results[row] = [
                Hypothesis(tokens[:length], score, log_probability, has_ended)
                for score, log_probability, length, has_ended, tokens in zip(*hypotheses, strict=True)
                if score > NEVER
            ]


def _beams_of(tokens: Tensor, beams: Tensor) -> Tensor:
    """Of tokens (rows, beams, length), those of the chosen beams (rows, chosen)."""
    return tokens.gather(1, beams[..., None].expand(-1, -1, tokens.shape[-1]))


def _begin(limits: DecodingLimits, config: GenerationConfig, logits: Tensor, prompts: Tensor) -> _State:
    rows, device, dtype, width = len(logits), logits.device, logits.dtype, config.beam or 1
    longest = max(limits.max_tokens) + 1  # the end counts too
    empty = torch.full((rows, width), NEVER, device=device, dtype=dtype)
    none = torch.zeros(rows, width, dtype=torch.long, device=device)
    return _State(
        limits, config, width, rows=torch.arange(rows, device=device), prompts=prompts,
        most=torch.tensor(list(limits.max_tokens), device=device),
        sums=torch.zeros(rows, 1, device=device, dtype=dtype), tokens=none.new_zeros(rows, 1, longest),
        finished=_Finished(empty, empty, none, none.bool(), none.new_zeros(rows, width, longest)),
        finished_count=none[:, 0], is_done=none[:, 0].bool(),
    )  # fmt: skip


def best_continuations(logs: Tensor, sums: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The highest of `sums` (rows, beams) plus `logs` (rows, beams, vocab): their values, beams and tokens.

    Each of them lies in one of the chunks with the highest peaks, and peaks are quick to find: so few values are
    sorted instead of all.
    """
    beams, vocab = logs.shape[1:]
    peaks = group_peaks(logs, CHUNK)
    chunk_count = peaks.shape[-1]
    chunks = (sums[..., None] + peaks).flatten(1)
    chunks = chunks.topk(min(count, chunks.shape[1]), dim=-1).indices[..., None]
    chunk_beams = (chunks // chunk_count).expand(-1, -1, CHUNK).flatten(1)
    tokens = (chunks % chunk_count * CHUNK + torch.arange(CHUNK, device=logs.device)).flatten(1)
    values = logs.flatten(1).gather(1, chunk_beams * vocab + tokens.clamp(max=vocab - 1))
    values = (values + sums.gather(1, chunk_beams)).masked_fill(tokens >= vocab, NEVER)
    values, order = values.topk(min(count, beams * vocab), dim=-1)
    # Where too few tokens are possible, some beyond the vocabulary fill up; their value is NEVER.
    return values, chunk_beams.gather(1, order), tokens.gather(1, order).clamp(max=vocab - 1)
