"""The plan of a selftest's kills, and a run that resumed from other weights."""

import pytest
import torch

from headstart.cli.selftest import _POINTS
from headstart.machine import Machine
from headstart.runs import checkpoint
from headstart.training.tasks import selftest as machinery
from headstart.training.tasks.selftest import END, MOMENT, POINTS, STARTING, plan


@pytest.mark.slow
def test_a_run_that_resumes_from_other_weights_is_found_out(tmp_path):
    """Between two of its lives somebody changes one number of its checkpoint, checksums and all."""

    def meddle(kill):
        directory = tmp_path / "killed/checkpoints"
        found, _ = checkpoint.latest(directory)
        for tensor in (*found.model.values(), *found.optimizer.values()):
            tensor.view(-1)[0] += 1e-3
        facts = {key: found.manifest[key] for key in ("machine", "settings")}
        checkpoint.save(directory, found.step, found.model, found.optimizer, found.state, facts)

    machine = Machine(torch.device("cpu"), "fp32", 1)
    result = machinery.selftest(1, "causal", 0, machine, tmp_path, meddle)
    assert result.kills[0].resumes_from > 0
    assert not result.passed
    assert result.uninterrupted_sha256 != result.killed_sha256
    assert result.leftovers == []


@pytest.mark.parametrize("kills", [1, 2, 3, 9, 10, 20, 50])
def test_the_plan_has_each_stage_moments_and_the_end(kills):
    faults = plan(kills, seed=3)
    points = [fault.point for fault in faults]
    assert len(points) == kills
    assert plan(kills, seed=3) == faults
    assert kills == 1 or (points[-1], points.count(END)) == (END, 1)
    if kills >= 10:
        assert set(POINTS) <= set(points)
        assert {STARTING, MOMENT} & set(points)
        assert plan(kills, seed=4) != faults
    assert set(points) <= set(_POINTS)
