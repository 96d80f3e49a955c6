"""Texts in, translations out, in their order.

Texts are taken a window at a time, sorted by length inside it to save padding, and put back in order; so a file may
be larger than memory. A blank text has a blank translation. A text that is longer than the run reads is cut. What
the source's tokenizer has no piece for is read as its unknown token; the unknown token is never written.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import torch

from headstart.decoding.beam import Beam, Hypothesis, beam_search
from headstart.decoding.limits import Limits, check_limits
from headstart.decoding.readers import TranslationReader
from headstart.decoding.search import Sampling, decode
from headstart.errors import UserError
from headstart.model.blocks import new_record
from headstart.model.model import Model
from headstart.text.files import Reading, form_of, is_live, is_stdin
from headstart.text.frames import Frame, Framed, FrameName, frame_of, pad, target_frame_of
from headstart.text.rows import BadRows, lines_as_they_come, refuse_long
from headstart.training.loading import LoadedRun
from headstart.training.machine import Machine
from headstart.training.predicting import texts_in_file
from headstart.training.using import require
from headstart.training.vocabularies import Vocabularies
from headstart.training.windows import windows

# Tokens of the sources of a batch; each of them has several ways in the decoder.
CPU_BATCH_TOKENS, GPU_BATCH_TOKENS = 1_024, 16_384
# The most tokens of a translation, by those of its source: twice as many and some, as in fairseq's recipes.
MOST_TIMES, MOST_MORE = 2, 16


@dataclass(frozen=True, kw_only=True)
class Search:
    """How a translation is looked for."""

    beam: Beam = field(default_factory=Beam)
    """How wide, and how hypotheses are ranked."""

    min_tokens: int = 0
    max_tokens: int | None = None
    """None: by the source's length."""

    no_repeat: int = 0
    """No stretch of so many tokens comes twice (0: any may)."""

    prefix: str = ""
    """How every translation begins; it is given, so it does not count for the score."""

    sampling: Sampling | None = None
    """Draw one translation instead of searching for the best."""

    def __post_init__(self) -> None:
        check_limits(self.min_tokens, self.max_tokens, self.no_repeat)
        if self.sampling is not None and self.beam.beams > 1:
            raise UserError(f"sampling with a beam of {self.beam.beams}", fix="give one of them")


class Candidate(NamedTuple):
    """One translation of a text."""

    text: str
    score: float
    ids: list[int]
    """The prefix and what was written after it, the end not counted."""


NOTHING = Candidate("", 0.0, [])


class Translated(NamedTuple):
    """The translations of a text, best first."""

    candidates: list[Candidate]
    source_ids: list[int]
    """As the model read them, special ones included; empty for a blank text."""

    is_cut: bool
    has_unknown: bool


class AlignedPair(NamedTuple):
    """A written token, the source token that it looked at most, and how much of its look that was."""

    source: int
    target: int
    weight: float


@dataclass(frozen=True)
class Translator:
    """A model with what it reads and writes by."""

    model: Model
    words: Vocabularies
    frame: FrameName
    length: int
    machine: Machine

    @classmethod
    def of(cls, run: LoadedRun, machine: Machine) -> "Translator":
        """A run's."""
        require(run.config.objective, "translate", str(run.path))
        return cls(run.model, run.vocabularies, run.config.frame, run.config.length, machine)

    @property
    def frames(self) -> tuple[Frame, Frame]:
        """Around a source, and around a target."""
        return frame_of(self.words.source, self.frame), target_frame_of(self.words.target, self.frame)

    def translate(self, texts: Iterable[str | None], search: Search) -> Iterator[Translated]:
        """The translations of each text, in their order; at a None all that came before it are given at once."""
        self.model.to(self.machine.device).eval()
        number = 0
        for window in windows(texts):
            yield from self._window(window, number, search)
            number += len(window)

    def alignment(
        self, source_ids: Sequence[int], target_ids: Sequence[int], layer: int | None = None
    ) -> list[AlignedPair]:
        """Which source token each written token looked at, by the cross-attention of a layer."""
        special = self.words.source.special_ids
        return aligned(
            cross_attention(self, source_ids, target_ids, layer), [i not in special for i in source_ids]
        )

    def _window(self, texts: Sequence[str], first: int, search: Search) -> list[Translated]:
        frame, unknown = self.frames[0], self.words.source.roles["unknown"]
        found = [Translated([NOTHING], [], False, False)] * len(texts)
        examples: dict[int, Framed] = {
            row: frame.one(ids, self.length)
            for row, ids in enumerate(self.words.source.encode_many(texts))
            if texts[row].strip()
        }
        for rows in self._batches(examples):
            sources = [examples[row].tokens for row in rows]
            numbers = [first + row for row in rows]
            for row, hypotheses in zip(rows, self._search(sources, numbers, search), strict=True):
                # Weights that are not finite find no hypothesis at all.
                candidates = [self._candidate(one, search) for one in hypotheses] or [NOTHING]
                ids = examples[row].tokens.tolist()
                found[row] = Translated(candidates, ids, examples[row].is_truncated, unknown in ids)
        return found

    def _batches(self, examples: dict[int, Framed]) -> Iterator[list[int]]:
        """Rows of like length, the longest first: what does not fit into memory fails at once."""
        budget = CPU_BATCH_TOKENS if self.machine.device.type == "cpu" else GPU_BATCH_TOKENS
        rows = sorted(examples, key=lambda row: -len(examples[row].tokens))
        while rows:
            count = max(1, budget // len(examples[rows[0]].tokens))
            yield rows[:count]
            rows = rows[count:]

    def _search(
        self, sources: Sequence[np.ndarray], numbers: Sequence[int], search: Search
    ) -> list[list[Hypothesis]]:
        """The hypotheses for a batch; `numbers` are those of the texts, which their luck hangs on."""
        device, words, target = self.machine.device, self.words.target, self.frames[1]
        assert target.first is not None
        assert target.last is not None
        prompt = [target.first, *map(int, words.encode(search.prefix))]
        room = self.length - len(prompt)
        if room < 1:
            raise UserError(f"a prefix of {len(prompt) - 1} tokens leaves no room", fix="give a shorter one")
        limits = Limits(
            end=target.last, min_tokens=search.min_tokens, no_repeat=search.no_repeat,
            max_tokens=[min(_most(len(source), search), room) for source in sources],
            never=sorted(words.special_ids - {target.last}),
        )  # fmt: skip
        tokens, present = pad(sources, self.words.source.roles["pad"] or 0)
        with self.machine.autocast_steps(), torch.inference_mode():
            seen = None if present.all() else torch.from_numpy(present).to(device)
            reader = TranslationReader(self.model, torch.from_numpy(tokens).to(device), seen)
            prompts = [prompt] * len(sources)
            if search.sampling is not None:
                return _sampled(reader, prompts, limits, search, numbers, device)
            return beam_search(reader, prompts, limits, search.beam, device)

    def _candidate(self, hypothesis: Hypothesis, search: Search) -> Candidate:
        ids = [*map(int, self.words.target.encode(search.prefix)), *hypothesis.tokens]
        text = " ".join(self.words.target.decode(ids).splitlines())  # a line stays a line
        return Candidate(text, hypothesis.score, ids)


def translate(
    run: LoadedRun, texts: Iterable[str], machine: Machine, search: Search | None = None
) -> Iterator[Translated]:
    """The translations of each text by a run, in their order."""
    return Translator.of(run, machine).translate(texts, search or Search())


def texts_of(found: Iterable[Translated]) -> list[str]:
    """The best translation of each text."""
    return [one.candidates[0].text for one in found]


def _most(source_length: int, search: Search) -> int:
    """The most tokens to write for a source of so many."""
    by_source = MOST_TIMES * source_length + MOST_MORE
    return max(search.min_tokens, by_source) if search.max_tokens is None else search.max_tokens


def _sampled(
    reader: TranslationReader,
    prompts: Sequence[Sequence[int]],
    limits: Limits,
    search: Search,
    numbers: Sequence[int],
    device: torch.device,
) -> list[list[Hypothesis]]:
    """One drawn translation for each text, with its log-probability under the model."""
    tokens: list[list[int]] = [[] for _ in prompts]
    logs: list[list[float]] = [[] for _ in prompts]
    steps = decode(
        reader, prompts, max_tokens=max(limits.max_tokens), stop=[limits.end], never=limits.never,
        min_tokens=limits.min_tokens, no_repeat=limits.no_repeat, sampling=search.sampling, numbers=numbers,
        device=device,
    )  # fmt: skip
    for step in steps:
        assert step.logits is not None
        chosen = torch.tensor(step.tokens, device=device)[:, None]
        each = step.logits.log_softmax(dim=-1).gather(-1, chosen)[:, 0].tolist()
        for row, token, log in zip(step.rows, step.tokens, each, strict=True):
            if len(tokens[row]) < limits.max_tokens[row]:  # others in the batch may be allowed more
                tokens[row].append(token)
                logs[row].append(log)
    found = []
    for written, each in zip(tokens, logs, strict=True):
        has_ended = written[-1:] == [limits.end]
        total = sum(each)
        score = float(search.beam.rank(torch.tensor(total, dtype=torch.float64), max(1, len(each))))
        found.append([Hypothesis(written[:-1] if has_ended else written, score, total, has_ended)])
    return found


# ---- what was looked at -------------------------------------------------------------------------------------


@torch.inference_mode()
def cross_attention(
    translator: Translator, source_ids: Sequence[int], target_ids: Sequence[int], layer: int | None = None
) -> np.ndarray:
    """How much each written token looked at each source token: (target tokens, source tokens).

    The mean over the heads of one layer of the decoder, counted from 1, at the place that wrote the token. The last
    but one is the default: it follows the words best (Garg et al., 2019).
    """
    model, depth = translator.model, translator.model.config.decoder_depth
    layer = max(1, depth - 1) if layer is None else layer
    if not 1 <= layer <= depth:
        raise UserError(f"layer {layer} of the decoder", fix=f"give 1 to {depth}")
    record = new_record()
    device = translator.machine.device
    source = torch.tensor([list(source_ids)], device=device)
    written = torch.tensor([[translator.frames[1].first, *target_ids[:-1]]], device=device)
    with translator.machine.autocast():
        memory = model.base.encode(source)  # type: ignore[operator]
        model.base.decode(written, memory, record=record)  # type: ignore[operator]
    return record["cross"][layer - 1][0].mean(dim=0).float().cpu().numpy()


def aligned(weights: np.ndarray, is_text: Sequence[bool]) -> list[AlignedPair]:
    """For each written token the source token that it looked at most, special ones aside."""
    places = np.flatnonzero(is_text) if any(is_text) else np.arange(len(is_text))
    best = places[weights[:, places].argmax(axis=1)]
    return [
        AlignedPair(int(source), target, float(weights[target, source])) for target, source in enumerate(best)
    ]


# ---- files --------------------------------------------------------------------------------------------------


def lines_of(path: str | Path, reading: Reading) -> Iterator[str | None]:
    """The lines of a file, blank ones too; only plain text has lines to translate.

    Those of standard input (`-`) come as they are written, with a None where the next is not there yet.
    """
    if form_of(path) not in ("text", "spm"):
        raise UserError("is a table: only lines are translated", where=str(path), fix="give a text a line")
    if is_stdin(path) and form_of(path) == "text" and is_live(sys.stdin.buffer):
        return _live_lines(sys.stdin.buffer, str(path), reading)
    return (text for text in texts_in_file(path, reading=reading) if isinstance(text, str))


def _live_lines(stream: BinaryIO, where: str, reading: Reading) -> Iterator[str | None]:
    number = 0
    for group in lines_as_they_come(stream, where, reading):
        for line in group:
            number += 1
            if line is None:
                refuse_long(f"{where}:{number}", BadRows())
            yield line
        yield None
