"""A GPU that fails midway: it is said, and the same command goes on to the same bytes."""

import commands
import pytest
import torch
from commands import Place

from headstart.training.loop import Step

FAILURE = "CUDA error: unspecified launch failure"


@pytest.mark.parametrize("verb", ["pretrain", "finetune", "translation"])
def test_a_gpu_that_fails_is_said_and_the_run_goes_on(tmp_path, monkeypatch, capsys, verb):
    place = Place(tmp_path).fill()
    monkeypatch.setenv("HEADSTART_CACHE", str(place.cache))
    command = place.command(verb=verb)
    assert commands.ask(capsys, command).code == 0
    wanted = (place.run / "weights.safetensors").read_bytes()
    place.run.rename(tmp_path / "undisturbed")

    steps, take = [], Step.__call__

    def fails_at_the_fifth(self, *arguments):
        steps.append(self)
        if len(steps) == 5:
            raise torch.AcceleratorError(f"{FAILURE}\nand much about it")
        return take(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Step, "__call__", fails_at_the_fifth)
        answer = commands.ask(capsys, command)
    assert answer.code == 75
    said = " ".join(answer.err.split())
    assert f"the GPU failed: {FAILURE} fix: run the same command again" in said
    assert "Traceback" not in said

    assert commands.ask(capsys, command).code == 0
    assert (place.run / "weights.safetensors").read_bytes() == wanted
