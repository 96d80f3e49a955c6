"""Compiled blocks: fewer passes over memory, for a wait of half a minute before the first step.

It pays in a long training on a GPU with batches of one shape; for batches of many shapes the compiler begins again
and again. Whether it is done follows from the configuration, so that a run that goes on makes the same choice. The
same run gives the same bytes, compiled or not (benchmarks/exact_resume_gpu.py), but not compiled and not.
"""

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from headstart.model.base import Embedding
from headstart.model.blocks import Block, Stack
from headstart.model.model import Model
from headstart.model.presets import ModelConfig
from headstart.objectives.causal import Causal
from headstart.objectives.masked import Masked
from headstart.objectives.objective import Objective
from headstart.training.machine import Machine
from headstart.training.working_copies import WorkingCopies, working_copies

LEAST_WORK = (
    2e11  # in tokens times layers times width: a thousand million of them were seen to save 0.1 to 0.25 s
)


def pays(objective: Objective, config: ModelConfig, steps: int, machine: Machine) -> bool:
    """Whether compiling is worth its wait."""
    if machine.device.type != "cuda" or machine.ranks.world > 1 or not isinstance(objective, Causal | Masked):
        return False
    tokens = steps * objective.batch * objective.blocks.length
    return tokens * config.depth * config.width >= LEAST_WORK


@contextmanager
def quickened(
    model: Model, objective: Objective, machine: Machine, is_compiled: bool
) -> Iterator[WorkingCopies | None]:
    """Within `with`, training by what is quickest on the machine, of what it may use; gives what steps need for it."""
    has_one_shape = isinstance(objective, Causal | Masked)
    stacks = [module for module in model.modules() if isinstance(module, Stack)]
    for stack in stacks:
        stack.sums_in = machine.sums_in
    try:
        with (
            warnings.catch_warnings(),
            machine.kernels(has_one_shape=has_one_shape),
            working_copies(model, _copied_in(machine)) as copies,
            compiled(model, is_compiled),
        ):
            # Of sums in bf16: RMSNorm's weights stay exact, for which torch has no kernel, and says so.
            warnings.filterwarnings("ignore", message="Mismatch dtype between input and weight")
            yield copies
    finally:
        for stack in stacks:
            stack.sums_in = None


def _copied_in(machine: Machine) -> torch.dtype | None:
    """What the blocks' weights are copied in; several ranks send the gradients of the weights themselves."""
    is_rounded = machine.device.type == "cuda" and machine.precision == "bf16"
    return torch.bfloat16 if is_rounded and machine.ranks.world == 1 else None


@contextmanager
def compiled(model: Model, is_wanted: bool) -> Iterator[None]:
    """Within `with` the model is compiled: embedding, every block, last norm. (The loss has a kernel of its own.)"""
    if not is_wanted:
        yield
        return
    parts = [module for module in model.modules() if isinstance(module, Embedding | Block)]
    stacks = [module for module in model.modules() if isinstance(module, Stack)]
    for part in parts:
        part.compile()
    for stack in stacks:
        stack.ended = torch.compile(stack.ended)  # type: ignore[method-assign]
    try:
        with _exactly():
            yield
    finally:
        for part in parts:
            part._compiled_call_impl = None
        for stack in stacks:
            del stack.ended


def _exactly() -> AbstractContextManager[object]:
    """Where runs have to repeat themselves, no kernel is chosen by the clock."""
    if not torch.are_deterministic_algorithms_enabled():
        return nullcontext()
    import torch._inductor.config as inductor

    return inductor.patch(deterministic=True)


def as_written(is_compiled: bool) -> AbstractContextManager[None]:
    """Within `with`, nothing is compiled: for batches of shapes that do not come again."""
    return torch.compiler.set_stance("force_eager") if is_compiled else nullcontext()
