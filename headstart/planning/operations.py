"""Floating-point operations from the configuration alone: forward and backward, by component.

A multiplication and an addition count as two. Left out: norms, softmax, activations, dropout, the embedding's
look-up and the optimizer, which move bytes rather than compute; and the half of the square that a causal
kernel may skip.
"""

from typing import Literal, NamedTuple

from headstart.config.defaults import MASK_PROB
from headstart.config.model import HeadConfig, ModelConfig, check_head
from headstart.planning.workload import Freeze, Lengths

LEFT_OUT = "norms, softmax, activations, dropout, embedding look-up, optimizer; a causal kernel may skip half of n"

Unit = Literal["token", "source token", "target token", "masked token", "text"]


class OperationCount(NamedTuple):
    """The forward operations of one component, for each unit of what it reads."""

    name: str
    formula: str
    forward: int
    unit: Unit
    grows_with_length: bool = False


def components(config: ModelConfig, head: HeadConfig, lengths: Lengths) -> list[OperationCount]:
    """What a forward pass computes, component by component."""
    check_head(config, head)
    n, d, k, depth = lengths.source, config.width, config.kv_width, config.decoder_depth
    if not depth:
        return [*_stack("base.stack", "L", config, config.depth, n, "token"), *_head(config, head)]
    from_memory = ("M·4d²" if k == d else "M·4d·k", depth * 4 * d * k)
    return [
        *_stack("base.encoder", "L", config, config.depth, n, "source token"),
        *_stack("base.decoder", "M", config, depth, lengths.target, "target token"),
        OperationCount("base.decoder.cross_attention.qkv", *from_memory, "source token"),
        OperationCount("base.decoder.cross_attention.query, .output", "M·4d²", depth * 4 * d * d, "target token"),
        OperationCount("base.decoder.cross_attention over n", "M·4n·d", depth * 4 * n * d, "target token", True),
        *_head(config, head),
    ]


def _stack(name: str, letter: str, config: ModelConfig, depth: int, length: int, unit: Unit) -> list[OperationCount]:
    d, f, k = config.width, config.ffn, config.kv_width
    qkv = (f"{letter}·6d²" if k == d else f"{letter}·(2d² + 4d·k)", depth * 2 * d * (d + 2 * k))
    matrices = 3 if config.activation == "swiglu" else 2
    return [
        OperationCount(f"{name}.attention.qkv", *qkv, unit),
        OperationCount(f"{name}.attention over n", f"{letter}·4n·d", depth * 4 * length * d, unit, True),
        OperationCount(f"{name}.attention.output", f"{letter}·2d²", depth * 2 * d * d, unit),
        OperationCount(f"{name}.feed_forward", f"{letter}·{2 * matrices}d·f", depth * 2 * matrices * d * f, unit),
    ]


def _head(config: ModelConfig, head: HeadConfig) -> list[OperationCount]:
    d, vocab = config.width, config.output_vocab
    letter = "W" if config.target_vocab else "V"
    works = []
    if head.kind in ("masked", "masked-nsp"):
        works.append(OperationCount("head.transform", "2d²", 2 * d * d, "masked token"))
    units: dict[str, Unit] = {"lm": "token", "translation": "target token"}
    if head.kind in ("lm", "translation", "masked", "masked-nsp"):
        works.append(OperationCount("head.output", f"2d·{letter}", 2 * d * vocab, units.get(head.kind, "masked token")))
    if head.kind in ("next-sentence", "masked-nsp"):
        works.append(OperationCount("head.pooler, .next_sentence", "2d² + 4d", 2 * d * d + 4 * d, "text"))
    if head.kind in ("classification", "multilabel", "regression"):
        if config.pooler:
            works.append(OperationCount("head.pooler", "2d²", 2 * d * d, "text"))
        works.append(OperationCount("head.classifier", "2d·C", 2 * d * head.classes, "text"))
    return works


class Totals(NamedTuple):
    """Operations of one text of the given length, all its tokens together."""

    forward: int
    backward: int
    forward_over_length: int
    backward_over_length: int


def per_text(
    config: ModelConfig,
    head: HeadConfig,
    lengths: Lengths,
    freeze: Freeze | None = None,
    masked_share: float = MASK_PROB,
) -> Totals:
    """Forward and backward; backward costs twice forward, and nothing in a frozen base below the head."""
    totals = [0, 0, 0, 0]
    units: dict[Unit, int] = {
        "token": lengths.source, "source token": lengths.source, "target token": lengths.target,
        "masked token": round(masked_share * lengths.source), "text": 1,
    }  # fmt: skip
    for work in components(config, head, lengths):
        forward = work.forward * units[work.unit]
        backward = 0 if freeze and work.name.startswith(f"{freeze}.") else 2 * forward
        over_length = (forward, backward) if work.grows_with_length else (0, 0)
        totals = [sum(pair) for pair in zip(totals, (forward, backward, *over_length), strict=True)]
    return Totals(*totals)
