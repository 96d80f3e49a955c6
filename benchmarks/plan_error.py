"""How far off the plan is: memory and time of a step, as planned and as measured, over a grid of configurations.

    python benchmarks/plan_error.py --threads 2              # on the CPU: memory that grows over 500 MB, and time
    python benchmarks/plan_error.py --device cuda            # on a GPU: max_memory_allocated, and time
    python benchmarks/plan_error.py --memory-only            # where the machine is not idle

The machine is calibrated just before, in a cache of the benchmark's own. Each configuration then trains some steps on
random tokens in a process of its own, forked before any memory was used. Memory on a CPU is the growth of the resident
set up to its peak, on a GPU what the allocator had handed out at most. Time is the median of stretches of steps, with
their spread beside it. Prints a table, the median and the worst error, and a JSON line (or a file, with --out).
"""

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

REPEATS = {"cpu": 5, "cuda": 3}

# preset, vocabulary, head, texts in a step, tokens in each (and in its translation); then what differs.
Case = tuple[str, int, str, int, tuple[int, int], dict[str, Any]]
CPU: list[Case] = [
    ("tiny", 8_000, "lm", 80, (256, 0), {}),
    ("tiny", 32_000, "lm", 96, (128, 0), {}),
    ("tiny", 16_000, "lm", 32, (256, 0), {"width": 256, "depth": 4, "ffn": 1024}),
    ("tiny", 8_000, "classification", 96, (256, 0), {}),
    ("lab", 20_000, "lm", 32, (256, 0), {}),
    ("lab", 20_000, "lm", 16, (512, 0), {"reading": "whole"}),
    ("lab", 8_000, "classification", 64, (256, 0), {"pooling": "mean"}),
    ("modern-small", 16_000, "lm", 4, (256, 0), {}),
    ("modern-small", 16_000, "masked", 4, (256, 0), {}),
    ("modern-small", 8_000, "lm", 8, (256, 0), {"accumulate": 4}),
    ("modern-small", 8_000, "lm", 4, (256, 0), {"optimizer": "muon"}),
    ("modern-small", 8_000, "lm", 2, (512, 0), {"depth": 8, "width": 384, "heads": 6, "ffn": 1024}),
    ("modern-base", 16_000, "lm", 2, (128, 0), {}),
    ("gpt2", 20_000, "lm", 1, (256, 0), {"depth": 6}),
    ("gpt2", 8_000, "lm", 2, (512, 0), {"depth": 3}),
    ("gpt2", 8_000, "lm", 4, (256, 0), {"depth": 4, "dropout": 0.0, "attention_dropout": 0.0}),
    ("bert-base", 30_522, "masked-nsp", 4, (128, 0), {"depth": 8}),
    ("bert-base", 30_522, "classification", 8, (128, 0), {"freeze": "base"}),
    ("bert-base", 10_000, "classification", 8, (128, 0), {"depth": 6}),
    ("transformer-tiny", 16_000, "translation", 48, (40, 40), {}),
    ("transformer-tiny", 8_000, "translation", 32, (60, 50), {"dropout": 0.0, "attention_dropout": 0.0}),
    ("transformer-base", 20_000, "translation", 8, (30, 30), {}),
]
CUDA: list[Case] = [
    ("tiny", 8_000, "lm", 1024, (256, 0), {}),
    ("tiny", 50_000, "lm", 256, (256, 0), {}),
    ("lab", 50_001, "lm", 256, (128, 0), {}),
    ("lab", 50_001, "lm", 64, (512, 0), {"reading": "whole"}),
    ("lab", 8_000, "classification", 256, (256, 0), {"pooling": "mean"}),
    ("modern-small", 16_000, "lm", 64, (512, 0), {}),
    ("modern-small", 16_000, "masked", 64, (512, 0), {}),
    ("modern-small", 16_000, "lm", 64, (512, 0), {"accumulate": 4}),
    ("modern-small", 16_000, "lm", 32, (512, 0), {"optimizer": "muon"}),
    ("modern-base", 32_000, "lm", 32, (512, 0), {}),
    ("modern-base", 32_000, "lm", 16, (1024, 0), {"kv_heads": 4}),
    ("gpt2", 50_257, "lm", 16, (512, 0), {}),
    ("gpt2", 50_257, "lm", 8, (1024, 0), {"reading": "whole"}),
    ("bert-base", 30_522, "masked-nsp", 64, (128, 0), {}),
    ("bert-base", 30_522, "masked", 32, (512, 0), {"reading": "whole"}),
    ("bert-base", 30_522, "classification", 64, (256, 0), {}),
    ("bert-base", 30_522, "classification", 256, (256, 0), {"freeze": "base"}),
    ("transformer-tiny", 16_000, "translation", 512, (40, 40), {}),
    ("transformer-base", 37_000, "translation", 512, (32, 32), {}),
    ("transformer-base", 37_000, "translation", 256, (32, 32), {"precision": "fp32"}),
]


def workload(case: Case, device: str, precision: str) -> Any:
    from headstart.model.presets import HeadConfig, preset
    from headstart.plan.operations import Lengths
    from headstart.plan.workload import Workload, reading_of
    from headstart.training.rehearsal import DOCUMENT

    name, vocab, kind, batch, lengths, rest = case
    options = dict(rest)
    own = {key: options.pop(key) for key in ("accumulate", "optimizer", "freeze") if key in options}
    reading = options.pop("reading", reading_of(kind))  # type: ignore[arg-type]
    head = HeadConfig(kind=kind, pooling=options.pop("pooling", None))  # type: ignore[arg-type]
    precision = options.pop("precision", precision)
    if kind.startswith("masked"):
        options["direction"] = "bidirectional"
        options["segments"] = 2 if kind == "masked-nsp" else 0
    config = preset(name, vocab=vocab, context=max(512, *lengths), **options)
    return Workload(
        config=config, head=head, batch=batch, lengths=Lengths(*lengths), device=device, precision=precision,
        reading=reading, document=DOCUMENT if reading == "packed" else 0, **own,
    )  # fmt: skip


# ---- in a process of its own --------------------------------------------------------------------------------


def in_child(function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function returns, computed in a forked process: nothing of it stays here."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)

    def work() -> None:
        there.send(function(*arguments))

    child = context.Process(target=work)
    child.start()
    there.close()
    try:
        return here.recv()
    except EOFError:
        return None
    finally:
        child.join()


def calibrated(device: str, precision: str, threads: int) -> tuple[str, list[dict[str, Any]]]:
    """Measure the machine; returns its name and what was timed."""
    from headstart.training.calibrating import calibrate
    from headstart.training.machine import choose

    found = calibrate(choose(device, precision, threads))  # type: ignore[arg-type]
    return found.facts["device"], found.points


def chosen_precision(device: str, precision: str) -> str:
    from headstart.training.machine import choose

    return choose(device, precision).precision  # type: ignore[arg-type]


def status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


def measured(work: Any, threads: int, repeats: int) -> dict[str, Any]:
    """The peak of memory over some steps, and seconds a step in each stretch of them."""
    import torch

    from headstart.training.calibrating import stretches
    from headstart.training.rehearsal import machine_for

    machine = machine_for(work, threads)
    machine.prepare()
    before = status("VmRSS")
    seconds = stretches(work, machine, repeats)
    peak = torch.cuda.max_memory_allocated() if work.device == "cuda" else status("VmHWM") - before
    return {"memory": peak, "seconds": seconds}


def planned(work: Any, device_name: str, threads: int) -> tuple[int, float | None]:
    from headstart.plan.calibration import facts_of, found
    from headstart.plan.memory import training_memory
    from headstart.plan.time import step_seconds

    memory = training_memory(work).total
    calibration = found(facts_of(work.device, device_name, work.precision, threads))
    return memory, step_seconds(work, calibration.prices).total if calibration else None


# ---- the table ----------------------------------------------------------------------------------------------


def row_of(case: Case, work: Any, device_name: str, threads: int, repeats: int) -> dict[str, Any]:
    from headstart.plan.memory import LEAST_CLAIMED

    memory, seconds = planned(work, device_name, threads)
    name, vocab, kind, batch, lengths, rest = case
    row: dict[str, Any] = {
        "name": f"{name} {kind} {batch}x{lengths[0]} V={vocab} "
        + " ".join(f"{k}={v}" for k, v in rest.items()),
        "planned_memory": memory,
        "planned_seconds": seconds,
    }
    if work.device == "cpu" and memory < LEAST_CLAIMED:
        return {**row, "left_out": "under 500 MB"}
    found = in_child(measured, work, threads, repeats)
    if found is None:
        return {**row, "left_out": "its process ended without an answer"}
    row |= {"measured_memory": found["memory"], "memory_error": memory / found["memory"] - 1}
    times = found["seconds"]
    if seconds is not None:
        middle = statistics.median(times)
        spread = (max(times) - min(times)) / middle
        row |= {"measured_seconds": middle, "spread": spread, "seconds_error": seconds / middle - 1}
    return row


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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--precision", choices=["auto", "fp32", "bf16"], default="auto")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--memory-only", action="store_true")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of configurations")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    # Imported before any fork, and nothing computed: a child begins with the libraries, and a GPU is its own to open.
    import headstart.training.calibrating  # noqa: F401

    with tempfile.TemporaryDirectory() as cache:
        os.environ["HEADSTART_CACHE"] = cache
        precision = in_child(chosen_precision, given.device, given.precision)
        name, points = "", []
        if not given.memory_only:
            name, points = in_child(calibrated, given.device, precision, given.threads)
        cases = CPU if given.device == "cpu" else CUDA
        chosen = given.only if given.only else range(len(cases))
        print(
            f"{'':72} memory, MB: planned measured error, ms a step: planned measured, half the spread, error"
        )
        rows = []
        for number in chosen:
            work = workload(cases[number], given.device, precision)
            rows.append(
                row_of(
                    cases[number],
                    work,
                    name,
                    given.threads,
                    REPEATS[given.device] if not given.memory_only else 1,
                )
            )
            print_row(rows[-1])
    found = {
        "device": name or given.device,
        "precision": precision,
        "threads": given.threads,
        **summary(rows),
    }
    for key, value in found.items():
        print(f"{key}: {value if isinstance(value, str | int) else f'{value:.1%}'}")
    data = json.dumps({**found, "rows": rows, "calibration": points})
    if given.out:
        given.out.write_text(data + "\n", encoding="utf-8")
    else:
        print(data)


if __name__ == "__main__":
    main()
