"""Texts in, an answer for each out, in their order: what a head predicts, or the vectors of the base.

Texts are taken a window at a time, sorted by length inside it to save padding, and put back in order; so a file
may be larger than memory. A text that is longer than the run's length is cut, and an empty one is its frame alone.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from headstart.errors import UserError
from headstart.model.heads import pool
from headstart.model.presets import HeadConfig
from headstart.objectives.classification import Classification
from headstart.text.files import STRICT_UTF8, Reading, form_of
from headstart.text.frames import Framed, frame_of
from headstart.text.rows import BadRows, Columns, Row, lines, refuse_long, texts_in
from headstart.text.tables import rows, spelled
from headstart.training.batches import to_device
from headstart.training.finetune import outputs_of
from headstart.training.loading import LoadedRun
from headstart.training.machine import Machine
from headstart.training.using import require
from headstart.training.windows import windows

BATCH_TOKENS = 8_192

Text = str | tuple[str, str]
Pool = Literal["first", "mean", "last", "tokens"]


class Prediction(NamedTuple):
    """What a fine-tuned run says about a text."""

    answer: dict[str, Any]
    """`label` and `probabilities`; for several labels `labels` and `probabilities`; for a number `value`."""

    is_cut: bool


class Embedding(NamedTuple):
    """What the base makes of a text: one vector (width,), or one for each token (tokens, width)."""

    vectors: np.ndarray
    tokens: np.ndarray
    is_cut: bool


def predict(run: LoadedRun, texts: Iterable[Text], machine: Machine) -> Iterator[Prediction]:
    """The prediction for each text (or pair of texts), in their order."""
    for outputs, is_cut in outputs_for(run, texts, machine):
        yield Prediction(answer(run, outputs), is_cut)


def outputs_for(run: LoadedRun, texts: Iterable[Text], machine: Machine) -> Iterator[tuple[np.ndarray, bool]]:
    """For each text the probabilities of the run's labels (or a value), and whether the text was cut."""
    require(run.config.objective, "predict", str(run.path))
    for window in windows(of_one_kind(run, texts)):
        examples = framed(run, window)
        objective = batched(run, examples, run.config.head)
        for outputs, example in zip(outputs_of(run.model, objective, machine), examples, strict=True):
            yield outputs, example.is_truncated


def of_one_kind(run: LoadedRun, texts: Iterable[Text]) -> Iterator[Text]:
    """The texts; a pair for a run that has learned from single ones, or the reverse, is refused."""
    for number, text in enumerate(texts, 1):
        if isinstance(text, tuple) != run.config.pairs:
            what = f"pairs of texts, and text {number:,} is a single one"
            fix = "give a table with text_a and text_b"
            if not run.config.pairs:
                what, fix = f"single texts, and text {number:,} is a pair", "give one text a line or row"
            raise UserError(f"was trained on {what}", where=str(run.path), fix=fix)
        yield text


def answer(run: LoadedRun, outputs: np.ndarray) -> dict[str, Any]:
    """Probabilities, or a value, with the names that the run knows them by."""
    numbers = plain(outputs)
    if run.config.objective == "regression":
        return {"value": numbers[0]}
    named = dict(zip(run.config.labels, numbers, strict=True))
    if run.config.objective == "multilabel":
        return {"labels": [label for label, p in named.items() if p > 0.5], "probabilities": named}
    return {"label": run.config.labels[int(outputs.argmax())], "probabilities": named}


@torch.inference_mode()
def embed(run: LoadedRun, texts: Iterable[Text], machine: Machine, pool_by: Pool) -> Iterator[Embedding]:
    """The vectors of each text, in their order: of its first token, its last, their mean, or of every token.

    The tokens are those that the model reads, with the special ones around the text.
    """
    require(run.config.objective, "embed", str(run.path))
    model = run.model.to(machine.device).eval()
    for window in windows(texts):
        examples = framed(run, window)
        found: list[np.ndarray] = [np.zeros(0)] * len(examples)
        for batch in batched(run, examples, HeadConfig()).evaluation():
            tensors = to_device(batch, machine.device)
            segments = tensors["segments"] if run.config.model.segments else None
            with machine.autocast():
                hidden = model.base(tensors["tokens"], present=tensors["present"], segments=segments)
            hidden = hidden.float()
            vectors = hidden if pool_by == "tokens" else pool(hidden, tensors["present"], pool_by)
            for row, vector in zip(batch["rows"].tolist(), vectors.cpu().numpy(), strict=True):
                found[row] = vector[: len(examples[row].tokens)] if pool_by == "tokens" else vector
        for vector, example in zip(found, examples, strict=True):
            yield Embedding(vector, example.tokens, example.is_truncated)


def plain(numbers: np.ndarray) -> list[float]:
    """Single-precision numbers as the shortest decimals that give them back."""
    return [float(str(number)) for number in numbers.astype(np.float32)]


# ---- batches ------------------------------------------------------------------------------------------------


def framed(run: LoadedRun, texts: Sequence[Text]) -> list[Framed]:
    """The texts as the model reads them."""
    frame = frame_of(run.tokenizer, run.config.frame)
    firsts = run.tokenizer.encode_many([text if isinstance(text, str) else text[0] for text in texts])
    seconds = run.tokenizer.encode_many(["" if isinstance(text, str) else text[1] for text in texts])
    return [
        frame.one(a, run.config.length) if isinstance(text, str) else frame.pair(a, b, run.config.length)
        for text, a, b in zip(texts, firsts, seconds, strict=True)
    ]


def batched(run: LoadedRun, examples: Sequence[Framed], head: HeadConfig) -> Classification:
    """The examples in batches of like length; there is nothing to aim at."""
    padding = run.tokenizer.roles["pad"] or 0  # never looked at, so any token does where there is none
    batch = max(1, BATCH_TOKENS // run.config.length)
    return Classification(examples, np.zeros(len(examples), np.float32), head, batch, padding)


# ---- files --------------------------------------------------------------------------------------------------


class _NoBadRows(BadRows):
    """Nothing may be skipped: the answers stand in the order of the rows."""

    def refuse(self, reason: str, what: str, where: str, fix: str) -> None:
        raise UserError(what, where=where, fix=fix)


def texts_in_file(
    path: str | Path, *, text_column: str = "text", reading: Reading = STRICT_UTF8
) -> Iterator[Text]:
    """The texts of a file (`-`: standard input): a line each, blank ones too, or the text column of each row.

    Where a table has `text_a` and `text_b` and no `text`, its rows are pairs.
    """
    strict = _NoBadRows()
    form = form_of(path)
    if form in ("text", "spm"):
        for number, line in enumerate(lines(path, reading), 1):
            if line is None:
                refuse_long(f"{path}:{number}", strict)
            else:
                yield spelled(line) if form == "spm" else line
        return
    for row in rows(path, Columns(text_column), reading, strict):
        yield _text_of(row, strict)


def _text_of(row: Row, strict: BadRows) -> Text:
    filled = {role: value for role, value in row.values.items() if not _is_blank(value)}
    texts_in(row._replace(values=filled), strict)  # whatever is no text is refused there
    first: str = row.values["text"]
    return (first, row.values["text_b"]) if "text_b" in row.values else first


def _is_blank(value: object) -> bool:
    return isinstance(value, str) and not value.strip()
