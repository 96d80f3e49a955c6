"""One model on several ranks, by torch's own means: whole on each (DDP), or in shards (FSDP2) where it does not fit.

Every rank computes the loss of its share of the batch. Gradients are summed over the ranks, never averaged: the loop
divides once, by the count of the whole batch.
"""

import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from headstart.machine import Machine
from headstart.model.blocks import Block
from headstart.model.model import Model
from headstart.objectives.objective import LossModule


def distribute(model: Model, machine: Machine, is_sharded: bool, all_learn: bool = True) -> nn.Module:
    """The model on its device, in a module that gives its loss; sharding replaces the model's parameters."""
    if is_sharded:
        return _shard(model, machine)
    losses = LossModule(model.to(machine.device))
    if machine.ranks.world == 1:
        return losses
    buffers = [name for name, _ in losses.named_buffers()]  # never change, and need not be sent at every step
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(losses, buffers)
    # Unused is what has no gradient at some step.
    replicated = DistributedDataParallel(losses, gradient_as_bucket_view=True, find_unused_parameters=not all_learn)
    replicated.register_comm_hook(None, _sum_over_ranks)
    return replicated


def _sum_over_ranks(_: Any, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


def _shard(model: Model, machine: Machine) -> nn.Module:
    """Matrices are gathered block by block; embedding, head and all norms together."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(machine.device.type, (machine.ranks.world,))
    # A block's matrices are gathered in bf16 where autocast would round them to it; norms and residual sums, which
    # it leaves in fp32, stay in fp32 here too.
    dtype = torch.bfloat16 if machine.precision == "bf16" else torch.float32
    policy = MixedPrecisionPolicy(dtype, torch.float32, cast_forward_inputs=False)
    for block in [module for module in model.modules() if isinstance(module, Block)]:
        cross = [block.cross_attention] if block.has_cross else []
        parts: list[nn.Module] = [block.attention, *cross, block.feed_forward]
        fully_shard(parts, mesh=mesh, mp_policy=policy, reshard_after_forward=True)
    # It warns against changing a part's output in place; a block adds it to something new.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    losses = LossModule(model)
    fully_shard(losses, mesh=mesh, reshard_after_forward=True)
    for module in losses.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    return losses


def gradient_sync(losses: nn.Module, is_last: bool) -> AbstractContextManager[None]:
    """The context of a micro-batch's backward pass: DDP sends gradients after the last one alone."""
    if isinstance(losses, DistributedDataParallel) and not is_last:
        return losses.no_sync()
    return nullcontext()
