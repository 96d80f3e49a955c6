"""Which option of a run keeps a family from expressing it."""

from collections.abc import Mapping
from typing import Any

from headstart.model.presets import ModelConfig
from headstart.training.run_directory import RunConfig

ACTIVATIONS_IN = {"gelu": "gelu", "relu": "relu", "gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh",
                  "silu": "silu", "swish": "silu"}  # fmt: skip
ACTIVATIONS_OUT = {"gelu": "gelu", "relu": "relu", "gelu-tanh": "gelu_new", "silu": "silu"}


def unmet(model: ModelConfig, wanted: Mapping[str, tuple[Any, ...]]) -> list[str]:
    """The fields whose value is none of those that a family has."""
    return [field for field, allowed in wanted.items() if getattr(model, field) not in allowed]


def model_obstacle(model: ModelConfig, wanted: Mapping[str, tuple[Any, ...]]) -> str | None:
    """Those fields in words, with what the family needs."""
    told = []
    for field in unmet(model, wanted):
        needed = " or ".join(repr(one) for one in dict.fromkeys(wanted[field]))
        told.append(f"{field} is {getattr(model, field)!r} (it needs {needed})")
    return ", ".join(told) or None


def head_obstacle(run: RunConfig, heads: Mapping[str, str]) -> str | None:
    """Why a run's head is none of those that a family has."""
    if run.head.kind in heads:
        return None
    return f"head.kind is {run.head.kind!r}, and it has {', '.join(repr(kind) for kind in heads)}"


def pooling_obstacle(run: RunConfig, pooling: str) -> str | None:
    """Why one vector is made of a text in another way."""
    own = run.head.pooling_for(run.model)
    return (
        None if own == pooling else f"head.pooling is {own!r}, and its classifier reads the {pooling} token"
    )
