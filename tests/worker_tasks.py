"""Work for the tests of the study's workers, importable in another process; and whether that one is gone."""

import os
import signal
import time
import warnings
from pathlib import Path

import torch

from headstart.errors import MemoryFull, UserError
from headstart.training.signals import Stopped, StopRequests


def work(argument, on_share):
    """What each kind of task does; `file` is what it leaves when it is done."""
    kind, file = argument
    file = Path(file)
    on_share(0.5)
    if kind == "user error":
        raise UserError("came", fix="give something else")
    if kind == "warns":
        warnings.warn("the same in\n  every worker", stacklevel=1)
    if kind == "bug":
        raise ZeroDivisionError("a bug")
    if kind == "dies once" and not file.with_suffix(".tried").exists():
        file.with_suffix(".tried").write_text("")
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind in ("loses its gpu", "loses its gpu once"):
        with file.with_suffix(".tries").open("a") as tries:
            tries.write(f"{os.getpid()}\n")
        if kind == "loses its gpu" or len(file.with_suffix(".tries").read_text().split()) == 1:
            raise torch.AcceleratorError("CUDA error: unspecified launch failure")
    if kind == "loses its gpu further on":
        with file.with_suffix(".tries").open("a") as tries:
            tries.write("x")
        count = len(file.with_suffix(".tries").read_text())
        if count < 5:
            time.sleep(0.3)  # a share that comes too soon after another is not told
            on_share(0.5 + count / 10)
            raise torch.AcceleratorError("CUDA error: unspecified launch failure")
    if kind in ("finds no memory at first", "works when others found no memory"):
        file.with_suffix(".begun").write_text("")
        _wait_for(file.parent, "*.begun", 3)
        if kind == "works when others found no memory":
            _wait_for(file.parent, "*.full", 2)
        elif not file.with_suffix(".full").exists():
            file.with_suffix(".full").write_text("")
            raise MemoryFull("the memory is full")
    if kind == "saves":
        with StopRequests() as requests:
            file.with_suffix(".pid").write_text(str(os.getpid()))
            while not requests.number:
                time.sleep(0.02)
            time.sleep(1)  # as long as a large checkpoint
            file.with_suffix(".saved").write_text("")
            raise Stopped(requests.number, 1)
    if kind == "waits":
        with file.with_suffix(".tries").open("a") as tries:
            tries.write("x")
        file.with_suffix(".node").write_text(f"{os.getppid()} {os.getpid()}")
        while not file.with_name("go").exists():
            time.sleep(0.02)
    if kind == "shows":
        for share in (0.6, 0.7, 0.8):
            time.sleep(0.3)
            on_share(share)
    if kind == "sleeps":
        file.with_suffix(".pid").write_text(str(os.getpid()))
        time.sleep(600)
    file.write_text(str(time.monotonic()))


def _wait_for(file, pattern, count):
    deadline = time.monotonic() + 60
    while len(list(file.glob(pattern))) < count and time.monotonic() < deadline:
        time.sleep(0.02)


def is_gone(pid, seconds=30):
    """Whether a process has ended, waiting for it so long; one that nobody has waited for counts as ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False
