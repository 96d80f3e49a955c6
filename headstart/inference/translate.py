"""Translate texts with an encoder-decoder run, in their order.

A window of texts at a time is sorted by length, to save padding, and put back in order; so a file may be larger than
memory. A blank text has a blank translation. A text that is longer than the run's length is cut. What the source's
tokenizer has no piece for becomes its unknown token; the unknown token is never written.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from headstart.config.generation import BEAM_OF_FIVE, GenerationConfig
from headstart.config.reading import Reading
from headstart.config.run import FrameName
from headstart.data.readers.sources import form_of
from headstart.errors import UserError
from headstart.inference.decoding.beam import Hypothesis, beam_search, normalised
from headstart.inference.decoding.readers import TranslationReader
from headstart.inference.decoding.search import DecodingLimits, DecodingStep, decode
from headstart.inference.predict import BATCH_TOKENS, texts_in_file, windows
from headstart.machine import Machine
from headstart.model.blocks import new_record
from headstart.model.model import Model
from headstart.runs.load import LoadedRun, require
from headstart.tokenizers.templates import Framed, Template, pad, target_template_of, template_of
from headstart.tokenizers.tokenizer import Vocabularies

# Source tokens of a batch; each source has several hypotheses in the decoder.
SOURCE_BATCH_TOKENS = {device: tokens // 2 for device, tokens in BATCH_TOKENS.items()}


class Candidate(NamedTuple):
    """One translation of a text."""

    text: str
    score: float
    ids: list[int]  # the prefix and the tokens after it, without the end


NOTHING = Candidate("", 0.0, [])


class Translated(NamedTuple):
    """The translations of a text, best first."""

    candidates: list[Candidate]
    source_ids: list[int]  # as the model read them, special ones included; empty for a blank text
    is_cut: bool
    has_unknown: bool


class AlignedPair(NamedTuple):
    """A target token, the source token with its largest attention weight, and that weight."""

    source: int
    target: int
    weight: float


@dataclass(frozen=True)
class Translator:
    """A model with its vocabularies and settings."""

    model: Model
    vocabularies: Vocabularies
    frame: FrameName
    length: int
    machine: Machine
    prefix: str = ""  # how every translation begins; it does not count for the score

    @classmethod
    def of(cls, run: LoadedRun, machine: Machine) -> "Translator":
        """The translator of a run."""
        require(run.config.objective, "translate", str(run.path))
        return cls(run.model, run.vocabularies, run.config.frame, run.config.length, machine)

    @property
    def frames(self) -> tuple[Template, Template]:
        """The frames of sources and of targets."""
        source, target = self.vocabularies.source, self.vocabularies.target
        return template_of(source, self.frame), target_template_of(target, self.frame)

    def translate(self, texts: Iterable[str | None], config: GenerationConfig) -> Iterator[Translated]:
        """The translations of each text, in order; at a None those of all texts before it are yielded at once."""
        if config.count > (config.beam or 1):
            what = f"{config.count} translations of each text"
            raise UserError(what, fix="give a beam of at least as many", code="conflict")
        self.model.to(self.machine.device).eval()
        number = 0
        for window in windows(texts):
            yield from self._window(window, number, config)
            number += len(window)

    def alignment(
        self, source_ids: Sequence[int], target_ids: Sequence[int], layer: int | None = None
    ) -> list[AlignedPair]:
        """The source token that each target token attends to most, by the cross-attention of a layer."""
        is_text = [i not in self.vocabularies.source.special_ids for i in source_ids]
        return aligned(cross_attention(self, source_ids, target_ids, layer), is_text)

    def _window(self, texts: Sequence[str], first: int, config: GenerationConfig) -> list[Translated]:
        frame, unknown = self.frames[0], self.vocabularies.source.roles["unknown"]
        translations = [Translated([NOTHING], [], False, False)] * len(texts)
        examples: dict[int, Framed] = {
            row: frame.one(ids, self.length)
            for row, ids in enumerate(self.vocabularies.source.encode_many(texts))
            if texts[row].strip()
        }
        for rows in self._batches(examples):
            sources = [examples[row].tokens for row in rows]
            numbers = [first + row for row in rows]
            for row, hypotheses in zip(rows, self._search(sources, numbers, config), strict=True):
                # Weights that are not finite give no hypothesis at all.
                candidates = [self._candidate(one) for one in hypotheses] or [NOTHING]
                ids = examples[row].tokens.tolist()
                translations[row] = Translated(candidates, ids, examples[row].is_truncated, unknown in ids)
        return translations

    def _batches(self, examples: dict[int, Framed]) -> Iterator[list[int]]:
        """Rows of like length, the longest first: what does not fit into memory fails at once."""
        budget = SOURCE_BATCH_TOKENS[self.machine.device.type]
        rows = sorted(examples, key=lambda row: -len(examples[row].tokens))
        while rows:
            count = max(1, budget // len(examples[rows[0]].tokens))
            yield rows[:count]
            rows = rows[count:]

    def _search(
        self, sources: Sequence[np.ndarray], numbers: Sequence[int], config: GenerationConfig
    ) -> list[list[Hypothesis]]:
        """The hypotheses for a batch; samples depend on `numbers`, the numbers of the texts."""
        device, tokenizer, target = self.machine.device, self.vocabularies.target, self.frames[1]
        assert target.first is not None
        assert target.last is not None
        prompt = [target.first, *map(int, tokenizer.encode(self.prefix))]
        room = self.length - len(prompt)
        if room < 1:
            fix = "give a shorter one"
            raise UserError(f"a prefix of {len(prompt) - 1} tokens leaves no room", fix=fix, code="too-large")
        most = [config.most_tokens(len(source)) for source in sources]
        never = sorted(tokenizer.special_ids - {target.last})
        limits = DecodingLimits(end=target.last, max_tokens=[min(one, room) for one in most], never=never)
        tokens, present = pad(sources, self.vocabularies.source.roles["pad"] or 0)
        with self.machine.autocast_steps(), torch.inference_mode():
            seen = None if present.all() else torch.from_numpy(present).to(device)
            reader = TranslationReader(self.model, torch.from_numpy(tokens).to(device), seen)
            prompts = [prompt] * len(sources)
            if config.temperature:
                steps = decode(reader, prompts, limits, config, numbers=numbers, device=device)
                return _sampled(steps, limits, config.length_penalty)
            return beam_search(reader, prompts, limits, config, device)

    def _candidate(self, hypothesis: Hypothesis) -> Candidate:
        ids = [*map(int, self.vocabularies.target.encode(self.prefix)), *hypothesis.tokens]
        text = " ".join(self.vocabularies.target.decode(ids).splitlines())  # a line stays a line
        return Candidate(text, hypothesis.score, ids)


def translate(
    run: LoadedRun, texts: Iterable[str], machine: Machine, config: GenerationConfig = BEAM_OF_FIVE
) -> Iterator[Translated]:
    """The translations of each text by a run, in their order."""
    return Translator.of(run, machine).translate(texts, config)


def texts_of(translations: Iterable[Translated]) -> list[str]:
    """The best translation of each text."""
    return [one.candidates[0].text for one in translations]


def _sampled(steps: Iterable[DecodingStep], limits: DecodingLimits, penalty: float) -> list[list[Hypothesis]]:
    """One sampled translation for each text, with its log-probability under the model."""
    tokens, logs = [list[int]() for _ in limits.max_tokens], [list[float]() for _ in limits.max_tokens]
    for step in steps:
        assert step.logits is not None
        chosen = torch.tensor(step.tokens, device=step.logits.device)[:, None]
        each = step.logits.log_softmax(dim=-1).gather(-1, chosen)[:, 0].tolist()
        for row, token, log in zip(step.rows, step.tokens, each, strict=True):
            if len(tokens[row]) < limits.max_tokens[row]:  # others in the batch may be allowed more
                tokens[row].append(token)
                logs[row].append(log)
    hypotheses = []
    for ids, each in zip(tokens, logs, strict=True):
        has_ended, total = ids[-1:] == [limits.end], sum(each)
        score = float(normalised(torch.tensor(total, dtype=torch.float64), max(1, len(each)), penalty))
        hypotheses.append([Hypothesis(ids[:-1] if has_ended else ids, score, total, has_ended)])
    return hypotheses


@torch.inference_mode()
def cross_attention(
    translator: Translator, source_ids: Sequence[int], target_ids: Sequence[int], layer: int | None = None
) -> np.ndarray:
    """How much each target token attends to each source token: (target tokens, source tokens).

    The mean over the heads of one decoder layer, counted from 1, at the position that predicts the token. The
    default is the last but one, which aligns words best (Garg et al., 2019).
    """
    model, depth = translator.model, translator.model.config.decoder_depth
    layer = max(1, depth - 1) if layer is None else layer
    if not 1 <= layer <= depth:
        raise UserError(f"layer {layer} of the decoder", fix=f"give 1 to {depth}")
    record = new_record()
    device = translator.machine.device
    source = torch.tensor([list(source_ids)], device=device)
    target = torch.tensor([[translator.frames[1].first, *target_ids[:-1]]], device=device)
    with translator.machine.autocast():
        memory = model.base.encode(source)  # type: ignore[operator]
        model.base.decode(target, memory, record=record)  # type: ignore[operator]
    return record["cross"][layer - 1][0].mean(dim=0).float().cpu().numpy()


def aligned(weights: np.ndarray, is_text: Sequence[bool]) -> list[AlignedPair]:
    """For each target token the source token with the largest weight, special ones aside."""
    candidates = np.flatnonzero(is_text) if any(is_text) else np.arange(len(is_text))
    best = candidates[weights[:, candidates].argmax(axis=1)].tolist()
    return [AlignedPair(source, row, float(weights[row, source])) for row, source in enumerate(best)]


def lines_of(path: str | Path, reading: Reading) -> Iterator[str | None]:
    """The lines of a text file; standard input's as they arrive, with a None where the next is not there."""
    if form_of(path) not in ("text", "spm"):
        fix = "give a text a line"
        raise UserError("is a table: only lines are translated", where=path, fix=fix, code="bad-format")
    return (text for text in texts_in_file(path, reading) if not isinstance(text, tuple))
