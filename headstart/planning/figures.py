"""The plan of a training as data: parameters, operations, memory, time, disk, and whether it fits."""

import dataclasses
from dataclasses import dataclass, replace
from typing import Any

from headstart.planning import memory, operations, parameters, time
from headstart.planning.machines import GIB, Target
from headstart.planning.memory import largest_fitting, training_memory
from headstart.planning.time import Prices
from headstart.planning.workload import Workload

EVALUATED_TEXTS, GENERATED_TOKENS = 1_000, 100


def figures(
    work: Workload, target: Target, prices: Prices, steps: int, tokens: int, keep: int = 2, by_tensor: bool = False
) -> dict[str, Any]:
    """All that can be known before so many steps (0: not given) over a corpus of so many tokens."""
    config, head = work.config, work.head
    groups = parameters.components(config, head, by_tensor)
    return {
        "config": dataclasses.asdict(config),
        "head": dataclasses.asdict(head),
        "symbols": {letter: value for letter, value in parameters.symbols(config, head).items() if value},
        "parameters": {
            "total": sum(group.count for group in groups),
            "trainable": sum(group.count for group in groups if parameters.trainable(group, work.freeze)),
            "components": [dataclasses.asdict(component) for component in groups],
        },
        "operations": _operations(work),
        "memory": _memory(work, target),
        "time": _time(work, target, prices, steps),
        "disk": memory.disk_bytes(work, keep, tokens),
        "answer": dataclasses.asdict(answer(work, target, prices, steps)),
    }


def _operations(work: Workload) -> dict[str, Any]:
    text = operations.per_text(work.config, work.head, work.lengths, work.freeze, work.masked_share)
    tokens = work.lengths.source + work.lengths.target
    return {
        "length": dataclasses.asdict(work.lengths),
        "components": [
            {"name": w.name, "formula": w.formula, "forward": w.forward, "per": w.unit}
            for w in operations.components(work.config, work.head, work.lengths)
        ],
        "per_token": {name: count / tokens for name, count in text._asdict().items()},
        "per_step": work.batch * (text.forward + text.backward),
        "left_out": operations.LEFT_OUT,
    }


def _generates(work: Workload) -> bool:
    return work.head.kind in ("lm", "translation")


def _memory(work: Workload, target: Target) -> dict[str, Any]:
    training = training_memory(work)
    return {
        "batch": work.micro_batch, "precision": work.precision, "kinds": training.kinds,
        "total": training.total, "moment": training.moment,
        "available": target.memory, "activations": [row._asdict() for row in training.saved],
        "evaluation": memory.evaluation_memory(work).total,
        "decoding": memory.decoding_memory(work).kinds if _generates(work) else None,
    }  # fmt: skip


def _time(work: Workload, target: Target, prices: Prices, steps: int) -> dict[str, Any]:
    padded, one = time.with_padding(work), replace(work, batch=1, accumulate=1)
    step = time.step_seconds(padded, prices)
    decoding = time.decoding_seconds(one, prices, GENERATED_TOKENS) if _generates(work) else None
    return {
        "device": target.title, "source": prices.source, "is_calibrated": prices.is_calibrated,
        "step": step.total, "kinds": step.kinds, "steps": steps or None,
        "training": steps * step.total if steps else None,
        f"evaluation_of_{EVALUATED_TEXTS}_texts": time.evaluation_seconds(padded, prices, EVALUATED_TEXTS),
        f"decoding_of_{GENERATED_TOKENS}_tokens": decoding,
    }  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """Whether a training fits, and the sentence that says so."""

    fits: bool
    sentence: str
    largest_batch: int  # the most texts that fit at once (0: not even one)
    accumulate: int  # micro-batches with which the batch fits (0: it never does)


def answer(work: Workload, target: Target, prices: Prices, steps: int = 0) -> Answer:
    """Whether this training fits into that machine, and how long it takes, where the number of steps is known."""

    def fits(batch: int, accumulate: int) -> bool:
        return training_memory(replace(work, batch=batch * accumulate, accumulate=accumulate)).total <= target.memory

    def duration(accumulate: int) -> str:
        step = time.step_seconds(replace(time.with_padding(work), accumulate=accumulate), prices)
        machine = f"on {target.title}" if target.kind == "cuda" or target.cores else "here"
        return f"{format_duration(steps * step.total)} for {steps:,} steps {machine}"

    needed = training_memory(work).total
    if needed <= target.memory:
        sentence = f"fits, {duration(work.accumulate)}" if steps else "fits"
        sentence += f" ({format_bytes(needed)} of {format_bytes(target.memory)})"
        return Answer(True, sentence, work.micro_batch, work.accumulate)
    sentence = f"does not fit in {format_bytes(target.memory)}: {format_bytes(needed)} "
    sentence += f"at batch {work.micro_batch:,}"
    largest = largest_fitting(lambda batch: fits(batch, 1), work.micro_batch)
    if not largest:
        sentence += "; not even batch 1 fits: give a smaller model (--width, --depth, --vocab) or --length"
        return Answer(False, sentence, 0, 0)
    # In two or more micro-batches, the gradients of those before stay in memory.
    at_once = largest_fitting(lambda batch: fits(batch, 2), work.micro_batch)
    parts = -(-work.batch // at_once) if at_once else 0
    sentence += f"; batch {largest:,} fits" + (f", or `--accumulate {parts}`" if parts else "")
    if steps and parts:
        sentence += f", with which it takes {duration(parts)}"
    return Answer(False, sentence, largest, parts)


def format_bytes(count: float) -> str:
    """Bytes as a card's maker counts them, 2³⁰ to a GB; less than a tenth in MB."""
    return f"{count / GIB:.3g} GB" if count >= GIB / 10 else f"{count / 2**20:.0f} MB"


def format_duration(seconds: float) -> str:
    """A duration in the unit that a person would use."""
    for unit, size, least in (("day", 86_400, 2), ("hour", 3_600, 2), ("minute", 60, 2), ("second", 1, 1)):
        if seconds >= least * size:
            number = seconds / size
            shown = f"{number:.0f}" if number >= 10 else f"{number:.2g}"
            return f"{shown} {unit}{'' if shown == '1' else 's'}"
    return f"{1000 * seconds:.3g} milliseconds"
