"""Compiled blocks: fewer passes over memory, for a wait of a minute before the first step.

It pays in a long training on a GPU, soonest with batches of one shape. Whether it is done follows from the
configuration, so that a run that goes on makes the same choice.
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
FEWEST_STEPS_OF_MANY_SHAPES = 10_000  # kernels for any shape gain less


def pays(objective: Objective, steps: int, machine: Machine) -> bool:
    """Whether compiling is worth its wait; with --fast alone, since that it is exact has not been shown."""
    fewest = FEWEST_STEPS if has_one_shape(objective) else FEWEST_STEPS_OF_MANY_SHAPES
    return machine.is_fast and steps >= fewest


def has_one_shape(objective: Objective) -> bool:
    """Whether all batches are alike."""
    return isinstance(objective, Causal | Masked)


@contextmanager
def compiled(model: Model, is_wanted: bool, *, has_one_shape: bool = True) -> Iterator[None]:
    """Within `with`, what most of the time is spent in is compiled: every block, and the loss over the vocabulary.

    For batches of many shapes once for all of them, or a compilation would come with each.
    """
    if not is_wanted:
        yield
        return
    blocks = [module for module in model.modules() if isinstance(module, Block)]
    for block in blocks:
        block.compile(dynamic=not has_one_shape)
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
