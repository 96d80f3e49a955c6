"""Whether a training fits into memory, from its configuration alone; and what to do where it does not."""

import contextlib
import dataclasses
import traceback
from collections.abc import Iterator

import torch

from headstart.config.run import RunConfig
from headstart.errors import Log, MemoryFull, UserError
from headstart.hardware import free_bytes
from headstart.machine import Machine
from headstart.model.model import Into, Model, build, transfer
from headstart.planning.parameters import components, total, trainable
from headstart.runs.load import LoadedRun
from headstart.storage.exhaustion import is_memory_full

NUMBER_BYTES = 4

# Optimizer state, in numbers for each one that learns: at least Muon's momentum, or AdamW's two moments.
STATE_NUMBERS = {"adamw": 2, "muon": 1, "muon-split": 1}


def first_model(config: RunConfig, machine: Machine, start: LoadedRun | None, log: Log, into: Into = "stack") -> Model:
    """The model of a run, with the weights of its start; refused before it is built if it cannot be trained here."""
    check_memory(config, machine)
    with memory_full_is_try_again(config):
        model = build(config.model, config.head, seed=config.initial_seed)
    if start is not None:
        audit = transfer(dict(start.model.named_parameters()), start.config.model, model, into)
        by_part = f"{audit.by_part}\n" if config.model.decoder_depth else ""
        log(f"started from {start.path}\n{by_part}{audit}")
    return model


def bytes_needed(config: RunConfig) -> int:
    """What a training holds at least: weights, gradients, optimizer state, and an average if one is kept."""
    everything = total(config.model, config.head)
    learning = everything
    if config.freeze == "base":
        shallow = dataclasses.replace(config.model, depth=1, decoder_depth=min(1, config.model.decoder_depth))
        learning = sum(c.count for c in components(shallow, config.head) if trainable(c, "base"))
    has_average = config.loop.average != "none"
    state = STATE_NUMBERS[config.optimizer.optimizer]
    return NUMBER_BYTES * (everything * (1 + has_average) + learning * (1 + state))


def check_memory(config: RunConfig, machine: Machine) -> None:
    """Refuse what cannot fit; the batch comes on top and is not counted."""
    free = _free_bytes(machine)
    parts = 1 if machine.shard == "never" else machine.ranks.world
    if bytes_needed(config) // parts > free:
        raise MemoryFull(f"the memory is too small: {_numbers(config)}, {free:,} are free", fix=_FIX)


def must_shard(config: RunConfig, machine: Machine, allocated: int) -> bool:
    """Whether the ranks shard the model, `allocated` bytes in memory: as asked, or since it does not fit whole."""
    if machine.ranks.world == 1 or machine.shard == "never":
        return False
    needed = bytes_needed(config) - (allocated if machine.device.type == "cpu" else 0)
    if machine.shard == "auto" and needed <= _free_bytes(machine):
        return False
    has_muon = config.optimizer.optimizer != "adamw"
    if has_muon or config.loop.unfreeze_every:
        what = "Muon, which needs whole matrices" if has_muon else "--unfreeze-every"
        fix = f"{'--optimizer=adamw' if has_muon else 'leave it out'}, or --shard=never where the model fits whole"
        raise UserError(f"a sharded model with {what}", fix=fix, code="unsupported")
    return True


def _free_bytes(machine: Machine) -> int:
    """The memory that this rank may use: its GPU's, or its share of the machine's."""
    if machine.device.type == "cuda":
        return int(torch.cuda.mem_get_info()[0])
    return free_bytes() // machine.ranks.local_world


def more_micro_batches(accumulate: int, size: int, log: Log) -> int:
    """After a GPU ran out of memory: twice as many micro-batches of the same batch of `size` examples."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if accumulate >= size:
        fix = "give a smaller --length or model, or use another device"
        raise MemoryFull("the GPU's memory does not hold a single example of the batch", fix=fix)
    accumulate = min(size, 2 * accumulate)
    log(
        f"out of GPU memory: the batch is split into {accumulate} micro-batches from here on; "
        "the result differs by the order of additions alone"
    )
    return accumulate


def is_full(error: Exception) -> bool:
    """Whether an error means out of memory; a GPU reports that in two ways."""
    if isinstance(error, torch.AcceleratorError):
        return "out of memory" in str(error)
    return isinstance(error, torch.OutOfMemoryError) or is_memory_full(error)


@contextlib.contextmanager
def memory_full_is_try_again(config: RunConfig) -> Iterator[None]:
    """Turn the several out-of-memory errors into one that says what is needed, without the batch, and what is free."""
    numbers = _numbers(config)  # now, while there is memory for it
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_full(error):
            raise
        # The failed frames hold what they had allocated; until that is freed even a short message may not fit.
        traceback.clear_frames(error.__traceback__)
        of_gpu = isinstance(error, torch.OutOfMemoryError | torch.AcceleratorError)
        is_gpu = of_gpu and torch.cuda.is_available()
        free = torch.cuda.mem_get_info()[0] if is_gpu else free_bytes()
        memory = "the GPU's memory" if is_gpu else "the memory"
        what = f"{memory} is full: {numbers}, {free:,} are free; saved checkpoints are kept"
        raise MemoryFull(what, fix=_FIX) from error


def _numbers(config: RunConfig) -> str:
    return (
        f"{total(config.model, config.head):,} parameters with gradients and optimizer state "
        f"take {bytes_needed(config):,} bytes, the batch comes on top"
    )


_FIX = "give a smaller model (--width, --depth, --vocab), --length or batch, or a larger --accumulate"
