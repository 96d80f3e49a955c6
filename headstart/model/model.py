"""A base under a head, built from configuration alone; and the transfer of its weights, with an audit."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from headstart.config.model import HeadConfig, ModelConfig, check_head
from headstart.errors import IntegrityError
from headstart.kernels.pooled import read_pooled
from headstart.model.base import Base, EncoderDecoderBase
from headstart.model.heads import HEADS, SentenceHead
from headstart.model.initialise import initialise

Into = Literal["stack", "encoder", "decoder", "both"]


class Model(nn.Module):
    """A base and a head. `dict(model.named_parameters())` is all there is to save: a tied matrix stands once."""

    def __init__(self, config: ModelConfig, head_config: HeadConfig) -> None:
        super().__init__()
        check_head(config, head_config)
        self.config, self.head_config = config, head_config
        self.base = EncoderDecoderBase(config) if config.decoder_depth else Base(config)
        embedding = self.base.output_embedding.tokens.weight
        self.head: Any = HEADS[head_config.kind](config, head_config, embedding)

    def forward(self, tokens: Tensor, target: Tensor | None = None, **reading: Any) -> Any:
        """What the head predicts for these tokens; `reading` goes to the base (present, documents, segments …)."""
        if isinstance(self.base, Base) and isinstance(self.head, SentenceHead):
            pooled = read_pooled(self.base, tokens, self.head.pooling, reading)
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
class Audit:
    """What a transfer did: the name and the size of every tensor that was carried over, is new, or was dropped."""

    carried: dict[str, int]
    new: dict[str, int]
    dropped: dict[str, int]

    @property
    def by_part(self) -> str:
        """What of each part came from the start and what stayed new, a line each."""
        lines = []
        for part in ("base.embedding", "base.target_embedding", "base.encoder", "base.decoder", "head"):
            both = self.carried, self.new
            old, new = (sum(name.startswith(f"{part}.") for name in names) for names in both)
            if old or new:
                title = part.removeprefix("base.").replace("_", " ")
                lines.append(f"  {title:<18} {old} tensors from the start, {new} new")
        return "\n".join(lines)

    def __str__(self) -> str:
        lines, fates = [], {"carried over": self.carried, "made anew": self.new, "dropped": self.dropped}
        for fate, sizes in fates.items():
            names = f": {', '.join(sizes)}" if sizes and sizes is not self.carried else ""
            lines.append(f"{len(sizes)} tensors {fate} ({sum(sizes.values()):,} parameters){names}")
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


def transfer(tensors: dict[str, Tensor], source: ModelConfig, target: Model, into: Into = "stack") -> Audit:
    """Copy into a fresh model what it shares with a start: the base, and parts of the head with the same name.

    A classifier is never carried: its rows mean other labels. `into` says which stack of an encoder-decoder
    a single stack becomes. Nothing carried, another shape or another tokenizer is an error.
    """
    _check_same_base(source, target.config, into)
    renamed = {
        name.replace("base.stack.", f"base.{stack}."): tensor
        for name, tensor in tensors.items()
        for stack in (("encoder", "decoder") if into == "both" else (into,))
    }
    carried, new = {}, {}
    for name, parameter in target.named_parameters():
        start = None if name.startswith("head.classifier.") else renamed.get(name)
        if start is None:
            new[name] = parameter.numel()
            continue
        if start.shape != parameter.shape:
            what = f"{name} is {tuple(start.shape)} in the start and {tuple(parameter.shape)} here"
            fix = "use the start's own configuration, or start from scratch"
            raise IntegrityError(what, fix=fix, code="mismatch")
        with torch.no_grad():
            parameter.copy_(start)
        carried[name] = parameter.numel()
    if not any(name.startswith("base.") for name in carried):
        names = ", ".join(list(tensors)[:3]) or "none"
        what = f"no tensor of the base was carried over; the start has {names} …"
        fix = "check that the start is a Headstart run, or import it first"
        raise IntegrityError(what, fix=fix, code="mismatch")
    return Audit(carried, new, {n: t.numel() for n, t in renamed.items() if n not in carried})


def _check_same_base(source: ModelConfig, target: ModelConfig, into: str) -> None:
    same = (*_SAME, "depth", "decoder_depth", "target_vocab") if into == "stack" else _SAME
    for field in (*same, "vocab"):
        before, now = getattr(source, field), getattr(target, field)
        if before != now:
            fix = f"use the start's {'tokenizer' if 'vocab' in field else field}, or start from scratch"
            raise IntegrityError(f"{field} is {before} in the start and {now} here", fix=fix, code="mismatch")
    before, now = source.tokenizer, target.tokenizer
    if before and now and before != now:
        what = f"the start was trained with tokenizer {before[:12]}…, this one is {now[:12]}…"
        raise IntegrityError(what, fix="use the start's tokenizer", code="mismatch")
