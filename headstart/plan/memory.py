"""The peak of memory in a step of training, in evaluation and in decoding, by kind, from the configuration alone.

A step is walked through in the order of its work: forward fills memory with what backward needs, the loss needs its
logits, backward frees block after block while gradients grow. The peak is the fullest moment of that walk.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from headstart.plan import activations, parameters
from headstart.plan.activations import EXACT, Reader, Saved
from headstart.plan.heap import held_free
from headstart.plan.operations import MASKED_SHARE
from headstart.plan.workload import DeviceKind, Workload

KINDS = (
    "weights", "gradients", "optimizer", "average", "activations", "logits and loss", "at work", "cache", "batch",
    "libraries", "allocator",
)  # fmt: skip
MEGABYTE = 2**20
# Less than this is mostly what libraries and the interpreter happen to hold: no accuracy is claimed there.
LEAST_CLAIMED = 500 * MEGABYTE
# Logits of a chunk of the loss, tokens in it at least, and rows of the matrix at a time (model/chunked_loss.py; a test
# keeps them equal).
CHUNK_NUMBERS: dict[DeviceKind, int] = {"cpu": 1 << 22, "cuda": 1 << 28}
CHUNK_TOKENS, BLOCK_ROWS = 256, 8_192
# What libraries hold once they have worked: on a CPU pages of code (about 150 MB), modules and the kernels that were
# compiled, of which products in bf16 have more; on a GPU the workspaces of the matrix library, which the allocator
# counts: 32 MB for each thread (forward's, backward's), once more for the stream of a recording.
LIBRARIES: dict[DeviceKind, int] = {"cpu": 180 * MEGABYTE, "cuda": 4 * 32 * MEGABYTE}
CPU_BF16_KERNELS = 15 * MEGABYTE
# Beside the allocator: the driver's context and the kernels' code. It counts for fitting, not in max_memory_allocated.
CONTEXT: dict[DeviceKind, int] = {"cpu": 250 * MEGABYTE, "cuda": 500 * MEGABYTE}


@dataclass(frozen=True)
class Memory:
    """The fullest moment: bytes by kind, and when it is."""

    kinds: dict[str, int]
    moment: str
    saved: list[Saved]
    """What the activations consist of, where they are at their most."""

    @property
    def total(self) -> int:
        return sum(self.kinds.values())


class Moment(NamedTuple):
    """What comes on top of weights and optimizer at one point of a work."""

    name: str
    gradients: int
    activations: int
    loss: int = 0
    at_work: int = 0

    @property
    def total(self) -> int:
        return self.gradients + self.activations + self.loss + self.at_work


class Sizes(NamedTuple):
    """Numbers in the parts of a model; those that learn."""

    total: int
    learning: int
    block: int
    decoder_block: int
    block_matrices: int
    output: int
    """The matrix over the vocabulary, tied or not."""

    embedding: int
    """The tables of tokens whose gradient is as large as they are."""

    apart: int
    """Those whose gradient is of the rows that a batch touches: on a CPU, where no output shares them."""


def sizes(work: Workload) -> Sizes:
    """Parameters by where their gradients come in backward; blocks are alike, so one of each is counted."""
    config, head = work.config, work.head
    shallow = replace(config, depth=1, decoder_depth=min(1, config.decoder_depth))
    values = parameters.symbols(shallow, head)
    found = [
        (t.name, len(t.dimensions), parameters.count(t, values)) for t in parameters.tensors(shallow, head)
    ]

    def summed(part: str, least_dimensions: int = 1) -> int:
        return sum(n for name, dimensions, n in found if part in name and dimensions >= least_dimensions)

    total = parameters.total(config, head)
    decoder = summed(".decoder.blocks.")
    block = summed(".blocks.") - decoder
    matrices = config.depth * (summed(".blocks.", 2) - summed(".decoder.blocks.", 2))
    matrices += config.decoder_depth * summed(".decoder.blocks.", 2)
    head_numbers = sum(n for name, _, n in found if name.startswith("head."))
    learning = head_numbers if work.freeze == "base" else total
    has_output = head.kind in ("lm", "translation", "masked", "masked-nsp")
    output = config.output_vocab * config.width if has_output else 0
    apart = _tables_apart(work, bool(output))
    return Sizes(total, learning, block, decoder, matrices, output, summed("embedding.tokens") - apart, apart)


def _tables_apart(work: Workload, has_output: bool) -> int:
    config = work.config
    if work.device != "cpu" or work.freeze == "base":
        return 0
    is_shared = has_output and config.tied
    source = 0 if is_shared and not config.target_vocab else config.vocab
    return config.width * (source + (0 if is_shared else config.target_vocab))


def optimizer_bytes(work: Workload, found: Sizes) -> int:
    """AdamW remembers two numbers of each that learns, Muon one of each in a block's matrix.

    A table apart has besides the rows that were touched and their gradients once more, in the end all of them.
    """
    matrices = found.block_matrices if work.has_muon and work.freeze is None else 0
    return EXACT * (2 * (found.learning + found.apart) - matrices)


def training_memory(work: Workload) -> Memory:
    """The fullest moment of a step, once the optimizer has its memory (from the second step on)."""
    found = sizes(work)
    earlier = (
        EXACT * (found.learning - found.apart) if work.accumulate > 1 else 0
    )  # of the micro-batches before
    fullest = max(_moments(work, found, earlier), key=lambda moment: moment.total)
    kinds = {
        "weights": EXACT * found.total + _tables(work),
        "gradients": fullest.gradients,
        "optimizer": optimizer_bytes(work, found),
        "average": EXACT * found.total if work.average else 0,
        "activations": fullest.activations,
        "logits and loss": fullest.loss,
        "at work": fullest.at_work,
        "batch": _batch_bytes(work),
        "libraries": _libraries(work),
    }
    saved = saved_in_all(work)
    if (
        work.device == "cpu"
    ):  # what a GPU's holds so is not in max_memory_allocated, and given up when it is needed
        passing = fullest.activations + fullest.loss + fullest.at_work
        kinds["allocator"] = held_free(saved, passing, EXACT * (found.learning - found.apart))
    return Memory({kind: n for kind, n in kinds.items() if n}, fullest.name, saved)


def _libraries(work: Workload) -> int:
    compiled = CPU_BF16_KERNELS if work.device == "cpu" and work.precision == "bf16" else 0
    return LIBRARIES[work.device] + compiled


def saved_in_all(work: Workload) -> list[Saved]:
    """All that forward keeps, blocks of a stack together."""
    if work.freeze == "base":
        return activations.head(work)
    rows = []
    stacks = activations.readers(work)
    for number, reader in enumerate(stacks):
        memory = stacks[0] if number else None
        short = f"{reader.name}.blocks.*."
        letter = "M" if number else "L"
        rows += [Saved(f"{reader.name}: {r.name}", *r[1:]) for r in activations.embedding(work, reader)]
        top = activations.last_block(work, reader) if activations.ends_at_one_place(work) else []
        blocks = reader.depth - bool(top)
        rows += [
            Saved(short + r.name, f"{letter}·{r.formula}", blocks * r.bytes, max(1, blocks) * r.tensors)
            for r in activations.block(work, reader, memory)
        ]
        rows += [Saved(f"{reader.name}, last block: {r.name}", *r[1:]) for r in top]
        rows += [Saved(f"{reader.name}.{r.name}", *r[1:]) for r in activations.above(work, reader)]
    return rows + activations.head(work)


# ---- the walk through a step --------------------------------------------------------------------------------


def _moments(work: Workload, found: Sizes, earlier: int) -> Iterator[Moment]:
    """Forward's end, the loss, backward block by block, the embedding's gradient, the update."""
    stacks = activations.readers(work)
    last = stacks[-1]
    is_frozen = work.freeze == "base"
    held = sum(row.bytes for row in saved_in_all(work)) if not is_frozen else 0
    of_head = sum(row.bytes for row in activations.head(work))
    hidden = last.tokens * work.config.width * EXACT
    for reader in stacks:
        busy = _passing(work, reader) if is_frozen else forward_work(work, reader)
        yield Moment("forward", earlier, 0 if is_frozen else held - of_head, 0, busy)
    output_gradient = EXACT * found.output
    loss = loss_bytes(work)
    kept = 0 if is_frozen else held - of_head
    yield Moment("the loss", earlier, kept, output_gradient + loss, hidden)
    gradients = max(earlier, EXACT * (found.learning - _in_base(found, work)))  # the head's own
    extra = output_gradient if earlier else 0  # the new one beside the sum of those before
    if not is_frozen:
        in_tied = output_gradient if work.config.tied and not earlier else 0
        for number, reader in reversed(list(enumerate(stacks))):
            memory = stacks[0] if number else None
            block = found.decoder_block if number else found.block
            if activations.ends_at_one_place(work):
                top = sum(row.bytes for row in activations.last_block(work, reader))
                busy = reader.tokens * work.config.width * 4 * work.number_bytes
                yield Moment("backward, last block", gradients + in_tied, held, extra, busy)
                held -= top
                gradients += EXACT * block
            for _ in range(reader.depth - activations.ends_at_one_place(work)):
                for part, freed, busy in _backward_parts(work, reader, memory):
                    yield Moment(f"backward, {reader.name}, {part}", gradients + in_tied, held, extra, busy)
                    held -= freed
                gradients += 0 if earlier else EXACT * block
        # The embedding's gradient is dense, and made beside what the output has put there.
        embedding = EXACT * found.embedding
        all_gradients = EXACT * (found.learning - found.apart)
        yield Moment(
            "backward, embedding", all_gradients, 0, 0, embedding * (work.config.tied or bool(earlier))
        )
    yield Moment("the update", EXACT * (found.learning - found.apart), 0, 0, _update_work(work))


def _in_base(found: Sizes, work: Workload) -> int:
    """Numbers whose gradients come block by block; a tied output's is the embedding's."""
    config = work.config
    if work.freeze == "base":
        return 0
    blocks = config.depth * found.block + config.decoder_depth * found.decoder_block
    return blocks + found.embedding + found.apart


def loss_bytes(work: Workload) -> int:
    """A chunk of logits with what is made of it, in the loss over a vocabulary."""
    config, e = work.config, work.number_bytes
    if not sizes(work).output:
        return 0
    p, d, vocab = work.predicted, config.width, config.output_vocab
    half = work.precision == "bf16"
    if work.device == "cpu":  # one buffer for all chunks, and one more for products in half precision
        logits = min(p, max(CHUNK_TOKENS, CHUNK_NUMBERS["cpu"] // vocab)) * vocab * (EXACT + half * e)
    else:  # one buffer for all chunks, over which the slopes are written
        chunks = max(1, math.ceil(p * vocab / CHUNK_NUMBERS["cuda"]))
        chunks = next((more for more in range(chunks, 2 * chunks) if p % more == 0), chunks)  # of one size
        logits = math.ceil(p / chunks) * vocab * e
    slopes = p * d * e
    picked = 0 if work.head.kind == "lm" else p * d * EXACT
    # In half precision what is read and the matrix; and on a CPU a part of its gradient, which is added in full.
    block = min(vocab, BLOCK_ROWS) if work.device == "cpu" else 0
    copies = (p + vocab + block) * d * e + block * d * EXACT if half else 0
    return logits + slopes + picked + copies


def forward_work(work: Workload, reader: Reader) -> int:
    """What a block holds besides what it keeps: the residual stream and the sublayer's output."""
    d, e = work.config.width, work.number_bytes
    return reader.tokens * d * (2 * EXACT + e)


def _backward_parts(work: Workload, reader: Reader, memory: Reader | None) -> list[tuple[str, int, int]]:
    """The sublayers of a block from the top: what each frees, and the gradients that are on their way in it."""
    config, e, t = work.config, work.number_bytes, reader.tokens
    d, f = config.width, config.ffn
    gated = config.activation == "swiglu"
    stream = t * d * (EXACT + e)

    def freed(rows: list[Saved]) -> int:
        return sum(row.bytes for row in [*rows, *activations.norm("norm", work, t)])

    inner = t * f * e * (2 if gated else 1) + _half(work, (2 if gated else 1) * d * f)
    parts = [("feed-forward", freed(activations.feed_forward(work, reader)), stream + inner)]
    if memory is not None:
        crossing = _mixing_work(work, t, memory)
        parts.append(
            ("cross-attention", freed(activations.cross_attention(work, reader, memory)), stream + crossing)
        )
    mixing = _mixing_work(work, t, reader)
    return [*parts, ("attention", freed(activations.attention(work, reader)), stream + mixing)]


def _mixing_work(work: Workload, tokens: int, keys: Reader) -> int:
    """Gradients of queries, keys and values; by the book those of the weights come before, and are larger."""
    d, e = work.config.width, work.number_bytes
    if work.keeps_attention:
        return (
            6 * tokens * d * e + activations.STRETCH * keys.texts[1] * keys.texts[0] * work.config.heads * e
        )
    d = work.widened(d)
    sums = tokens * d * EXACT if work.device == "cuda" else 0  # the queries' gradient is added up in fp32
    if work.goes_by_the_book:
        sums += tokens * keys.length * work.config.heads * EXACT
    return 3 * tokens * d * e + sums + _half(work, 3 * d * d)


def _half(work: Workload, numbers: int) -> int:
    return 2 * numbers if work.precision == "bf16" else 0


def _update_work(work: Workload) -> int:
    """AdamW works in place; Muon makes copies of all matrices of a shape at once, in both precisions."""
    if not work.has_muon or work.freeze == "base":
        return 0
    largest = max(
        count * rows * columns
        for group in work.orthogonal_matrices
        for (rows, columns), count in group.items()
    )
    return largest * (20 if work.device == "cuda" else 14)


def _tables(work: Workload) -> int:
    """Sinusoids, computed once."""
    config = work.config
    if config.positions != "sinusoidal":
        return 0
    return EXACT * min(config.context, 1 << 16) * config.width * (2 if config.target_vocab else 1)


def _batch_bytes(work: Workload) -> int:
    """Ids as eight bytes: tokens, targets, documents or segments; and the mask while it is built."""
    tokens = work.micro_batch * (work.lengths.source + work.lengths.target)
    squares = sum(reader.mask for reader in activations.readers(work))
    return 3 * 8 * tokens + 2 * squares


# ---- evaluation and decoding --------------------------------------------------------------------------------


def evaluation_memory(work: Workload) -> Memory:
    """A forward pass that keeps nothing."""
    found = sizes(work)
    last = activations.readers(work)[-1]
    hidden = last.tokens * work.config.width * EXACT
    busy = max(_passing(work, reader) for reader in activations.readers(work))
    loss = loss_bytes(work) + hidden if found.output else 0
    kinds = {
        "weights": EXACT * found.total + _tables(work),
        "logits and loss": loss if loss > busy else 0,
        "at work": 0 if loss > busy else busy,
        "batch": _batch_bytes(work),
        "libraries": _libraries(work),
    }
    return Memory({kind: n for kind, n in kinds.items() if n}, "the loss" if loss > busy else "forward", [])


def _passing(work: Workload, reader: Reader) -> int:
    """A block without anything kept: the stream, and the widest of its sublayers."""
    config, e, t = work.config, work.number_bytes, reader.tokens
    d, f = config.width, config.ffn
    inner = (4 if config.activation == "swiglu" else 2) * f * e
    mixing = (d + 2 * config.kv_width + 3 * d) * e
    if work.keeps_attention:
        mixing = (d + 2 * config.kv_width + 3 * d) * e + activations.seen(work, reader) * (2 * e + 3) // t
    # The copies of matrices stay for as long as the context does, but those of what does not learn come and go.
    matrices = config.depth * (4 * d * d + 3 * d * f)
    if work.freeze == "base":
        matrices = max(d * (d + 2 * config.kv_width), (2 if config.activation == "swiglu" else 1) * d * f)
    copies = _half(work, matrices)
    return t * (2 * d * EXACT + max(inner, mixing)) + copies


def cache_bytes(work: Workload, beams: int = 1) -> int:
    """Keys and values of every layer while text is written; a buffer that is full is doubled, hence the two."""
    config, e = work.config, work.number_bytes
    rows = work.micro_batch * beams
    if config.decoder_depth:
        own, over = config.decoder_depth * work.lengths.target * 2, config.decoder_depth * work.lengths.source
        return rows * 2 * config.kv_width * e * (own + 2 * over)
    return rows * 2 * config.kv_width * e * config.depth * work.lengths.source * 2


def decoding_memory(work: Workload, beams: int = 1) -> Memory:
    """Weights, the cache, and the logits of one token of each text."""
    found = sizes(work)
    kinds = {
        "weights": EXACT * found.total + _tables(work),
        "cache": cache_bytes(work, beams),
        "logits and loss": 3 * EXACT * work.micro_batch * beams * work.config.output_vocab,
        "libraries": _libraries(work),
    }
    return Memory(kinds, "decoding", [])


# ---- disk ---------------------------------------------------------------------------------------------------


def disk_bytes(work: Workload, keep: int, tokens_stored: int = 0) -> dict[str, int]:
    """Checkpoints that stay and one being written, the final weights, and the token store in the cache."""
    found = sizes(work)
    one = EXACT * found.total * (2 if work.average else 1) + optimizer_bytes(work, found._replace(apart=0))
    id_bytes = 2 if work.config.vocab <= 1 << 16 else 4
    kinds = {
        "checkpoints": (keep + 1) * one,
        "weights": EXACT * found.total,
        "token store": tokens_stored * id_bytes,
    }
    return {kind: n for kind, n in kinds.items() if n}


def masked_places(length: int) -> int:
    """Hidden tokens in a text."""
    return max(1, round(MASKED_SHARE * length))
