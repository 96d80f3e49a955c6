"""Texts in, an answer for each out, in their order: what a head predicts, or the vectors of the base.

Texts are taken a window at a time, sorted by length inside it to save padding, and put back in order; so a file
may be larger than memory. A text that is longer than the run's length is cut, and an empty one is its frame alone.
"""

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, TypeVar

import numpy as np
import torch

from headstart.cancellation import stop_if_cancelled
from headstart.config.model import HeadConfig
from headstart.config.reading import DEFAULT_READING, Reading
from headstart.data.readers.files import is_live, lines, lines_as_they_come
from headstart.data.readers.rows import BadRows, Columns, refuse_long, texts_in
from headstart.data.readers.sources import form_of, is_stdin
from headstart.data.readers.tables import rows, spelled
from headstart.errors import UserError
from headstart.machine import Machine
from headstart.model.heads import pool
from headstart.model.model import Model
from headstart.objectives.batches import to_device
from headstart.objectives.classification import Classification
from headstart.objectives.classification import predict as class_logits
from headstart.runs.load import LoadedRun, require
from headstart.runs.study_model import StudyModel
from headstart.tokenizers.templates import Framed, template_of

# Tokens of a batch of texts alike in length: more are no faster on a CPU, and do not fit its caches.
BATCH_TOKENS = {"cpu": 2_048, "cuda": 32_768}
MOST_BATCH_TOKENS = 8_192  # where each text counts as the longest that the run reads
OnShare = Callable[[float], None]
Text = str | tuple[str, str]
GivenText = TypeVar("GivenText", bound=str | tuple[str, str] | None)
PoolBy = Literal["first", "mean", "last", "tokens"]


class Prediction(NamedTuple):
    """What a fine-tuned run predicts for a text."""

    answer: dict[str, Any]  # `label` or `labels`, with `probabilities`; for a number `value`
    is_cut: bool


class TextEmbedding(NamedTuple):
    """What the base makes of a text: one vector (width,), or one for each token (tokens, width)."""

    vectors: np.ndarray
    tokens: np.ndarray
    is_cut: bool


def predict(run: LoadedRun | StudyModel, texts: Iterable[Text | None], machine: Machine) -> Iterator[Prediction]:
    """The prediction for each text (or pair of texts), in their order; at a None those before it come at once."""
    for outputs, is_cut in outputs_for(run, texts, machine):
        yield Prediction(answer(run, outputs), is_cut)


def outputs_for(
    run: LoadedRun | StudyModel, texts: Iterable[Text | None], machine: Machine
) -> Iterator[tuple[np.ndarray, bool]]:
    """For each text the probabilities of the run's labels (or a value), and whether the text was cut."""
    require(run.config.objective, "predict", str(run.path))
    for window in windows(of_one_kind(run, texts)):
        yield from zip(*window_outputs(run, window, machine), strict=True)


def window_outputs(
    run: LoadedRun | StudyModel, texts: Sequence[Text], machine: Machine
) -> tuple[np.ndarray, list[bool]]:
    """Probabilities, or values, for some texts (texts, classes), and which of them were cut."""
    if isinstance(run, StudyModel):
        found = [window_outputs(network, texts, machine) for network in run.networks]
        is_cut = found[0][1] if found else [False] * len(texts)  # all networks read as many tokens
        return run.mixed([outputs for outputs, _ in found], texts), is_cut
    examples = framed(run, texts)
    outputs = outputs_of(run.model, batched(run, examples, run.config.head), machine)
    return outputs, [example.is_truncated for example in examples]


@torch.inference_mode()
def outputs_of(
    model: Model, objective: Classification, machine: Machine, on_share: OnShare = lambda share: None
) -> np.ndarray:
    """Probabilities, or values, for every example, in the order of the set: (examples, classes)."""
    model.to(machine.device).eval()
    answers, done = np.zeros((len(objective.examples), objective.head.classes), np.float32), 0
    for batch in objective.evaluation():
        stop_if_cancelled()
        with machine.autocast():
            outputs = class_logits(model, to_device(batch, machine.device)).float()
        if objective.head.kind == "classification":
            outputs = outputs.softmax(dim=-1)
        elif objective.head.kind == "multilabel":
            outputs = outputs.sigmoid()
        answers[batch["rows"]] = outputs.cpu().numpy()
        done += len(batch["rows"])
        on_share(done / len(answers))
    return answers


def of_one_kind(run: LoadedRun | StudyModel, texts: Iterable[GivenText]) -> Iterator[GivenText]:
    """The texts; a pair for a run that has learned from single ones, or the reverse, is refused."""
    number = 0
    for text in texts:
        number += text is not None
        if text is not None and isinstance(text, tuple) != run.config.pairs:
            what = f"pairs of texts, and text {number:,} is a single one"
            fix = "give a table with text_a and text_b"
            if not run.config.pairs:
                what, fix = f"single texts, and text {number:,} is a pair", "give one text a line or row"
            raise UserError(f"was trained on {what}", where=run.path, fix=fix, code="mismatch")
        yield text


def predicted_rows(
    run: LoadedRun | StudyModel, rows: Iterable[tuple[Text, dict[str, Any]] | None], machine: Machine
) -> Iterator[tuple[dict[str, Any], Prediction]]:
    """Each row with what is predicted for its text, as a table has it: `label`, `p_LABEL` for each label, or `value`.

    A name that the row has already gets `predicted_` before it.
    """
    waiting = deque[dict[str, Any]]()

    def texts() -> Iterator[Text | None]:
        for row in rows:
            if row is not None:
                waiting.append(row[1])
            yield row and row[0]

    for prediction in predict(run, texts(), machine):
        columns, known = waiting.popleft(), dict(prediction.answer)
        probabilities = known.pop("probabilities", {})
        added = {**known, **{f"p_{label}": p for label, p in probabilities.items()}}
        yield {**columns, **{_free_name(name, columns): value for name, value in added.items()}}, prediction


def _free_name(name: str, columns: Mapping[str, Any]) -> str:
    while name in columns:
        name = f"predicted_{name}"
    return name


def answer(run: LoadedRun | StudyModel, outputs: np.ndarray) -> dict[str, Any]:
    """Probabilities, or a value, with the names that the run knows them by."""
    numbers = plain(outputs)
    if run.config.objective == "regression":
        return {"value": numbers[0]}
    named = dict(zip(run.config.label_names, numbers, strict=True))
    if run.config.objective == "multilabel":
        return {"labels": [label for label, p in named.items() if p > 0.5], "probabilities": named}
    return {"label": run.config.label_names[int(outputs.argmax())], "probabilities": named}


@torch.inference_mode()
def embed(run: LoadedRun, texts: Iterable[Text | None], machine: Machine, pool_by: PoolBy) -> Iterator[TextEmbedding]:
    """The vectors of each text, in order: of its first or last token, their mean, or of all tokens."""
    require(run.config.objective, "embed", str(run.path))
    model = run.model.to(machine.device).eval()
    for window in windows(texts):
        examples = framed(run, window)
        embedded: list[np.ndarray] = [np.zeros(0)] * len(examples)
        for batch in batched(run, examples, HeadConfig()).evaluation():
            tensors = to_device(batch, machine.device)
            segments = tensors["segments"] if run.config.model.segments else None
            with machine.autocast():
                hidden = model.base(tensors["tokens"], present=tensors["present"], segments=segments)
            hidden = hidden.float()
            vectors = hidden if pool_by == "tokens" else pool(hidden, tensors["present"], pool_by)
            for row, vector in zip(batch["rows"].tolist(), vectors.cpu().numpy(), strict=True):
                embedded[row] = vector[: len(examples[row].tokens)] if pool_by == "tokens" else vector
        for vector, example in zip(embedded, examples, strict=True):
            yield TextEmbedding(vector, example.tokens, example.is_truncated)


def plain(numbers: np.ndarray) -> list[float]:
    """Single-precision numbers as the shortest decimals that give them back."""
    return [float(str(number)) for number in numbers.astype(np.float32)]


def framed(run: LoadedRun, texts: Sequence[Text]) -> list[Framed]:
    """The texts as the model reads them."""
    frame = template_of(run.tokenizer, run.config.frame)
    firsts = run.tokenizer.encode_many([text if isinstance(text, str) else text[0] for text in texts])
    seconds = run.tokenizer.encode_many(["" if isinstance(text, str) else text[1] for text in texts])
    return [
        frame.one(a, run.config.length) if isinstance(text, str) else frame.pair(a, b, run.config.length)
        for text, a, b in zip(texts, firsts, seconds, strict=True)
    ]


def batched(run: LoadedRun, examples: Sequence[Framed], head: HeadConfig, batch: int | None = None) -> Classification:
    """The examples in batches of like length; there is nothing to aim at."""
    padding = run.tokenizer.roles["pad"] or 0  # never looked at, so any token does where there is none
    batch = batch or max(1, MOST_BATCH_TOKENS // run.config.length)
    return Classification(examples, np.zeros(len(examples), np.float32), head, batch, padding)


class _NoBadRows(BadRows):
    """Nothing may be skipped: the answers stand in the order of the rows."""

    def refuse(self, reason: str, what: str, where: str, fix: str) -> None:
        raise UserError(what, where=where, fix=fix, code="bad-row")


def texts_in_file(path: str | Path, reading: Reading = DEFAULT_READING) -> Iterator[Text | None]:
    """The texts of a file: lines, also blank ones, or rows, maybe pairs.

    Lines of standard input (`-`) come as they arrive, with a None where the next is not there.
    """
    return (row and row[0] for row in rows_in_file(path, reading, keeps_others=False))


def rows_in_file(
    path: str | Path, reading: Reading = DEFAULT_READING, *, keeps_others: bool = True
) -> Iterator[tuple[Text, dict[str, Any]] | None]:
    """The texts of a file, as `texts_in_file` has them, each with its row: all columns, in their order."""
    strict = _NoBadRows()
    form = form_of(path)
    if form == "text" and is_stdin(path) and is_live(sys.stdin.buffer):
        for line in _live_lines(sys.stdin.buffer, str(path), reading):
            yield None if line is None else (line, {"text": line})
        return
    if form in ("text", "spm"):
        for number, line in enumerate(lines(path, reading), 1):
            if line is None:
                refuse_long(f"{path}:{number}", strict)
            else:
                text = spelled(line) if form == "spm" else line
                yield text, {"text": text}
        return
    for row in rows(path, Columns(reading.text_column, keeps_others=keeps_others), reading, strict):
        filled = {role: value for role, value in row.values.items() if not isinstance(value, str) or value.strip()}
        texts_in(row._replace(values=filled), strict)  # what is no text is refused there
        columns = {role.removeprefix("="): value for role, value in row.values.items() if role.startswith("=")}
        one = (row.values["text"], row.values["text_b"]) if "text_b" in row.values else row.values["text"]
        yield one, columns


def _live_lines(stream: BinaryIO, where: str, reading: Reading) -> Iterator[str | None]:
    number = 0
    for group in lines_as_they_come(stream, where, reading):
        for line in group:
            number += 1
            if line is None:
                refuse_long(f"{where}:{number}", _NoBadRows())
            yield line
        yield None


# Of a window: enough to sort by length, and few enough that a file may be larger than memory.
WINDOW_TEXTS = 1_024
WINDOW_CHARACTERS = 1 << 22
AnyText = TypeVar("AnyText", bound=str | tuple[str, str])


def windows(texts: Iterable[AnyText | None]) -> Iterator[list[AnyText]]:
    """So many texts at a time; None among them says that the next is not there yet, and ends a window."""
    window: list[AnyText] = []
    characters = 0
    for text in texts:
        if text is not None:
            window.append(text)
            characters += len(text) if isinstance(text, str) else len(text[0]) + len(text[1])
        is_full = len(window) >= WINDOW_TEXTS or characters >= WINDOW_CHARACTERS
        if window and (is_full or text is None):
            yield window
            window, characters = [], 0
    if window:
        yield window
