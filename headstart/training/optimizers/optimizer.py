"""Which optimizer, weight decay and learning rate each parameter has at a step, and which of them learn."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from headstart.config.model import ModelConfig
from headstart.config.training import LoopConfig, OptimizerConfig, ScheduleName
from headstart.errors import IntegrityError
from headstart.kernels.adamw import AdamW
from headstart.kernels.layers import TokenEmbedding
from headstart.runs.shards import is_shard, like
from headstart.training.optimizers.muon import Muon


def build_optimizers(
    model: nn.Module, config: ModelConfig, settings: OptimizerConfig, world: int = 1
) -> list[torch.optim.Optimizer]:
    """The optimizers of a model: one, or two with Muon. Frozen parameters are in none of them."""
    assert settings.learning_rate > 0, "not resolved: config/resolve.py"
    plain: dict[tuple[float, float], list[Tensor]] = {}
    matrices: dict[tuple[float, tuple[int, ...]], list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        scale = settings.layer_decay ** _layers_above(name, config)
        if settings.optimizer != "adamw" and ".blocks." in name and parameter.dim() == 2:
            heights = _heights(name, config) if settings.optimizer == "muon-split" else ()
            matrices.setdefault((scale, heights), []).append(parameter)
        else:
            decays = parameter.dim() == 2 and "embedding." not in name
            decay = settings.weight_decay if decays else 0.0
            plain.setdefault((scale, decay), []).append(parameter)
    optimizers: list[torch.optim.Optimizer] = []
    one = next(model.parameters())
    on_gpu = one.device.type == "cuda" and not is_shard(one)
    if plain:
        groups = [
            {"params": params, "weight_decay": decay, "peak": settings.learning_rate * scale}
            for (scale, decay), params in plain.items()
        ]
        # Fused: one pass over weights, gradients and moments, where the plain one makes ten.
        # Several ranks touch different rows, and send whole gradients.
        embeddings = [] if on_gpu or world > 1 else _untied_embeddings(model)
        optimizers.append(AdamW(groups, embeddings, lr=0.0, betas=settings.betas, capturable=on_gpu))
    if matrices:
        decay = settings.weight_decay
        groups = [
            {"params": params, "rows": rows, "weight_decay": decay, "peak": settings.muon_lr * scale}
            for (scale, rows), params in matrices.items()
        ]
        optimizers.append(Muon(groups, lr=0.0))
    for group in (group for optimizer in optimizers for group in optimizer.param_groups if on_gpu):
        # A tensor, which a CUDA graph reads anew at each replay.
        group["lr"] = torch.zeros((), device=group["params"][0].device)
    return optimizers


def learning_rate_factor(loop: LoopConfig, step: int, steps: int) -> float:
    """The share of the peak learning rate at a step."""
    return schedule(loop.schedule, step, steps, round(loop.warmup * steps), round(loop.cooldown * steps))


def schedule(name: ScheduleName, step: int, steps: int, warmup: int, cooldown: int) -> float:
    """Warm up in a straight line to one, and then, by the name of the schedule:

    linear        a straight line to zero
    cosine        half a cosine to zero
    constant      stay at one, and cool down to zero in a straight line over the last steps
    inverse-sqrt  fall as one over the root of the step (2017)
    """
    if name == "inverse-sqrt":
        return min((step + 1) / max(warmup, 1), math.sqrt(max(warmup, 1) / (step + 1)))
    warm = min(1.0, (step + 1) / warmup) if warmup else 1.0
    if name == "constant":
        return warm * (min(1.0, (steps - step) / cooldown) if cooldown else 1.0)
    left = min(1.0, max(0.0, (steps - step) / max(1, steps - warmup)))  # of the steps after the warm-up
    return warm * left if name == "linear" else warm * (1 + math.cos(math.pi * (1 - left))) / 2


def set_learning_rate(optimizers: Iterable[torch.optim.Optimizer], factor: float) -> None:
    """Set every group to this share of its peak learning rate."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(group["peak"] * factor)
            else:
                group["lr"] = group["peak"] * factor


def unfreeze_from_top(model: nn.Module, every: int, step: int) -> None:
    """Gradual unfreezing: the head learns from the start, then one more block from the top every so many steps."""
    if not every:
        return
    base: Any = model.base
    free, depth = step // every, len(base.stack.blocks)
    for number, block in enumerate(base.stack.blocks):
        block.requires_grad_(depth - number <= free)
    base.stack.final_norm.requires_grad_(free > 0)
    base.embedding.requires_grad_(free > depth)


def _untied_embeddings(model: nn.Module) -> list[TokenEmbedding]:
    """The embeddings that learn, and that no output layer shares: its gradient would be of every row."""
    users: dict[int, list[nn.Module]] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            users.setdefault(id(parameter), []).append(module)
    embeddings = [module for module in model.modules() if isinstance(module, TokenEmbedding)]
    return [e for e in embeddings if e.weight.requires_grad and users[id(e.weight)] == [e]]


def _heights(name: str, config: ModelConfig) -> tuple[int, ...]:
    """The rows of each of the matrices that stand in one tensor; empty where it is one matrix."""
    if name.endswith("attention.qkv.weight"):
        return (config.width, config.kv_width, config.kv_width)
    is_gated = config.activation == "swiglu" and name.endswith("feed_forward.input.weight")
    return (config.ffn, config.ffn) if is_gated else ()


def _layers_above(name: str, config: ModelConfig) -> int:
    """Layers between a tensor and the head: 0 for the head, 1 for the last block, depth + 1 for the embedding."""
    if not name.startswith("base."):
        return 0
    depth = config.decoder_depth if ".decoder." in name else config.depth
    if ".blocks." in name:
        return depth - int(name.split(".blocks.")[1].split(".")[0])
    return 0 if "final_norm" in name else depth + 1


def state_tensors(model: nn.Module, optimizers: Iterable[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """The optimizers' state, each tensor under its parameter's name: `base.….weight|exp_avg`."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    tensors = {}
    for optimizer in optimizers:
        if isinstance(optimizer, AdamW):
            optimizer.densify_state()
        for parameter, slots in optimizer.state.items():
            for key, value in slots.items():
                is_tensor = isinstance(value, Tensor)
                tensor = value if is_tensor else torch.tensor(float(value), dtype=torch.float64)
                tensors[f"{names[id(parameter)]}|{key}"] = tensor
    return tensors


def load_state(
    model: nn.Module, optimizers: Iterable[torch.optim.Optimizer], tensors: Mapping[str, Tensor], where: str
) -> None:
    """Load the optimizers' state; a name that no parameter has is an IntegrityError."""
    parameters = dict(model.named_parameters())
    owners = {id(p): one for one in optimizers for group in one.param_groups for p in group["params"]}
    for key, tensor in tensors.items():
        name, _, slot = key.rpartition("|")
        parameter = parameters.get(name)
        if parameter is None or id(parameter) not in owners:
            what, fix = f"{key} belongs to no parameter", "use the run's own configuration"
            raise IntegrityError(what, where=where, fix=fix, code="mismatch")
        owners[id(parameter)].state[parameter][slot] = like(tensor, parameter).clone()
