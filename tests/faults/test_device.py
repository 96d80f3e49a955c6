"""A GPU that fails midway: it is said, and the same command goes on to the same bytes."""

import commands
import pytest
import torch
from commands import Workspace

from headstart.training.loop import Step

FAILURE = "CUDA error: unspecified launch failure"


@pytest.mark.parametrize("verb", ["pretrain", "finetune", "translation"])
def test_a_gpu_that_fails_is_said_and_the_run_goes_on(tmp_path, monkeypatch, capsys, verb):
    workspace = Workspace(tmp_path).fill()
    monkeypatch.setenv("HEADSTART_CACHE", str(workspace.cache))
    command = workspace.command(verb=verb)
    assert commands.invoke(capsys, command).code == 0
    wanted = (workspace.run / "weights.safetensors").read_bytes()
    workspace.run.rename(tmp_path / "undisturbed")

    steps, take = [], Step.__call__

    def fails_at_the_fifth(self, *arguments):
        steps.append(self)
        if len(steps) == 5:
            raise torch.AcceleratorError(f"{FAILURE}\nand much about it")
        return take(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Step, "__call__", fails_at_the_fifth)
        answer = commands.invoke(capsys, command)
    assert answer.code == 75
    said = " ".join(answer.err.split())
    assert f"the GPU failed: {FAILURE} fix: run the same command again" in said
    assert "Traceback" not in said

    assert commands.invoke(capsys, command).code == 0
    assert (workspace.run / "weights.safetensors").read_bytes() == wanted
