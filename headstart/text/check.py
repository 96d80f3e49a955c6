"""A look at the data before anything is trained on it: rows, classes, label trouble and leaks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from headstart.errors import UserError
from headstart.text.documents import Documents, pieces
from headstart.text.files import Reading
from headstart.text.in_memory import sources_by_role
from headstart.text.labelled import LabelledSet, read_labelled
from headstart.text.labels import LabelMap, LabelWarning, class_counts, label_warnings
from headstart.text.leaks import Finding, Leaks, find_leaks
from headstart.text.pairs import PairedSet, read_pairs
from headstart.text.rows import BadRows
from headstart.text.sources import Source

Task = Literal["classification", "multilabel", "regression", "translation"]
EXAMPLES = 3


@dataclass(frozen=True)
class SetFacts:
    """What one set holds."""

    path: str
    rows: int
    class_counts: dict[str, int]
    majority_share: float | None
    """The share of rows with the largest class: the accuracy of always saying it."""

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
    """A text that stands twice: where, and its beginning."""

    place: str
    other_place: str
    share: float
    text: str


@dataclass(frozen=True)
class DataReport:
    """All that a look at the data found."""

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
            "examples": {
                name: [asdict(example) for example in found] for name, found in self.examples.items()
            },
        }


def check_data(
    paths: Mapping[str, str | Path],
    corpus: Sequence[str | Path] = (),
    *,
    task: Task = "classification",
    documents: Documents = "auto",
    text_column: str = "text",
    label_column: str = "label",
    encoding: str = "utf-8",
    errors: str = "strict",
    skip_bad_rows: bool = False,
    on_bytes: Callable[[int], None] | None = None,
) -> DataReport:
    """Read `paths` (by the names train, valid, test, in this order) and the corpus, and look for trouble."""
    if not paths and not corpus:
        raise UserError("nothing to check", fix="give --train F, --valid F, --test F or --corpus F…")
    reading = Reading(encoding, errors)
    sets: dict[str, LabelledSet | PairedSet] = {}
    for name, path in _by_role(paths).items():
        if task == "translation":
            sets[name] = read_pairs(path, reading=reading, skip_bad_rows=skip_bad_rows)
        else:
            columns = {"text_column": text_column, "label_column": label_column}
            sets[name] = read_labelled(
                path, task=task, **columns, reading=reading, skip_bad_rows=skip_bad_rows
            )
    _refuse_bad_labels(sets)
    bad = BadRows(skip_bad_rows)
    stream = pieces(
        corpus,
        documents=documents,
        text_column=text_column,
        encoding=encoding,
        errors=errors,
        bad_rows=bad,
        on_bytes=on_bytes,
    )
    leaks = find_leaks({name: s.whole_texts for name, s in sets.items()}, stream if corpus else None)
    return DataReport(
        {name: _facts(labelled) for name, labelled in sets.items()},
        CorpusFacts([str(path) for path in corpus], leaks.corpus_document_count, dict(bad.counts))
        if corpus
        else None,
        [(name, w) for name, s in sets.items() if isinstance(s, LabelledSet) for w in label_warnings(s)],
        leaks,
        {name: _examples(name, found, sets) for name, found in leaks.findings.items() if found},
    )


def _by_role(paths: Mapping[str, str | Path]) -> dict[str, Source]:
    """The same paths; a folder of several splits as train gives what its splits are named for."""
    if "train" not in paths:
        return dict(paths)
    found = sources_by_role(paths["train"], paths.get("valid"), paths.get("test"))
    return {role: source for role, source in found.items() if not isinstance(source, LabelledSet)}


def _refuse_bad_labels(sets: Mapping[str, LabelledSet | PairedSet]) -> None:
    train = sets.get("train")
    if isinstance(train, LabelledSet) and train.task != "regression":
        label_map = LabelMap.of(train)
        for other in sets.values():
            assert isinstance(other, LabelledSet)
            label_map.refuse_unseen(other)


def _facts(rows: LabelledSet | PairedSet) -> SetFacts:
    counts: dict[str, int] = {}
    if isinstance(rows, LabelledSet) and rows.task != "regression":
        counts = class_counts(rows.labels)
    share = max(counts.values()) / len(rows) if counts else None
    return SetFacts(rows.path, len(rows), counts, share, dict(rows.skipped.counts), rows.fingerprint)


def _examples(
    name: str, findings: Sequence[Finding], sets: Mapping[str, LabelledSet | PairedSet]
) -> list[Example]:
    """The first findings with their places; `test_in_train` and `near_test_repeats` name the sets they are of."""
    of, _, other = name.removeprefix("near_").removesuffix("_repeats").partition("_in_")
    other = other or of
    return [
        Example(
            _place(of, finding.row, sets),
            _place(other, finding.other, sets),
            round(finding.share, 4),
            sets[of].whole_texts[finding.row][:200] if of in sets else "",
        )
        for finding in findings[:EXAMPLES]
    ]


def _place(name: str, row: int, sets: Mapping[str, LabelledSet | PairedSet]) -> str:
    return sets[name].places[row] if name in sets else f"document {row + 1:,} of the corpus"
