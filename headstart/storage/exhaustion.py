"""What the system has run out of: memory, disk, file descriptors. It is reported in many ways, and means one thing."""

import errno
import re

from headstart.errors import Code, MemoryFull, TryAgain

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_DISK_FULL_TEXTS = re.compile("No space left|File too large|Disk quota|os error (28|27|122)")
# Of torch's own allocator, of oneDNN's, of C++, and of the loader of libraries.
_MEMORY_FULL_TEXTS = re.compile(
    "DefaultCPUAllocator|could not create a (primitive|memory)|bad_alloc|([Cc]annot|can't) allocate memory"
)


def is_disk_full(error: BaseException) -> bool:
    """Whether an error, whatever its type, means that a disk is full."""
    return getattr(error, "errno", None) in _DISK_FULL or bool(_DISK_FULL_TEXTS.search(str(error)))


def is_memory_full(error: BaseException) -> bool:
    """The same of the machine's memory."""
    is_of_system = isinstance(error, OSError | RuntimeError | ImportError)
    return isinstance(error, MemoryError) or (is_of_system and bool(_MEMORY_FULL_TEXTS.search(str(error))))


def try_again(error: BaseException | None, where: str = "") -> TryAgain | None:
    """The error for the user, if the system has run out of something or a device fails; else None."""
    if isinstance(error, TryAgain) or not isinstance(error, OSError | RuntimeError | MemoryError | ImportError):
        return None
    if is_memory_full(error):
        fix = "close other programs, raise the limit (ulimit -v), or give a smaller model, --length or batch"
        return MemoryFull(f"the memory is full ({_line(error)})", where=where, fix=fix)
    number = getattr(error, "errno", None)
    if number in (errno.EMFILE, errno.ENFILE):
        fix = "raise the limit, such as ulimit -n 1024, and run the same command again"
        return TryAgain(f"too few files may be open at once ({_line(error)})", where=where, fix=fix)
    if number == errno.EIO:
        fix = "look after the disk or the terminal, and run the same command again"
        return TryAgain(f"a device reports an error ({_line(error)})", where=where, fix=fix)
    if is_disk_full(error):
        code: Code = "disk-full"
        fix = "free some space and run the same command again"
        return TryAgain(f"the disk is full ({_line(error)})", where=where, fix=fix, code=code)
    return None


def _line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
