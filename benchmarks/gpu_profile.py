"""Where a training step's time goes on a GPU: the kernels of Headstart's own step, by torch's profiler.

    python benchmarks/gpu_profile.py gpt2
    python benchmarks/gpu_profile.py small --vocab 8192
    HEADSTART_DATA=… python benchmarks/gpu_profile.py bert

The work is that of gpu_training.py, compiled and with --fast. Prints the milliseconds of a step by the clock, how long
its kernels were busy, and the longest of them with how often they ran.
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
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

SHAPES = {"gpt2": gpu_cases.GPT2, "small": gpu_cases.SMALL, "bert": gpu_cases.BERT}
PROFILED_STEPS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", choices=SHAPES)
    parser.add_argument("--vocab", type=int, help="instead of the case's own")
    parser.add_argument("--steps", type=int, default=50, help="to time before the profile")
    parser.add_argument("--kernels", type=int, default=30, help="how many to print")
    options = parser.parse_args()
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
    work = gpu_training.headstart_work(shape, torch.device("cuda"), documents)
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
