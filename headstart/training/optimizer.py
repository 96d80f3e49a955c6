"""Which parameter is updated how: AdamW, or Muon for matrices; decay where it belongs; rates by layer."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headstart.errors import IntegrityError
from headstart.model.presets import ModelConfig
from headstart.model.token_table import TokenTable
from headstart.plan.workload import OptimizerName
from headstart.training.muon import Muon
from headstart.training.spreading import is_shard, like
from headstart.training.touched_rows import AdamW


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """How the weights learn."""

    optimizer: OptimizerName = "adamw"
    """AdamW for everything, or Muon for the blocks' matrices and AdamW for the rest. muon-split takes queries, keys and
    values, which are one tensor, for three matrices, and a gate and what it opens for two."""

    learning_rate: float = 1e-3
    """Peak rate of AdamW."""

    matrix_rate: float = 0.005
    """Peak rate of Muon."""

    weight_decay: float = 0.01
    """Decay of matrices; biases, norms and embeddings have none."""

    betas: tuple[float, float] = (0.9, 0.98)
    """AdamW's two memories."""

    layer_decay: float = 1.0
    """The rate of each layer is this times that of the layer above it."""


def build_optimizers(
    model: nn.Module, config: ModelConfig, settings: OptimizerConfig, world: int = 1
) -> list[torch.optim.Optimizer]:
    """The optimizers of a model: one, or two with Muon. Frozen parameters are in none of them."""
    plain: dict[tuple[float, float], list[Tensor]] = {}
    matrices: dict[tuple[float, tuple[int, ...]], list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        scale = settings.layer_decay ** _layers_above(name, config)
        if settings.optimizer != "adamw" and _is_block_matrix(name, parameter):
            heights = _heights(name, config) if settings.optimizer == "muon-split" else ()
            matrices.setdefault((scale, heights), []).append(parameter)
        else:
            decay = settings.weight_decay if _decays(name, parameter) else 0.0
            plain.setdefault((scale, decay), []).append(parameter)
    optimizers: list[torch.optim.Optimizer] = []
    one = next(model.parameters())
    on_gpu = one.device.type == "cuda" and not is_shard(one)
    if plain:
        groups = [
            {"params": params, "weight_decay": decay, "peak": settings.learning_rate * scale}
            for (scale, decay), params in plain.items()
        ]
        # Fused: one pass over weights, gradients and memories, where the plain one makes ten.
        # Several ranks touch different rows, and send whole gradients.
        tables = [] if on_gpu or world > 1 else _tables_of_their_own(model)
        optimizers.append(AdamW(groups, tables, lr=0.0, betas=settings.betas, capturable=on_gpu))
    if matrices:
        groups = [
            {
                "params": params,
                "rows": rows,
                "weight_decay": settings.weight_decay,
                "peak": settings.matrix_rate * scale,
            }
            for (scale, rows), params in matrices.items()
        ]
        optimizers.append(Muon(groups, lr=0.0))
    for group in (group for optimizer in optimizers for group in optimizer.param_groups if on_gpu):
        # A tensor, which a recorded step reads anew each time.
        group["lr"] = torch.zeros((), device=group["params"][0].device)
    return optimizers


def set_rate(optimizers: Iterable[torch.optim.Optimizer], factor: float) -> None:
    """Every group at this share of its peak."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(group["peak"] * factor)
            else:
                group["lr"] = group["peak"] * factor


def _tables_of_their_own(model: nn.Module) -> list[TokenTable]:
    """The token tables that learn, and that no output layer shares: its gradient would be of every row."""
    users: dict[int, list[nn.Module]] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            users.setdefault(id(parameter), []).append(module)
    tables = [module for module in model.modules() if isinstance(module, TokenTable)]
    return [t for t in tables if t.weight.requires_grad and users[id(t.weight)] == [t]]


def _is_block_matrix(name: str, parameter: Tensor) -> bool:
    return ".blocks." in name and parameter.dim() == 2


def _heights(name: str, config: ModelConfig) -> tuple[int, ...]:
    """The rows of each of the matrices that stand in one tensor; empty where it is one matrix."""
    if name.endswith("attention.qkv.weight"):
        return (config.width, config.kv_width, config.kv_width)
    is_gated = config.activation == "swiglu" and name.endswith("feed_forward.input.weight")
    return (config.ffn, config.ffn) if is_gated else ()


def _decays(name: str, parameter: Tensor) -> bool:
    return parameter.dim() == 2 and "embedding." not in name


def _layers_above(name: str, config: ModelConfig) -> int:
    """How far below the head a tensor stands: 0 for the head, 1 for the last block, depth + 1 for the embedding."""
    if not name.startswith("base."):
        return 0
    depth = config.decoder_depth if ".decoder." in name else config.depth
    if ".blocks." in name:
        return depth - int(name.split(".blocks.")[1].split(".")[0])
    return 0 if "final_norm" in name else depth + 1


def state_tensors(model: nn.Module, optimizers: Iterable[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """What the optimizers remember, each under its parameter's name: `base.….weight|exp_avg`."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    tensors = {}
    for optimizer in optimizers:
        if isinstance(optimizer, AdamW):
            optimizer.spread()
        for parameter, memory in optimizer.state.items():
            for key, value in memory.items():
                tensor = (
                    value if isinstance(value, Tensor) else torch.tensor(float(value), dtype=torch.float64)
                )
                tensors[f"{names[id(parameter)]}|{key}"] = tensor
    return tensors


def load_state(
    model: nn.Module, optimizers: Iterable[torch.optim.Optimizer], tensors: Mapping[str, Tensor], where: str
) -> None:
    """Give the optimizers their memory back; a name that no parameter has is an IntegrityError."""
    parameters = dict(model.named_parameters())
    owners = {
        id(p): optimizer
        for optimizer in optimizers
        for group in optimizer.param_groups
        for p in group["params"]
    }
    for key, tensor in tensors.items():
        name, _, slot = key.rpartition("|")
        parameter = parameters.get(name)
        if parameter is None or id(parameter) not in owners:
            raise IntegrityError(
                f"{key} belongs to no parameter", where=where, fix="use the run's own configuration"
            )
        owners[id(parameter)].state[parameter][slot] = like(tensor, parameter).clone()
