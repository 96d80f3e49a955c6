"""What the verbs that use a run share: lines and progress on standard error, text and tables on standard output."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import progress
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from headstart.cli.options import Common
from headstart.data.readers.sources import is_stdin
from headstart.errors import UserError, visible
from headstart.progress import log, plain_bar

if TYPE_CHECKING:
    from headstart.inference.predict import Text as InputText
    from headstart.machine import Machine
    from headstart.runs.load import LoadedRun
    from headstart.runs.study_model import StudyModel


def open_run(run: Path, verb: str | None, common: Common) -> "tuple[LoadedRun, Machine]":
    """A run, or the network of a study's model, that serves the verb (None: any), on the machine that was asked for."""
    from headstart.runs.load import load
    from headstart.runs.load import open_run as open_for
    from headstart.runs.study_model import run_of

    machine, path = _machine(common), run_of(run)
    return open_for(path, verb, machine.device) if verb else load(path, machine.device), machine


def open_model(run: Path, verb: str, common: Common) -> "tuple[LoadedRun | StudyModel, Machine]":
    """A run or the model of a study that serves the verb, whatever arm it is."""
    from headstart.runs.study_model import open_model as open_for

    machine = _machine(common)
    return open_for(run, verb, machine.device), machine


def _machine(common: Common) -> "Machine":
    from headstart.machine import choose

    machine = choose(common.device, common.precision, common.threads)
    machine.prepare()
    return machine


def read_texts(file: str, run: "LoadedRun | StudyModel", given: dict[str, Any]) -> "Iterator[InputText | None]":
    """The texts of a file, by default from the column that the run was trained on."""
    from headstart.config.reading import Reading
    from headstart.inference.predict import texts_in_file

    log_standard_input(file)
    return texts_in_file(file, Reading(**{"text_column": run.config.data.text_column, **given}))


def read_rows(
    file: str, run: "LoadedRun | StudyModel", given: dict[str, Any]
) -> "Iterator[tuple[InputText, dict[str, Any]] | None]":
    """The texts of a file as `read_texts` has them, each with all columns of its row."""
    from headstart.config.reading import Reading
    from headstart.inference.predict import rows_in_file

    log_standard_input(file)
    return rows_in_file(file, Reading(**{"text_column": run.config.data.text_column, **given}))


def log_truncated(count: int, length: int) -> None:
    """How many texts were longer than the run reads."""
    if count:
        are, were = ("text is", "was") if count == 1 else ("texts are", "were")
        log(f"{count:,} {are} longer than {length:,} tokens and {were} cut there")


def log_standard_input(file: str) -> None:
    """Say at a terminal that standard input is read."""
    if is_stdin(file) and sys.stdin is not None and sys.stdin.isatty():
        log("reading standard input, a text a line; Ctrl-D ends it")


def printed(text: str) -> str:
    """Text for standard output: as it is for a file or a pipe, escaped where it could drive a terminal."""
    return visible(text) if sys.stdout.isatty() else text


def table_console() -> Console:
    """Standard output, as wide as its terminal; where it is none, as wide as a table needs: nothing is cut."""
    return Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 1000)


def plain_table(
    *columns: str | Column, rows: Iterable[Iterable[str | Text]], numbers: Sequence[str] = (), **options: Any
) -> Table:
    """A table without lines; the columns of numbers come last and are aligned to the right."""
    right = [Column(name, justify="right") for name in numbers]
    table = Table(*columns, *right, **{"box": None, "pad_edge": False, "header_style": "bold", **options})
    for row in rows:
        table.add_row(*row)
    return table


@contextmanager
def spinner(task: str, *, is_printing: bool = False) -> Iterator[None]:
    """A spinner on standard error, where that is a terminal and not the one that is printed to."""
    console = Console(stderr=True)
    if not console.is_terminal or (is_printing and sys.stdout.isatty()):
        yield
        return
    with console.status(visible(task)):
        yield


class ByteBar:
    """Progress bars over the bytes of some files, one after another."""

    def __init__(self, bar: progress.Progress, total_bytes: int | None) -> None:
        self._bar, self._total = bar, total_bytes
        self._task = bar.add_task("", visible=False)

    def stage(self, name: str) -> None:
        """Begin to read the files once more."""
        self._bar.reset(self._task, total=self._total, description=name, visible=True)

    def advance(self, byte_count: int) -> None:
        """So many bytes were read."""
        self._bar.advance(self._task, byte_count)
        (task,) = self._bar.tasks
        if task.description == "learning" and task.total is not None and task.completed >= task.total:
            # Everything is read; how long the learning itself takes is not known beforehand.
            self._bar.update(self._task, total=None, description="learning pieces")


@contextmanager
def byte_progress(paths: Sequence[str]) -> Iterator[ByteBar]:
    """Bars over the bytes of these files, on standard error; silent where that is no terminal."""
    sizes = [os.path.getsize(path) for path in paths if os.path.isfile(path)]
    with plain_bar() as bar:
        yield ByteBar(bar, sum(sizes) if len(sizes) == len(paths) else None)


def argument_text(text: str) -> str:
    """The text of the command line, or standard input without its last line break."""
    if text not in ("-", "/dev/stdin"):
        return text
    from headstart.config.reading import Reading
    from headstart.data.readers.files import text_blocks

    return "".join(text_blocks(text, Reading())).removesuffix("\n")


def form_of_picture(out: Path, *forms: str) -> str:
    """What the name says that the file is, without the dot; another form is refused before anything is computed."""
    form = out.suffix.lower()
    if form not in forms:
        what = f"cannot be drawn as {out.suffix or 'a file without an ending'}"
        raise UserError(what, where=out, fix=f"give a name that ends in {' or '.join(forms)}", code="unsupported")
    return form.removeprefix(".")


def write_picture(path: Path, picture: str | bytes, flag: str = "--out") -> None:
    """Write a picture or a page to the file that a flag names."""
    try:
        path.write_bytes(picture.encode() if isinstance(picture, str) else picture)
    except OSError as error:
        what = f"cannot be written ({error.strerror})"
        raise UserError(what, where=path, fix=f"give another {flag}", code="no-file") from error
