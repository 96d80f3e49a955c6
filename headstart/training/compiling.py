"""Compiled blocks: fewer passes over memory, for a wait of half a minute before the first step.

It pays in a long training on a GPU with batches of one shape; for batches of many shapes the compiler starts again
and again. The choice follows from the configuration, so that a resumed run makes the same one. A compiled run repeats
to the bit, and so does one that is not compiled (benchmarks/exact_resume_gpu.py), but the two differ.
"""

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from headstart.config.model import ModelConfig
from headstart.kernels.gpu.bf16_weights import Bf16Weights, bf16_weights
from headstart.machine import Machine
from headstart.model.base import Embedding
from headstart.model.blocks import Block, Stack
from headstart.model.model import Model
from headstart.objectives.objective import Objective

LEAST_WORK = 2e11  # tokens x layers x width: 1e9 of them were measured to save 0.1 to 0.25 s


def should_compile(objective: Objective, config: ModelConfig, steps: int, machine: Machine) -> bool:
    """Whether compiling is worth its wait."""
    if machine.device.type != "cuda" or machine.ranks.world > 1:
        return False
    return steps * objective.fixed_batch_tokens * config.depth * config.width >= LEAST_WORK


@contextmanager
def accelerated(
    model: Model, objective: Objective, machine: Machine, is_compiled: bool
) -> Iterator[Bf16Weights | None]:
    """Within `with`, train by the fastest kernels that the machine may use; gives the weights' copies in bf16."""
    is_bf16_gpu = machine.device.type == "cuda" and machine.precision == "bf16"
    has_copies = is_bf16_gpu and machine.ranks.world == 1  # several ranks send the weights' own gradients
    stacks = [module for module in model.modules() if isinstance(module, Stack)]
    for stack in stacks:
        stack.sums_in = torch.bfloat16 if machine.is_fast and machine.precision == "bf16" else None
    try:
        with (
            warnings.catch_warnings(),
            _fastest_attention(machine.is_fast and objective.fixed_batch_tokens > 0),
            bf16_weights(model, torch.bfloat16 if has_copies else None) as copies,
            compiled(model, is_compiled),
        ):
            # With residuals in bf16, RMSNorm's weights stay in fp32; torch has no kernel for both, and warns.
            warnings.filterwarnings("ignore", message="Mismatch dtype between input and weight")
            yield copies
    finally:
        for stack in stacks:
            stack.sums_in = None


def _fastest_attention(is_wanted: bool) -> AbstractContextManager[object]:
    """The attention kernel that is fastest for batches of one shape: it is built anew for each new shape."""
    if not is_wanted:
        return nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    order = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]
    return sdpa_kernel([*order, SDPBackend.MATH], set_priority=True)


@contextmanager
def compiled(model: Model, is_wanted: bool) -> Iterator[None]:
    """Within `with` the model is compiled: embedding, every block, last norm. (The loss has its own kernel.)"""
    if not is_wanted:
        yield
        return
    import torch._inductor.config as inductor

    parts = [module for module in model.modules() if isinstance(module, Embedding | Block)]
    stacks = [module for module in model.modules() if isinstance(module, Stack)]
    for part in parts:
        part.compile()
    for stack in stacks:
        stack.ended = torch.compile(stack.ended)  # type: ignore[method-assign]
    # In a deterministic run, no kernel is chosen by timing it.
    is_exact = torch.are_deterministic_algorithms_enabled()
    try:
        with inductor.patch(deterministic=True) if is_exact else nullcontext():
            yield
    finally:
        for part in parts:
            part._compiled_call_impl = None
        for stack in stacks:
            del stack.ended


def uncompiled(is_compiled: bool) -> AbstractContextManager[None]:
    """Within `with`, run eagerly: for batches whose shapes seldom repeat."""
    return torch.compiler.set_stance("force_eager") if is_compiled else nullcontext()
