"""Two runs on the same data: the scores of each, and the paired difference with its interval.

The difference is the second run's score minus the first's. Both read the same texts, so what makes a text hard for
both cancels out: a paired interval is narrower than two separate ones.
"""

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from headstart.config.generation import BEAM_OF_FIVE, GenerationConfig
from headstart.config.reading import Reading
from headstart.data.labelled import PairedSet, read_pairs
from headstart.data.labels import LabelMap
from headstart.data.readers.documents import pieces
from headstart.data.readers.rows import BadRows
from headstart.data.token_store import TokenStore
from headstart.errors import Log, UserError
from headstart.inference.evaluate import corpus_store, labelled_outputs, labelled_set
from headstart.inference.metrics import CONFIDENCE, RESAMPLES, SCORES, paired_bootstrap
from headstart.inference.perplexity import check_length, objective_over, token_losses
from headstart.inference.translate import Translator, texts_of
from headstart.machine import Machine
from headstart.runs.directory import differing_settings
from headstart.runs.load import LoadedRun, require

ENOUGH_DOCUMENTS = 20
BLOCK_TOKENS = 256
NAMED_SETTINGS = 4  # of those that differ, in the verdict
LESS_IS_BETTER = ("bits_per_byte", "mae")
Runs = tuple[LoadedRun, LoadedRun]


class PairedDifference(NamedTuple):
    """A difference and where it lies with 95 % confidence; no bounds where there is too little to estimate them."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Comparison:
    """The scores of both runs, and the difference in what is compared."""

    metrics: tuple[dict[str, float], ...]
    differences: dict[str, PairedDifference]  # by measure, the one that decides first
    unit: str  # what is paired: texts, documents or blocks
    unit_count: int
    agreement: dict[str, Any] = field(default_factory=dict)  # who is right how often, and McNemar's p
    bootstrap: dict[str, Any] = field(default_factory=dict)  # of translations: resamples, p values and signatures
    settings: dict[str, tuple[Any, Any]] = field(default_factory=dict)  # those that differ

    @property
    def measure(self) -> str:
        return next(iter(self.differences))

    @property
    def difference(self) -> PairedDifference:
        return self.differences[self.measure]

    def better(self, measure: str) -> Literal["first", "second"] | None:
        """The run that is better by a measure; None where the interval does not tell."""
        value, low, high = self.differences[measure]
        if low is None or high is None or low <= 0 <= high:
            return None
        return "second" if (value < 0) == (measure in LESS_IS_BETTER) else "first"

    @property
    def verdict(self) -> list[str]:
        """What the intervals say, and what else the difference may come from, a sentence a line."""
        return [*map(self._sentence, self.differences), *([self._caveat] if self.settings else [])]

    def _sentence(self, measure: str) -> str:
        value, low, high = self.differences[measure]
        about = f"{measure}, second minus first: {value:+.4f}"
        if low is None or high is None:
            return f"{about}; too little data for an interval."
        about += f", 95 % interval {low:+.4f} to {high:+.4f} (paired over {self.unit_count:,} {self.unit}s"
        about += f", bootstrap p = {self.bootstrap['p'][measure]:.4g})" if self.bootstrap else ")"
        better = self.better(measure)
        return f"{about}: {f'the {better} is better' if better else 'no significant difference'}."

    @property
    def _caveat(self) -> str:
        names = list(self.settings)
        if len(names) == 1:
            return f"The runs differ in one setting, {names[0]}."
        listed = names[: NAMED_SETTINGS - 1] if len(names) > NAMED_SETTINGS else names[:-1]
        rest = names[-1] if len(names) <= NAMED_SETTINGS else f"{len(names) - len(listed)} more"
        what = f"The runs differ in {len(names)} settings ({', '.join(listed)} and {rest})"
        return f"{what}: the difference is that of all of them together."


def compare(
    first: LoadedRun, second: LoadedRun, data: str | Path, machine: Machine, *, length: int | None = None,
    generation: GenerationConfig = BEAM_OF_FIVE, reading: Reading | None = None, log: Log = lambda line: None,
) -> Comparison:  # fmt: skip
    """Two causal runs on a corpus, two fine-tuned runs of one task on labelled rows, two translators on pairs.

    `generation` says how the translators translate.
    """
    objectives = [run.config.objective for run in (first, second)]
    for run in (first, second):
        require(run.config.objective, "compare", str(run.path))
        check_length(run, length)
    if objectives[0] != objectives[1]:
        what = f"{first.path} is a {objectives[0]} run, {second.path} a {objectives[1]} run"
        fix = "compare two runs of the same kind; `headstart evaluate` scores each by itself"
        raise UserError(what, fix=fix, code="mismatch")
    if objectives[0] == "translation":
        pairs = read_pairs(data, reading or first.config.data)
        comparison = _compare_translations((first, second), pairs, machine, length, generation, log)
    else:
        by = _compare_language if objectives[0] == "causal" else _compare_labelled
        comparison = by((first, second), data, machine, length, reading, log)
    return dataclasses.replace(comparison, settings=differing_settings(first.config, second.config))


def mcnemar_p(only_first: int, only_second: int) -> float:
    """The exact two-sided p of McNemar's test on the texts that only one of the runs has right."""
    from scipy.stats import binomtest

    total = only_first + only_second
    return float(binomtest(only_first, total, 0.5).pvalue) if total else 1.0


def share_difference(only_first: int, only_second: int, count: int) -> PairedDifference:
    """The difference of paired proportions, with the adjusted Wald interval of Bonett and Price (2012)."""
    from scipy.stats import norm

    a, b = (only_second + 1) / (count + 2), (only_first + 1) / (count + 2)
    reach = float(norm.ppf(0.5 + CONFIDENCE / 2)) * math.sqrt((a + b - (a - b) ** 2) / (count + 2))
    return PairedDifference((only_second - only_first) / count, max(-1.0, a - b - reach), min(1.0, a - b + reach))


def ratio_difference(differences: np.ndarray, sizes: np.ndarray) -> PairedDifference:
    """The sum of the units' differences over the sum of their sizes, with the ratio estimator's t interval."""
    from scipy.stats import t

    count, total = len(differences), float(sizes.sum())
    value = float(differences.sum()) / total
    if count < 2:
        return PairedDifference(value, None, None)
    rest = differences - value * sizes
    error = math.sqrt(count / (count - 1) * float((rest**2).sum())) / total
    reach = float(t.ppf(0.5 + CONFIDENCE / 2, count - 1)) * error
    return PairedDifference(value, value - reach, value + reach)


def _compare_labelled(
    runs: Runs, data: str | Path, machine: Machine, length: int | None, reading: Reading | None, log: Log
) -> Comparison:
    """Each run reads the rows with its own tokenizer, and is right or wrong by its own label map."""
    task = runs[0].config.objective
    rows = labelled_set(runs[0], data, reading, log)
    if runs[1].config.label_names:
        LabelMap(tuple(runs[1].config.label_names)).refuse_unseen(rows)
    both = [
        labelled_outputs(run, rows, machine, length, lambda line, run=run: log(f"{run.path}: {line}"))  # type: ignore[misc]
        for run in runs
    ]
    metrics = tuple(dict(SCORES[task](outputs, targets)) for outputs, targets in both)
    if task == "regression":
        errors = [np.abs(outputs.reshape(-1) - targets) for outputs, targets in both]
        interval = ratio_difference(errors[1] - errors[0], np.ones(len(errors[0])))
        return Comparison(metrics, {"mae": interval}, "text", len(errors[0]))
    right = [  # the class, or every label of the row
        o.argmax(axis=1) == t if t.ndim == 1 else ((o > 0.5) == (t > 0)).all(axis=1) for o, t in both
    ]
    only_first, only_second = int((right[0] & ~right[1]).sum()), int((right[1] & ~right[0]).sum())
    agreement = {
        "both_right": int((right[0] & right[1]).sum()), "only_first_right": only_first,
        "only_second_right": only_second, "neither_right": int((~right[0] & ~right[1]).sum()),
        "mcnemar_p": mcnemar_p(only_first, only_second),
    }  # fmt: skip
    interval = share_difference(only_first, only_second, len(right[0]))
    return Comparison(metrics, {"accuracy": interval}, "text", len(right[0]), agreement)


def _compare_translations(
    runs: Runs, pairs: PairedSet, machine: Machine, length: int | None, generation: GenerationConfig, log: Log
) -> Comparison:
    """BLEU and chrF of both runs' translations, by sacreBLEU's paired bootstrap."""
    if pairs.skipped.counts:
        log(pairs.skipped.summary())
    written = []
    for run in runs:
        translator = dataclasses.replace(Translator.of(run, machine), length=check_length(run, length))
        written.append(texts_of(translator.translate(pairs.sources, generation)))
    found = paired_bootstrap(written[0], written[1], pairs.targets)
    metrics = tuple({name: one.scores[number] for name, one in found.items()} for number in range(2))
    differences = {
        name: PairedDifference(one.scores[1] - one.scores[0], one.low, one.high) for name, one in found.items()
    }
    bootstrap = {
        "resamples": RESAMPLES, "p": {name: one.p for name, one in found.items()},
        "signatures": {name: one.signature for name, one in found.items()},
    }  # fmt: skip
    return Comparison(metrics, differences, "text", len(pairs), bootstrap=bootstrap)


class _Bits(NamedTuple):
    """The bits that a run needs for each document and each block of a text."""

    documents: np.ndarray
    blocks: np.ndarray
    block_counts: np.ndarray  # of tokens
    text_bytes: int


def _compare_language(
    runs: Runs, data: str | Path, machine: Machine, length: int | None, reading: Reading | None, log: Log
) -> Comparison:
    """Bits per byte: each run with its own tokenizer and, unless a length is given, its own trained length."""
    how = reading or runs[0].config.data
    one, other = (_bits(run, corpus_store(run, data, how, log), machine, length) for run in runs)
    text_bytes = one.text_bytes
    sums = [(float(bits.documents.sum()), int(bits.block_counts.sum())) for bits in (one, other)]
    metrics = tuple({"bits_per_byte": n / text_bytes, "loss": n * math.log(2) / count} for n, count in sums)
    sizes = document_bytes(data, how)
    has_same_documents = len(one.documents) == len(other.documents) == len(sizes)
    has_same_tokens = runs[0].config.model.tokenizer == runs[1].config.model.tokenizer
    if has_same_documents and (len(sizes) >= ENOUGH_DOCUMENTS or not has_same_tokens):
        unit, interval = "document", ratio_difference(other.documents - one.documents, sizes)
    elif has_same_tokens:
        sizes = one.block_counts * text_bytes / one.block_counts.sum()
        unit, interval = "block", ratio_difference(other.blocks - one.blocks, sizes)
    else:
        value = metrics[1]["bits_per_byte"] - metrics[0]["bits_per_byte"]
        unit, interval = "document", PairedDifference(value, None, None)
    if interval.low is None:
        log("too few documents for an interval")
    count = len(one.documents) if unit == "document" else len(one.blocks)
    return Comparison(metrics, {"bits_per_byte": interval}, unit, count)


def _bits(run: LoadedRun, store: TokenStore, machine: Machine, length: int | None) -> _Bits:
    documents = np.zeros(store.document_count)
    # Blocks have one size, not the length that each run reads, so that the blocks of two runs are the same text.
    block_count = -(-(len(store) + 2 * store.document_count) // BLOCK_TOKENS)
    blocks, counts = np.zeros(block_count), np.zeros(block_count)
    for part in token_losses(run.model, objective_over(run, store, check_length(run, length)), machine):
        bits, numbers = part.nats / math.log(2), part.offsets // BLOCK_TOKENS
        np.add.at(documents, part.documents, bits)
        np.add.at(blocks, numbers, bits)
        np.add.at(counts, numbers, 1)
    return _Bits(documents, blocks, counts, store.header.text_bytes)


def document_bytes(data: str | Path, reading: Reading) -> np.ndarray:
    """The number of UTF-8 bytes of every document of a file."""
    sizes = [0]
    for piece in pieces([data], reading, bad_rows=BadRows(reading.skip_bad_rows)):
        sizes[-1] += len(piece.text.encode("utf-8", "replace"))
        if piece.ends_document:
            sizes.append(0)
    return np.array(sizes[:-1], np.float64)
