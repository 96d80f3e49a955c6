"""Checks of the data before training: bad rows, classes, suspicious labels, lengths and leaks."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headstart.config.reading import DEFAULT_READING, Reading
from headstart.config.training import Task
from headstart.data.in_memory import sources_by_role
from headstart.data.labelled import LabelledSet, PairedSet, read_labelled, read_pairs
from headstart.data.labels import LabelMap, class_counts
from headstart.data.leakage.find import Finding, Leaks, find_leaks
from headstart.data.readers.documents import pieces
from headstart.data.readers.rows import BadRow, BadRows
from headstart.data.readers.sources import OnBytes
from headstart.data.warnings import DataWarning, data_warnings, special_token_count, token_counts
from headstart.errors import UserError
from headstart.tokenizers.tokenizer import Tokenizer
from headstart.tokenizers.training import train as train_tokenizer

Sets = Mapping[str, LabelledSet | PairedSet]
EXAMPLES = 3
LENGTHS = (128, 256, 512)  # tokens, at which texts may be cut where no length is given
SAMPLE_BYTES = 2_000_000  # of the rows, to train a tokenizer on where none is given


@dataclass(frozen=True)
class Lengths:
    """How long the rows of a set are; of a pair to translate, the longer side."""

    characters: dict[str, int]  # median, p95, longest
    tokens: dict[str, int]
    cut: dict[int, float]  # the share of rows that are longer than so many tokens, special tokens among them


@dataclass(frozen=True)
class SetFacts:
    """What one set holds."""

    path: str
    rows: int
    class_counts: dict[str, int]
    majority_share: float | None  # the share of the majority class: the accuracy of always predicting it
    bad_rows: dict[str, int]
    fingerprint: str
    lengths: Lengths


@dataclass(frozen=True)
class CorpusFacts:
    """What the corpus holds."""

    paths: list[str]
    documents: int
    bad_rows: dict[str, int]


@dataclass(frozen=True)
class Example:
    """A text that occurs twice: where, and its beginning."""

    location: str
    other_location: str
    share: float
    text: str


@dataclass(frozen=True)
class DataReport:
    """The results of all checks."""

    sets: dict[str, SetFacts]
    corpus: CorpusFacts | None
    bad_rows: list[tuple[str, BadRow]]
    tokenizer: str  # which one the tokens are counted by
    warnings: list[tuple[str, DataWarning]]
    leaks: Leaks
    examples: dict[str, list[Example]]

    def as_json(self) -> dict[str, Any]:
        """The report as plain values; row numbers count from 0."""
        return {
            "leaks": {**self.leaks.counts, "rows": self.leaks.rows},
            "sets": {name: asdict(facts) for name, facts in self.sets.items()},
            "corpus": asdict(self.corpus) if self.corpus else None,
            "bad_rows": [{"set": name, **row._asdict()} for name, row in self.bad_rows],
            "tokenizer": self.tokenizer,
            "warnings": [{"set": name, **asdict(warning)} for name, warning in self.warnings],
            "examples": {name: [asdict(one) for one in examples] for name, examples in self.examples.items()},
        }


def check_data(
    paths: Mapping[str, str | Path],
    corpus: Sequence[str | Path] = (),
    *,
    task: Task = "classification",
    reading: Reading = DEFAULT_READING,
    tokenizer: str | Path | None = None,
    length: int = 0,
    on_bytes: OnBytes = None,
) -> DataReport:
    """Read `paths` (by the names train, valid, test) and the corpus, and check them.

    Where the path of train is a folder of several splits, it gives those of the other names too. Bad rows are skipped
    and listed. Lengths are counted by the tokenizer, or by one that is trained on some of the rows; with a length
    there is a warning of what is cut.
    """
    if not paths and not corpus:
        raise UserError("nothing to check", fix="give --train F, --valid F, --test F or --corpus F…", code="missing")
    reading = reading.part(Reading, skip_bad_rows=True)
    sets: Sets = {
        name: read_pairs(path, reading) if task == "translation" else read_labelled(path, reading, task=task)
        for name, path in sources_by_role(*map(paths.get, ("train", "valid", "test"))).items()
        if not isinstance(path, LabelledSet)
    }
    train = sets.get("train")
    if isinstance(train, LabelledSet) and train.task != "regression":
        label_map = LabelMap.of(train)
        for labelled in sets.values():
            assert isinstance(labelled, LabelledSet)
            label_map.refuse_unseen(labelled)
    bad = BadRows(skip=True)
    stream = pieces(corpus, reading, bad_rows=bad, on_bytes=on_bytes)
    leaks = find_leaks({name: s.whole_texts for name, s in sets.items()}, stream if corpus else None)
    facts = CorpusFacts([str(path) for path in corpus], leaks.corpus_document_count, dict(bad.counts))
    counted_by, name_of_it = _tokenizer(tokenizer, sets)
    of_rows = {name: one.tokenized(counted_by) for name, one in sets.items() if isinstance(one, LabelledSet)}
    sets = {**sets, **of_rows}
    skipped = {name: one.skipped for name, one in sets.items()} | {"corpus": bad}
    return DataReport(
        {name: _facts(one, counted_by, (length,) if length else LENGTHS) for name, one in sets.items()},
        facts if corpus else None,
        [(name, row) for name, bad_rows in skipped.items() for row in bad_rows.rows],
        name_of_it,
        data_warnings(of_rows, length),
        leaks,
        {name: _examples(name, findings, sets) for name, findings in leaks.findings.items() if findings},
    )


def _tokenizer(path: str | Path | None, sets: Sets) -> tuple[Tokenizer, str]:
    """The one in this directory, or one that is trained on the rows of the first set."""
    if path is not None:
        return Tokenizer.load(path), str(path)
    texts = [text for one in list(sets.values())[:1] for text in one.whole_texts]
    trained = train_tokenizer(lambda: iter(texts or ["no rows"]), sample_bytes=SAMPLE_BYTES).tokenizer
    return trained, f"one of {trained.size:,} tokens, trained on these rows"


def _lengths(rows: LabelledSet | PairedSet, tokenizer: Tokenizer, lengths: Sequence[int]) -> Lengths:
    if isinstance(rows, LabelledSet):
        tokens, special = token_counts(rows), special_token_count(rows)
        characters = [len(text) for text in rows.whole_texts]
    else:
        sides = [rows.sources, rows.targets]
        tokens, special = [max(map(len, pair)) for pair in zip(*map(tokenizer.encode_many, sides), strict=True)], 2
        characters = [max(map(len, pair)) for pair in zip(*sides, strict=True)]
    cut = {length: float(np.mean(np.array(tokens) + special > length)) for length in lengths}
    return Lengths(_spread(characters), _spread(tokens), cut)


def _spread(numbers: Sequence[int]) -> dict[str, int]:
    middle, most = np.percentile(numbers, [50, 95], method="higher")
    return {"median": int(middle), "p95": int(most), "longest": max(numbers)}


def _facts(rows: LabelledSet | PairedSet, tokenizer: Tokenizer, lengths: Sequence[int]) -> SetFacts:
    labels = rows.labels if isinstance(rows, LabelledSet) and rows.task != "regression" else []
    counts = class_counts(labels)
    share = max(counts.values()) / len(rows) if counts else None
    bad_rows, measured = dict(rows.skipped.counts), _lengths(rows, tokenizer, lengths)
    return SetFacts(rows.path, len(rows), counts, share, bad_rows, rows.fingerprint, measured)


def _examples(name: str, findings: Sequence[Finding], sets: Sets) -> list[Example]:
    """The first findings with where they are; `test_in_train` and `near_test_repeats` name the sets they are of."""
    of, _, other = name.removeprefix("near_").removesuffix("_repeats").partition("_in_")

    def location(name: str, row: int) -> str:
        return sets[name].locations[row] if name in sets else f"document {row + 1:,} of the corpus"

    texts = sets[of].whole_texts if of in sets else None
    return [
        Example(location(of, row), location(other or of, at), round(share, 4), texts[row][:200] if texts else "")
        for row, at, share in map(astuple, findings[:EXAMPLES])
    ]
