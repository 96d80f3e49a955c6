"""Whether kernels of our own can be made here: triton needs a GPU that it knows, a C compiler, and a place to write."""

import subprocess
import warnings
from collections.abc import Callable

import torch


def can_be_made(try_out: Callable[[torch.device], object], otherwise: str) -> bool:
    """Whether there is a GPU and a kernel ran on it when it was tried out; what is missing is told."""
    if not torch.cuda.is_available():
        return False
    try:
        try_out(torch.device("cuda"))
    except torch.OutOfMemoryError:  # says nothing about kernels
        raise
    except (ImportError, OSError, RuntimeError, subprocess.SubprocessError) as error:
        warnings.warn(f"{otherwise} without a kernel of our own, and slower: {error}", stacklevel=3)
        return False
    return True
