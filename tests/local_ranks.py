"""Several ranks on this machine: as children that are told what torchrun would tell them, or by torchrun itself."""

import os
import socket
import subprocess
import sys
from contextlib import contextmanager

import forked
from commands import COMMAND, exit_code_of

from headstart.distributed import Ranks


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def environment_of(rank, world, port):
    numbers = {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": world}
    return {name: str(number) for name, number in {**numbers, "MASTER_PORT": port}.items()} | {
        "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1",
    }  # fmt: skip


def start(program, arguments, directory, world=2, faults=None, **environment):
    """The ranks of a program; `faults` has for a rank where it dies. What each says is in `directory/log-RANK`."""
    port = free_port()
    return [
        forked.start(
            program, *arguments, output=directory / f"log-{rank}",
            environment={
                **environment, **environment_of(rank, world, port), "HEADSTART_FAULT": (faults or {}).get(rank, ""),
            },
        )
        for rank in range(world)
    ]  # fmt: skip


def start_command(workspace, *more, verb="pretrain", world=2, faults=None):
    """The ranks of a command."""
    command = workspace.command(*more, verb=verb)
    return start(COMMAND, command, workspace.path, world, faults, HEADSTART_CACHE=str(workspace.cache))


def exit_codes(workspace, *more, verb="pretrain", world=2, faults=None):
    """The exit codes of a command's ranks."""
    return [exit_code_of(child) for child in start_command(workspace, *more, verb=verb, world=world, faults=faults)]


def log_of(workspace, rank=0):
    return (workspace.path / f"log-{rank}").read_text()


# ---- torchrun itself ----------------------------------------------------------------------------------------

# What torchrun starts: the command, with a rank that dies in the first attempt if the test says so.
WORKER = """
import os, sys
rank, _, fault = os.environ.get("KILLED_RANK", "").partition("=")
if os.environ["RANK"] == rank and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    os.environ["HEADSTART_FAULT"] = fault
from headstart.cli.main import run
sys.exit(run(sys.argv[1:]))
"""


def torchrun(workspace, options, *more, log="torchrun", killed=""):
    """torchrun with these options and the command's ranks; what they say is in `log`."""
    worker = workspace.path / "worker.py"
    worker.write_text(WORKER)
    words = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        *map(str, options),
        str(worker),
        *workspace.command(*more),
    ]
    environment = {
        **os.environ, "HEADSTART_CACHE": str(workspace.cache), "OMP_NUM_THREADS": "1", "KILLED_RANK": killed,
    }  # fmt: skip
    with (workspace.path / log).open("w") as output:
        return subprocess.Popen(words, env=environment, stdout=output, stderr=subprocess.STDOUT)


@contextmanager
def joined(machine):
    """In a child: its machine with the ranks that it was started as one of."""
    import dataclasses

    found = dataclasses.replace(machine, ranks=Ranks.of_environment())
    with found.ranks.joined(found.device):
        yield found
