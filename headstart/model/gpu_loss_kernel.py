"""The kernels of gpu_loss.py: a program for each row of logits, which is read and written as seldom as can be.

What is slow is the memory, and after it the exponential: each logit costs one of them in each pass.
"""
# mypy: disallow-untyped-defs=False

import triton  # type: ignore
import triton.language as tl  # type: ignore

LOWEST = tl.constexpr(-3.4028234663852886e38)  # of float32: what is below is minus infinity, and adds nothing


# Where in memory targets begin must not decide whether there is anything to compile: a step may be being recorded.
@triton.jit(do_not_specialize=["targets"])
def whole_row(
    logits, bias, targets, losses, right, row_stride, smoothing, VOCAB: tl.constexpr,
    IGNORED: tl.constexpr, IS_SMOOTH: tl.constexpr, WANTS_SLOPES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A row that fits the registers is read once."""
    row = tl.program_id(0).to(tl.int64)  # tokens × vocabulary may be more than 2³¹
    logits += row * row_stride
    columns = tl.arange(0, BLOCK)
    numbers = _numbers(logits, bias, columns, VOCAB, "evict_first")
    target = tl.load(targets + row)
    own = _own(logits, bias, target)
    highest = tl.max(numbers, axis=0)
    if right is not None:
        first_highest = tl.min(tl.where(numbers == highest, columns, BLOCK), axis=0)
        tl.store(right + row, (first_highest == target).to(tl.int32))
    mean = 0.0
    if IS_SMOOTH:
        mean = tl.sum(tl.where(columns < VOCAB, numbers, 0.0), axis=0) / VOCAB
    powers = tl.exp(numbers - highest)
    total = tl.sum(powers, axis=0)
    loss = _loss(highest, total, own, mean, smoothing, IS_SMOOTH)
    tl.store(losses + row, tl.where(target == IGNORED, 0.0, loss))
    if WANTS_SLOPES:
        slopes = _slopes(powers, 1.0 / total, columns, target, smoothing, VOCAB, IS_SMOOTH)
        slopes = tl.where(target == IGNORED, 0.0, slopes)
        tl.store(logits + columns, slopes, mask=columns < VOCAB, eviction_policy="evict_first")


@triton.jit(do_not_specialize=["targets"])
def long_row(
    logits, bias, targets, losses, right, row_stride, smoothing, VOCAB: tl.constexpr,
    IGNORED: tl.constexpr, IS_SMOOTH: tl.constexpr, WANTS_SLOPES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A longer one is read twice, the second time backwards: what was read last is still near."""
    row = tl.program_id(0).to(tl.int64)
    logits += row * row_stride
    target = tl.load(targets + row)
    lanes = tl.arange(0, BLOCK)
    if target == IGNORED:
        tl.store(losses + row, 0.0)
        if right is not None:
            tl.store(right + row, 0)
        if WANTS_SLOPES:
            for start in range(0, VOCAB, BLOCK):
                nothing = tl.zeros((BLOCK,), tl.float32)
                tl.store(logits + start + lanes, nothing, mask=start + lanes < VOCAB)
    else:
        own = _own(logits, bias, target)
        highest, total, mean, first_highest = _first_pass(
            logits, bias, VOCAB, IS_SMOOTH, right is not None, BLOCK
        )
        tl.store(losses + row, _loss(highest, total, own, mean, smoothing, IS_SMOOTH))
        if right is not None:
            tl.store(right + row, (first_highest == target).to(tl.int32))
        if WANTS_SLOPES:
            last, share = (VOCAB - 1) // BLOCK * BLOCK, 1.0 / total
            for back in range(0, VOCAB, BLOCK):
                columns = last - back + lanes
                powers = tl.exp(_numbers(logits, bias, columns, VOCAB, "evict_first") - highest)
                slopes = _slopes(powers, share, columns, target, smoothing, VOCAB, IS_SMOOTH)
                tl.store(logits + columns, slopes, mask=columns < VOCAB, eviction_policy="evict_first")


@triton.jit
def _first_pass(
    logits, bias, VOCAB: tl.constexpr, IS_SMOOTH: tl.constexpr, WANTS_RIGHT: tl.constexpr, BLOCK: tl.constexpr
):
    """A row's highest logit, the sum of powers below it, the mean, and the first place of the highest.

    Every lane keeps a maximum and a sum of its own, and they come together at the end.
    """
    lanes = tl.arange(0, BLOCK)
    highest = tl.full((BLOCK,), LOWEST, tl.float32)
    totals, sums = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    places = lanes
    for start in range(0, VOCAB, BLOCK):
        columns = start + lanes
        numbers = _numbers(logits, bias, columns, VOCAB, "evict_last")
        is_higher = numbers > highest
        power = tl.exp(-tl.abs(numbers - highest))  # of the lower one of the two: one exponential serves both
        totals = tl.where(is_higher, totals * power + 1.0, totals + power)
        highest = tl.where(is_higher, numbers, highest)
        if WANTS_RIGHT:
            places = tl.where(is_higher, columns, places)
        if IS_SMOOTH:
            sums += tl.where(columns < VOCAB, numbers, 0.0)
    top = tl.max(highest, axis=0)
    total = tl.sum(totals * tl.exp(highest - top), axis=0)
    first_highest = tl.min(tl.where(highest == top, places, VOCAB), axis=0)
    return top, total, tl.sum(sums, axis=0) / VOCAB, first_highest


@triton.jit
def _numbers(logits, bias, columns, VOCAB: tl.constexpr, EVICTION: tl.constexpr):
    """Some of a row's logits in float32; beyond its end minus infinity, which takes no part."""
    inside = columns < VOCAB
    numbers = tl.load(logits + columns, mask=inside, other=-float("inf"), eviction_policy=EVICTION).to(
        tl.float32
    )
    if bias is not None:
        numbers += tl.load(bias + columns, mask=inside, other=0.0).to(tl.float32)
    return numbers


@triton.jit
def _own(logits, bias, target):
    """The target's logit; any, where the target does not count."""
    wanted = tl.maximum(target, 0)
    own = tl.load(logits + wanted).to(tl.float32)
    if bias is not None:
        own += tl.load(bias + wanted).to(tl.float32)
    return own


@triton.jit
def _loss(highest, total, own, mean, smoothing, IS_SMOOTH: tl.constexpr):
    """In differences from the highest, which are exact where logits are large."""
    loss = tl.log(total) + (1.0 - smoothing) * (highest - own)
    if IS_SMOOTH:
        loss += smoothing * (highest - mean)
    return loss


@triton.jit
def _slopes(powers, share, columns, target, smoothing, VOCAB: tl.constexpr, IS_SMOOTH: tl.constexpr):
    """Probabilities less what they should have been."""
    slopes = powers * share
    if IS_SMOOTH:
        slopes -= smoothing / VOCAB
    return slopes - tl.where(columns == target, 1.0 - smoothing, 0.0)
