"""How far a long task is, on standard error: a bar on a terminal, a line a minute in a file or a pipe."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial

from rich import progress
from rich.console import Console

from headstart.errors import Log, visible

LINE_SECONDS = 60.0
LEAST_SHARE = 1e-3  # that has to be done before the time left is told
Update = Callable[[float, str], None]  # the share that is done, and a line about what is being done


def log(line: str, console: Console | None = None) -> None:
    """A line for a person, on standard error: above the bar, where its console is given."""
    console = console or Console(stderr=True)
    console.print(visible(line), highlight=False, markup=False, soft_wrap=True)


@contextmanager
def long_task(name: str) -> Iterator[tuple[Log, Update]]:
    """How to log during a long task, and how to say how far it is."""
    pace = _Pace()
    with _bars(about=True) as bar:
        task = bar.add_task(visible(name), total=1.0, about="", left="", visible=False)
        say = partial(log, console=bar.console)

        def update(share: float, about: str = "") -> None:
            left = pace.left(share)
            if not bar.disable:
                bar.update(task, completed=share, about=visible(about), left=left, visible=True)
            elif pace.is_line_due():
                elapsed = _clock(time.monotonic() - pace.start)
                say("  ".join(filter(None, [f"{name} {share:.0%}", about, f"elapsed {elapsed}", left])))

        yield say, update


@contextmanager
def progress_bar(task: str) -> Iterator[Callable[[float], None]]:
    """To be called with the share that is done."""
    with long_task(task) as (_, update):
        yield lambda share: update(share, "")


def plain_bar() -> progress.Progress:
    """A bar for tasks that know their own totals; silent where there is no terminal."""
    return _bars(about=False)


def _bars(about: bool) -> progress.Progress:
    """Bars that go when they are done. What is printed meanwhile, warnings of libraries too, appears above them."""
    console, out = Console(stderr=True), Console()
    left = progress.TextColumn("{task.fields[left]}") if about else progress.TimeRemainingColumn()
    return progress.Progress(
        progress.TextColumn("{task.description}", markup=False), progress.BarColumn(), progress.TaskProgressColumn(),
        *([progress.TextColumn("{task.fields[about]}", markup=False)] if about else []),
        progress.TextColumn("elapsed"), progress.TimeElapsedColumn(),
        *([] if about else [progress.TextColumn("time left")]), left,
        console=console, transient=True, disable=not console.is_terminal, redirect_stdout=out.is_terminal,
    )  # fmt: skip


class _Pace:
    """Time left, from the share that was done since the first report; and when the next line is due."""

    def __init__(self) -> None:
        self.start = self._line = time.monotonic()
        self._first: tuple[float, float] | None = None

    def left(self, share: float) -> str:
        now = time.monotonic()
        self._first = self._first or (now, share)  # a task that is resumed begins with what was done before
        since, before = self._first
        if share - before < LEAST_SHARE:
            return ""
        return f"time left {_clock((now - since) * (1 - share) / (share - before))}"

    def is_line_due(self) -> bool:
        is_due = time.monotonic() - self._line >= LINE_SECONDS
        if is_due:
            self._line = time.monotonic()
        return is_due


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
