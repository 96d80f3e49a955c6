"""What forward keeps for backward, component by component, from the configuration alone.

Every row is a tensor, or some of one size, that autograd really holds; a test counts them through torch's own hooks.
Devices differ in two parts: RMSNorm, which is not fused on a CPU, and attention with dropout, which keeps its weights
there (kernels/cpu/attention_dropout.py).
"""

from typing import NamedTuple

from headstart.kernels.constants import STRETCH
from headstart.planning.workload import Workload

FP32_BYTES = 4  # bytes of a sum, a norm, a weight


class Saved(NamedTuple):
    """Bytes that one part keeps until its backward."""

    name: str
    formula: str
    bytes: int
    tensors: int = 1  # how many tensors of about one size they stand in


class StackBatch(NamedTuple):
    """A batch as one stack of blocks reads it: its tokens, and what attention keeps beside them."""

    name: str
    depth: int
    tokens: int
    length: int
    mask: int = 0  # numbers in the mask that attention keeps: none for a causal square, which is a flag
    is_copied: bool = False  # whether what attention mixed is copied: to join texts, or to zero empty rows
    texts: tuple[int, int] = (0, 0)  # how many texts look at themselves alone, and the tokens of each
    is_causal: bool = False  # whether each text's attention is the plain causal square
    is_joined: bool = False  # whether all texts stand in one row, one after another


def stack_batches(work: Workload) -> list[StackBatch]:
    """The stacks of the model. On a CPU texts stand one after another in one row, without padding or mask."""
    batch, n, m, config = work.micro_batch, work.lengths.source, work.lengths.target, work.config
    is_padded = work.reading == "padded"
    if config.decoder_depth:
        keys = batch * n if is_padded else 0
        return [
            StackBatch("base.encoder", config.depth, batch * n, n, keys, is_padded, (batch, n)),
            StackBatch("base.decoder", config.decoder_depth, batch * m, m, texts=(batch, m), is_causal=True),
        ]
    is_causal, tokens = config.direction == "causal", batch * n
    if work.reading == "whole":
        return [StackBatch("base.stack", config.depth, tokens, n, texts=(batch, n), is_causal=is_causal)]
    each = min(n, work.document or n) if work.reading == "packed" else n
    texts = (-(-tokens // each), each)
    if work.device == "cpu":
        return [StackBatch("base.stack", config.depth, tokens, n, 0, True, texts, is_causal, True)]
    if work.reads_by_offsets:
        return [StackBatch("base.stack", config.depth, tokens, n, texts=texts, is_causal=is_causal)]
    square = tokens * n if work.reading == "packed" or is_causal else tokens
    return [StackBatch("base.stack", config.depth, tokens, n, square, is_padded, (batch, n))]


# ---- parts of a block ---------------------------------------------------------------------------------------


def norm(name: str, work: Workload, tokens: int) -> list[Saved]:
    """A norm keeps its input and a number or two of each token; on a CPU RMSNorm keeps what it has scaled too."""
    d, copies = work.config.width, 1 if work.device == "cuda" else 2
    if work.config.norm == "layer":
        return [Saved(name, "t·(d·4 + 8)", tokens * (d * FP32_BYTES + 8))]
    formula = f"t·({copies if copies > 1 else ''}d·4 + 4)"
    return [Saved(name, formula, tokens * (copies * d * FP32_BYTES + 4), copies)]


def dropout(name: str, numbers: int, share: float) -> list[Saved]:
    """Which numbers were dropped, in a byte each."""
    return [Saved(name, "1 a number", numbers)] if share else []


def _copies(name: str, work: Workload, numbers: int) -> list[Saved]:
    """Matrices in half precision, made for forward and kept for backward."""
    return [Saved(name, "2 a weight", 2 * numbers, 2)] if work.precision == "bf16" else []


def attention_weights(work: Workload, stack: StackBatch) -> int:
    """Pairs of query and key whose weight is computed and kept: of a causal square stretch by stretch, else all."""
    count, n = stack.texts
    pairs = n * n
    if stack.is_causal:
        pairs = sum((min(a + STRETCH, n) - a) * min(a + STRETCH, n) for a in range(0, n, STRETCH))
    return count * pairs * work.config.heads


def attention(work: Workload, stack: StackBatch) -> list[Saved]:
    """Of a stack over itself, without its norm."""
    config, e = work.config, work.number_bytes
    d, k, h, t = config.width, config.kv_width, config.heads, stack.tokens
    rows = [Saved("attention.input", "t·d·e", t * d * e)]
    if work.keeps_attention:
        each = FP32_BYTES if stack.is_joined else e  # texts of any length are computed in fp32
        weights, texts = attention_weights(work, stack) * (each + 1), stack.texts[0]
        rows.append(Saved("attention.weights, and which were dropped", "t·n·h·(e+1)", weights, texts))
        rows.append(Saved("attention.query, .key, .value", "3·t·d·e", 3 * t * d * each, 3))
        rows.append(Saved("attention.mixed", "t·d·e", t * d * e))
    elif work.device == "cuda" and not (work.is_aligned or work.is_widened):
        rows += _unaligned("attention", work, t, t, stack.length)
    else:
        turned, shared = config.positions == "rotary", k < d
        wide, wide_k = work.widened(d), work.widened(k)
        if not (turned and shared):  # the values, and queries that are not turned, lie in it
            rows.append(Saved("attention.qkv", "t·(d+2k)·e", t * (wide + 2 * wide_k) * e))
        new = turned + (2 if shared else turned)
        if new:
            rows.append(Saved("attention.qkv, turned or shared", f"{new}·t·d·e", new * t * wide * e, new))
        rows.append(Saved("attention.mixed", "t·(d·e + 4h)", t * (wide * e + 4 * h)))
        if stack.mask:
            rows.append(Saved("attention.mask", "B·n·n·e", stack.mask * e))
        if stack.is_copied:
            rows.append(Saved("attention.mixed, copied", "t·d·e", t * wide * e))
    matrices = d * (work.widened(d) + 2 * work.widened(k)) + d * work.widened(d)
    if work.is_widened and work.precision == "fp32":  # wider heads need copies of matrices in any precision
        rows.append(Saved("attention.matrices of wider heads", "4 a weight", FP32_BYTES * matrices))
    rows += _copies("attention.matrices in bf16", work, matrices)
    return rows + dropout("attention.dropout", t * d, config.dropout)


def _unaligned(name: str, work: Workload, queries: int, keys: int, length: int) -> list[Saved]:
    """On a GPU, heads of a width that its kernels do not take: filled up, or by the book in fp32."""
    config, e = work.config, work.number_bytes
    d, h = config.width, config.heads
    mixed = Saved(f"{name}.mixed", "t·d·e", queries * d * e)
    if work.is_refused:
        each = 2 * FP32_BYTES + 1 if config.attention_dropout else FP32_BYTES
        return [
            Saved(f"{name}.weights, by the book", f"t·n·h·{each}", queries * length * h * each),
            Saved(f"{name}.query, .key, .value", "(t + 2s)·d·4", (queries + 2 * keys) * d * FP32_BYTES),
            mixed,
        ]
    filled = -(-(d // h * e) // 16) * 16 * h
    copies = 2 * queries + 2 * keys
    return [Saved(f"{name}.query, .key, .value, .mixed, filled up", "4·t·d'·e", copies * filled), mixed]


def cross_attention(work: Workload, stack: StackBatch, memory: StackBatch) -> list[Saved]:
    """Of the decoder over what the encoder made, without its norm."""
    config, e = work.config, work.number_bytes
    d, k, h, t, s = config.width, config.kv_width, config.heads, stack.tokens, memory.tokens
    rows = [Saved("cross_attention.input", "t·d·e", t * d * e)]
    if work.precision == "bf16":  # in fp32 all layers keep the same one
        rows.append(Saved("cross_attention.memory", "s·d·e", s * d * e))
    if work.keeps_attention:
        weights = t * memory.length * h * (e + 1)
        rows.append(Saved("cross_attention.weights, and which were dropped", "t·n·h·(e+1)", weights))
        rows.append(Saved("cross_attention.query, .key, .value", "(t + 2s)·d·e", (t + 2 * s) * d * e, 3))
        rows.append(Saved("cross_attention.mixed", "t·d·e", t * d * e))
    elif work.device == "cuda" and not work.is_aligned:
        rows += _unaligned("cross_attention", work, t, s, memory.length)
    else:
        rows.append(Saved("cross_attention.query", "t·d·e", t * d * e))
        width = d if k < d else k
        rows.append(Saved("cross_attention.key, .value", "s·2d·e", s * 2 * width * e))
        rows.append(Saved("cross_attention.mixed", "t·(d·e + 4h)", t * (d * e + 4 * h)))
        if memory.mask:
            rows.append(Saved("cross_attention.mask", "s·e", memory.mask * e))
        if memory.is_copied:
            rows.append(Saved("cross_attention.mixed, copied", "t·d·e", t * d * e))
    rows += _copies("cross_attention.matrices in bf16", work, d * (d + 2 * k) + d * d)
    return rows + dropout("cross_attention.dropout", t * d, config.dropout)


def feed_forward(work: Workload, stack: StackBatch) -> list[Saved]:
    """Without its norm: what goes in, what the non-linearity needs, what the second matrix needs."""
    config, e, t = work.config, work.number_bytes, stack.tokens
    d, f = config.width, config.ffn
    is_gated, drops = config.activation == "swiglu", config.ffn_dropout > 0
    inner = {"swiglu": 4, "relu": 2 if drops else 1}.get(config.activation, 2)
    rows = [
        Saved("feed_forward.input", "t·d·e", t * d * e),
        Saved("feed_forward.inner", f"{inner}·t·f·e", inner * t * f * e, max(1, inner // (1 + is_gated))),
    ]
    rows += _copies("feed_forward.matrices in bf16", work, (3 if is_gated else 2) * d * f)
    rows += dropout("feed_forward.inner dropout", t * f, config.ffn_dropout)
    return rows + dropout("feed_forward.dropout", t * d, config.dropout)


def block(work: Workload, stack: StackBatch, memory: StackBatch | None = None) -> list[Saved]:
    """One layer of a stack, its norms included."""
    rows = [*norm("attention_norm", work, stack.tokens), *attention(work, stack)]
    if memory is not None:
        rows += [*norm("cross_norm", work, stack.tokens), *cross_attention(work, stack, memory)]
    return [*rows, *norm("feed_forward_norm", work, stack.tokens), *feed_forward(work, stack)]


def reads_one_token(work: Workload) -> bool:
    """Whether the last block is computed at one token of each text alone, which is all that the head reads."""
    config, head = work.config, work.head
    pooling = head.pooling_for(config)
    sees_all = pooling == "last" if config.direction == "causal" else pooling != "mean"
    is_sentence = head.kind in ("classification", "multilabel", "regression")
    return work.device == "cpu" and is_sentence and sees_all and config.positions != "rotary"


def last_block(work: Workload, stack: StackBatch) -> list[Saved]:
    """The top of a stack whose head reads one token of each text: the others are keys and values alone."""
    config, e, t = work.config, work.number_bytes, stack.tokens
    d, k, f = config.width, config.kv_width, config.ffn
    copies = 2 * d if k < d or work.keeps_attention else 2 * k
    rows = norm("attention_norm", work, t) if config.norm_place == "pre" else []
    rows += [Saved("attention.input", "t·d·e", t * d * e), Saved("attention.key, .value", "t·2k·e", t * copies * e, 2)]
    gated = 3 if config.activation == "swiglu" else 2
    return rows + _copies("matrices in bf16", work, d * (2 * d + 2 * k) + gated * d * f)


# ---- around the blocks --------------------------------------------------------------------------------------


def embedding(work: Workload, stack: StackBatch) -> list[Saved]:
    """Ids of tokens and positions, and what dropout and a norm keep."""
    config, t = work.config, stack.tokens
    rows = [Saved("embedding.ids", "t·8", t * 8)]
    positions = t if work.reading != "whole" else stack.length
    if config.positions == "learned":
        rows.append(Saved("embedding.positions", "t·8", positions * 8))
    if config.embedding_norm:
        rows += norm("embedding.norm", work, t)
    if config.positions == "rotary":
        rows.append(Saved("rotation", "t·2·(d/h)·4", positions * 2 * work.head_width * FP32_BYTES))
    return rows + dropout("embedding.dropout", t * config.width, config.dropout)


def after_blocks(work: Workload, stack: StackBatch) -> list[Saved]:
    """The norm at the end of a pre-norm stack; in an encoder also the memory itself, in fp32."""
    rows = norm("final_norm", work, stack.tokens) if work.config.norm_place == "pre" else []
    if stack.name == "base.encoder" and work.precision == "fp32":
        rows.append(Saved("memory", "t·d·4", stack.tokens * work.config.width * FP32_BYTES))
    if stack.is_joined and not reads_one_token(work):
        rows.append(Saved("unpacked", "t·(d·4 + 8)", stack.tokens * (work.config.width * FP32_BYTES + 8)))
    return rows


def head(work: Workload) -> list[Saved]:
    """The gradients that the chunked loss makes at once, and BERT's transform; sentence heads keep next to nothing."""
    kind, d, e, p = work.head.kind, work.config.width, work.number_bytes, work.predicted
    rows = []
    if kind in ("masked", "masked-nsp"):
        keeps = 1 if work.config.activation == "relu" else 2
        rows.append(Saved("head.transform", f"{1 + keeps}·p·d·e", (1 + keeps) * p * d * e))
        rows += _copies("head.transform in bf16", work, d * d)
        rows += norm("head.transform_norm", work, p)
    if kind in ("lm", "translation", "masked", "masked-nsp"):
        rows.append(Saved("head.gradients of what it read", "p·d·e", p * d * e))
    if kind not in ("lm", "translation", "masked"):
        rows.append(Saved("head.pooled", "4·B·d·4", 4 * work.micro_batch * d * FP32_BYTES))
    return rows


def saved_tensors(work: Workload) -> list[Saved]:
    """All that forward keeps, blocks of a stack together."""
    if work.freeze == "base":
        return head(work)
    rows, stacks = [], stack_batches(work)
    for number, stack in enumerate(stacks):
        memory, letter = (stacks[0], "M") if number else (None, "L")
        rows += [Saved(f"{stack.name}: {r.name}", *r[1:]) for r in embedding(work, stack)]
        top = last_block(work, stack) if reads_one_token(work) else []
        blocks = stack.depth - bool(top)
        for row in block(work, stack, memory):
            name, formula = f"{stack.name}.blocks.*.{row.name}", f"{letter}·{row.formula}"
            rows.append(Saved(name, formula, blocks * row.bytes, max(1, blocks) * row.tensors))
        rows += [Saved(f"{stack.name}, last block: {r.name}", *r[1:]) for r in top]
        rows += [Saved(f"{stack.name}.{r.name}", *r[1:]) for r in after_blocks(work, stack)]
    return rows + head(work)


def cache_bytes(work: Workload) -> int:
    """Keys and values of every layer while text is generated; a full buffer is doubled, hence the first two."""
    config, n = work.config, work.lengths.source
    tokens = config.decoder_depth * (work.lengths.target + n) if config.decoder_depth else config.depth * n
    return 2 * tokens * work.micro_batch * 2 * config.kv_width * work.number_bytes
