"""The peak of memory in a step of training, in evaluation and in decoding, by kind, from the configuration alone."""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headstart.kernels.constants import BLOCK_ROWS, CHUNK_NUMBERS, CHUNK_TOKENS, GPU_CHUNK_NUMBERS, STRETCH
from headstart.planning import activations
from headstart.planning.activations import FP32_BYTES, Saved, StackBatch, cache_bytes
from headstart.planning.parameters import ModelSizes, model_sizes
from headstart.planning.workload import DeviceKind, Workload

MEGABYTE = 2**20

# What a process holds before it trains: on a CPU the interpreter with torch, on a GPU the driver's context and the
# kernels' code, which no allocator counts.
PROCESS: dict[DeviceKind, int] = {"cpu": 250 * MEGABYTE, "cuda": 500 * MEGABYTE}

# What libraries hold once they have worked: on a CPU pages of code, modules and compiled kernels, of which products in
# bf16 have more; on a GPU the workspaces of the matrix library, which the allocator counts: 32 MB for each thread
# (forward's, backward's), once more for the stream of a recording.
LIBRARIES: dict[DeviceKind, int] = {"cpu": 140 * MEGABYTE, "cuda": 4 * 32 * MEGABYTE}
CPU_BF16_KERNELS = 15 * MEGABYTE

# On a CPU: scikit-learn and SciPy, which compute the metrics of labels and the first vectors of tokens.
SCIKIT_LEARN = 160 * MEGABYTE

# In bf16 kernels are compiled for each shape, and stay: those of attention for each length of text (4.3 MB, forward and
# backward), and in translation all products for each shape of a batch, of which oneDNN keeps 1,024.
KERNELS_OF_LENGTH, KERNELS_OF_BATCH, MOST_KERNELS_OF_BATCHES = 4.3 * MEGABYTE, 16 * MEGABYTE, 650 * MEGABYTE

# On a CPU the C library maps a tensor of this size or more by itself, and gives it back when it is freed. All others
# come from one heap, where what is freed leaves holes that tensors of another size do not fit. No formula follows them
# one by one: the shares below were fitted on the grid of benchmarks/plan_error.py, and checked on held-out
# configurations. Few large tensors leave larger holes than many small ones.
MAPPED_BYTES = 32 * MEGABYTE
HOLES_OF_TRANSIENT, HOLES_OF_LARGEST, HOLES_OF_GRADIENTS = 0.35, 1.1, 0.10


@dataclass(frozen=True)
class Memory:
    """All that the process has in the device's memory at the fullest moment: bytes by kind, and when it is."""

    kinds: dict[str, int]
    moment: str
    saved: list[Saved]  # what the activations consist of, where they are at their most

    @property
    def total(self) -> int:
        """Bytes that the device must have."""
        return sum(self.kinds.values())


class Moment(NamedTuple):
    """What comes on top of weights and optimizer at one point of a step."""

    name: str
    gradients: int
    activations: int
    loss: int = 0
    at_work: int = 0

    @property
    def total(self) -> int:
        return self.gradients + self.activations + self.loss + self.at_work


# ---- training -----------------------------------------------------------------------------------------------


def training_memory(work: Workload) -> Memory:
    """The fullest moment of a step, once the optimizer has its state (from the second step on)."""
    sizes = model_sizes(work)
    dense_gradients = FP32_BYTES * (sizes.trainable - sizes.sparse)
    earlier = dense_gradients if work.accumulate > 1 else 0  # of the micro-batches before
    fullest = max(_moments(work, sizes, earlier), key=lambda moment: moment.total)
    saved = activations.saved_tensors(work)
    kinds = {
        "gradients": fullest.gradients, "optimizer": optimizer_bytes(work, sizes),
        "average": FP32_BYTES * sizes.total if work.average else 0, "activations": fullest.activations,
        "logits and loss": fullest.loss, "at work": fullest.at_work, "batch": _batch_bytes(work),
    }  # fmt: skip
    transient = fullest.activations + fullest.loss + fullest.at_work
    # A GPU's allocator gives its holes up when the room is needed.
    holes = heap_holes(saved, transient, dense_gradients) if work.device == "cpu" else 0
    return _memory(work, kinds, fullest.name, saved, holes)


def _memory(work: Workload, kinds: dict[str, int], moment: str, saved: Sequence[Saved] = (), holes: int = 0) -> Memory:
    """These kinds, between what every moment has: the process, the weights, and what libraries hold."""
    config, weights = work.config, FP32_BYTES * model_sizes(work).total
    if config.positions == "sinusoidal":
        tables = 2 if config.target_vocab else 1
        weights += FP32_BYTES * min(config.context, 1 << 16) * config.width * tables
    kinds = {"process": PROCESS[work.device], "libraries": _libraries(work), "weights": weights, **kinds}
    kinds["allocator"] = holes
    return Memory({kind: count for kind, count in kinds.items() if count}, moment, list(saved))


def _libraries(work: Workload) -> int:
    held = LIBRARIES[work.device]
    if work.device == "cuda":
        return held
    if work.has_scikit_learn:
        held += SCIKIT_LEARN
    if work.precision == "bf16":
        held += CPU_BF16_KERNELS
        if work.head.kind == "translation":
            held += min(MOST_KERNELS_OF_BATCHES, KERNELS_OF_BATCH * work.shapes)
        elif not work.keeps_attention:
            held += round(KERNELS_OF_LENGTH * work.shapes)
    return held


def optimizer_bytes(work: Workload, sizes: ModelSizes) -> int:
    """AdamW keeps two numbers a parameter, Muon one; a sparse table also touched rows and gradients."""
    matrices = sizes.block_matrices if work.has_muon and work.freeze is None else 0
    return FP32_BYTES * (2 * (sizes.trainable + sizes.sparse) - matrices)


def heap_holes(saved: Sequence[Saved], transient: int, gradients: int) -> int:
    """Bytes that a CPU's heap holds in holes at the peak, by what comes and goes in a step and by the gradients."""
    total = sum(row.bytes for row in saved)
    in_heap = [row for row in saved if row.bytes / row.tensors < MAPPED_BYTES]
    share = sum(row.bytes for row in in_heap) / max(total, 1)
    largest = max((row.bytes / row.tensors for row in in_heap), default=0.0)
    holes = HOLES_OF_TRANSIENT * share * transient + HOLES_OF_LARGEST * (transient * largest) ** 0.5
    return round(holes + HOLES_OF_GRADIENTS * gradients)


def _moments(work: Workload, sizes: ModelSizes, earlier: int) -> Iterator[Moment]:
    """The end of forward, the loss, backward block by block, the embedding's gradient, the update."""
    stacks = activations.stack_batches(work)
    is_frozen, top_is_short = work.freeze == "base", activations.reads_one_token(work)
    kept = 0 if is_frozen else _bytes(activations.saved_tensors(work))
    below_head = 0 if is_frozen else kept - _bytes(activations.head(work))
    for stack in stacks:
        # Besides what a block keeps, the residual stream and the sublayer's output.
        passing = stack.tokens * work.config.width * (2 * FP32_BYTES + work.number_bytes)
        yield Moment("forward", earlier, below_head, 0, _passing(work, stack) if is_frozen else passing)
    output_gradient = FP32_BYTES * sizes.output
    hidden = stacks[-1].tokens * work.config.width * FP32_BYTES
    yield Moment("the loss", earlier, below_head, output_gradient + loss_bytes(work), hidden)
    dense_gradients = FP32_BYTES * (sizes.trainable - sizes.sparse)
    if not is_frozen:
        gradients = max(earlier, FP32_BYTES * (sizes.trainable - sizes.base))  # the head's own
        extra = output_gradient if earlier else 0  # the new one beside the sum of those before
        tied = output_gradient if work.config.tied and not earlier else 0
        for number, stack in reversed(list(enumerate(stacks))):
            memory = stacks[0] if number else None
            block = FP32_BYTES * (sizes.decoder_block if number else sizes.block)
            if top_is_short:
                busy = stack.tokens * work.config.width * 4 * work.number_bytes
                yield Moment("backward, last block", gradients + tied, kept, extra, busy)
                kept -= _bytes(activations.last_block(work, stack))
                gradients += block
            for _ in range(stack.depth - top_is_short):
                for part, freed, busy in _backward_parts(work, stack, memory):
                    yield Moment(f"backward, {stack.name}, {part}", gradients + tied, kept, extra, busy)
                    kept -= freed
                gradients += 0 if earlier else block
        # The embedding's gradient is dense, and made beside what the output has put there.
        beside = FP32_BYTES * sizes.embedding * (work.config.tied or bool(earlier))
        yield Moment("backward, embedding", dense_gradients, 0, 0, beside)
    yield Moment("the update", dense_gradients, 0, 0, _update_work(work))


def _bytes(rows: Sequence[Saved]) -> int:
    return sum(row.bytes for row in rows)


def loss_bytes(work: Workload) -> int:
    """A chunk of logits with what is made of it, in the loss over a vocabulary."""
    config, e = work.config, work.number_bytes
    if not model_sizes(work).output:
        return 0
    p, d, vocab = work.predicted, config.width, config.output_vocab
    half = work.precision == "bf16"
    if work.device == "cpu":  # one buffer for all chunks, and one more for products in half precision
        logits = min(p, max(CHUNK_TOKENS, CHUNK_NUMBERS // vocab)) * vocab * (FP32_BYTES + half * e)
    else:  # one buffer for all chunks, over which the gradients are written
        chunks = max(1, math.ceil(p * vocab / GPU_CHUNK_NUMBERS))
        chunks = next((more for more in range(chunks, 2 * chunks) if p % more == 0), chunks)  # of one size
        logits = math.ceil(p / chunks) * vocab * e
    picked = 0 if work.head.kind == "lm" else p * d * FP32_BYTES
    # In half precision what is read and the matrix; and on a CPU a part of its gradient, which is added in full.
    block = min(vocab, BLOCK_ROWS) if work.device == "cpu" else 0
    copies = (p + vocab + block) * d * e + block * d * FP32_BYTES if half else 0
    return logits + p * d * e + picked + copies


def _backward_parts(work: Workload, stack: StackBatch, memory: StackBatch | None) -> Iterator[tuple[str, int, int]]:
    """The sublayers of a block from the top: what each frees, and the gradients that are on their way in it."""
    config, e, t = work.config, work.number_bytes, stack.tokens
    d, f = config.width, config.ffn * (2 if config.activation == "swiglu" else 1)
    stream = t * d * (FP32_BYTES + e)
    norm = _bytes(activations.norm("norm", work, t))
    inner = t * f * e + _half(work, d * f)
    yield "feed-forward", norm + _bytes(activations.feed_forward(work, stack)), stream + inner
    if memory is not None:
        freed = norm + _bytes(activations.cross_attention(work, stack, memory))
        yield "cross-attention", freed, stream + _attention_work(work, t, memory)
    freed = norm + _bytes(activations.attention(work, stack))
    yield "attention", freed, stream + _attention_work(work, t, stack)


def _attention_work(work: Workload, tokens: int, keys: StackBatch) -> int:
    """Gradients of queries, keys and values; unfused those of the weights come before, and are larger."""
    d, e, heads = work.config.width, work.number_bytes, work.config.heads
    if work.keeps_attention:
        return 6 * tokens * d * e + STRETCH * keys.texts[1] * keys.texts[0] * heads * e
    d = work.widened(d)
    sums = tokens * d * FP32_BYTES if work.device == "cuda" else 0  # the queries' gradient adds up in fp32
    if work.is_unfused:
        sums += tokens * keys.length * heads * FP32_BYTES
    return 3 * tokens * d * e + sums + _half(work, 3 * d * d)


def _half(work: Workload, numbers: int) -> int:
    return 2 * numbers if work.precision == "bf16" else 0


def _update_work(work: Workload) -> int:
    """AdamW works in place; Muon makes copies of all matrices of a shape at once, in both precisions."""
    if not work.has_muon or work.freeze == "base":
        return 0
    shapes = [pair for group in work.orthogonal_matrices for pair in group.items()]
    largest = max(count * rows * columns for (rows, columns), count in shapes)
    return largest * (20 if work.device == "cuda" else 14)


def _batch_bytes(work: Workload) -> int:
    """Ids as eight bytes: tokens, targets, documents or segments; and the mask while it is built."""
    tokens = work.micro_batch * (work.lengths.source + work.lengths.target)
    return 3 * 8 * tokens + 2 * sum(stack.mask for stack in activations.stack_batches(work))


# ---- evaluation, decoding, disk -----------------------------------------------------------------------------


def evaluation_memory(work: Workload) -> Memory:
    """A forward pass that keeps nothing."""
    stacks = activations.stack_batches(work)
    hidden = stacks[-1].tokens * work.config.width * FP32_BYTES
    busy = max(_passing(work, stack) for stack in stacks)
    loss = loss_bytes(work) + hidden if model_sizes(work).output else 0
    moment, largest = ("the loss", "logits and loss") if loss > busy else ("forward", "at work")
    return _memory(work, {largest: max(loss, busy), "batch": _batch_bytes(work)}, moment)


def _passing(work: Workload, stack: StackBatch) -> int:
    """A block without anything kept: the stream, and the widest of its sublayers."""
    config, e, t = work.config, work.number_bytes, stack.tokens
    d, k, f = config.width, config.kv_width, config.ffn
    gates = 2 if config.activation == "swiglu" else 1
    attention = (4 * d + 2 * k) * e
    if work.keeps_attention:
        attention += activations.attention_weights(work, stack) * (2 * e + 3) // t
    # The copies of matrices stay for as long as the context does, but those of what does not learn come and go.
    matrices = config.depth * (4 * d * d + 3 * d * f)
    if work.freeze == "base":
        matrices = max(d * (d + 2 * k), gates * d * f)
    return t * (2 * d * FP32_BYTES + max(2 * gates * f * e, attention)) + _half(work, matrices)


def decoding_memory(work: Workload) -> Memory:
    """Weights, the cache, and the logits of one token of each text."""
    logits = 3 * FP32_BYTES * work.micro_batch * work.config.output_vocab
    return _memory(work, {"cache": cache_bytes(work), "logits and loss": logits}, "decoding")


def disk_bytes(work: Workload, keep: int, tokens_stored: int = 0) -> dict[str, int]:
    """Checkpoints that stay and one being written, the final weights, and the token store in the cache."""
    sizes = model_sizes(work)
    weights = FP32_BYTES * sizes.total
    checkpoint = weights * (2 if work.average else 1) + optimizer_bytes(work, sizes._replace(sparse=0))
    stored = tokens_stored * (2 if work.config.vocab <= 1 << 16 else 4)
    kinds = {"checkpoints": (keep + 1) * checkpoint, "weights": weights, "token store": stored}
    return {kind: count for kind, count in kinds.items() if count}


def largest_fitting(fits: Callable[[int], bool], most: int) -> int:
    """The largest number up to `most` that fits, where each smaller one does too; 0 if none."""
    return bisect_left(range(1, most + 1), True, key=lambda number: not fits(number))
