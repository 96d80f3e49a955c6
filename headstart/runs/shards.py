"""Tensors and models that several ranks hold in shards, and how to gather them."""

from collections.abc import Mapping

import torch
from torch import Tensor

from headstart.machine import Machine
from headstart.model.model import Model


def is_shard(tensor: Tensor) -> bool:
    """Whether other ranks hold the rest of it."""
    return hasattr(tensor, "full_tensor")


def local(tensor: Tensor) -> Tensor:
    """What this rank holds of it."""
    return tensor.to_local() if is_shard(tensor) else tensor  # type: ignore[attr-defined]


def whole(tensor: Tensor) -> Tensor:
    """All of it; every rank must call this where it is sharded."""
    return tensor.full_tensor() if is_shard(tensor) else tensor  # type: ignore[attr-defined]


def gathered(tensors: Mapping[str, Tensor], is_kept: bool) -> dict[str, Tensor]:
    """Whole tensors on the rank that keeps them, gathered one by one, so that no rank holds two."""
    if not any(is_shard(tensor) for tensor in tensors.values()):
        return dict(tensors)
    kept = {}
    for name, tensor in tensors.items():
        gathered_tensor = whole(tensor.detach())
        if is_kept:
            kept[name] = gathered_tensor.cpu()
    return kept


def like(tensor: Tensor, parameter: Tensor) -> Tensor:
    """A whole tensor placed like the parameter: on its device and, if it is sharded, this rank's shard."""
    tensor = tensor.to(parameter.device)
    if not is_shard(parameter) or tensor.shape != parameter.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    mesh, placements = parameter.device_mesh, parameter.placements  # type: ignore[attr-defined]
    return distribute_tensor(tensor, mesh, placements, src_data_rank=None)


def whole_model(model: Model, machine: Machine) -> Model:
    """The first rank's copy of the model, unsharded; every rank must call this, and the others get theirs back."""
    parameters = dict(model.named_parameters())
    if not any(is_shard(parameter) for parameter in parameters.values()):
        return model
    weights = gathered(parameters, machine.ranks.is_first)
    if not machine.ranks.is_first:
        return model
    copied = Model(model.config, model.head_config).to(machine.device)
    with torch.no_grad():
        for name, parameter in copied.named_parameters():
            parameter.copy_(weights[name])
    return copied.train(model.training)
