"""Children that are born with torch already imported: a kill test starts in milliseconds, not seconds."""

import contextlib
import multiprocessing
import multiprocessing.forkserver
import os
import sys
import traceback
from pathlib import Path

# All that a command, a study or a selftest needs. The optimizers import torch._dynamo on first use, and it is large.
PRELOADED = [
    "torch._dynamo",
    "headstart.cli.main",
    "headstart.cli.train",
    "headstart.serve.application",
    "headstart.serve.listening",
    "headstart.study.trial",
    "headstart.training.tasks.finetune",
    "headstart.training.tasks.pretrain",
    "headstart.training.tasks.selftest",
    "headstart.training.tasks.translation",
    "sacrebleu.metrics",
    "scipy.optimize",
    "sklearn.feature_extraction.text",
    "sklearn.linear_model",
    "sklearn.metrics",
]
# Workers of pytest share the cores, and threads that wait for each other spin.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(PRELOADED)
# This process has one fork server: whoever asks it first, a study among them, would say what it imports.
multiprocessing.forkserver.set_forkserver_preload = lambda names: None


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
