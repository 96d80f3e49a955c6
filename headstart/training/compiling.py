"""Compiled blocks: fewer passes over memory, for a wait of a minute before the first step.

It pays in a long training on a GPU with batches of one shape. Whether it is done follows from the configuration, so
that a run that goes on makes the same choice.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from headstart.model.blocks import Block
from headstart.model.model import Model
from headstart.objectives.causal import Causal
from headstart.objectives.masked import Masked
from headstart.objectives.objective import Objective
from headstart.training.machine import Machine

FEWEST_STEPS = 3_000


def pays(objective: Objective, steps: int, machine: Machine) -> bool:
    """Whether compiling is worth its wait."""
    return machine.device.type == "cuda" and steps >= FEWEST_STEPS and isinstance(objective, Causal | Masked)


@contextmanager
def compiled(model: Model, is_wanted: bool) -> Iterator[None]:
    """Within `with`, what most of the time is spent in is compiled: every block, and the loss over the vocabulary."""
    if not is_wanted:
        yield
        return
    blocks = [module for module in model.modules() if isinstance(module, Block)]
    for block in blocks:
        block.compile(dynamic=False)
    model.head.is_compiled = True
    try:
        yield
    finally:
        for block in blocks:
            block._compiled_call_impl = None
        model.head.is_compiled = False


def as_written(is_compiled: bool) -> AbstractContextManager[None]:
    """Within `with`, nothing is compiled: for batches of shapes that do not come again."""
    return torch.compiler.set_stance("force_eager") if is_compiled else nullcontext()
