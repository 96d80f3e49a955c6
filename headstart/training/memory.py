"""Whether a run fits into memory: known from its configuration, before anything is built."""

import contextlib
import dataclasses
import os
import resource
import traceback
from collections.abc import Iterator
from pathlib import Path

import torch

from headstart.errors import TryAgain
from headstart.model.model import Model, build
from headstart.plan.parameters import components, total, trainable
from headstart.training.machine import Machine
from headstart.training.run_directory import RunConfig

NUMBER_BYTES = 4
# What each optimizer remembers of every number that learns: Muon one thing of matrices, AdamW two of the rest.
MEMORIES = {"adamw": 2, "muon": 1}


def first_model(config: RunConfig, machine: Machine) -> Model:
    """The model of a run with its first weights; refused before it is built where it cannot be trained here."""
    check_memory(config, machine)
    with memory_full_is_try_again(config):
        return build(config.model, config.head, seed=config.initial_seed)


def bytes_needed(config: RunConfig) -> int:
    """What a training holds at least: the weights, for all that learns a gradient and memories, an average if kept."""
    everything = total(config.model, config.head)
    learning = everything
    if config.freeze == "base":
        shallow = dataclasses.replace(config.model, depth=1, decoder_depth=min(1, config.model.decoder_depth))
        learning = sum(c.count for c in components(shallow, config.head) if trainable(c, "base"))
    has_average = config.loop.average != "none"
    memories = MEMORIES[config.optimizer.optimizer]
    return NUMBER_BYTES * (everything * (1 + has_average) + learning * (1 + memories))


def check_memory(config: RunConfig, machine: Machine) -> None:
    """Refuse what cannot fit, with the numbers; a batch comes on top and is not counted."""
    free = torch.cuda.mem_get_info()[0] if machine.device.type == "cuda" else free_bytes()
    if bytes_needed(config) > free:
        raise TryAgain(f"the memory is too small: {_numbers(config)}, {free:,} are free", fix=_FIX)


def free_bytes() -> int:
    """What this process may still take: what is free or can be freed, within its own limit and its groups'."""
    free = [_machine_free_bytes(), *_group_free_bytes()]
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    mapped = Path("/proc/self/statm")
    if limit != resource.RLIM_INFINITY and mapped.exists():
        free.append(limit - int(mapped.read_text().split()[0]) * resource.getpagesize())
    return max(0, min(free))


def _machine_free_bytes() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        kibibytes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
        return 1024 * (kibibytes["MemAvailable"] + kibibytes["SwapFree"])
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


# Of both kinds of control group: where they are, their limit, what they use, and what of that are files in memory.
_GROUPS = {
    "": ("", "memory.max", "memory.current", "inactive_file"),
    "memory": ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def _group_free_bytes(
    membership: Path = Path("/proc/self/cgroup"), mounted: Path = Path("/sys/fs/cgroup")
) -> Iterator[int]:
    """What each control group around this process leaves, such as a container's; files in memory can be freed."""
    lines = membership.read_text().splitlines() if membership.exists() else []
    for _, controllers, path in (line.split(":", 2) for line in lines):
        where = "memory" if "memory" in controllers.split(",") else controllers
        if where not in _GROUPS:
            continue
        top, limit, used, files = _GROUPS[where]
        group = mounted / top / path.lstrip("/")
        for place in (group, *group.parents):
            if not place.is_relative_to(mounted / top):
                break
            # A group without a limit says so in a word, and the outermost one has no such files.
            with contextlib.suppress(OSError, ValueError, KeyError):
                stat = dict(line.split() for line in (place / "memory.stat").read_text().splitlines())
                most, taken = (int((place / name).read_text()) for name in (limit, used))
                yield most - taken + int(stat[files])


@contextlib.contextmanager
def memory_full_is_try_again(config: RunConfig) -> Iterator[None]:
    """Memory that does not suffice reaches us in three ways: say what is needed before any batch, and what is free."""
    numbers = _numbers(config)  # now, while there is memory to count in
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        is_full = isinstance(error, MemoryError | torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(
            error
        )
        if not is_full:
            raise
        # The frames that failed hold what they had allocated; without it even a short message may not fit.
        traceback.clear_frames(error.__traceback__)
        is_gpu = isinstance(error, torch.OutOfMemoryError) and torch.cuda.is_available()
        free = torch.cuda.mem_get_info()[0] if is_gpu else free_bytes()
        memory = "the GPU's memory" if is_gpu else "the memory"
        what = f"{memory} is full: {numbers}, {free:,} are free; what was saved before is kept"
        raise TryAgain(what, fix=_FIX) from error


def _numbers(config: RunConfig) -> str:
    return (
        f"{total(config.model, config.head):,} parameters with what is needed to train them "
        f"take {bytes_needed(config):,} bytes and a batch comes on top"
    )


_FIX = "give a smaller model (--width, --depth, --vocab), --length or batch, or a larger --accumulate"
