"""The kernels of adamw.py: many tensors in one launch, each program has a chunk of one of them.

Where tensors are stands in tables on the device, as numbers. A tensor begins at a multiple of 16 bytes, and so does
each chunk: so 16 bytes are read at once, but in a chunk that its tensor does not fill.
"""

# mypy: disallow-untyped-defs=False
import triton  # type: ignore
import triton.language as tl  # type: ignore

# A row of `pointers` for each tensor: to its weights, its two averages, its count of steps and its learning rate.
POINTERS = tl.constexpr(5)
FACTORS = tl.constexpr(3)


@triton.jit(do_not_specialize=["addresses"])
def write_addresses(table, addresses):
    """Numbers from the host to the device without a copy: a captured launch holds what it was given."""
    for number in tl.static_range(len(addresses)):
        tl.store(table + number, addresses[number])


@triton.jit
def sums_of_squares(chunks, sizes, gradients, sums, BLOCK: tl.constexpr):
    """Of each chunk's gradients, always in the same order."""
    program = tl.program_id(0)
    tensor, start = _chunk(chunks, program, BLOCK)
    size = tl.load(sizes + tensor)
    gradient = _numbers_at(tl.load(gradients + tensor))
    if start + BLOCK <= size:
        _sum_of_squares(gradient, start, size, sums + program, True, BLOCK)
    else:
        _sum_of_squares(gradient, start, size, sums + program, False, BLOCK)


@triton.jit
def _sum_of_squares(gradient, start, size, sum_pointer, IS_WHOLE: tl.constexpr, BLOCK: tl.constexpr):
    grads = _load(gradient, start, size, IS_WHOLE, BLOCK)
    tl.store(sum_pointer, tl.sum(grads * grads, axis=0))


@triton.jit(do_not_specialize=["tensors", "is_taken"])
def next_factors(pointers, settings, factors, is_taken, tensors, BLOCK: tl.constexpr):
    """Count the step, if it is taken, and of each tensor find what its numbers are multiplied with in this step."""
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = lanes < tensors
    counter = tl.load(pointers + lanes * POINTERS + 3, mask=here, other=0).to(tl.pointer_type(tl.float32))
    lr_pointer = tl.load(pointers + lanes * POINTERS + 4, mask=here, other=0).to(tl.pointer_type(tl.float32))
    lr = tl.load(lr_pointer, mask=here, other=0.0).to(tl.float64)
    steps = tl.load(counter, mask=here, other=0.0) + tl.load(is_taken).to(tl.float32)
    tl.store(counter, steps, mask=here)
    decay = tl.load(settings + lanes * 3, mask=here, other=0.0)
    log2_beta1 = tl.load(settings + lanes * 3 + 1, mask=here, other=-1.0)
    log2_beta2 = tl.load(settings + lanes * 3 + 2, mask=here, other=-1.0)
    first = 1.0 - tl.exp2(steps.to(tl.float64) * log2_beta1)
    second = 1.0 - tl.exp2(steps.to(tl.float64) * log2_beta2)
    factors += lanes * FACTORS
    tl.store(factors, (lr * decay).to(tl.float32), mask=here)
    tl.store(factors + 1, (lr / first).to(tl.float32), mask=here)
    tl.store(factors + 2, (1.0 / tl.sqrt(second)).to(tl.float32), mask=here)


@triton.jit(do_not_specialize=["factor", "is_taken"])
def adamw(
    chunks, sizes, gradients, pointers, factors, factor, is_taken, beta1, rest1, beta2, rest2, eps,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Update a chunk by its gradient times a factor, or leave it as it is."""
    is_taken = tl.load(is_taken)
    factor = tl.load(factor)
    tensor, start = _chunk(chunks, tl.program_id(0), BLOCK)
    size = tl.load(sizes + tensor)
    gradient = _numbers_at(tl.load(gradients + tensor))
    pointers += tensor * POINTERS
    weight = _numbers_at(tl.load(pointers))
    mean = _numbers_at(tl.load(pointers + 1))
    square = _numbers_at(tl.load(pointers + 2))
    factors += tensor * FACTORS
    decay, step_size, root = tl.load(factors), tl.load(factors + 1), tl.load(factors + 2)
    if is_taken:
        if start + BLOCK <= size:
            _adamw(
                weight, gradient, mean, square, start, size, factor, decay, step_size, root,
                beta1, rest1, beta2, rest2, eps, True, BLOCK,
            )  # fmt: skip
        else:
            _adamw(
                weight, gradient, mean, square, start, size, factor, decay, step_size, root,
                beta1, rest1, beta2, rest2, eps, False, BLOCK,
            )  # fmt: skip


@triton.jit
def _adamw(
    weight, gradient, mean, square, start, size, factor, decay, step_size, root, beta1, rest1, beta2, rest2, eps,
    IS_WHOLE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """torch's formula; `rest` is one less beta.

    Root and quotient are the processor's quick ones, off by less than 2⁻²¹: of the step, which is far shorter than the
    weight that it is added to.
    """
    grads = _load(gradient, start, size, IS_WHOLE, BLOCK) * factor
    weights = _load(weight, start, size, IS_WHOLE, BLOCK)
    means = _load(mean, start, size, IS_WHOLE, BLOCK)
    squares = _load(square, start, size, IS_WHOLE, BLOCK)
    weights -= decay * weights
    means = tl.fma(means, beta1, rest1 * grads)
    squares = tl.fma(squares, beta2, rest2 * (grads * grads))
    weights -= step_size * means / (tl.sqrt(squares) * root + eps)
    _store(weight, start, size, weights, IS_WHOLE, BLOCK)
    _store(mean, start, size, means, IS_WHOLE, BLOCK)
    _store(square, start, size, squares, IS_WHOLE, BLOCK)


@triton.jit
def _chunk(chunks, program, BLOCK: tl.constexpr):
    """Which tensor, and from which of its numbers on."""
    return tl.load(chunks + 2 * program), tl.load(chunks + 2 * program + 1).to(tl.int64) * BLOCK


@triton.jit
def _numbers_at(address):
    return tl.multiple_of(address.to(tl.pointer_type(tl.float32)), 16)


@triton.jit
def _load(numbers, start, size, IS_WHOLE: tl.constexpr, BLOCK: tl.constexpr):
    lanes = start + tl.arange(0, BLOCK)
    if IS_WHOLE:
        loaded = tl.load(numbers + lanes)
    else:
        loaded = tl.load(numbers + lanes, mask=lanes < size, other=0.0)
    return loaded


@triton.jit
def _store(numbers, start, size, values, IS_WHOLE: tl.constexpr, BLOCK: tl.constexpr):
    lanes = start + tl.arange(0, BLOCK)
    if IS_WHOLE:
        tl.store(numbers + lanes, values)
    else:
        tl.store(numbers + lanes, values, mask=lanes < size)
