"""Every parameter of a model, counted from its configuration alone, with the formula it comes from."""

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from headstart.model.presets import HeadConfig, ModelConfig, check_head

Freeze = Literal["base"]
SENTENCE_KINDS = ("classification", "multilabel", "regression")
_POWERS = {1: "", 2: "²", 3: "³"}


class PlannedTensor(NamedTuple):
    """A tensor that the model will have; its dimensions are symbols with a factor, such as "3d", or a sum of some."""

    name: str
    dimensions: tuple[str, ...]


@dataclass(frozen=True)
class Component:
    """A layer's weight and bias, over all the blocks of a stack, as a formula and as a number."""

    name: str
    formula: str
    count: int


def symbols(config: ModelConfig, head: HeadConfig) -> dict[str, int]:
    """What the letters in formulas stand for."""
    return {
        "V": config.vocab,
        "W": config.target_vocab,
        "d": config.width,
        "f": config.ffn,
        "L": config.depth,
        "M": config.decoder_depth,
        "T": config.context,
        "S": config.segments,
        "k": config.kv_width if config.kv_width < config.width else 0,
        "C": head.classes,
    }


MEANINGS = {
    "V": "vocabulary",
    "W": "target vocabulary",
    "d": "width",
    "f": "feed-forward width",
    "L": "depth",
    "M": "decoder depth",
    "T": "context",
    "S": "segments",
    "k": "width of keys and of values",
    "C": "classes",
    "n": "length seen",
}


def tensors(config: ModelConfig, head: HeadConfig) -> Iterator[PlannedTensor]:
    """All tensors of the model, one by one; a tied matrix is the embedding's and stands once."""
    check_head(config, head)
    yield from _embedding("base.embedding", config, "V")
    if config.target_vocab:
        yield from _embedding("base.target_embedding", config, "W")
    if config.decoder_depth:
        yield from _stack("base.encoder", config, config.depth, cross=False)
        yield from _stack("base.decoder", config, config.decoder_depth, cross=True)
    else:
        yield from _stack("base.stack", config, config.depth, cross=False)
    yield from _head(config, head)


def _linear(name: str, rows: str, columns: str, bias: bool) -> Iterator[PlannedTensor]:
    yield PlannedTensor(f"{name}.weight", (rows, columns))
    if bias:
        yield PlannedTensor(f"{name}.bias", (rows,))


def _norm(name: str, config: ModelConfig) -> Iterator[PlannedTensor]:
    yield PlannedTensor(f"{name}.weight", ("d",))
    if config.norm == "layer" and config.bias:
        yield PlannedTensor(f"{name}.bias", ("d",))


def _embedding(name: str, config: ModelConfig, vocab: str) -> Iterator[PlannedTensor]:
    yield PlannedTensor(f"{name}.tokens.weight", (vocab, "d"))
    if config.positions == "learned":
        yield PlannedTensor(f"{name}.positions.weight", ("T", "d"))
    if config.segments:
        yield PlannedTensor(f"{name}.segments.weight", ("S", "d"))
    if config.embedding_norm:
        yield from _norm(f"{name}.norm", config)


def _stack(name: str, config: ModelConfig, depth: int, cross: bool) -> Iterator[PlannedTensor]:
    rows = "3d" if config.kv_width == config.width else "d+2k"
    for index in range(depth):
        block = f"{name}.blocks.{index}"
        for attention in ("attention", "cross_attention") if cross else ("attention",):
            yield from _linear(f"{block}.{attention}.qkv", rows, "d", config.bias)
            yield from _linear(f"{block}.{attention}.output", "d", "d", config.bias)
            yield from _norm(f"{block}.{attention.replace('cross_attention', 'cross')}_norm", config)
        inner = "2f" if config.activation == "swiglu" else "f"
        yield from _linear(f"{block}.feed_forward.input", inner, "d", config.bias)
        yield from _linear(f"{block}.feed_forward.output", "d", "f", config.bias)
        yield from _norm(f"{block}.feed_forward_norm", config)
    if config.norm_place == "pre":
        yield from _norm(f"{name}.final_norm", config)


def _head(config: ModelConfig, head: HeadConfig) -> Iterator[PlannedTensor]:
    if head.kind in ("masked", "masked-nsp"):
        yield from _linear("head.transform", "d", "d", config.bias)
        yield from _norm("head.transform_norm", config)
    if head.kind in ("lm", "translation", "masked", "masked-nsp"):
        output = list(_linear("head.output", "W" if config.target_vocab else "V", "d", config.output_bias))
        yield from output[1:] if config.tied else output
    if head.kind in ("next-sentence", "masked-nsp"):
        yield from _linear("head.pooler", "d", "d", config.bias)
        yield from _linear("head.next_sentence", "2", "d", bias=True)
    keeps_pooler = head.kind in SENTENCE_KINDS or (head.kind == "none" and head.pooling is not None)
    if config.pooler and keeps_pooler:
        yield from _linear("head.pooler", "d", "d", config.bias)
    if head.kind in SENTENCE_KINDS:
        yield from _linear("head.classifier", "C", "d", bias=True)


def shape(tensor: PlannedTensor, values: dict[str, int]) -> tuple[int, ...]:
    """A tensor's dimensions in numbers."""
    return tuple(
        sum(factor * (values[letter] if letter else 1) for factor, letter in _parsed(dimension))
        for dimension in tensor.dimensions
    )


def count(tensor: PlannedTensor, values: dict[str, int]) -> int:
    """How many numbers a tensor holds."""
    return math.prod(shape(tensor, values))


def total(config: ModelConfig, head: HeadConfig) -> int:
    """How many numbers a model holds; blocks are alike, so that any depth is counted at once."""

    def counted(depth: int, decoder_depth: int) -> int:
        shallow = replace(config, depth=depth, decoder_depth=decoder_depth)
        return sum(count(tensor, symbols(shallow, head)) for tensor in tensors(shallow, head))

    has_decoder = min(1, config.decoder_depth)
    one = counted(1, has_decoder)
    found = one + (config.depth - 1) * (counted(2, has_decoder) - one)
    return found + (config.decoder_depth - 1) * (counted(1, 2) - one) if has_decoder else found


def _parsed(dimension: str) -> list[tuple[int, str]]:
    """The factors and letters of a sum: "d+2k" is 1 d and 2 k."""
    matches = [re.fullmatch(r"(\d*)([A-Za-z]?)", summand) for summand in dimension.split("+")]
    return [(int(m[1] or 1), m[2]) for m in matches if m]


def term(dimensions: tuple[str, ...]) -> str:
    """A product in symbols: ("3d", "d") is 3d², ("V", "d") is V·d, ("d+2k", "d") is d² + 2k·d."""
    products = itertools.product(*(_parsed(dimension) for dimension in dimensions))
    return " + ".join(_product(factors) for factors in products)


def _product(factors: Sequence[tuple[int, str]]) -> str:
    factor = math.prod(f for f, _ in factors)
    letters = [letter for _, letter in factors if letter]
    powers = [f"{letter}{_POWERS[letters.count(letter)]}" for letter in dict.fromkeys(letters)]
    return (str(factor) if factor > 1 or not powers else "") + "·".join(powers)


def components(config: ModelConfig, head: HeadConfig) -> list[Component]:
    """The tensors in groups: weight and bias together, all blocks of a stack together. They sum to the total."""
    values = symbols(config, head)
    groups: dict[str, list[PlannedTensor]] = {}
    for tensor in tensors(config, head):
        name = re.sub(r"\.blocks\.\d+\.", ".blocks.*.", tensor.name).rpartition(".")[0]
        groups.setdefault(name, []).append(tensor)
    return [
        Component(name, _formula(name, group), sum(count(tensor, values) for tensor in group))
        for name, group in groups.items()
    ]


def _formula(name: str, group: list[PlannedTensor]) -> str:
    in_blocks = ".blocks." in name
    one = [t for t in group if not in_blocks or ".blocks.0." in t.name]
    terms = [term(tensor.dimensions) for tensor in one]
    if len(terms) == 2 and terms[0] == terms[1]:  # a norm's weight and bias
        terms = [term(("2", *one[0].dimensions))]
    formula = " + ".join(terms)
    if not in_blocks:
        return formula
    depth = "M" if ".decoder." in name else "L"
    return f"{depth}·({formula})" if "+" in formula else f"{depth}·{formula}"


def trainable(component: Component, freeze: Freeze | None) -> bool:
    """Whether a component learns."""
    return freeze is None or not component.name.startswith(f"{freeze}.")
