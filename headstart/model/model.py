"""A base under a head, built from configuration alone; and the swap of the head, with its audit."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from headstart.errors import IntegrityError
from headstart.model.base import Base, EncoderDecoderBase
from headstart.model.heads import HEADS, SentenceHead
from headstart.model.initialise import initialise
from headstart.model.presets import HeadConfig, ModelConfig, check_head


class Model(nn.Module):
    """A base and a head. `dict(model.named_parameters())` is all there is to save: a tied matrix stands once."""

    def __init__(self, config: ModelConfig, head_config: HeadConfig) -> None:
        super().__init__()
        check_head(config, head_config)
        self.config, self.head_config = config, head_config
        self.base = EncoderDecoderBase(config) if config.decoder_depth else Base(config)
        self.head: Any = HEADS[head_config.kind](config, head_config, self.base)

    def forward(self, tokens: Tensor, target: Tensor | None = None, **reading: Any) -> Any:
        """What the head predicts for these tokens; `reading` goes to the base (present, documents, segments …)."""
        is_plain = reading.keys() <= {"present", "segments"}
        if is_plain and isinstance(self.base, Base) and isinstance(self.head, SentenceHead):
            pooled = self.base.pooled(tokens, self.head.pooling, **reading)
            if pooled is not None:
                return self.head.of_pooled(pooled)
        hidden = self.base(tokens, **reading) if target is None else self.base(tokens, target, **reading)
        return self.head(hidden, reading.get("present"))


def build(config: ModelConfig, head: HeadConfig, seed: int = 0) -> Model:
    """A fresh model: the same configuration and seed give the same weights."""
    model = Model(config, head)
    initialise(model, config, seed)
    return model


@dataclass(frozen=True)
class Entry:
    """What became of one tensor."""

    name: str
    fate: Literal["carried", "new", "dropped"]
    count: int


@dataclass(frozen=True)
class Audit:
    """What a transfer did, tensor by tensor."""

    entries: tuple[Entry, ...]

    def tensors(self, fate: str) -> list[str]:
        return [entry.name for entry in self.entries if entry.fate == fate]

    def parameters(self, fate: str) -> int:
        return sum(entry.count for entry in self.entries if entry.fate == fate)

    def __str__(self) -> str:
        lines = []
        for fate, words in (("carried", "carried over"), ("new", "made anew"), ("dropped", "dropped")):
            names = self.tensors(fate)
            shown = "" if fate == "carried" else f": {', '.join(names)}" if names else ""
            lines.append(f"{len(names)} tensors {words} ({self.parameters(fate):,} parameters){shown}")
        return "\n".join(lines)


# A base is the same base only where these agree; what is not named (dropout, direction, context …) may change.
_SAME = (
    "width", "heads", "kv_heads", "ffn", "positions", "rotary_base", "norm", "norm_place", "embedding_norm",
    "activation", "bias", "scale_embedding",
)  # fmt: skip


def swap(model: Model, head: HeadConfig, seed: int = 0) -> tuple[Model, Audit]:
    """The same base under a new head: a new model, and what became of every tensor."""
    target = build(model.config, head, seed)
    return target, transfer(dict(model.named_parameters()), model.config, target)


def transfer(
    tensors: Mapping[str, Tensor],
    source: ModelConfig,
    target: Model,
    into: Literal["stack", "encoder", "decoder", "both"] = "stack",
) -> Audit:
    """Copy into a fresh model what it shares with a start: the base, and parts of the head with the same name.

    A classifier is never carried: its rows mean other labels. `into` says which stack of an encoder-decoder
    a single stack becomes. Nothing carried, another shape or another tokenizer is an error.
    """
    _check_same_base(source, target.config, into)
    renamed = _renamed(tensors, into)
    own = dict(target.named_parameters())
    entries = []
    for name, parameter in own.items():
        start = None if name.startswith("head.classifier.") else renamed.get(name)
        if start is not None and start.shape != parameter.shape:
            raise IntegrityError(
                f"{name} is {tuple(start.shape)} in the start and {tuple(parameter.shape)} here",
                fix="use the start's own configuration, or start from scratch",
            )
        if start is not None:
            with torch.no_grad():
                parameter.copy_(start)
        entries.append(Entry(name, "new" if start is None else "carried", parameter.numel()))
    carried = {entry.name for entry in entries if entry.fate == "carried"}
    dropped = [Entry(n, "dropped", t.numel()) for n, t in renamed.items() if n not in carried]
    if not any(name.startswith("base.") for name in carried):
        raise IntegrityError(
            f"no tensor of the base was carried over; the start has {', '.join(list(tensors)[:3]) or 'none'} …",
            fix="check that the start is a Headstart run, or import it first",
        )
    return Audit((*entries, *dropped))


def _check_same_base(source: ModelConfig, target: ModelConfig, into: str) -> None:
    same = _SAME if into != "stack" else (*_SAME, "depth", "decoder_depth")
    for field in same:
        before, now = getattr(source, field), getattr(target, field)
        if before != now:
            raise IntegrityError(
                f"{field} is {before} in the start and {now} here",
                fix=f"use the start's {field}, or start from scratch",
            )
    for field in ("vocab", "target_vocab") if into == "stack" else ("vocab",):
        before, now = getattr(source, field), getattr(target, field)
        if before != now:
            raise IntegrityError(
                f"{field} is {before:,} in the start and {now:,} here: another tokenizer",
                fix="use the start's tokenizer",
            )
    if source.tokenizer and target.tokenizer and source.tokenizer != target.tokenizer:
        raise IntegrityError(
            f"the start was trained with tokenizer {source.tokenizer[:12]}…, this one is {target.tokenizer[:12]}…",
            fix="use the start's tokenizer",
        )


def _renamed(tensors: Mapping[str, Tensor], into: str) -> dict[str, Tensor]:
    if into == "stack":
        return dict(tensors)
    stacks = ("encoder", "decoder") if into == "both" else (into,)
    renamed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name.startswith("base.stack."):
            renamed |= {name.replace("base.stack.", f"base.{stack}.", 1): tensor for stack in stacks}
        else:
            renamed[name] = tensor
    return renamed
