"""Pairs for translation: source texts with their target texts, small enough to hold.

A `.tsv` of two columns, without header and without quoting, or a table or `.jsonl` with `source` and `target` (or
`text_a` and `text_b`); each also as `.gz`.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from headstart.errors import UserError
from headstart.text.files import STRICT_UTF8, Reading, form_of
from headstart.text.labelled import content_fingerprint, refuse_empty
from headstart.text.rows import BadRows, Columns, Row, shown, texts_in
from headstart.text.sources import Source
from headstart.text.tables import rows, tsv_cells


@dataclass(frozen=True)
class PairedSet:
    """Source texts with their target texts, in the order of the file."""

    path: str
    sources: list[str] = field(repr=False)
    targets: list[str] = field(repr=False)
    places: list[str] = field(repr=False)
    """File and line of each pair, for messages."""

    skipped: BadRows = field(default_factory=BadRows, compare=False)

    def __len__(self) -> int:
        return len(self.sources)

    @cached_property
    def whole_texts(self) -> list[str]:
        """One text a row: source and target joined by a line break."""
        return [f"{source}\n{target}" for source, target in zip(self.sources, self.targets, strict=True)]

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of the content: the same rows have the same one, whatever the form of their file."""
        return content_fingerprint(zip(self.sources, self.targets, strict=True))

    def subset(self, rows: Sequence[int]) -> "PairedSet":
        """These pairs alone, in this order."""
        return replace(
            self,
            sources=[self.sources[row] for row in rows],
            targets=[self.targets[row] for row in rows],
            places=[self.places[row] for row in rows],
        )


def read_pairs(path: Source, *, reading: Reading = STRICT_UTF8, skip_bad_rows: bool = False) -> PairedSet:
    """The pairs of a file; `-` is a `.tsv` from standard input."""
    path = "-.tsv" if isinstance(path, str | Path) and str(path) in ("-", "/dev/stdin") else path
    bad = BadRows(skip_bad_rows)
    pairs, places = list[list[str]](), list[str]()
    is_plain_tsv = form_of(path) == "tsv"
    found = _tsv_pairs(str(path), reading, bad) if is_plain_tsv else rows(path, _PairColumns(), reading, bad)
    for row in found:
        texts = texts_in(row, bad)
        if texts:
            pairs.append(texts)
            places.append(row.where)
    refuse_empty(len(pairs), path, bad)
    return PairedSet(str(path), [source for source, _ in pairs], [target for _, target in pairs], places, bad)


def _tsv_pairs(path: str | Path, reading: Reading, bad: BadRows) -> Iterable[Row]:
    for line, cells in tsv_cells(path, reading, bad, quoting=False):
        where = f"{path}:{line}"
        if len(cells) == 2:
            yield Row(where, {"text": cells[0], "text_b": cells[1]}, {"text": "1", "text_b": "2"})
        else:
            what = f"{len(cells)} columns where a pair has 2"
            bad.refuse("ragged row", what, where, "source, one tab, target; no tab inside a text")


class _PairColumns(Columns):
    """The two columns of a pair, by their names."""

    def choose(self, there: Collection[str], where: str, hint: str = "") -> dict[str, str]:
        for source, target in (("source", "target"), ("text_a", "text_b")):
            if source in there and target in there:
                return {"text": source, "text_b": target}
        named = ", ".join([shown(name) for name in there][:12])
        what = "one text where a pair is needed" if "text" in there else "no columns source and target"
        raise UserError(
            f"{what}; the columns are {named or 'none'}", where=where, fix="give source and target"
        )
