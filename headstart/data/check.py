"""Checks of the data before training: bad rows, classes, suspicious labels and leaks."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

from headstart.config.reading import DEFAULT_READING, Reading
from headstart.config.training import Task
from headstart.data.in_memory import sources_by_role
from headstart.data.labelled import LabelledSet, PairedSet, read_labelled, read_pairs
from headstart.data.labels import LabelMap, LabelWarning, class_counts, label_warnings
from headstart.data.leakage.find import Finding, Leaks, find_leaks
from headstart.data.readers.documents import pieces
from headstart.data.readers.rows import BadRows
from headstart.data.readers.sources import OnBytes
from headstart.errors import UserError

Sets = Mapping[str, LabelledSet | PairedSet]
EXAMPLES = 3


@dataclass(frozen=True)
class SetFacts:
    """What one set holds."""

    path: str
    rows: int
    class_counts: dict[str, int]
    majority_share: float | None  # the share of the majority class: the accuracy of always predicting it
    bad_rows: dict[str, int]
    fingerprint: str


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
    warnings: list[tuple[str, LabelWarning]]
    leaks: Leaks
    examples: dict[str, list[Example]]

    def as_json(self) -> dict[str, Any]:
        """The report as plain values; row numbers count from 0."""
        return {
            "leaks": {**self.leaks.counts, "rows": self.leaks.rows},
            "sets": {name: asdict(facts) for name, facts in self.sets.items()},
            "corpus": asdict(self.corpus) if self.corpus else None,
            "warnings": [{"set": name, **asdict(warning)} for name, warning in self.warnings],
            "examples": {name: [asdict(one) for one in examples] for name, examples in self.examples.items()},
        }


def check_data(
    paths: Mapping[str, str | Path],
    corpus: Sequence[str | Path] = (),
    *,
    task: Task = "classification",
    reading: Reading = DEFAULT_READING,
    on_bytes: OnBytes = None,
) -> DataReport:
    """Read `paths` (by the names train, valid, test) and the corpus, and check them.

    Where the path of train is a folder of several splits, it gives those of the other names too.
    """
    if not paths and not corpus:
        raise UserError("nothing to check", fix="give --train F, --valid F, --test F or --corpus F…", code="missing")
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
    bad = BadRows(reading.skip_bad_rows)
    stream = pieces(corpus, reading, bad_rows=bad, on_bytes=on_bytes)
    leaks = find_leaks({name: s.whole_texts for name, s in sets.items()}, stream if corpus else None)
    facts = CorpusFacts([str(path) for path in corpus], leaks.corpus_document_count, dict(bad.counts))
    return DataReport(
        {name: _facts(rows) for name, rows in sets.items()},
        facts if corpus else None,
        [(name, w) for name, s in sets.items() if isinstance(s, LabelledSet) for w in label_warnings(s)],
        leaks,
        {name: _examples(name, findings, sets) for name, findings in leaks.findings.items() if findings},
    )


def _facts(rows: LabelledSet | PairedSet) -> SetFacts:
    labels = rows.labels if isinstance(rows, LabelledSet) and rows.task != "regression" else []
    counts = class_counts(labels)
    share = max(counts.values()) / len(rows) if counts else None
    return SetFacts(rows.path, len(rows), counts, share, dict(rows.skipped.counts), rows.fingerprint)


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
