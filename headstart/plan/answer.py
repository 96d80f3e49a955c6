"""The answer in a sentence: whether it fits, how long it takes, and what would fit instead."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from headstart.plan.machines import GIB, Target
from headstart.plan.memory import CONTEXT, Memory, training_memory
from headstart.plan.workload import Workload


@dataclass(frozen=True)
class Answer:
    """Whether a training fits, and the sentence that says so."""

    fits: bool
    sentence: str
    largest_batch: int
    """The most texts that fit at once (0: not even one)."""

    accumulate: int
    """Micro-batches with which the batch fits (0: it never does)."""


def needed(memory: Memory, target: Target) -> int:
    """Bytes with what the driver or the interpreter takes besides."""
    return memory.total + CONTEXT[target.kind]


def answer(work: Workload, target: Target, seconds: float | None, what: str = "") -> Answer:
    """Whether this training fits into that machine; `seconds` is how long it would take, `what` of what."""

    def fits(batch: int) -> bool:
        alone = replace(work, batch=batch, accumulate=1)
        return needed(training_memory(alone), target) <= target.memory

    def fits_in_parts(batch: int) -> bool:  # the gradients of the parts before are held
        parts = replace(work, batch=2 * batch, accumulate=2)
        return needed(training_memory(parts), target) <= target.memory

    bytes_needed = needed(training_memory(work), target)
    machine = f"on {target.title}" if target.kind == "cuda" or target.cores else "here"
    duration = f"{in_words(seconds)}{what} {machine}" if seconds is not None else ""
    if bytes_needed <= target.memory:
        sentence = ", ".join(part for part in ("fits", duration) if part)
        sentence += f" ({gigabytes(bytes_needed)} of {gigabytes(target.memory)})"
        return Answer(True, sentence, work.micro_batch, work.accumulate)
    sentence = (
        f"does not fit in {gigabytes(target.memory)}: {gigabytes(bytes_needed)} at batch {work.micro_batch:,}"
    )
    largest = largest_fitting(fits, work.micro_batch)
    at_once = largest_fitting(fits_in_parts, work.micro_batch)
    if not largest:
        sentence += "; not even batch 1 fits: give a smaller model (--width, --depth, --vocab) or --length"
        return Answer(False, sentence, 0, 0)
    parts = -(-work.batch // at_once) if at_once else 0
    sentence += f"; batch {largest:,} fits" + (f", or `--accumulate {parts}`" if parts else "")
    if duration and parts:
        sentence += f", with which it takes {duration}"
    return Answer(False, sentence, largest, parts)


def largest_fitting(fits: Callable[[int], bool], most: int) -> int:
    """The largest number up to `most` that fits, where each smaller one does too; 0 if none."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def gigabytes(count: float) -> str:
    """Bytes as a card's maker counts them, 2³⁰ to a GB; less than a tenth in MB."""
    return f"{count / GIB:.3g} GB" if count >= GIB / 10 else f"{count / 2**20:.0f} MB"


def in_words(seconds: float) -> str:
    """A duration in the unit that a person would use."""
    for unit, size, least in (("day", 86_400, 2), ("hour", 3_600, 2), ("minute", 60, 2), ("second", 1, 1)):
        if seconds >= least * size:
            number = seconds / size
            shown = f"{number:.0f}" if number >= 10 else f"{number:.2g}"
            return f"{shown} {unit}{'' if shown == '1' else 's'}"
    return f"{1000 * seconds:.3g} milliseconds"
