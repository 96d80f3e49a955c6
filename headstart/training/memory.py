"""Whether a run fits into memory: known from its configuration, before anything is built."""

import contextlib
import dataclasses
import traceback
from collections.abc import Iterator

import torch

from headstart.errors import MemoryFull, UserError
from headstart.model.model import Model, build
from headstart.plan.free_memory import free_bytes
from headstart.plan.parameters import components, total, trainable
from headstart.training.machine import Machine
from headstart.training.run_directory import RunConfig

NUMBER_BYTES = 4
# What each optimizer remembers of every number that learns: Muon one thing of matrices, AdamW two of the rest.
MEMORIES = {"adamw": 2, "muon": 1, "muon-split": 1}


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
    free = _free_bytes(machine)
    parts = 1 if machine.shard == "never" else machine.ranks.world
    if bytes_needed(config) // parts > free:
        raise MemoryFull(f"the memory is too small: {_numbers(config)}, {free:,} are free", fix=_FIX)


def must_shard(config: RunConfig, machine: Machine, held: int) -> bool:
    """Whether the ranks have to hold parts of the model: as asked, or because it does not fit whole.

    `held` are bytes of it that are in the memory already.
    """
    if machine.ranks.world == 1 or machine.shard == "never":
        return False
    needed = bytes_needed(config) - (held if machine.device.type == "cpu" else 0)
    if machine.shard == "auto" and needed <= _free_bytes(machine):
        return False
    without = "--optimizer adamw" if config.optimizer.optimizer != "adamw" else ""
    if without or config.loop.unfreeze_every:
        raise UserError(
            f"a model in parts with {'Muon, which needs whole matrices' if without else '--unfreeze-every'}",
            fix=f"{without or 'leave it out'}, or --shard never where the model fits whole",
        )
    return True


def _free_bytes(machine: Machine) -> int:
    """What this rank may take: its GPU's, or its share of what the machine has."""
    if machine.device.type == "cuda":
        return int(torch.cuda.mem_get_info()[0])
    return free_bytes() // machine.ranks.local_world


def is_full(error: Exception) -> bool:
    """Whether it says that a memory does not suffice: a GPU's can say it in two ways."""
    if isinstance(error, torch.AcceleratorError):
        return "out of memory" in str(error)
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


@contextlib.contextmanager
def memory_full_is_try_again(config: RunConfig) -> Iterator[None]:
    """Memory that does not suffice is said in several ways: say what is needed before any batch, and what is free."""
    numbers = _numbers(config)  # now, while there is memory to count in
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_full(error):
            raise
        # The frames that failed hold what they had allocated; without it even a short message may not fit.
        traceback.clear_frames(error.__traceback__)
        is_gpu = isinstance(error, _OF_A_GPU) and torch.cuda.is_available()
        free = torch.cuda.mem_get_info()[0] if is_gpu else free_bytes()
        memory = "the GPU's memory" if is_gpu else "the memory"
        what = f"{memory} is full: {numbers}, {free:,} are free; what was saved before is kept"
        raise MemoryFull(what, fix=_FIX) from error


def _numbers(config: RunConfig) -> str:
    return (
        f"{total(config.model, config.head):,} parameters with what is needed to train them "
        f"take {bytes_needed(config):,} bytes and a batch comes on top"
    )


_OF_A_GPU = (torch.OutOfMemoryError, torch.AcceleratorError)
_FIX = "give a smaller model (--width, --depth, --vocab), --length or batch, or a larger --accumulate"
