"""Bytes that a step moves on a GPU besides its products, from the configuration alone, and the products' own excess.

Steps that are not compiled read and write memory in every small operation: casts before a product and after it, norms
and sums in fp32, non-linearities, turned positions. Each number below is the bytes in and out of all such operations
for one number of a token, forward and backward; a test adds them up operation by operation.
"""

from headstart.plan import activations
from headstart.plan.activations import Reader
from headstart.plan.workload import Workload

NORM = 20  # fp32 in and out; back: slopes, input and what comes out
TURNED = 83  # a query or key turned by its position, in fp32, and back
AROUND = 70  # a stack's look-up, positions and last norm, and what reads it
# Operations for a byte at which a product waits for memory as long as for arithmetic: a card of today reaches about
# 350 TFLOPS in bf16 and 2.5 TB a second. Narrower products wait for memory.
OPERATIONS_A_BYTE = 150


def moved(work: Workload) -> int:
    """Of a micro-batch, all blocks and what stands around them; a frozen base is read forward alone."""
    total = 0
    for number, reader in enumerate(activations.readers(work)):
        each = AROUND * reader.tokens * work.config.width + reader.depth * block(work, reader, number == 1)
        total += each
    return total // 3 if work.freeze == "base" else total


def block(work: Workload, reader: Reader, is_crossing: bool = False) -> int:
    """Of one block, forward and backward."""
    config, e, t = work.config, work.number_bytes, reader.tokens
    d, k, f = config.width, config.kv_width, config.ffn
    parts = 3 if is_crossing else 2
    casts = 18 if work.precision == "bf16" else 0  # in front of a product, behind it, and of the slopes
    sums = (8 + e) + 12  # of the residual, and where its slopes meet
    stream = parts * (NORM + sums + casts)
    stream += 6 * e * (parts - 1)  # slopes of queries, keys and values, side by side
    if config.bias:
        stream += e * (5 if parts == 2 else 9)
    turned = TURNED * (d + k) if config.positions == "rotary" else 0
    inner = 18 * e if config.activation == "swiglu" else 5 * e + e * config.bias
    return t * (stream * d + turned + inner * f) + _narrow_products(work, t, parts - 1)


def _narrow_products(work: Workload, tokens: int, attentions: int) -> int:
    """Bytes of a block's products beyond those that go by while it computes: each is read and written three times."""
    config, e = work.config, work.number_bytes
    d, k, f = config.width, config.kv_width, config.ffn
    gated = 2 if config.activation == "swiglu" else 1
    shapes = [(d, d + 2 * k), (d, d)] * attentions + [(d, gated * f), (f, d)]
    operations_a_byte = OPERATIONS_A_BYTE if work.precision == "bf16" else OPERATIONS_A_BYTE / 10
    total = 0.0
    for a, b in shapes:
        total += max(0.0, 3 * e * tokens * (a + b) - 3 * 2 * tokens * a * b / operations_a_byte)
    return round(total)
