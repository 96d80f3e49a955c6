"""A calibration: seconds of real steps on this machine, to which the price of each kind of work is fitted.

Each timed step has much of one kind of work. The prices have the least relative error on the measured times, are not
negative, and stay near the paper's where the steps say little.
"""

import statistics
import time
from typing import Any

import numpy as np
import torch

from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.errors import Log
from headstart.hardware import cpu_name, free_bytes
from headstart.machine import Machine
from headstart.planning import machines
from headstart.planning.calibration import Calibration, facts_of, this_cpu
from headstart.planning.layers import seconds_of
from headstart.planning.time import UNITS, counts, paper_prices
from headstart.planning.workload import ComputePrecision, DeviceKind, Lengths, Workload
from headstart.training.calibration.rehearsal import DOCUMENT, one_update, rehearsal

WARM_STEPS, REPEATS = 3, 3
SECONDS_A_POINT: dict[DeviceKind, float] = {"cpu": 0.4, "cuda": 0.15}
FEWEST_STEPS: dict[DeviceKind, int] = {"cpu": 1, "cuda": 6}  # at once: a GPU's first one waits for its launch
NEARNESS = 0.01  # how much a price's distance from the paper's counts beside the error of a measured step
COPIED_NUMBERS = 1 << 24

# What each step has much of; (width, depth, ffn, batch, length, vocabulary), then the rest.
_Shape = tuple[int, int, int, int, int, int]

_SHAPES: dict[DeviceKind, dict[str, tuple[_Shape, dict[str, Any]]]] = {
    "cpu": {
        "balanced": ((128, 2, 512, 8, 128, 1000), {}),
        "products": ((512, 2, 2048, 4, 128, 500), {}),
        "wide products": ((768, 2, 3072, 4, 128, 500), {}),
        "attention": ((128, 2, 256, 2, 1024, 500), {}),
        "attention with dropout": ((128, 2, 256, 4, 256, 500), {"attention_dropout": 0.1}),
        "dropout": ((256, 3, 1024, 4, 128, 500), {"dropout": 0.1, "ffn_dropout": 0.1}),
        "vocabulary": ((128, 1, 256, 4, 128, 16_000), {}),
        "update": ((512, 2, 2048, 1, 16, 16_000), {}),
        "muon": ((256, 3, 1024, 1, 64, 500), {"optimizer": "muon"}),
        "gates": ((384, 3, 1024, 4, 128, 500), {"preset": "modern-small"}),
        "kernels": ((32, 8, 64, 1, 16, 100), {}),
        "a step": ((32, 1, 64, 1, 16, 100), {}),
    },
    "cuda": {
        "balanced": ((512, 4, 2048, 32, 256, 8000), {}),
        "products": ((1024, 6, 4096, 32, 256, 1000), {}),
        "wide products": ((2048, 3, 8192, 16, 256, 1000), {}),
        "attention": ((512, 4, 1024, 8, 2048, 1000), {}),
        "a mask": ((512, 4, 1024, 16, 512, 1000), {"kind": "classification", "reading": "padded"}),
        "attention with dropout": ((512, 4, 1024, 16, 512, 1000), {"attention_dropout": 0.1, "reading": "packed"}),
        "dropout": ((1024, 4, 4096, 32, 256, 1000), {"dropout": 0.1, "ffn_dropout": 0.1}),
        "vocabulary": ((256, 1, 512, 64, 256, 50_000), {}),
        "vocabulary with a bias": ((256, 1, 512, 64, 256, 50_001), {"output_bias": True}),
        "update": ((1024, 8, 4096, 1, 64, 50_000), {}),
        "muon": ((1024, 4, 4096, 1, 256, 1000), {"optimizer": "muon"}),
        "gates": ((768, 6, 2048, 16, 256, 1000), {"preset": "modern-small"}),
        "documents": ((512, 4, 1408, 24, 512, 8000), {"preset": "modern-small", "reading": "packed"}),
        "narrow": ((128, 2, 512, 256, 256, 1000), {"preset": "tiny"}),
        "kernels": ((64, 12, 128, 1, 32, 100), {}),
        "launches": ((64, 12, 128, 4, 32, 100), {"accumulate": 4}),
        "a step": ((64, 1, 128, 1, 32, 100), {}),
    },
}

_OWN = ("optimizer", "accumulate", "reading")  # what is the workload's, not the model's


def calibrate(machine: Machine, log: Log = lambda line: None) -> Calibration:
    """Measure, fit, and save for this machine, precision and number of threads."""
    machine.prepare()
    kind: DeviceKind = "cuda" if machine.device.type == "cuda" else "cpu"
    name = torch.cuda.get_device_name() if kind == "cuda" else cpu_name()
    points = []
    for point, work in workloads(kind, machine.precision).items():
        points.append((point, work, statistics.median(stretches(work, machine))))
        log(f"{point}: {1000 * points[-1][2]:.2f} ms a step")
    known = machines.card_like(name) if kind == "cuda" else this_cpu(machine.threads)
    prior = paper_prices(known or machines.CARDS["a100"], machine.precision).seconds
    seconds = fitted([(counts(work), measured) for _, work, measured in points], prior)
    calibration = Calibration(
        facts=facts_of(kind, name, machine.precision, machine.threads),
        seconds=seconds,
        bandwidth=_bandwidth(machine.device),
        memory=torch.cuda.mem_get_info()[1] if kind == "cuda" else free_bytes(),
        points=[
            {"name": point, "measured": measured, "planned": _priced(counts(work), seconds)}
            for point, work, measured in points
        ],
    )
    calibration.save()
    return calibration


def workloads(kind: DeviceKind, precision: ComputePrecision) -> dict[str, Workload]:
    """The steps to time."""
    works = {}
    for name, ((width, depth, ffn, batch, length, vocab), rest) in _SHAPES[kind].items():
        options = {"preset": "gpt2", "reading": "whole", "dropout": 0.0, "attention_dropout": 0.0, **rest}
        shape = {
            "width": width, "depth": depth, "heads": max(1, width // 64), "ffn": ffn, "context": length, "vocab": vocab,
        }  # fmt: skip
        own = {key: options.pop(key) for key in _OWN if key in options}
        head = HeadConfig(kind=options.pop("kind", "lm"))
        config = preset(options.pop("preset"), **shape, **options)
        works[name] = Workload(
            config=config, head=head, batch=batch, lengths=Lengths(length), device=kind, precision=precision,
            document=DOCUMENT if own["reading"] == "packed" else 0, **own,
        )  # fmt: skip
    return works


def stretches(work: Workload, machine: Machine, repeats: int = REPEATS) -> list[float]:
    """Seconds a step, in each of some stretches after the first steps, which are slow: memory, caches, a CUDA graph."""
    update = one_update(rehearsal(work, machine))
    for step in range(WARM_STEPS):
        last = update(step)
    last.read()
    started = time.perf_counter()
    update(WARM_STEPS).read()
    once = time.perf_counter() - started
    seconds, fewest = SECONDS_A_POINT[work.device], FEWEST_STEPS[work.device]
    number, times = max(fewest, min(200, round(seconds / repeats / once))), []
    for repeat in range(repeats):
        first = WARM_STEPS + 1 + repeat * number  # no number twice: batches are made ahead
        started = time.perf_counter()
        for step in range(number):
            last = update(first + step)
        last.read()
        times.append((time.perf_counter() - started) / number)
    return times


def fitted(points: list[tuple[dict[str, float], float]], prior: dict[str, float]) -> dict[str, float]:
    """Prices by non-negative least squares of relative errors, kept near the prior at this machine's speed."""
    from scipy.optimize import nnls

    kinds = list(UNITS)
    scale = statistics.median(measured / _priced(counted, prior) for counted, measured in points)
    prior = {kind: scale * prior[kind] for kind in kinds}
    rows = np.array([[counted[kind] * prior[kind] / took for kind in kinds] for counted, took in points])
    near = NEARNESS * np.eye(len(kinds))
    wanted = np.concatenate([np.ones(len(points)), NEARNESS * np.ones(len(kinds))])
    factors, _ = nnls(np.vstack([rows, near]), wanted)
    return {kind: float(prior[kind] * factor) for kind, factor in zip(kinds, factors, strict=True)}


def _priced(counted: dict[str, float], seconds: dict[str, float]) -> float:
    return sum(counted[kind] * seconds[kind] for kind in UNITS)


def _bandwidth(device: torch.device) -> float:
    """Bytes a second of a copy: each number is read and written."""
    source = torch.ones(COPIED_NUMBERS, device=device)
    target = torch.empty_like(source)
    return 2 * 4 * COPIED_NUMBERS / seconds_of(lambda: target.copy_(source), device)
