"""What the system has run out of, by the errors that report it."""

import errno
import os

import pytest

from headstart.errors import MemoryFull, UserError
from headstart.storage.exhaustion import is_disk_full, is_memory_full, try_again


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MemoryError(), "memory-full"),
        (MemoryError("Unable to allocate 37.3 GiB for an array"), "memory-full"),
        (RuntimeError("could not create a primitive"), "memory-full"),
        (RuntimeError("could not create a memory object"), "memory-full"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), "memory-full"),
        (RuntimeError("std::bad_alloc"), "memory-full"),
        (ImportError("libtorch.so: failed to map segment: Cannot allocate memory"), "memory-full"),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), "memory-full"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "disk-full"),
        (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)), "disk-full"),
        (RuntimeError("I/O error: No space left on device (os error 28)"), "disk-full"),
        (OSError(errno.EIO, os.strerror(errno.EIO)), "try-again"),
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "try-again"),
        (OSError(errno.ENFILE, os.strerror(errno.ENFILE)), "try-again"),
    ],
)
def test_it_is_exit_75_with_a_remedy(error, code):
    lacking = try_again(error, "here")
    assert (lacking.exit_code, lacking.code, lacking.where) == (75, code, "here")
    assert lacking.fix
    assert isinstance(lacking, MemoryFull) == (code == "memory-full") == is_memory_full(error)
    assert is_disk_full(error) == (code == "disk-full")


@pytest.mark.parametrize(
    "error",
    [
        None, ValueError("could not create a primitive"), RuntimeError("shape mismatch"), OSError(errno.ENOENT, "gone"),
        UserError("the disk"), ImportError("no module"),
    ],
)  # fmt: skip
def test_another_error_is_another(error):
    assert try_again(error) is None
