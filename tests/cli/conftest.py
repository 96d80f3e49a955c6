"""What the tests of several verbs share."""

import pytest
import tiny_runs

from headstart.cli import main

ON_CPU = ("--device", "cpu", "--precision", "fp32", "--threads", "1")


@pytest.fixture
def cli(capsys, monkeypatch):
    """Run a verb on the CPU; gives its exit code, standard output and standard error."""
    monkeypatch.setenv("HEADSTART_CACHE", str(tiny_runs.directory() / "cache"))

    def call(*arguments):
        extra = () if arguments[0] == "runs" else ON_CPU
        code = main.run([*map(str, arguments), *extra])
        return code, *capsys.readouterr()

    return call
