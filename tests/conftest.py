"""Settings for all tests."""

import importlib.util
import os
from pathlib import Path

import forked  # noqa: F401  (the fork server of this process starts with what tests need)
import pytest
import torch

# The models of the tests are too small for two threads: handing work over costs more than doing it.
torch.set_num_threads(1)

MOST_WORKERS = 8

# What imports the web application needs the extra `serve`; `pytest -m gpu` has to run without it.
collect_ignore_glob = (
    []
    if importlib.util.find_spec("fastapi")
    else ["browser*", "serve*", "faults/test_serve.py", "interop/test_model_card.py", "study/test_model.py"]
)


def pytest_report_header():
    return [f"without the extra serve: {', '.join(collect_ignore_glob)} are left out"] if collect_ignore_glob else []


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Run the whole suite, or all slow tests, on all cores; `-n` decides otherwise.

    What a path, `-k` or `-m gpu` chooses runs in this process, and so does what `--pdb` debugs.
    """
    if not config.pluginmanager.hasplugin("xdist") or "PYTEST_XDIST_WORKER" in os.environ:
        return
    option = config.option
    is_whole = any(Path(argument).resolve() == Path(__file__).parent for argument in config.args)
    is_part = not is_whole or option.keyword or option.markexpr not in ("not slow", "slow")
    if option.numprocesses is None and not (is_part or option.usepdb):
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        option.numprocesses = min(cores or 1, MOST_WORKERS)
        # Each worker takes a stretch of neighbouring tests: they share what a module's fixtures have made.
        option.dist = "worksteal"


def pytest_collection_modifyitems(items):
    """Skip tests marked `gpu` where there is no CUDA device."""
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
