"""One model on several ranks, by torch's own means: whole on each (DDP), or in shards (FSDP2) where it does not fit.

Every rank computes the loss of its share of the batch; gradients are summed over the ranks, never averaged: the loop
divides once, by the count of the whole batch.
"""

import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from headstart.model.blocks import Block
from headstart.model.model import Model
from headstart.objectives.objective import Objective, Tensors
from headstart.training.machine import Machine

Sums = dict[str, tuple[Tensor, Tensor]]


class Losses(nn.Module):
    """From a batch to its loss in one forward, which is what torch can distribute."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, objective: Objective, batch: Tensors) -> tuple[Tensor, Sums]:
        """The sum to go backward from; and of the loss and whatever is logged, sums and counts."""
        loss = objective.loss(self.model, batch)
        pairs = {"loss": (loss.sum, loss.count), **loss.log}
        return loss.sum, {key: (total.detach(), count) for key, (total, count) in pairs.items()}


def spread(model: Model, machine: Machine, is_sharded: bool, all_learn: bool = True) -> nn.Module:
    """The model where it computes, under what gives its loss; sharded, its parameters are others from here on.

    `all_learn` says that every parameter has a gradient at every step.
    """
    if is_sharded:
        return _sharded(model, machine)
    losses = Losses(model.to(machine.device))
    if machine.ranks.world == 1:
        return losses
    tables = [name for name, _ in losses.named_buffers()]  # never change, and need not be sent at every step
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(losses, tables)
    replicated = DistributedDataParallel(
        losses, gradient_as_bucket_view=True, find_unused_parameters=not all_learn
    )
    replicated.register_comm_hook(None, _summed)
    return replicated


def _summed(_: Any, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


def _sharded(model: Model, machine: Machine) -> nn.Module:
    """Gathered are the matrices of a block at a time; embedding, head and all norms together."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(machine.device.type, (machine.ranks.world,))
    # A block's matrices are gathered in bf16 where autocast would round them to it; what it leaves in fp32, the norms
    # and the sum of the residuals, is so here too.
    numbers = torch.bfloat16 if machine.precision == "bf16" else torch.float32
    policy = MixedPrecisionPolicy(numbers, torch.float32, cast_forward_inputs=False)
    for block in [module for module in model.modules() if isinstance(module, Block)]:
        cross = [block.cross_attention] if block.has_cross else []
        parts: list[nn.Module] = [block.attention, *cross, block.feed_forward]
        fully_shard(parts, mesh=mesh, mp_policy=policy, reshard_after_forward=True)
    # It warns of what must not be changed in place after a part has given it; a block adds it to something new.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    losses = Losses(model)
    fully_shard(losses, mesh=mesh, reshard_after_forward=True)
    for module in losses.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    return losses


def synchronised(losses: nn.Module, is_last: bool) -> AbstractContextManager[None]:
    """Within `with`, a backward pass; whole models send their gradients after the last micro-batch alone."""
    if isinstance(losses, DistributedDataParallel) and not is_last:
        return losses.no_sync()
    return nullcontext()


# ---- shards and wholes --------------------------------------------------------------------------------------


def is_shard(tensor: Tensor) -> bool:
    """Whether other ranks have the rest of it."""
    return hasattr(tensor, "full_tensor")


def local(tensor: Tensor) -> Tensor:
    """What this rank has of it."""
    return tensor.to_local() if is_shard(tensor) else tensor  # type: ignore[attr-defined]


def whole(tensor: Tensor) -> Tensor:
    """All of it; where it is sharded, every rank has to ask."""
    return tensor.full_tensor() if is_shard(tensor) else tensor  # type: ignore[attr-defined]


def gathered(tensors: Mapping[str, Tensor], is_kept: bool) -> dict[str, Tensor]:
    """The tensors whole, on the rank that keeps them; one after the other, so that no rank holds two."""
    if not any(is_shard(tensor) for tensor in tensors.values()):
        return dict(tensors)
    kept = {}
    for name, tensor in tensors.items():
        found = whole(tensor.detach())
        if is_kept:
            kept[name] = found.cpu()
    return kept


def like(tensor: Tensor, parameter: Tensor) -> Tensor:
    """A whole tensor as the parameter is held: on its device and, if it is sharded, this rank's shard."""
    tensor = tensor.to(parameter.device)
    if not is_shard(parameter) or tensor.shape != parameter.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    mesh, placements = parameter.device_mesh, parameter.placements  # type: ignore[attr-defined]
    return distribute_tensor(tensor, mesh, placements, src_data_rank=None)


def whole_model(model: Model, machine: Machine) -> Model:
    """A model that needs no other rank, on the first one; every rank has to ask, and the others get an empty one."""
    parameters = dict(model.named_parameters())
    if not any(is_shard(parameter) for parameter in parameters.values()):
        return model
    weights = gathered(parameters, machine.ranks.is_first)
    if not machine.ranks.is_first:
        return model
    found = Model(model.config, model.head_config).to(machine.device)
    with torch.no_grad():
        for name, parameter in found.named_parameters():
            parameter.copy_(weights[name])
    return found.train(model.training)
