"""Every parameter of a model, counted from its configuration alone, with the formula it comes from."""

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headstart.config.model import HeadConfig, ModelConfig, check_head
from headstart.planning.workload import Freeze, Workload

SENTENCE_KINDS = ("classification", "multilabel", "regression")
_POWERS = {1: "", 2: "²", 3: "³"}


class PlannedTensor(NamedTuple):
    """A tensor that the model will have; its dimensions are symbols with a factor, such as "3d", or a sum of some."""

    name: str  # with `*` for the number of the block
    dimensions: tuple[str, ...]
    copies: int = 1  # how many blocks have it


@dataclass(frozen=True)
class Component:
    """A layer's weight and bias, over all the blocks of a stack, as a formula and as a number."""

    name: str
    formula: str
    count: int


def symbols(config: ModelConfig, head: HeadConfig) -> dict[str, int]:
    """What the letters in formulas stand for."""
    return {
        "V": config.vocab, "W": config.target_vocab, "d": config.width, "f": config.ffn, "L": config.depth,
        "M": config.decoder_depth, "T": config.context, "S": config.segments,
        "k": config.kv_width if config.kv_width < config.width else 0, "C": head.classes,
    }  # fmt: skip


MEANINGS = {
    "V": "vocabulary", "W": "target vocabulary", "d": "width", "f": "feed-forward width", "L": "depth",
    "M": "decoder depth", "T": "context", "S": "segments", "k": "width of keys and of values", "C": "classes",
    "n": "length seen",
}  # fmt: skip


def tensors(config: ModelConfig, head: HeadConfig) -> Iterator[PlannedTensor]:
    """All tensors of the model, one by one; a tied matrix is the embedding's and stands once."""
    for _, alike in itertools.groupby(_planned(config, head), lambda tensor: tensor.name.partition("*")[0]):
        block = list(alike)
        for index in range(block[0].copies):
            yield from (PlannedTensor(t.name.replace("*", str(index)), t.dimensions) for t in block)


def _planned(config: ModelConfig, head: HeadConfig) -> Iterator[PlannedTensor]:
    """The tensors of the model; those of the blocks of a stack once, with the number of blocks."""
    check_head(config, head)
    yield from _embedding("base.embedding", config, "V")
    if config.target_vocab:
        yield from _embedding("base.target_embedding", config, "W")
    yield from _stack("base.encoder" if config.decoder_depth else "base.stack", config, config.depth)
    if config.decoder_depth:
        yield from _stack("base.decoder", config, config.decoder_depth, cross=True)
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


def _stack(name: str, config: ModelConfig, depth: int, cross: bool = False) -> Iterator[PlannedTensor]:
    for tensor in _block(f"{name}.blocks.*", config, cross):
        yield tensor._replace(copies=depth)
    if config.norm_place == "pre":
        yield from _norm(f"{name}.final_norm", config)


def _block(name: str, config: ModelConfig, cross: bool) -> Iterator[PlannedTensor]:
    rows = "3d" if config.kv_width == config.width else "d+2k"
    for attention in ("attention", "cross_attention") if cross else ("attention",):
        yield from _linear(f"{name}.{attention}.qkv", rows, "d", config.bias)
        yield from _linear(f"{name}.{attention}.output", "d", "d", config.bias)
        yield from _norm(f"{name}.{attention.replace('cross_attention', 'cross')}_norm", config)
    inner = "2f" if config.activation == "swiglu" else "f"
    yield from _linear(f"{name}.feed_forward.input", inner, "d", config.bias)
    yield from _linear(f"{name}.feed_forward.output", "d", "f", config.bias)
    yield from _norm(f"{name}.feed_forward_norm", config)


def _head(config: ModelConfig, head: HeadConfig) -> Iterator[PlannedTensor]:
    if head.kind in ("masked", "masked-nsp"):
        yield from _linear("head.transform", "d", "d", config.bias)
        yield from _norm("head.transform_norm", config)
    if head.kind in ("lm", "translation", "masked", "masked-nsp"):
        output = list(_linear("head.output", "W" if config.target_vocab else "V", "d", config.output_bias))
        yield from output[1:] if config.tied else output
    reads_next = head.kind in ("next-sentence", "masked-nsp")
    is_pooled = head.kind in SENTENCE_KINDS or (head.kind == "none" and head.pooling is not None)
    if reads_next or (config.pooler and is_pooled):
        yield from _linear("head.pooler", "d", "d", config.bias)
    if reads_next:
        yield from _linear("head.next_sentence", "2", "d", bias=True)
    if head.kind in SENTENCE_KINDS:
        yield from _linear("head.classifier", "C", "d", bias=True)


def shape(tensor: PlannedTensor, values: dict[str, int]) -> tuple[int, ...]:
    """A tensor's dimensions in numbers."""
    return tuple(
        sum(factor * (values[letter] if letter else 1) for factor, letter in _parsed(dimension))
        for dimension in tensor.dimensions
    )


def count(tensor: PlannedTensor, values: dict[str, int]) -> int:
    """How many numbers a tensor holds, in all its copies."""
    return tensor.copies * math.prod(shape(tensor, values))


def total(config: ModelConfig, head: HeadConfig) -> int:
    """How many numbers a model holds."""
    return sum(component.count for component in components(config, head))


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


def components(config: ModelConfig, head: HeadConfig, by_tensor: bool = False) -> list[Component]:
    """Each tensor, or groups: weight with bias, all blocks of a stack together. They sum to the total."""
    values = symbols(config, head)
    if by_tensor:
        return [Component(t.name, term(t.dimensions), count(t, values)) for t in tensors(config, head)]
    groups: dict[str, list[PlannedTensor]] = {}
    for tensor in _planned(config, head):
        groups.setdefault(tensor.name.rpartition(".")[0], []).append(tensor)
    return [
        Component(name, _formula(name, group), sum(count(tensor, values) for tensor in group))
        for name, group in groups.items()
    ]


def _formula(name: str, group: list[PlannedTensor]) -> str:
    terms = [term(tensor.dimensions) for tensor in group]
    if len(terms) == 2 and terms[0] == terms[1]:  # a norm's weight and bias
        terms = [term(("2", *group[0].dimensions))]
    formula = " + ".join(terms)
    if ".blocks." not in name:
        return formula
    depth = "M" if ".decoder." in name else "L"
    return f"{depth}·({formula})" if "+" in formula else f"{depth}·{formula}"


def trainable(component: Component, freeze: Freeze | None) -> bool:
    """Whether a component learns."""
    return freeze is None or not component.name.startswith(f"{freeze}.")


class ModelSizes(NamedTuple):
    """Parameters in the parts of a model."""

    total: int
    trainable: int
    block: int
    decoder_block: int
    block_matrices: int  # in the matrices of all blocks, which Muon would update
    output: int  # the matrix over the vocabulary, tied or not
    embedding: int  # the tables of tokens whose gradient is as large as they are
    sparse: int  # the tables whose gradient has a batch's rows alone: on a CPU, where no output shares them
    base: int  # the blocks and the tables of tokens; a tied output counts with its table


def model_sizes(work: Workload) -> ModelSizes:
    """Parameters by where their gradients come in backward."""
    config, head, is_frozen = work.config, work.head, work.freeze == "base"
    values = symbols(config, head)
    rows = [(t.name, len(t.dimensions), count(t, values)) for t in _planned(config, head)]

    def summed(part: str, least_dimensions: int = 1) -> int:
        return sum(n for name, dimensions, n in rows if part in name and dimensions >= least_dimensions)

    blocks, decoder = summed(".blocks."), summed(".decoder.blocks.")
    has_output = head.kind in ("lm", "translation", "masked", "masked-nsp")
    tables = summed("embedding.tokens")
    sparse = 0
    if work.device == "cpu" and not is_frozen:
        is_shared = has_output and config.tied
        sparse_rows = 0 if is_shared and not config.target_vocab else config.vocab
        sparse = config.width * (sparse_rows + (0 if is_shared else config.target_vocab))
    whole = summed("")
    return ModelSizes(
        total=whole, trainable=summed("head.") if is_frozen else whole,
        block=(blocks - decoder) // config.depth, decoder_block=decoder // max(1, config.decoder_depth),
        block_matrices=summed(".blocks.", 2), output=config.output_vocab * config.width if has_output else 0,
        embedding=tables - sparse, sparse=sparse, base=blocks + tables,
    )  # fmt: skip
