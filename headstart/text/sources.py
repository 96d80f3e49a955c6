"""What rows and texts are read from: a path, or a table that is in memory already."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


class ChoosesColumns(Protocol):
    """What is wanted of a table (`headstart.text.rows.Columns` is one)."""

    def choose(self, there: Collection[str], where: str, hint: str = "") -> dict[str, str]: ...


@dataclass(frozen=True, eq=False)
class Table:
    """Rows in memory, or behind a library that reads them: a frame, a dataset, a list of records."""

    name: str
    """What it is called in messages and in a run's settings: there is no path."""

    columns: tuple[str, ...]
    read: Callable[[Sequence[str]], Iterator[list[Any]]]
    """Gives the plain values of these columns, row by row, as often as it is called; None where one is missing."""

    def __str__(self) -> str:
        return self.name

    def narrowed(self, wanted: ChoosesColumns) -> "Table":
        """The same rows with the wanted columns alone: what else it holds does not make it another one."""
        return Table(self.name, tuple(wanted.choose(self.columns, self.name).values()), self.read)


Source = str | Path | Table
