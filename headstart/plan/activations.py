"""What forward keeps for backward, component by component, from the configuration alone.

Every line of these tables is a tensor, or some of one size, that autograd really holds; a test counts them through
torch's own hooks. Devices differ in two places: RMSNorm, which is not fused on a CPU, and attention with dropout,
which keeps its weights there (model/dropped_attention.py).
"""

from typing import NamedTuple

from headstart.plan.workload import Workload

EXACT = 4  # bytes of a sum, a norm, a weight
STRETCH = 96  # queries that attention with dropout takes at a time (model/dropped_attention.py; a test keeps it equal)


class Saved(NamedTuple):
    """Bytes that one part keeps until its backward."""

    name: str
    formula: str
    bytes: int
    tensors: int = 1
    """How many tensors of about one size they stand in."""


class Reader(NamedTuple):
    """A stack's own view of the batch: its tokens, and what attention keeps beside them."""

    name: str
    depth: int
    tokens: int
    length: int
    mask: int = 0
    """Numbers in the mask that attention keeps: none for a square one, which is a flag."""

    is_copied: bool = False
    """Whether what attention mixed is copied: texts are joined, or rows that see nothing set to zero."""

    texts: tuple[int, int] = (0, 0)
    """How many texts look at themselves alone, and the tokens of each."""

    is_causal: bool = False
    """Whether each text's attention is the plain causal square."""

    is_joined: bool = False
    """Whether all texts stand in one row, one after another."""


def readers(work: Workload) -> list[Reader]:
    """The stacks of the model. On a CPU texts stand one after another in one row, without padding or mask."""
    batch, lengths, config = work.micro_batch, work.lengths, work.config
    n = lengths.source
    is_padded = work.reading == "padded"
    if config.decoder_depth:
        m = lengths.target
        keys = batch * n if is_padded else 0
        return [
            Reader("base.encoder", config.depth, batch * n, n, keys, is_padded, (batch, n)),
            Reader("base.decoder", config.decoder_depth, batch * m, m, texts=(batch, m), is_causal=True),
        ]
    is_causal, tokens = config.direction == "causal", batch * n
    if work.reading == "whole":
        return [Reader("base.stack", config.depth, tokens, n, texts=(batch, n), is_causal=is_causal)]
    if work.device == "cpu":
        each = min(n, work.document or n) if work.reading == "packed" else n
        texts = (-(-tokens // each), each)
        return [Reader("base.stack", config.depth, tokens, n, 0, True, texts, is_causal, True)]
    if work.reads_by_offsets:
        texts = (-(-tokens // min(n, work.document or n)), min(n, work.document or n))
        return [Reader("base.stack", config.depth, tokens, n, texts=texts, is_causal=is_causal)]
    square = tokens * n if work.reading == "packed" or is_causal else tokens
    return [Reader("base.stack", config.depth, tokens, n, square, is_padded, (batch, n))]


# ---- parts of a block ---------------------------------------------------------------------------------------


def norm(name: str, work: Workload, tokens: int, input_bytes: int = EXACT) -> list[Saved]:
    """A norm keeps its input and a number or two of each token; on a CPU RMSNorm keeps what it has scaled too."""
    d = work.config.width
    if work.config.norm == "layer":
        return [Saved(name, "t·(d·4 + 8)", tokens * (d * input_bytes + 8))]
    copies = 1 if work.device == "cuda" else 2
    return [
        Saved(
            name,
            f"t·({copies if copies > 1 else ''}d·4 + 4)",
            tokens * (copies * d * input_bytes + 4),
            copies,
        )
    ]


def dropout(name: str, numbers: int, share: float) -> list[Saved]:
    """Which numbers were dropped, in a byte each."""
    return [Saved(name, "1 a number", numbers)] if share else []


def _copies(name: str, work: Workload, numbers: int) -> list[Saved]:
    """Matrices in half precision, made for forward and kept for backward."""
    return [Saved(name, "2 a weight", 2 * numbers, 2)] if work.precision == "bf16" else []


def seen(work: Workload, reader: Reader) -> int:
    """Pairs of query and key whose weight is computed and kept: of a causal square stretch by stretch, else all."""
    count, n = reader.texts
    pairs = n * n
    if reader.is_causal:
        pairs = sum((min(a + STRETCH, n) - a) * min(a + STRETCH, n) for a in range(0, n, STRETCH))
    return count * pairs * work.config.heads


def attention(work: Workload, reader: Reader) -> list[Saved]:
    """Of a stack over itself, without its norm."""
    config, e = work.config, work.number_bytes
    d, k, h, t = config.width, config.kv_width, config.heads, reader.tokens
    rows = [Saved("attention.input", "t·d·e", t * d * e)]
    if work.keeps_attention:
        each = EXACT if reader.is_joined else e  # texts of any length are computed in fp32
        weights = seen(work, reader) * (each + 1)
        texts = reader.texts[0]
        rows.append(Saved("attention.weights, and which were dropped", "t·n·h·(e+1)", weights, texts))
        rows.append(Saved("attention.query, .key, .value", "3·t·d·e", 3 * t * d * each, 3))
        rows.append(Saved("attention.mixed", "t·d·e", t * d * e))
    elif work.device == "cuda" and not (work.is_aligned or work.is_widened):
        rows += _unaligned("attention", work, t, t, reader.length)
    else:
        turned, shared = config.positions == "rotary", k < d
        wide, wide_k = work.widened(d), work.widened(k)
        if not (turned and shared):  # the values, and queries that are not turned, lie in it
            rows.append(Saved("attention.qkv", "t·(d+2k)·e", t * (wide + 2 * wide_k) * e))
        new = turned + (2 if shared else turned)
        if new:
            rows.append(Saved("attention.qkv, turned or shared", f"{new}·t·d·e", new * t * wide * e, new))
        rows.append(Saved("attention.mixed", "t·(d·e + 4h)", t * (wide * e + 4 * h)))
        if reader.mask:
            rows.append(Saved("attention.mask", "B·n·n·e", reader.mask * e))
        if reader.is_copied:
            rows.append(Saved("attention.mixed, copied", "t·d·e", t * wide * e))
    rows += _attention_matrices(work)
    return rows + dropout("attention.dropout", t * d, config.dropout)


def _attention_matrices(work: Workload) -> list[Saved]:
    """Copies that are kept: in half precision, and of matrices for wider heads in both."""
    d, k = work.config.width, work.config.kv_width
    numbers = d * (work.widened(d) + 2 * work.widened(k)) + d * work.widened(d)
    if work.is_widened and work.precision == "fp32":
        return [Saved("attention.matrices of wider heads", "4 a weight", EXACT * numbers)]
    return _copies("attention.matrices in bf16", work, numbers)


def _unaligned(name: str, work: Workload, queries: int, keys: int, length: int) -> list[Saved]:
    """On a GPU, heads of a width that its kernels do not take: filled up, or by the book in fp32."""
    config, e = work.config, work.number_bytes
    d, h = config.width, config.heads
    mixed = Saved(f"{name}.mixed", "t·d·e", queries * d * e)
    if work.is_refused:
        each = 2 * EXACT + 1 if config.attention_dropout else EXACT
        return [
            Saved(f"{name}.weights, by the book", f"t·n·h·{each}", queries * length * h * each),
            Saved(f"{name}.query, .key, .value", "(t + 2s)·d·4", (queries + 2 * keys) * d * EXACT),
            mixed,
        ]
    filled = -(-(d // h * e) // 16) * 16 * h
    copies = 2 * queries + 2 * keys
    return [Saved(f"{name}.query, .key, .value, .mixed, filled up", "4·t·d'·e", copies * filled), mixed]


def cross_attention(work: Workload, reader: Reader, memory: Reader) -> list[Saved]:
    """Of the decoder over what the encoder made, without its norm."""
    config, e = work.config, work.number_bytes
    d, k, h, t, s = config.width, config.kv_width, config.heads, reader.tokens, memory.tokens
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


def feed_forward(work: Workload, reader: Reader) -> list[Saved]:
    """Without its norm: what goes in, what the non-linearity needs, what the second matrix needs."""
    config, e, t = work.config, work.number_bytes, reader.tokens
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


def block(work: Workload, reader: Reader, memory: Reader | None = None) -> list[Saved]:
    """One layer of a stack, its norms included."""
    rows = [*norm("attention_norm", work, reader.tokens), *attention(work, reader)]
    if memory is not None:
        rows += [*norm("cross_norm", work, reader.tokens), *cross_attention(work, reader, memory)]
    return [*rows, *norm("feed_forward_norm", work, reader.tokens), *feed_forward(work, reader)]


def ends_at_one_place(work: Workload) -> bool:
    """Whether the last block is computed at one token of each text alone, which is all that the head reads."""
    config, head = work.config, work.head
    pooling = head.pooling_for(config)
    sees_all = pooling == "last" if config.direction == "causal" else pooling != "mean"
    is_sentence = head.kind in ("classification", "multilabel", "regression")
    return work.device == "cpu" and is_sentence and sees_all and config.positions != "rotary"


def last_block(work: Workload, reader: Reader) -> list[Saved]:
    """The top of a stack: where the head reads one token of each text, the others are keys and values alone."""
    if not ends_at_one_place(work):
        return block(work, reader)
    config, e, t = work.config, work.number_bytes, reader.tokens
    d, k, f = config.width, config.kv_width, config.ffn
    copies = 2 * d if k < d or work.keeps_attention else 2 * k
    rows = norm("attention_norm", work, t) if config.norm_place == "pre" else []
    rows += [
        Saved("attention.input", "t·d·e", t * d * e),
        Saved("attention.key, .value", "t·2k·e", t * copies * e, 2),
    ]
    gated = 3 if config.activation == "swiglu" else 2
    return rows + _copies("matrices in bf16", work, d * (2 * d + 2 * k) + gated * d * f)


# ---- around the blocks --------------------------------------------------------------------------------------


def embedding(work: Workload, reader: Reader) -> list[Saved]:
    """Which tokens and places, and what dropout and a norm keep."""
    config, t = work.config, reader.tokens
    rows = [Saved("embedding.ids", "t·8", t * 8)]
    if config.positions == "learned":
        places = t if work.reading != "whole" else reader.length
        rows.append(Saved("embedding.positions", "t·8", places * 8))
    if config.embedding_norm:
        rows += norm("embedding.norm", work, t)
    if config.positions == "rotary":
        places = t if work.reading != "whole" else reader.length
        rows.append(Saved("rotation", "t·2·(d/h)·4", places * 2 * (config.width // config.heads) * EXACT))
    return rows + dropout("embedding.dropout", t * config.width, config.dropout)


def above(work: Workload, reader: Reader) -> list[Saved]:
    """The norm at the end of a pre-norm stack; in an encoder also the memory itself, in fp32."""
    rows = norm("final_norm", work, reader.tokens) if work.config.norm_place == "pre" else []
    if reader.name == "base.encoder" and work.precision == "fp32":
        rows.append(Saved("memory", "t·d·4", reader.tokens * work.config.width * EXACT))
    if reader.is_joined and not ends_at_one_place(work):
        rows.append(Saved("unpacked", "t·(d·4 + 8)", reader.tokens * (work.config.width * EXACT + 8)))
    return rows


def head(work: Workload) -> list[Saved]:
    """The gradients that the chunked loss makes at once, and BERT's transform; sentence heads keep next to nothing."""
    config, kind, e, p = work.config, work.head.kind, work.number_bytes, work.predicted
    d = config.width
    rows = []
    if kind in ("masked", "masked-nsp"):
        keeps = 1 if config.activation == "relu" else 2
        rows.append(Saved("head.transform", f"{1 + keeps}·p·d·e", (1 + keeps) * p * d * e))
        rows += _copies("head.transform in bf16", work, d * d)
        rows += norm("head.transform_norm", work, p)
    if kind in ("lm", "translation", "masked", "masked-nsp"):
        rows.append(Saved("head.slopes of what it read", "p·d·e", p * d * e))
    if kind not in ("lm", "translation", "masked"):
        texts = work.micro_batch
        rows.append(Saved("head.pooled", "4·B·d·4", 4 * texts * d * EXACT))
    return rows
