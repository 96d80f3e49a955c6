"""How far off the plan is: memory and time of a step, as planned and as measured, over a grid of configurations.

    python benchmarks/plan_error.py --threads 2              # on the CPU: memory of the whole process, and time
    python benchmarks/plan_error.py --device cuda --both     # on a GPU: memory with the driver's context, and time
    python benchmarks/plan_error.py --held-out               # configurations that no constant was fitted on
    python benchmarks/plan_error.py --memory-only            # where the machine is not idle
    python benchmarks/plan_error.py --replay FILE            # what --out wrote, planned again by the code as it is

The machine is calibrated just before, in a cache of the benchmark's own. Each configuration then trains some steps on
random tokens. Memory is all that the process has: on a CPU the peak of its resident set, in a process of its own,
forked before any memory was used; on a GPU what the allocator had handed out at most and what the driver's context
takes, many configurations in one process, which gives everything back after each. Time is the median of stretches of
steps, with their spread beside it. Prints a table, the median and the worst error, and a JSON line (or a file, with
--out, whole after every row).
"""

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from plan_grid import CPU, CUDA, Case, case_named, cases, name_of, workload

__all__ = ["CPU", "CUDA", "workload"]
REPEATS = {"cpu": 5, "cuda": 3}
MOST_LEFT_OVER = 64 * 2**20  # on a GPU, of a configuration before: with more the next begins in a new process
TITLE = f"{'':72} memory, MB: planned measured error, ms a step: planned measured, half the spread, error"

# ---- in a process of its own --------------------------------------------------------------------------------


def in_children(function: Callable[..., Iterator[Any]], *arguments: Any) -> Iterator[Any]:
    """What the function yields, computed in a forked process: nothing of it stays here."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)

    def work() -> None:
        here.close()
        for found in function(*arguments):
            there.send(found)

    child = context.Process(target=work)
    child.start()
    there.close()
    try:
        while True:
            yield here.recv()
    except EOFError:
        return
    finally:
        child.join()


def in_child(function: Callable[..., Any], *arguments: Any) -> Any:
    """The same for one answer; None where the process ended without it."""
    return next(in_children(lambda: iter([function(*arguments)])), None)


def prepared(device: str, precision: str, threads: int, is_timed: bool) -> dict[str, Any]:
    """What is chosen here, and the machine as measured."""
    from headstart.machine import choose
    from headstart.training.calibration.calibrate import calibrate

    machine = choose(device, precision, threads)  # type: ignore[arg-type]
    found: dict[str, Any] = {
        "device": device,
        "kind": device,
        "precision": machine.precision,
        "threads": threads,
    }
    if is_timed:
        calibration = calibrate(machine)
        found |= {"device": calibration.facts["device"], "calibration": calibration.points}
        found |= {"prices": calibration.seconds}
    return found


def status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


def measured(work: Any, threads: int, repeats: int) -> dict[str, Any]:
    """The peak of memory over some steps, and seconds a step in each stretch of them."""
    import torch

    from headstart.machine import Machine
    from headstart.training.calibration.calibrate import stretches

    machine = Machine(torch.device(work.device), work.precision, threads)
    machine.prepare()
    before = 0
    if work.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    seconds = stretches(work, machine, repeats)
    if work.device == "cpu":
        return {"memory": status("VmHWM"), "seconds": seconds}
    free, total = torch.cuda.mem_get_info()
    context = total - free - torch.cuda.memory_reserved()  # nothing else may run on this GPU
    return {"memory": torch.cuda.max_memory_allocated() - before + context, "seconds": seconds}


def measured_in_turn(works: Sequence[Any], threads: int, repeats: int) -> Iterator[dict[str, Any]]:
    """Of one configuration after another on a GPU, for as long as each gives back what it had."""
    import gc

    import torch

    torch.cuda.init()
    for work in works:
        yield measured(work, threads, repeats)
        gc.collect()
        torch._C._cuda_clearCublasWorkspaces()  # type: ignore[attr-defined]
        torch.cuda.empty_cache()
        if torch.cuda.memory_allocated() > MOST_LEFT_OVER:
            return


def all_measured(works: list[Any], threads: int, repeats: int) -> Iterator[dict[str, Any] | None]:
    """For each what was found, or None where its process ended without an answer."""
    if not works:
        return
    if works[0].device == "cpu":
        for work in works:
            yield in_child(measured, work, threads, repeats)
        return
    done = 0
    while done < len(works):
        before = done
        for found in in_children(measured_in_turn, works[done:], threads, repeats):
            done += 1
            yield found
        if done == before:
            done += 1
            yield None


# ---- the table ----------------------------------------------------------------------------------------------


def planned(work: Any, prices: Any) -> dict[str, Any]:
    """Memory and seconds, also by kind, as the plan has them."""
    from headstart.planning.memory import training_memory
    from headstart.planning.time import step_seconds

    memory = training_memory(work)
    found: dict[str, Any] = {"planned_memory": memory.total, "planned_memory_by_kind": memory.kinds}
    if prices is not None:
        seconds = step_seconds(work, prices)
        found |= {"planned_seconds": seconds.total, "planned_seconds_by_kind": seconds.kinds}
    return found


def compared(row: dict[str, Any]) -> dict[str, Any]:
    """The row with its errors."""
    errors = {}
    for what in ("memory", "seconds"):
        if f"planned_{what}" in row and f"measured_{what}" in row:
            errors[f"{what}_error"] = row[f"planned_{what}"] / row[f"measured_{what}"] - 1
    return {**row, **errors}


def rows_of(
    chosen: list[Case], machine: dict[str, Any], prices: Any, repeats: int, is_timed: bool
) -> Iterator[dict[str, Any]]:
    works = [workload(case, machine["kind"], machine["precision"]) for case in chosen]
    plans = []
    for case, work in zip(chosen, works, strict=True):
        is_priced = work.precision == machine["precision"]
        plans.append({"name": name_of(case), **planned(work, prices if is_priced else None)})
    for row, found in zip(plans, all_measured(works, machine["threads"], repeats), strict=True):
        if found is None:
            yield {**row, "left_out": "its process ended without an answer"}
            continue
        row |= {"measured_memory": found["memory"]}
        if is_timed:
            middle = statistics.median(found["seconds"])
            row |= {
                "measured_seconds": middle,
                "spread": (max(found["seconds"]) - min(found["seconds"])) / middle,
            }
        yield compared(row)


def print_row(row: dict[str, Any]) -> None:
    line = f"{row['name'][:72]:72}"
    if "left_out" in row:
        print(f"{line} {row['left_out']}", flush=True)
        return
    line += f" {row['planned_memory'] / 2**20:7.0f} {row['measured_memory'] / 2**20:7.0f} {row['memory_error']:+6.1%}"
    if "seconds_error" in row:
        line += f"  {1000 * row['planned_seconds']:8.2f} {1000 * row['measured_seconds']:8.2f}"
        line += f" ±{row['spread'] / 2:4.0%} {row['seconds_error']:+6.1%}"
    print(line, flush=True)


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {"configurations": sum("memory_error" in row for row in rows)}
    for key in ("memory_error", "seconds_error"):
        errors = [abs(row[key]) for row in rows if key in row]
        found |= {f"median_{key}": statistics.median(errors), f"worst_{key}": max(errors)} if errors else {}
    return found


def print_summary(facts: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    shown = {key: facts[key] for key in ("device", "precision", "threads")} | summary(rows)
    for key, value in shown.items():
        print(f"{key}: {value if isinstance(value, str | int) else f'{value:.1%}'}")


# ---- again, from a file -------------------------------------------------------------------------------------


def prices_of(data: dict[str, Any]) -> tuple[Any, str]:
    """Prices by the present code from the steps that were timed then; without any, those of the card's sheet."""
    from headstart.planning.calibration import this_cpu
    from headstart.planning.machines import card_like
    from headstart.planning.time import Prices, counts, paper_prices
    from headstart.training.calibration.calibrate import fitted, workloads

    target = this_cpu(data["threads"]) if data["kind"] == "cpu" else card_like(data["device"])
    assert target is not None
    paper = paper_prices(target, data["precision"])
    works = workloads(data["kind"], data["precision"])
    points = [point for point in data.get("calibration", []) if point["name"] in works]
    if not points:
        return paper, paper.source
    seconds = fitted([(counts(works[point["name"]]), point["measured"]) for point in points], paper.seconds)
    return Prices(seconds, paper.bandwidth, "", True), f"{len(points)} steps that were timed then"


def replayed(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of an earlier run, planned by the code as it is."""
    prices, source = prices_of(data)
    print(f"prices from {source}\n{TITLE}")
    rows = []
    for old in data["rows"]:
        case = case_named(old["name"][:72], data["kind"])
        if case is None or "measured_memory" not in old:
            continue
        work = workload(case, data["kind"], data["precision"])
        kept = {key: old[key] for key in ("measured_memory", "measured_seconds", "spread", "held_out") if key in old}
        is_priced = work.precision == data["precision"]
        rows.append(compared({"name": name_of(case), **kept, **planned(work, prices if is_priced else None)}))
        print_row(rows[-1])
    return rows


# ---- main ---------------------------------------------------------------------------------------------------


def write(out: Path | None, machine: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    if out is not None:
        out.write_text(json.dumps({**machine, **summary(rows), "rows": rows}) + "\n", encoding="utf-8")


def run(given: argparse.Namespace) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Calibrate, then row after row, each printed and written as it comes."""
    from headstart.planning.time import Prices

    is_timed = not given.memory_only
    machine = in_child(prepared, given.device, given.precision, given.threads, is_timed)
    assert machine is not None, "the machine could not be prepared"
    prices = Prices(machine["prices"], 1.0, "a calibration", True) if is_timed else None
    for point in machine.get("calibration", []):
        print(
            f"calibrated, {point['name']}: {1000 * point['measured']:.2f} ms, {1000 * point['planned']:.2f} as fitted"
        )
    print(TITLE, flush=True)
    repeats, rows = REPEATS[given.device], []
    for is_held_out in (False, True):
        if given.held_out != is_held_out and not given.both:
            continue
        grid = cases(given.device, held_out=is_held_out)
        chosen = [grid[number] for number in given.only] if given.only else grid
        for row in rows_of(chosen, machine, prices, repeats, is_timed):
            rows.append({**row, "held_out": is_held_out})
            print_row(row)
            write(given.out, machine, rows)
    return machine, rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--precision", choices=["auto", "fp32", "bf16"], default="auto")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--memory-only", action="store_true")
    parser.add_argument("--held-out", action="store_true", help="the grid that is held out, instead")
    parser.add_argument("--both", action="store_true", help="both grids")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of configurations in their grid")
    parser.add_argument("--replay", type=Path, help="a file that --out wrote")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    # Imported before any fork, and nothing computed: a child begins with the libraries, and a GPU is its own to open.

    if given.replay:
        machine = json.loads(given.replay.read_text(encoding="utf-8"))
        machine.setdefault("kind", "cpu")
        rows = replayed(machine)
    else:
        with tempfile.TemporaryDirectory() as cache:
            os.environ["HEADSTART_CACHE"] = cache
            machine, rows = run(given)
    for is_held_out in sorted({row.get("held_out", False) for row in rows}):
        print("held out:" if is_held_out else "the grid:")
        print_summary(machine, [row for row in rows if row.get("held_out", False) == is_held_out])
    write(given.out, {key: machine[key] for key in machine if key != "rows"}, rows)
    if not given.out and not given.replay:
        print(json.dumps({**machine, **summary(rows), "rows": rows}))


if __name__ == "__main__":
    main()
