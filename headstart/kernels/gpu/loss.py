"""The loss of a chunk's logits on a GPU and their gradients in one kernel, which writes these over the logits.

The same as `loss_and_grads` (kernels/cross_entropy.py), computed in float32 and in the same order every
time, so that runs repeat themselves and steps can be captured as graphs.
"""

import functools

import torch
from torch import Tensor

from headstart.kernels.cpu.logits import IGNORED, ChunkLoss
from headstart.kernels.gpu.availability import can_be_made

SHORT_ROW = 1 << 14  # of such rows a processor holds several, and reads some while it computes others
LONGEST_WHOLE_ROW = 1 << 15  # that its registers hold in float32 …
LONGEST_KEPT_ROW = 1 << 16  # … and in bf16
BLOCK = 1 << 13
KEPT_BLOCKS = 13  # that 16 warps hold, of 8 numbers a thread each: 16 bytes are read at once


@functools.cache
def is_available() -> bool:
    """Whether the kernels can be made here."""
    return can_be_made(_try_out, "the loss is computed")


def _try_out(device: torch.device) -> None:
    logits, targets = torch.zeros(1, 1, device=device), torch.zeros(1, dtype=torch.int64, device=device)
    loss_in_place(logits, None, targets, 0.0, False, False)


def loss_in_place(
    logits: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    smoothing: float,
    wants_correct: bool,
    wants_grads: bool,
    kernel: str | None = None,
) -> ChunkLoss:
    """The loss of logits (tokens, vocabulary) of at most 32 bits, whose rows may be apart; they are used up.

    `kernel` is one of those that fit (`kernels_for`), and without it the first of them.
    """
    from headstart.kernels.gpu import loss_kernel

    assert logits.stride(1) == 1
    assert logits.dtype != torch.float64
    tokens, vocab = logits.shape
    losses = torch.empty(tokens, dtype=torch.float32, device=logits.device)
    correct = torch.empty(tokens, dtype=torch.int32, device=logits.device) if wants_correct else None
    name = kernel or kernels_for(logits, bias)[0]
    block, warps = _shape(name, vocab)
    programs = min(tokens, _processors(logits.device)) if name == "next_row" else tokens
    with torch.cuda.device_of(logits):
        getattr(loss_kernel, name)[(programs,)](
            logits, None if bias is None else bias.contiguous(), targets.contiguous(), losses, correct,
            logits.stride(0), float(smoothing), tokens, VOCAB=vocab,
            IGNORED=IGNORED, IS_SMOOTH=bool(smoothing), WANTS_GRADS=wants_grads, BLOCK=block,
            num_warps=warps,
        )  # fmt: skip
    right = None if correct is None else correct.sum()
    return ChunkLoss(losses.sum(), right, logits if wants_grads else None, None)


def kernels_for(logits: Tensor, bias: Tensor | None) -> list[str]:
    """The kernels that can take such logits, by their names in loss_kernel.py: the one to take first."""
    vocab = logits.shape[1]
    if vocab <= SHORT_ROW:
        return ["whole_row"]
    fitting = ["whole_row", "long_row"] if vocab <= LONGEST_WHOLE_ROW else ["long_row"]
    # Numbers are kept by pairs, which have to begin at even places.
    is_even = logits.stride(0) % 2 == 0 and logits.data_ptr() % 4 == 0
    if bias is not None or logits.dtype != torch.bfloat16 or vocab > LONGEST_KEPT_ROW or not is_even:
        return fitting
    if not _holds_next_row(vocab, logits.device):
        return ["kept_row", *fitting]
    return ["next_row", "kept_row", *fitting]


def _shape(kernel: str, vocab: int) -> tuple[int, int]:
    """A block's numbers, and how many threads share them, by 32: a thread can have 65,536 / threads registers."""
    if kernel == "whole_row":
        block = 1 << (vocab - 1).bit_length()
        return block, min(32, max(1, block // 1024))
    if kernel == "long_row":
        return BLOCK, 16
    warps = 16 if vocab <= KEPT_BLOCKS * 16 * 256 else 32
    return 256 * warps, warps


@functools.cache
def _processors(device: torch.device) -> int:
    if device.type == "cpu":  # interpreted
        return 2
    return torch.cuda.get_device_properties(device).multi_processor_count


@functools.cache
def _holds_next_row(vocab: int, device: torch.device) -> bool:
    """Whether a processor's own memory has room for the next row, and for what its threads tell each other."""
    if device.type == "cpu":
        return True
    block, _ = _shape("next_row", vocab)
    room = getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", 0)
    return -(-vocab // block) * block * 2 + 1024 <= room
