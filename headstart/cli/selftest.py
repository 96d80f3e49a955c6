"""`headstart selftest`: kill a training again and again, and show that nothing was lost."""

import dataclasses
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from headstart.cli.options import Common, CommonFlags
from headstart.errors import UserError, visible

if TYPE_CHECKING:
    from headstart.training.selftest import Kill, Outcome

_PLACES = {
    "starting": "while it was starting",
    "moment": "at a moment of chance",
    "step": "between a step and its save",
    "after:model": "in a save, after the weights",
    "after:state": "in a save, after the state",
    "after:manifest": "in a save, after the manifest",
    "before:rename": "in a save, before the rename",
    "between:renames": "in a save, between two renames",
    "after:rename": "in a save, after the rename",
    "after:weights": "at the end, before the result",
}


def selftest(
    *,
    kill: int = 20,
    objective: Literal["causal", "masked", "masked-nsp", "classification", "translation"] = "causal",
    common: CommonFlags = Common(),
) -> int:
    """Kill a training again and again, and show that its final weights are the same, to the byte.

    A small model is trained twice on made-up reviews, with dropout, micro-batches, a moving average and
    evaluations: once in peace, and once in processes that are killed (SIGKILL) at moments of chance and inside
    each stage of a save, and started again. It takes a minute or two on a CPU with one thread, unless --device or
    --threads say otherwise; the exit code is 1 if anything differs.

    For example:

        headstart selftest --kill 20

        headstart selftest --kill 5 --objective masked-nsp --seed 3 --json

    Parameters
    ----------
    kill
        How often to kill it.
    objective
        What is trained.
    """
    if kill < 1:
        raise UserError(f"kill is {kill}", fix="give 1 or more")
    from headstart.training.machine import choose
    from headstart.training.selftest import selftest as run

    machine = choose(
        "cpu" if common.device == "auto" else common.device, common.precision, common.threads or 1
    )
    directory = Path(tempfile.mkdtemp(prefix="headstart-selftest-"))
    with _bar(objective, kill) as advance:

        def on_kill(done: "Kill") -> None:
            if not common.json:
                print(_line(done), flush=True)
            advance(done.number)

        try:
            outcome = run(kill, objective, common.seed, machine, directory, on_kill)
        except KeyboardInterrupt:
            shutil.rmtree(directory, ignore_errors=True)
            raise
    if outcome.passed:
        shutil.rmtree(directory, ignore_errors=True)
    if common.json:
        found = {"objective": objective, "seed": common.seed, **dataclasses.asdict(outcome)}
        print(json.dumps({**found, "passed": outcome.passed}))
    else:
        _print_verdict(outcome, directory)
    return 0 if outcome.passed else 1


@contextmanager
def _bar(objective: str, kills: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error where that is a terminal; lines are printed above it where they go there too."""
    console = Console(stderr=True, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    with Progress(
        *columns, TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal,
        redirect_stdout=sys.stdout.isatty(),
    ) as bar:  # fmt: skip
        task = bar.add_task(f"{objective}, in peace", total=kills)
        yield lambda number: bar.update(task, completed=number, description=f"{objective}, killed")


def _line(done: "Kill") -> str:
    step = f"after step {done.after_step}" if done.after_step is not None else "before any step"
    return (
        f"kill {done.number:>3}  {step:<16}  {_PLACES[done.place]:<30}  goes on from step {done.goes_on_from}"
    )


def _print_verdict(outcome: "Outcome", directory: Path) -> None:
    print(f"{outcome.steps} steps, {len(outcome.kills)} kills, {outcome.seconds:.0f} s")
    print(f"uninterrupted  sha256 {outcome.uninterrupted_sha256}")
    print(f"killed         sha256 {outcome.killed_sha256}")
    if outcome.uninterrupted_sha256 == outcome.killed_sha256:
        print("the final weights are the same, to the byte")
    else:
        print("THE FINAL WEIGHTS DIFFER")
    print(f"metrics.jsonl is {'the same, to the byte' if outcome.same_metrics else 'NOT the same'}")
    print(f"left behind by what was killed: {visible(', '.join(outcome.leftovers)) or 'nothing'}")
    if not outcome.passed:
        print(f"both runs are kept in {directory}")
