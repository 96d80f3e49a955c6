"""What this machine has, without torch: cores, free memory, the names of its CPU and its GPU."""

import contextlib
import os
import re
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path


def available_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def _cpu_field(name: str) -> str:
    """A field of /proc/cpuinfo; empty where there is none."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    match = re.search(rf"^{name}\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else ""


def cpu_name() -> str:
    """What the CPU calls itself."""
    return _cpu_field("model name") or "cpu"


def cpu_has_fast_bf16() -> bool:
    """Whether the CPU multiplies bf16 in hardware."""
    return not {"avx512_bf16", "amx_bf16"}.isdisjoint(_cpu_field("flags").split())


def first_gpu() -> tuple[str, int] | None:
    """The first NVIDIA card that the driver shows to this process, and its bytes (0: not known)."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1"):
        return None
    if shutil.which("nvidia-smi"):
        command = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
            name, _, mebibytes = done.stdout.splitlines()[0].rpartition(",")
            return name.strip(), int(mebibytes) * 2**20
        except (OSError, subprocess.SubprocessError, IndexError, ValueError):
            pass
    for file in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        if model := re.search(r"^Model:\s*(.+)$", file.read_text(), re.MULTILINE):
            return model[1].strip(), 0
    return None


# ---- memory -------------------------------------------------------------------------------------------------


def free_bytes() -> int:
    """What this process may still allocate: free or freeable memory, within its own limit and its groups'."""
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


# The two versions of control groups: where they are mounted, their limit, their use, and the page cache in it.
_GROUPS = {
    "": ("", "memory.max", "memory.current", "inactive_file"),
    "memory": ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def _group_free_bytes(
    membership: Path = Path("/proc/self/cgroup"), mounted: Path = Path("/sys/fs/cgroup")
) -> Iterator[int]:
    """What each control group around this process leaves, such as a container's; page cache can be freed."""
    lines = membership.read_text().splitlines() if membership.exists() else []
    for _, controllers, path in (line.split(":", 2) for line in lines):
        where = "memory" if "memory" in controllers.split(",") else controllers
        if where not in _GROUPS:
            continue
        top, limit, used, files = _GROUPS[where]
        group = mounted / top / path.lstrip("/")
        for directory in (group, *group.parents):
            if not directory.is_relative_to(mounted / top):
                break
            # A group without a limit has a word in place of the number, and the outermost has no such files.
            with contextlib.suppress(OSError, ValueError, KeyError):
                stat = dict(line.split() for line in (directory / "memory.stat").read_text().splitlines())
                most, taken = (int((directory / name).read_text()) for name in (limit, used))
                yield most - taken + int(stat[files])
