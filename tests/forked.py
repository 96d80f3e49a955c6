"""Children that are born with torch already imported: a kill test starts in milliseconds, not seconds."""

import contextlib
import multiprocessing
import os
import sys
import traceback
from pathlib import Path

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch", "safetensors.torch", "numpy", "headstart.runs.checkpoint"])


def _program(source, arguments, environment, output):
    os.environ.update(environment)
    with open(output, "w") as file, contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
        sys.argv = ["program", *arguments]
        try:
            exec(compile(source, "program", "exec"), {"__name__": "__main__"})
        except SystemExit:
            raise
        except BaseException:
            traceback.print_exc(file=file)
            raise SystemExit(1) from None


def start(source, *arguments, output, environment=None):
    """Start a Python program in a forked child; its output goes to the file `output`."""
    values = (source, [str(a) for a in arguments], environment or {}, str(output))
    child = CONTEXT.Process(target=_program, args=values)
    child.start()
    return child


def run(source, *arguments, output, environment=None, seconds=120):
    """Run a program to its end; returns the exit code, negative for a signal."""
    child = start(source, *arguments, output=output, environment=environment)
    child.join(seconds)
    if child.is_alive():
        child.kill()
        child.join()
        raise TimeoutError(f"still running after {seconds} s: {Path(output).read_text()[-2000:]}")
    return child.exitcode
