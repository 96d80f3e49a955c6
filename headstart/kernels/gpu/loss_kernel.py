"""The kernels of loss.py: a program for each row of logits, which is read and written as seldom as can be.

What is slow is the memory, and after it the exponential: each logit costs one of them in each pass. It is taken to the
base two, as the processor has it; but of a difference, which is exact where logits are large.
"""

# mypy: disallow-untyped-defs=False
import triton  # type: ignore
import triton.language as tl  # type: ignore

LOWEST = tl.constexpr(-3.4028234663852886e38)  # of float32: what is below is minus infinity, and adds nothing
LOG2_E = tl.constexpr(1.4426950408889634)
NO_PAIR = tl.constexpr(-0x7F0080)  # two bf16 numbers in 32 bits, each of them minus infinity
NO_SECOND = tl.constexpr(-0x800000)  # the second of them alone


# Where in memory targets begin must not decide whether there is anything to compile: a step may be being recorded.
@triton.jit(do_not_specialize=["targets", "tokens"])
def whole_row(
    logits, bias, targets, losses, correct, row_stride, smoothing, tokens, VOCAB: tl.constexpr,
    IGNORED: tl.constexpr, IS_SMOOTH: tl.constexpr, WANTS_GRADS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A row that fits the registers is read once."""
    row = tl.program_id(0).to(tl.int64)  # tokens × vocabulary may be more than 2³¹
    logits += row * row_stride
    columns = tl.arange(0, BLOCK)
    numbers = _numbers(logits, bias, columns, VOCAB, "evict_first")
    target = tl.load(targets + row).to(tl.int32)
    own = _own(logits, bias, target)
    highest = tl.max(numbers, axis=0)
    if correct is not None:
        first_highest = tl.min(tl.where(numbers == highest, columns, BLOCK), axis=0)
        tl.store(correct + row, (first_highest == target).to(tl.int32))
    mean = 0.0
    if IS_SMOOTH:
        mean = tl.sum(tl.where(columns < VOCAB, numbers, 0.0), axis=0) / VOCAB
    powers = tl.exp2((numbers - highest) * LOG2_E)
    total = tl.sum(powers, axis=0)
    loss = _loss(highest, total, own, mean, smoothing, IS_SMOOTH)
    tl.store(losses + row, tl.where(target == IGNORED, 0.0, loss))
    if WANTS_GRADS:
        grads = _grads(powers, 1.0 / total, columns, target, smoothing, VOCAB, IS_SMOOTH)
        grads = tl.where(target == IGNORED, 0.0, grads)
        tl.store(logits + columns, grads, mask=columns < VOCAB, eviction_policy="evict_first")


@triton.jit(do_not_specialize=["targets", "tokens"])
def kept_row(
    logits, bias, targets, losses, correct, row_stride, smoothing, tokens, VOCAB: tl.constexpr,
    IGNORED: tl.constexpr, IS_SMOOTH: tl.constexpr, WANTS_GRADS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A longer row of bf16 is read once where its numbers stay as short as they came; it has no bias."""
    _kept(
        logits, targets, losses, correct, row_stride, smoothing, tl.program_id(0), VOCAB, IGNORED, IS_SMOOTH,
        WANTS_GRADS, BLOCK,
    )  # fmt: skip


@triton.jit(do_not_specialize=["targets", "tokens"])
def next_row(
    logits, bias, targets, losses, correct, row_stride, smoothing, tokens, VOCAB: tl.constexpr,
    IGNORED: tl.constexpr, IS_SMOOTH: tl.constexpr, WANTS_GRADS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The same by programs that take row after row: the next one is on its way while this one is computed."""
    for row in tl.range(tl.program_id(0), tokens, tl.num_programs(0), num_stages=2):
        _kept(
            logits, targets, losses, correct, row_stride, smoothing, row, VOCAB, IGNORED, IS_SMOOTH,
            WANTS_GRADS, BLOCK,
        )  # fmt: skip


@triton.jit
def _kept(
    logits, targets, losses, correct, row_stride, smoothing, row, VOCAB: tl.constexpr,
    IGNORED: tl.constexpr, IS_SMOOTH: tl.constexpr, WANTS_GRADS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A row in blocks of pairs: two numbers in 32 bits, made float32 anew in each of three passes.

    What follows the maximum stands in a condition for a reason: the next row is sent for right before it.
    """
    logits += row_stride.to(tl.int64) * row
    target = tl.load(targets + row).to(tl.int32)
    own = _own(logits, None, target)
    blocks = _blocks(logits, VOCAB, BLOCK)
    highest = tl.full((BLOCK // 2,), -float("inf"), tl.float32)
    for block in tl.static_range(len(blocks)):
        first, second = _halves(blocks[block])
        highest = tl.maximum(highest, tl.maximum(first, second))
    top = tl.max(highest, axis=0)
    if target != IGNORED:
        # The compiler would keep the float32 numbers from pass to pass, and there is no room for them; so each pass
        # has words of its own, which differ by a zero that only we know to be one.
        total, mean, first_highest = _kept_sums(
            blocks, top, (target < IGNORED).to(tl.int32), VOCAB, IS_SMOOTH, correct is not None, BLOCK
        )
        tl.store(losses + row, _loss(top, total, own, mean, smoothing, IS_SMOOTH))
        if correct is not None:
            tl.store(correct + row, (first_highest == target).to(tl.int32))
        if WANTS_GRADS:
            zero, log2_total = (total < 0.0).to(tl.int32), tl.log2(total)
            own_grad = _probabilities(own, top, log2_total, smoothing, VOCAB, IS_SMOOTH) - (1.0 - smoothing)
            for block in tl.static_range(len(blocks)):
                first, second = _halves(blocks[block] ^ zero)
                grads = _probabilities(tl.interleave(first, second), top, log2_total, smoothing, VOCAB, IS_SMOOTH)
                is_own = tl.arange(0, BLOCK) == target - block * BLOCK
                _put(logits, tl.where(is_own, own_grad, grads), block * BLOCK, VOCAB, BLOCK)
    else:
        tl.store(losses + row, 0.0)
        if correct is not None:
            tl.store(correct + row, 0)
        if WANTS_GRADS:
            for block in tl.static_range(len(blocks)):
                _put(logits, tl.zeros((BLOCK,), tl.float32), block * BLOCK, VOCAB, BLOCK)


@triton.jit
def _blocks(logits, VOCAB: tl.constexpr, BLOCK: tl.constexpr):
    """A row's pairs; beyond its end minus infinity. A row that ends within a pair has a number beside it."""
    pointers, lanes = logits.to(tl.pointer_type(tl.int32)), tl.arange(0, BLOCK // 2)
    blocks = ()
    for start in tl.static_range(0, VOCAB, BLOCK):
        places = start // 2 + lanes
        if start + BLOCK <= VOCAB:
            pairs = tl.load(pointers + places)
        else:
            pairs = tl.load(pointers + places, mask=places < (VOCAB + 1) // 2, other=NO_PAIR)
            if VOCAB % 2:
                pairs = tl.where(places == VOCAB // 2, (pairs & 0xFFFF) | NO_SECOND, pairs)
        blocks = blocks + (pairs,)  # type: ignore  # noqa: RUF005 (the compiler knows no stars)
    return blocks


@triton.jit
def _kept_sums(
    blocks, top, zero, VOCAB: tl.constexpr, IS_SMOOTH: tl.constexpr, WANTS_CORRECT: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The sum of a row's powers, its mean, and the first place of the highest logit."""
    lanes = tl.arange(0, BLOCK // 2)
    totals, sums = tl.zeros((BLOCK // 2,), tl.float32), tl.zeros((BLOCK // 2,), tl.float32)
    places = tl.full((BLOCK // 2,), VOCAB, tl.int32)
    for block in tl.static_range(len(blocks)):
        columns = block * BLOCK + 2 * lanes
        first, second = _halves(blocks[block] ^ zero)
        totals += tl.exp2((first - top) * LOG2_E) + tl.exp2((second - top) * LOG2_E)
        if WANTS_CORRECT:
            here = tl.where(first == top, 2 * lanes, tl.where(second == top, 2 * lanes + 1, VOCAB))
            places = tl.minimum(places, here + block * BLOCK)
        if IS_SMOOTH:
            sums += tl.where(columns < VOCAB, first, 0.0) + tl.where(columns + 1 < VOCAB, second, 0.0)
    return tl.sum(totals, axis=0), tl.sum(sums, axis=0) / VOCAB, tl.min(places, axis=0)


@triton.jit
def _probabilities(numbers, top, log2_total, smoothing, VOCAB: tl.constexpr, IS_SMOOTH: tl.constexpr):
    """Probabilities, less what they all should have been at least."""
    probabilities = tl.exp2((numbers - top) * LOG2_E - log2_total)
    if IS_SMOOTH:
        probabilities -= smoothing / VOCAB
    return probabilities


@triton.jit
def _put(logits, grads, start: tl.constexpr, VOCAB: tl.constexpr, BLOCK: tl.constexpr):
    columns = start + tl.arange(0, BLOCK)
    if start + BLOCK <= VOCAB:
        tl.store(logits + columns, grads, eviction_policy="evict_first")
    else:
        tl.store(logits + columns, grads, mask=columns < VOCAB, eviction_policy="evict_first")


@triton.jit
def _halves(pairs):
    """The two numbers of each pair: a bf16 number is the upper half of a float32."""
    return (pairs << 16).to(tl.float32, bitcast=True), (pairs & -0x10000).to(tl.float32, bitcast=True)


@triton.jit(do_not_specialize=["targets", "tokens"])
def long_row(
    logits, bias, targets, losses, correct, row_stride, smoothing, tokens, VOCAB: tl.constexpr,
    IGNORED: tl.constexpr, IS_SMOOTH: tl.constexpr, WANTS_GRADS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A longer one is read twice, the second time backwards: what was read last is still near."""
    row = tl.program_id(0).to(tl.int64)
    logits += row * row_stride
    target = tl.load(targets + row).to(tl.int32)
    lanes = tl.arange(0, BLOCK)
    if target == IGNORED:
        tl.store(losses + row, 0.0)
        if correct is not None:
            tl.store(correct + row, 0)
        if WANTS_GRADS:
            for start in range(0, VOCAB, BLOCK):
                nothing = tl.zeros((BLOCK,), tl.float32)
                tl.store(logits + start + lanes, nothing, mask=start + lanes < VOCAB)
    else:
        own = _own(logits, bias, target)
        highest, total, mean, first_highest = _first_pass(logits, bias, VOCAB, IS_SMOOTH, correct is not None, BLOCK)
        tl.store(losses + row, _loss(highest, total, own, mean, smoothing, IS_SMOOTH))
        if correct is not None:
            tl.store(correct + row, (first_highest == target).to(tl.int32))
        if WANTS_GRADS:
            last, share = (VOCAB - 1) // BLOCK * BLOCK, 1.0 / total
            for back in range(0, VOCAB, BLOCK):
                columns = last - back + lanes
                numbers = _numbers(logits, bias, columns, VOCAB, "evict_first")
                powers = tl.exp2((numbers - highest) * LOG2_E)
                grads = _grads(powers, share, columns, target, smoothing, VOCAB, IS_SMOOTH)
                tl.store(logits + columns, grads, mask=columns < VOCAB, eviction_policy="evict_first")


@triton.jit
def _first_pass(
    logits,
    bias,
    VOCAB: tl.constexpr,
    IS_SMOOTH: tl.constexpr,
    WANTS_CORRECT: tl.constexpr,
    BLOCK: tl.constexpr,
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
        power = tl.exp2(-LOG2_E * tl.abs(numbers - highest))  # of the lower of the two: one serves both
        totals = tl.where(is_higher, totals * power + 1.0, totals + power)
        highest = tl.where(is_higher, numbers, highest)
        if WANTS_CORRECT:
            places = tl.where(is_higher, columns, places)
        if IS_SMOOTH:
            sums += tl.where(columns < VOCAB, numbers, 0.0)
    top = tl.max(highest, axis=0)
    total = tl.sum(totals * tl.exp2((highest - top) * LOG2_E), axis=0)
    first_highest = tl.min(tl.where(highest == top, places, VOCAB), axis=0)
    return top, total, tl.sum(sums, axis=0) / VOCAB, first_highest


@triton.jit
def _numbers(logits, bias, columns, VOCAB: tl.constexpr, EVICTION: tl.constexpr):
    """Some of a row's logits in float32; beyond its end minus infinity, which takes no part."""
    inside = columns < VOCAB
    numbers = tl.load(logits + columns, mask=inside, other=-float("inf"), eviction_policy=EVICTION).to(tl.float32)
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
def _grads(powers, share, columns, target, smoothing, VOCAB: tl.constexpr, IS_SMOOTH: tl.constexpr):
    """Probabilities less what they should have been."""
    grads = powers * share
    if IS_SMOOTH:
        grads -= smoothing / VOCAB
    return grads - tl.where(columns == target, 1.0 - smoothing, 0.0)
