"""`headstart selftest`: a training that is killed again and again ends with bit-identical weights."""

import dataclasses
import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from headstart.cli.options import Common, CommonFlags
from headstart.errors import UserError, visible
from headstart.progress import progress_bar

if TYPE_CHECKING:
    from headstart.training.tasks.selftest import Kill, SelftestResult

_POINTS = {
    "starting": "while it was starting",
    "moment": "at a random moment",
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
    """Kill a training again and again, and show that it ends with bit-identical weights.

    It trains a small model twice on made-up reviews, with dropout, micro-batches, a moving average and evaluations:
    once uninterrupted, and once in processes that are killed (SIGKILL) at random moments and inside each stage of a
    save, and restarted. It takes a minute or two on a CPU with one thread, unless --device or --threads say
    otherwise. The exit code is 1 if anything differs.

    For example:

        headstart selftest --kill 20
        headstart selftest --kill 5 --objective masked-nsp --seed 3 --json

    Args:
        kill: How often to kill it.
        objective: What is trained.
    """
    if kill < 1:
        raise UserError(f"kill is {kill}", fix="give 1 or more")
    from headstart.machine import choose
    from headstart.training.tasks.selftest import selftest as run

    device = "cpu" if common.device == "auto" else common.device
    machine = choose(device, common.precision, common.threads or 1)
    directory = Path(tempfile.mkdtemp(prefix="headstart-selftest-"))
    with progress_bar(f"training {objective}") as on_share:

        def on_kill(done: "Kill") -> None:
            if not common.json:
                print(_line(done), flush=True)
            on_share(done.number / kill)

        try:
            result = run(kill, objective, common.seed, machine, directory, on_kill)
        except KeyboardInterrupt:
            shutil.rmtree(directory, ignore_errors=True)
            raise
    if result.passed:
        shutil.rmtree(directory, ignore_errors=True)
    if common.json:
        fields = {"objective": objective, "seed": common.seed, **dataclasses.asdict(result)}
        print(json.dumps({**fields, "passed": result.passed}))
    else:
        _print_verdict(result, directory)
    return 0 if result.passed else 1


def _line(done: "Kill") -> str:
    step = f"after step {done.after_step}" if done.after_step is not None else "before any step"
    where = _POINTS[done.point]
    return f"kill {done.number:>3}  {step:<16}  {where:<30}  resumes from step {done.resumes_from}"


def _print_verdict(result: "SelftestResult", directory: Path) -> None:
    print(f"{result.steps} steps, {len(result.kills)} kills, {result.seconds:.0f} s")
    print(f"uninterrupted  sha256 {result.uninterrupted_sha256}")
    print(f"killed         sha256 {result.killed_sha256}")
    is_same = result.uninterrupted_sha256 == result.killed_sha256
    print("the final weights are bit-identical" if is_same else "THE FINAL WEIGHTS DIFFER")
    print(f"metrics.jsonl is {'identical' if result.same_metrics else 'NOT identical'}")
    print(f"temporary files left behind: {visible(', '.join(result.leftovers)) or 'nothing'}")
    if not result.passed:
        print(f"both runs are kept in {directory}")
