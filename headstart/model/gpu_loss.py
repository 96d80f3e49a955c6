"""The loss of a chunk's logits on a GPU and their slopes in one kernel, which writes the slopes over the logits.

The same as `loss_and_slopes` (chunked_loss.py), computed in float32 and in the same order every time, so that runs
repeat themselves and steps can be recorded.
"""

import functools

import torch
from torch import Tensor

from headstart.model.cpu_logits import IGNORED, ChunkLoss

LONGEST_WHOLE_ROW = 1 << 14  # that the registers hold
BLOCK = 1 << 13


@functools.cache
def is_available() -> bool:
    """Whether kernels can be made here: triton needs a GPU that it knows, a C compiler, and a place to write."""
    if not torch.cuda.is_available():
        return False
    nothing = torch.zeros(1, 1, device="cuda")
    try:
        loss_in_place(nothing, None, torch.zeros(1, dtype=torch.int64, device="cuda"), 0.0, False, False)
    except torch.OutOfMemoryError:  # says nothing about kernels
        raise
    except Exception:  # whatever is missing, there is another way
        return False
    return True


def loss_in_place(
    logits: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    smoothing: float,
    wants_right: bool,
    wants_slopes: bool,
) -> ChunkLoss:
    """The loss of logits (tokens, vocabulary) of at most 32 bits, whose rows may be apart; they are used up."""
    from headstart.model import gpu_loss_kernel  # imports triton, which is not everywhere

    assert logits.stride(1) == 1
    assert logits.dtype != torch.float64
    tokens, vocab = logits.shape
    losses = torch.empty(tokens, dtype=torch.float32, device=logits.device)
    right = torch.empty(tokens, dtype=torch.int32, device=logits.device) if wants_right else None
    is_whole = vocab <= LONGEST_WHOLE_ROW
    kernel = gpu_loss_kernel.whole_row if is_whole else gpu_loss_kernel.long_row
    block = 1 << (vocab - 1).bit_length() if is_whole else BLOCK
    with torch.cuda.device_of(logits):
        kernel[(tokens,)](
            logits, None if bias is None else bias.contiguous(), targets.contiguous(), losses, right,
            logits.stride(0), float(smoothing), VOCAB=vocab,
            IGNORED=IGNORED, IS_SMOOTH=bool(smoothing), WANTS_SLOPES=wants_slopes, BLOCK=block,
            num_warps=_warps(block, is_whole),
        )  # fmt: skip
    return ChunkLoss(
        losses.sum(), None if right is None else right.sum(), logits if wants_slopes else None, None
    )


def _warps(block: int, is_whole: bool) -> int:
    """How many threads share a row, by 32: up to 32 numbers each of a whole row, 16 of a block."""
    return min(16, max(1, block // (1024 if is_whole else 512)))
