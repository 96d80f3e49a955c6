"""What memory this process may still take, without torch."""

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path


def free_bytes() -> int:
    """What this process may still take: what is free or can be freed, within its own limit and its groups'."""
    free = [_machine_free_bytes(), *_group_free_bytes()]
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    mapped = Path("/proc/self/statm")
    if limit != resource.RLIM_INFINITY and mapped.exists():
        free.append(limit - int(mapped.read_text().split()[0]) * resource.getpagesize())
    return max(0, min(free))


def _machine_free_bytes() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        kibibytes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
        return 1024 * (kibibytes["MemAvailable"] + kibibytes["SwapFree"])
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


# Of both kinds of control group: where they are, their limit, what they use, and what of that are files in memory.
_GROUPS = {
    "": ("", "memory.max", "memory.current", "inactive_file"),
    "memory": ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def _group_free_bytes(
    membership: Path = Path("/proc/self/cgroup"), mounted: Path = Path("/sys/fs/cgroup")
) -> Iterator[int]:
    """What each control group around this process leaves, such as a container's; files in memory can be freed."""
    lines = membership.read_text().splitlines() if membership.exists() else []
    for _, controllers, path in (line.split(":", 2) for line in lines):
        where = "memory" if "memory" in controllers.split(",") else controllers
        if where not in _GROUPS:
            continue
        top, limit, used, files = _GROUPS[where]
        group = mounted / top / path.lstrip("/")
        for place in (group, *group.parents):
            if not place.is_relative_to(mounted / top):
                break
            # A group without a limit says so in a word, and the outermost one has no such files.
            with contextlib.suppress(OSError, ValueError, KeyError):
                stat = dict(line.split() for line in (place / "memory.stat").read_text().splitlines())
                most, taken = (int((place / name).read_text()) for name in (limit, used))
                yield most - taken + int(stat[files])
