"""Where a training step's time goes on a GPU: the kernels of Headstart's own step, by torch's profiler.

    python benchmarks/gpu_profile.py gpt2
    python benchmarks/gpu_profile.py small --vocab 8192
    HEADSTART_DATA=… python benchmarks/gpu_profile.py bert
    python benchmarks/gpu_profile.py base --dropout 0
    python benchmarks/gpu_profile.py trial --eager

The work is that of gpu_training.py, compiled and with --fast; or a step of the recipe's largest base, or of a trial
that fine-tunes it, on random tokens, compiled and exact. Prints the milliseconds of a step by the clock, how long its
kernels were busy, and the longest of them with how often they ran.
"""

import argparse
import dataclasses
import os
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import gpu_cases
import gpu_training
import reviews
import torch
from peers import Work
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

SHAPES = {"gpt2": gpu_cases.GPT2, "small": gpu_cases.SMALL, "bert": gpu_cases.BERT}
PROFILED_STEPS = 5
TOKENS = 330  # of a text, and of a document


def of_recipe(options: argparse.Namespace) -> Work:
    """A step of the largest base (128 blocks of 512 tokens), or of a trial of it (64 texts)."""
    from headstart.config.model import HeadConfig
    from headstart.config.presets import preset
    from headstart.machine import choose
    from headstart.planning.base import PRESET, SIZES, base_recipe
    from headstart.planning.workload import Lengths, Workload
    from headstart.training.calibration.rehearsal import one_update, rehearsal

    size, is_base = SIZES[-1], options.work == "base"
    recipe = base_recipe(size, 1e9, TOKENS)
    fields = {**recipe.model, **({} if options.dropout is None else {"dropout": options.dropout})}
    model = preset(PRESET, **fields, vocab=recipe.tokenizer["vocab"], direction="bidirectional")
    length = recipe.pretrain["length"] if is_base else TOKENS
    work = Workload(
        config=model, head=HeadConfig(kind="masked") if is_base else HeadConfig(kind="classification", classes=2),
        batch=size.batch_tokens // length if is_base else 64, lengths=Lengths(length), device="cuda", precision="bf16",
        reading="packed" if is_base else "padded", document=TOKENS if is_base else 0,
        optimizer=options.optimizer if is_base else "adamw", masked_share=recipe.pretrain["mask_prob"],
    )  # fmt: skip
    machine = choose("cuda", threads=1, fast=options.fast)
    machine.prepare()
    training = rehearsal(work, machine)
    training.is_compiled = not options.eager
    update = one_update(training)

    def take(step: int) -> None:
        update(step)

    return Work(take, lambda step: work.batch * length, warmup=15)


def of_training(options: argparse.Namespace) -> Work:
    """A step of gpu_training.py's Headstart."""
    shape, documents = SHAPES[options.work], None
    if options.work == "bert":
        if "HEADSTART_DATA" not in os.environ:
            sys.exit("skipped: HEADSTART_DATA is not set")
        with tempfile.TemporaryDirectory() as place:
            reviews.prepare(Path(place), tiny=False)
            documents = reviews.read(Path(place))
        shape = dataclasses.replace(shape, length=documents.longest, vocab=documents.tokenizer.size)
    elif options.vocab:
        shape = dataclasses.replace(shape, vocab=options.vocab)
    return gpu_training.headstart_work(shape, torch.device("cuda"), documents)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", choices=[*SHAPES, "base", "trial"])
    parser.add_argument("--vocab", type=int, help="instead of the case's own")
    parser.add_argument("--steps", type=int, default=50, help="to time before the profile")
    parser.add_argument("--kernels", type=int, default=30, help="how many to print")
    parser.add_argument("--eager", action="store_true", help="base and trial: not compiled")
    parser.add_argument("--fast", action="store_true", help="base and trial: not exact")
    parser.add_argument("--dropout", type=float, help="base and trial: instead of the recipe's")
    parser.add_argument("--optimizer", default="muon-split", help="base: instead of the recipe's")
    options = parser.parse_args()
    work = of_recipe(options) if options.work in ("base", "trial") else of_training(options)
    steps = iter(range(1_000_000))

    def run(count: int) -> float:
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            work.update(next(steps))
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) / count

    run(work.warmup)
    seconds = run(options.steps)
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        run(PROFILED_STEPS)
    times: dict[str, list[float]] = defaultdict(list)
    for event in found.events():
        if event.device_type == DeviceType.CUDA:
            times[event.name].append(event.device_time / PROFILED_STEPS)
    busy, count = sum(map(sum, times.values())), sum(map(len, times.values())) / PROFILED_STEPS
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: {1e3 * seconds:.2f} ms a step, ", end="")
    print(f"{work.tokens(0) / seconds:,.0f} tokens/s; {count:.0f} kernels, busy {busy / 1e3:.2f} ms")
    for name, each in sorted(times.items(), key=lambda one: -sum(one[1]))[: options.kernels]:
        print(f"{sum(each):8.0f} µs {len(each) / PROFILED_STEPS:5.0f} × {name[:100]}")


if __name__ == "__main__":
    main()
