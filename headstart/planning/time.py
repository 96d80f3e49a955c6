"""Seconds from counts: what a step consists of, and what a machine takes for each of it.

A step is counted in some kinds of work, each with a price. The prices come from a calibration on the machine itself
(calibration.py), or from a card's data sheet: operations by its peak and utilisation, all else by the bytes that it
moves. The counts are the same in both.
"""

from collections import Counter
from dataclasses import dataclass, replace
from typing import NamedTuple

from headstart.kernels.constants import NEWTON_SCHULZ_STEPS
from headstart.planning import activations, operations
from headstart.planning.activations import StackBatch, stack_batches
from headstart.planning.machines import Target
from headstart.planning.parameters import model_sizes
from headstart.planning.workload import DeviceKind, Lengths, Workload

# What each kind of work is counted in.
UNITS = {
    "products": "operations of matrices, forward and backward",
    "attention": "operations over the length, forward and backward",
    "masked attention": "the same where a GPU's kernel reads a mask",
    "activations": "bytes kept for backward; on a GPU, bytes moved besides products",
    "logits": "numbers over the vocabulary",
    "bias": "numbers over the vocabulary whose gradients a GPU adds up for a bias",
    "kept weights": "attention weights that are kept: on a CPU with dropout, on a GPU without a fused kernel",
    "dropped weights": "attention weights that a GPU's kernel drops some of",
    "dropout": "numbers of which some are dropped",
    "update": "parameters that learn",
    "orthogonal": "operations of Muon",
    "kernels": "kernels, on a GPU of recorded steps",
    "launches": "kernels that Python launches one by one on a GPU: steps in micro-batches are not recorded",
    "steps": "updates",
}

BACKWARD_SHARE = 2 / 3  # of the operations of a step

# Times that a kept byte goes to or from memory in a step on a CPU: written, read again in forward and backward, its
# gradient written and read, and as much for what is not kept. On a GPU what is moved is counted itself.
PASSES: dict[DeviceKind, float] = {"cpu": 6.0, "cuda": 1.0}

# Bytes moved for each number over the vocabulary: made, summed, turned into gradients, multiplied twice. On a CPU a
# chunk stays near the processor.
LOGIT_BYTES: dict[DeviceKind, int] = {"cpu": 20, "cuda": 12}

# For each parameter: AdamW reads the weight, the gradient and two averages, and writes all but the gradient: 16 + 12.
# On a GPU the norm reads the gradient, 4, and AdamW clips it as it reads it (kernels/gpu/adamw.py); in bf16 the weight
# is rounded, 4 + 2, and its gradient widened, 2 + 4 (bf16_weights.py). On a CPU: norm and clip 12; forgetting, casting.
UPDATE_BYTES: dict[DeviceKind, int] = {"cpu": 28 + 20, "cuda": 28 + 4}
BF16_UPDATE_BYTES = 12  # on a GPU, besides
WEIGHT_BYTES = 12  # an attention weight that is kept: a product, a softmax, a mask, and back

# Kernels of a block forward and backward, more with rotary positions and for each dropout; of what stands around
# the blocks, and of the update; of a block that generates one token.
BLOCK_KERNELS, CROSS_KERNELS, OTHER_KERNELS = 52, 30, 110
ROTARY_KERNELS, DROPOUT_KERNELS, DECODING_KERNELS = 28, 2, 20
GPU_KERNEL_SECONDS = 4e-6  # recorded steps: no Python between them
LAUNCH_SECONDS = 4.6e-5  # with what Python does for it: fitted on an H200's machine

# Bytes that would take as long as a vocabulary's column sums, which read far apart, and as dropping an attention weight
# in the kernel, forward and backward: both fitted on an H200 (benchmarks/plan_error.py).
BIAS_BYTES, DROPPED_WEIGHT_BYTES = 30, 30
DROPPED_BYTES = 10  # a number and its mask, forward and backward

# Steps on a GPU that are not compiled read and write memory in every small operation: casts before a product and after
# it, norms and sums in fp32, non-linearities, rotary positions. Each number is the bytes in and out of all such
# operations for one number of a token, forward and backward; a test adds them up operation by operation.
NORM_BYTES = 20  # fp32 in and out; back: gradients, input and what comes out
ROTARY_BYTES = 83  # a query or key turned by its position, in fp32, and back
AROUND_BYTES = 70  # a stack's look-up, positions and last norm, and what reads it

# Operations for a byte at which a product waits for memory as long as for arithmetic: a card of today reaches about
# 350 TFLOPS in bf16 and 2.5 TB a second. Narrower products wait for memory.
OPERATIONS_A_BYTE = 150

# Of the utilisation of products: attention without a mask, and by the kernel that takes one and adds up in order,
# which has less of tensor cores than they.
ATTENTION_SHARE = 0.5
MASKED_ATTENTION_SHARE = {"bf16": 0.2, "fp32": 0.4}
CPU_KERNEL_SECONDS = 1e-5
CPU_DROPOUT_SECONDS = 1e-9
PADDING = 0.1  # in a batch of texts of like length, of which the longest sets the length


class Prices(NamedTuple):
    """Seconds for a unit of each kind of work, and where they come from."""

    seconds: dict[str, float]
    bandwidth: float  # bytes a second, as reached
    source: str
    is_calibrated: bool


@dataclass(frozen=True)
class StepTime:
    """Seconds of an update, by kind of work."""

    kinds: dict[str, float]

    @property
    def total(self) -> float:
        return sum(self.kinds.values())


def paper_prices(target: Target, precision: str) -> Prices:
    """From the machine's sheet, with its stated utilisation."""
    on_gpu, bandwidth = target.kind == "cuda", target.bandwidth * 0.7
    peak = target.peak.get(precision) or target.peak["fp32"]  # type: ignore[call-overload]
    reached = peak * target.utilisation
    seconds = {
        "products": 1 / reached,
        "attention": 1 / (reached * ATTENTION_SHARE),
        "masked attention": 1 / (reached * MASKED_ATTENTION_SHARE[precision]),
        "activations": PASSES[target.kind] / bandwidth,
        "logits": LOGIT_BYTES[target.kind] / bandwidth,
        "bias": BIAS_BYTES / bandwidth,
        "kept weights": WEIGHT_BYTES / bandwidth,
        "dropped weights": DROPPED_WEIGHT_BYTES / bandwidth,
        "dropout": DROPPED_BYTES / bandwidth if on_gpu else CPU_DROPOUT_SECONDS,
        "update": (UPDATE_BYTES[target.kind] + BF16_UPDATE_BYTES * (on_gpu and precision == "bf16")) / bandwidth,
        "orthogonal": 1 / reached,
        "kernels": GPU_KERNEL_SECONDS if on_gpu else CPU_KERNEL_SECONDS,
        "launches": LAUNCH_SECONDS,
        "steps": 2e-4 if on_gpu else 1e-3,
    }
    source = f"the sheet of {target.title}: {peak / 1e12:.3g} TFLOPS in {precision}, {target.why}"
    return Prices(seconds, bandwidth, source, False)


# ---- what a step consists of --------------------------------------------------------------------------------


def counts(work: Workload) -> dict[str, float]:
    """A step of training, in units of each kind of work."""
    text = operations.per_text(work.config, work.head, work.lengths, work.freeze, work.masked_share)
    over_length = text.forward_over_length + text.backward_over_length
    spared, spared_over_length = _spared_at_the_top(work)
    parts = -(-work.batch // work.micro_batch)
    sizes = model_sizes(work)
    on_gpu = work.device == "cuda"
    kept = sum(row.bytes for row in activations.saved_tensors(work) if "in bf16" not in row.name)
    logits = parts * work.predicted * work.config.output_vocab if sizes.output else 0
    attention = work.batch * (over_length - spared_over_length)
    if work.reads_by_offsets:  # each document alone
        attention = attention * stack_batches(work)[0].texts[1] // work.lengths.source
    has_mask = on_gpu and not work.reads_by_offsets and work.reading != "whole"
    is_recorded = on_gpu and work.accumulate == 1
    kernels = parts * _kernels(work)
    own, across = _weights(work)
    keeps = work.keeps_attention
    kept_weights = own * (keeps or work.is_unfused) + across * (keeps or work.is_refused)
    return {
        "products": work.batch * (text.forward + text.backward - over_length - spared),
        "attention": 0 if has_mask else attention,
        "masked attention": attention if has_mask else 0,
        "activations": parts * (_bytes_moved(work) if on_gpu else kept),
        "logits": logits,
        "bias": logits if on_gpu and work.config.output_bias else 0,
        "kept weights": parts * kept_weights,
        "dropped weights": parts * (own + across) if on_gpu and work.config.attention_dropout else 0,
        "dropout": parts * _dropped(work),
        "update": sizes.trainable,
        "orthogonal": _orthogonal(work) if work.has_muon and work.freeze is None else 0,
        "kernels": kernels if is_recorded or not on_gpu else 0,
        "launches": kernels if on_gpu and not is_recorded else 0,
        "steps": 1,
    }


def _spared_at_the_top(work: Workload) -> tuple[int, int]:
    """Operations of a text that the last block is spared, where the head reads one token of it; those over n apart."""
    if not activations.reads_one_token(work):
        return 0, 0
    config, n = work.config, work.lengths.source
    matrices = 3 if config.activation == "swiglu" else 2
    both_ways = 1 if work.freeze == "base" else 3
    each = 4 * config.width**2 + 2 * matrices * config.width * config.ffn
    return both_ways * (n - 1) * each, both_ways * (n - 1) * 4 * n * config.width


def _kernels(work: Workload) -> int:
    config = work.config
    blocks = config.depth + config.decoder_depth
    each = BLOCK_KERNELS + (ROTARY_KERNELS if config.positions == "rotary" else 0)
    each += DROPOUT_KERNELS * (2 * (config.dropout > 0) + (config.ffn_dropout > 0))
    return blocks * each + config.decoder_depth * CROSS_KERNELS + OTHER_KERNELS


def _weights(work: Workload) -> tuple[int, int]:
    """Attention weights of all layers: of texts over themselves, and across."""
    stacks = stack_batches(work)
    own = sum(stack.depth * activations.attention_weights(work, stack) for stack in stacks)
    return own, work.config.decoder_depth * stacks[-1].tokens * stacks[0].length * work.config.heads


def _dropped(work: Workload) -> int:
    """Numbers that dropout draws for, besides those of attention."""
    config = work.config
    each = (2 * config.width if config.dropout else 0) + (config.ffn if config.ffn_dropout else 0)
    return sum(stack.depth * stack.tokens * each for stack in stack_batches(work))


def _orthogonal(work: Workload) -> int:
    """Operations of Muon: for a matrix of r rows and c columns (r ≤ c), five times 4·r²·c + 2·r³."""
    sizes = [(*sorted(shape), count) for shape, count in sum(work.orthogonal_matrices, Counter()).items()]
    return sum(count * NEWTON_SCHULZ_STEPS * (4 * r * r * c + 2 * r**3) for r, c, count in sizes)


# ---- bytes that a GPU moves besides its products ---------------------------------------------------------------


def _bytes_moved(work: Workload) -> int:
    """Of a micro-batch, all blocks and what stands around them; a frozen base is read forward alone."""
    total = sum(
        AROUND_BYTES * stack.tokens * work.config.width + stack.depth * block_bytes_moved(work, stack, number == 1)
        for number, stack in enumerate(stack_batches(work))
    )
    return total // 3 if work.freeze == "base" else total


def block_bytes_moved(work: Workload, stack: StackBatch, has_cross_attention: bool = False) -> int:
    """Of one block, forward and backward."""
    config, e, t = work.config, work.number_bytes, stack.tokens
    d, k, f = config.width, config.kv_width, config.ffn
    parts = 3 if has_cross_attention else 2
    casts = 18 if work.precision == "bf16" else 0  # in front of a product, behind it, and of the gradients
    sums = (8 + e) + 12  # of the residual, and where its gradients meet
    gradients = 6 * e * (parts - 1)  # of queries, keys and values, side by side
    stream = parts * (NORM_BYTES + sums + casts) + gradients + e * config.bias * (5 if parts == 2 else 9)
    rotary = ROTARY_BYTES * (d + k) if config.positions == "rotary" else 0
    inner = 18 * e if config.activation == "swiglu" else 5 * e + e * config.bias
    return t * (stream * d + rotary + inner * f) + _narrow_products(work, t, parts - 1)


def _narrow_products(work: Workload, tokens: int, attentions: int) -> int:
    """Bytes of a block's products beyond those that go by while it computes: each is read and written three times."""
    config, e = work.config, work.number_bytes
    d, k, f = config.width, config.kv_width, config.ffn
    gated = 2 if config.activation == "swiglu" else 1
    shapes = [(d, d + 2 * k), (d, d)] * attentions + [(d, gated * f), (f, d)]
    intensity = OPERATIONS_A_BYTE if work.precision == "bf16" else OPERATIONS_A_BYTE / 10
    excess = (3 * e * tokens * (a + b) - 3 * 2 * tokens * a * b / intensity for a, b in shapes)
    return round(sum(max(0.0, each) for each in excess))


# ---- seconds ------------------------------------------------------------------------------------------------


def step_seconds(work: Workload, prices: Prices) -> StepTime:
    """One update. Python launches kernels while the device computes: of the two, the longer counts."""
    kinds = {kind: count * prices.seconds[kind] for kind, count in counts(work).items() if count}
    if "launches" in kinds:
        kinds["launches"] = max(0.0, 2 * kinds["launches"] - sum(kinds.values()))
    return StepTime(kinds)


def with_padding(work: Workload) -> Workload:
    """Texts of a mean length as they stand in batches of like length: with some padding, where it is computed."""
    if work.reading != "padded" or work.device == "cpu":  # on a CPU padding is left out
        return work
    lengths = Lengths(round(work.lengths.source * (1 + PADDING)), round(work.lengths.target * (1 + PADDING)))
    return replace(work, lengths=lengths)


def evaluation_seconds(work: Workload, prices: Prices, texts: int) -> float:
    """Forward over so many texts, keeping nothing."""
    step = counts(replace(work, accumulate=1))
    forward = 1 - BACKWARD_SHARE
    share = {"products": forward, "attention": forward, "masked attention": forward, "activations": 0.3, "logits": 0.5,
             "kernels": 0.25}  # fmt: skip
    batch = sum(step[kind] * prices.seconds[kind] * part for kind, part in share.items())
    return batch * texts / work.batch


def decoding_seconds(work: Workload, prices: Prices, tokens: int) -> float:
    """Generating so many tokens of each text of a batch, one after another: weights and cache are read for each."""
    config, sizes = work.config, model_sizes(work)
    depth = config.decoder_depth or config.depth
    share = depth / (config.depth + config.decoder_depth)
    weights = sizes.total - sizes.embedding - sizes.sparse + sizes.output
    read = 4 * share * weights + activations.cache_bytes(work) / 4
    computed = 2 * share * weights * work.batch * prices.seconds["products"]
    kernels = depth * DECODING_KERNELS * prices.seconds["kernels"] * (1 if work.device == "cpu" else 2.5)
    return tokens * (max(read / prices.bandwidth, computed) + kernels)
