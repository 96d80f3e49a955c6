"""Two runs on the same data: the scores of each, and their difference, paired item by item, with its interval.

The difference is always the second run's score less the first's. Both read the same texts, so what makes a text
hard for both cancels out: that is why a paired interval is narrower than two intervals side by side.
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from headstart.errors import UserError
from headstart.text.documents import pieces
from headstart.text.labelled import LabelledSet
from headstart.text.labels import LabelMap
from headstart.text.rows import BadRows
from headstart.text.store import TokenStore
from headstart.training.language_scores import check_length, objective_over, token_losses
from headstart.training.loading import LoadedRun
from headstart.training.machine import Machine
from headstart.training.run_directory import DataConfig, RunConfig
from headstart.training.scores import SCORES
from headstart.training.using import corpus_store, labelled_outputs, labelled_set, require

CONFIDENCE = 0.95
ENOUGH_DOCUMENTS = 20
BLOCK_TOKENS = 256

Tell = Callable[[str], None]


class Interval(NamedTuple):
    """A difference and where it lies with 95 % confidence; no bounds where there is too little to tell."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Comparison:
    """Both runs' scores, and the difference in the one measure that is compared."""

    metrics: tuple[dict[str, float], dict[str, float]]
    measure: str
    difference: Interval
    unit: str
    """What is paired: text, document or block."""

    unit_count: int
    agreement: dict[str, Any] = field(default_factory=dict)
    """Where texts are right or wrong: how many in both runs and in one alone, and McNemar's p."""

    settings: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """What differs between the two configurations."""


def compare(
    first: LoadedRun,
    second: LoadedRun,
    data: str | Path,
    machine: Machine,
    *,
    length: int | None = None,
    reading: DataConfig | None = None,
    tell: Tell = lambda line: None,
) -> Comparison:
    """Two causal runs on a corpus, or two fine-tuned runs of one task on labelled rows."""
    objectives = [run.config.objective for run in (first, second)]
    for run in (first, second):
        require(run.config.objective, "compare", str(run.path))
        check_length(run, length)
    if objectives[0] != objectives[1]:
        raise UserError(
            f"{first.path} is a {objectives[0]} run, {second.path} a {objectives[1]} run",
            fix="compare two runs of the same kind; `headstart evaluate` scores each by itself",
        )
    by = _compare_language if objectives[0] == "causal" else _compare_labelled
    found = by((first, second), data, machine, length, reading, tell)
    return dataclasses.replace(found, settings=differing_settings(first.config, second.config))


def differing_settings(first: RunConfig, second: RunConfig) -> dict[str, tuple[Any, Any]]:
    """The settings that are not the same, by name."""
    one, other = _flat(first), _flat(second)
    return {key: (one[key], other[key]) for key in one if one[key] != other[key]}


def _flat(config: RunConfig) -> dict[str, Any]:
    sections = dataclasses.asdict(config)
    flat = {key: value for key, value in sections.items() if not isinstance(value, dict)}
    for name, section in sections.items():
        if isinstance(section, dict):
            flat |= {f"{name}.{key}": value for key, value in section.items()}
    return flat


# ---- statistics ---------------------------------------------------------------------------------------------


def mcnemar_p(only_first: int, only_second: int) -> float:
    """The exact two-sided p of McNemar's test: whether the texts that one run alone has right split evenly."""
    from scipy.stats import binomtest

    total = only_first + only_second
    return float(binomtest(only_first, total, 0.5).pvalue) if total else 1.0


def share_difference(only_first: int, only_second: int, count: int) -> Interval:
    """The difference of two paired shares, second less first, with the adjusted Wald interval.

    Bonett and Price (2012): one text is added to each of the two ways of differing, so that the interval keeps
    its coverage where few texts differ, and does not shrink to a point where none do.
    """
    from scipy.stats import norm

    a, b = (only_second + 1) / (count + 2), (only_first + 1) / (count + 2)
    reach = float(norm.ppf(0.5 + CONFIDENCE / 2)) * math.sqrt((a + b - (a - b) ** 2) / (count + 2))
    low, high = max(-1.0, a - b - reach), min(1.0, a - b + reach)
    return Interval((only_second - only_first) / count, low, high)


def ratio_difference(differences: np.ndarray, sizes: np.ndarray) -> Interval:
    """The sum of the units' differences over the sum of their sizes, with the ratio estimator's t interval."""
    from scipy.stats import t

    count, total = len(differences), float(sizes.sum())
    value = float(differences.sum()) / total
    if count < 2:
        return Interval(value, None, None)
    rest = differences - value * sizes
    error = math.sqrt(count / (count - 1) * float((rest**2).sum())) / total
    reach = float(t.ppf(0.5 + CONFIDENCE / 2, count - 1)) * error
    return Interval(value, value - reach, value + reach)


# ---- fine-tuned runs ----------------------------------------------------------------------------------------


def _compare_labelled(
    runs: tuple[LoadedRun, LoadedRun],
    data: str | Path,
    machine: Machine,
    length: int | None,
    reading: DataConfig | None,
    tell: Tell,
) -> Comparison:
    """Both runs read the rows in their own way, and are right or wrong by their own label maps."""
    task = runs[0].config.objective
    rows = labelled_set(runs[0], data, reading, tell)
    if runs[1].config.labels:
        LabelMap(tuple(runs[1].config.labels)).refuse_unseen(rows)
    found = [_scored(run, rows, machine, length, tell) for run in runs]
    metrics = (found[0][0], found[1][0])
    if task == "regression":
        errors = [np.abs(outputs.reshape(-1) - targets) for _, outputs, targets in found]
        interval = ratio_difference(errors[1] - errors[0], np.ones(len(errors[0])))
        return Comparison(metrics, "mae", interval, "text", len(errors[0]))
    right = [_is_right(outputs, targets) for _, outputs, targets in found]
    both, neither = int((right[0] & right[1]).sum()), int((~right[0] & ~right[1]).sum())
    only_first, only_second = int((right[0] & ~right[1]).sum()), int((right[1] & ~right[0]).sum())
    agreement = {
        "both_right": both, "only_first_right": only_first, "only_second_right": only_second,
        "neither_right": neither, "mcnemar_p": mcnemar_p(only_first, only_second),
    }  # fmt: skip
    interval = share_difference(only_first, only_second, len(right[0]))
    return Comparison(metrics, "accuracy", interval, "text", len(right[0]), agreement)


def _scored(
    run: LoadedRun, rows: LabelledSet, machine: Machine, length: int | None, tell: Tell
) -> tuple[dict[str, float], np.ndarray, np.ndarray]:
    outputs, targets = labelled_outputs(run, rows, machine, length, lambda line: tell(f"{run.path}: {line}"))
    return dict(SCORES[run.config.objective](outputs, targets)), outputs, targets


def _is_right(outputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Which rows are right: the class, or every label of the row."""
    if targets.ndim == 1:
        return outputs.argmax(axis=1) == targets
    return ((outputs > 0.5) == (targets > 0)).all(axis=1)


# ---- language models ----------------------------------------------------------------------------------------


class _Bits(NamedTuple):
    """What a run needs for a text: in all, for each document, and for each block of its stream."""

    store: TokenStore
    documents: np.ndarray
    blocks: np.ndarray
    block_counts: np.ndarray
    token_count: int


def _compare_language(
    runs: tuple[LoadedRun, LoadedRun],
    data: str | Path,
    machine: Machine,
    length: int | None,
    reading: DataConfig | None,
    tell: Tell,
) -> Comparison:
    """Bits per byte: each run with its own tokenizer and, unless a length is given, its own trained length."""
    how = reading or runs[0].config.data
    one, other = (_bits(run, corpus_store(run, data, how, tell), machine, length) for run in runs)
    text_bytes = one.store.header.text_bytes
    metrics = tuple(
        {"bits_per_byte": float(bits.documents.sum()) / text_bytes,
         "loss": float(bits.documents.sum()) * math.log(2) / bits.token_count}
        for bits in (one, other)
    )  # fmt: skip
    sizes = document_bytes(data, how)
    has_same_documents = len(one.documents) == len(other.documents) == len(sizes)
    has_same_tokens = runs[0].config.model.tokenizer == runs[1].config.model.tokenizer
    if has_same_documents and (len(sizes) >= ENOUGH_DOCUMENTS or not has_same_tokens):
        unit, interval = "document", ratio_difference(other.documents - one.documents, sizes)
    elif has_same_tokens:
        sizes = one.block_counts * text_bytes / one.token_count
        unit, interval = "block", ratio_difference(other.blocks - one.blocks, sizes)
    else:
        value = metrics[1]["bits_per_byte"] - metrics[0]["bits_per_byte"]
        unit, interval = "document", Interval(value, None, None)
    if interval.low is None:
        tell("the text has too few documents that both runs can read for an interval")
    count = len(one.documents) if unit == "document" else len(one.blocks)
    return Comparison((metrics[0], metrics[1]), "bits_per_byte", interval, unit, count)


def _bits(run: LoadedRun, store: TokenStore, machine: Machine, length: int | None) -> _Bits:
    documents = np.zeros(store.document_count)
    # Blocks of the stream, one size whatever each run reads at once, so that two runs' blocks are the same text.
    block_count = -(-(len(store) + 2 * store.document_count) // BLOCK_TOKENS)
    blocks, counts = np.zeros(block_count), np.zeros(block_count)
    for part in token_losses(run.model, objective_over(run, store, check_length(run, length)), machine):
        bits, places = part.nats / math.log(2), part.places // BLOCK_TOKENS
        np.add.at(documents, part.documents, bits)
        np.add.at(blocks, places, bits)
        np.add.at(counts, places, 1)
    return _Bits(store, documents, blocks, counts, int(counts.sum()))


def document_bytes(data: str | Path, reading: DataConfig) -> np.ndarray:
    """The UTF-8 bytes of every document of a file."""
    sizes = [0]
    for piece in pieces(
        [data], documents=reading.documents, text_column=reading.text_column,  # type: ignore[arg-type]
        encoding=reading.encoding, errors=reading.errors, bad_rows=BadRows(reading.skip_bad_rows),
    ):  # fmt: skip
        sizes[-1] += len(piece.text.encode("utf-8", "replace"))
        if piece.ends_document:
            sizes.append(0)
    return np.array(sizes[:-1], np.float64)
