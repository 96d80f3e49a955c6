"""The fit of a calibration, on times that were made up from known prices; and every rehearsed step trains."""

import numpy as np
import pytest
import torch

from headstart.model.presets import HeadConfig, preset
from headstart.plan.machines import cpu
from headstart.plan.operations import Lengths
from headstart.plan.time import UNITS, counts, paper_prices
from headstart.plan.workload import Workload, reading_of
from headstart.training import calibrating
from headstart.training.loop import one_update
from headstart.training.machine import Machine
from headstart.training.rehearsal import REHEARSED, machine_for, rehearsal
from headstart.training.step import read


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_the_timed_steps_tell_the_prices_apart(kind):
    """Times by other prices than the paper's, up to five times as much, are given back to a few per cent."""
    prior = paper_prices(cpu(1), "fp32").seconds
    draws = np.random.default_rng(0)
    true = {name: price * draws.uniform(0.3, 1.5) for name, price in prior.items()}
    points = []
    for work in calibrating.workloads(kind, "fp32").values():
        counted = counts(work)
        points.append((counted, sum(counted[name] * true[name] for name in UNITS)))
    found = calibrating.fitted(points, prior)
    for counted, seconds in points:
        assert sum(counted[name] * found[name] for name in UNITS) == pytest.approx(seconds, rel=0.05)
    assert all(price >= 0 for price in found.values())


def test_prices_that_no_step_tells_of_are_the_papers_for_a_machine_that_much_slower():
    prior = paper_prices(cpu(1), "fp32").seconds
    counted = dict.fromkeys(UNITS, 0.0) | {"products": 1.0}
    found = calibrating.fitted([(counted, 30 * prior["products"])], prior)
    assert found["products"] == pytest.approx(30 * prior["products"])
    assert found["logits"] == pytest.approx(30 * prior["logits"])


@pytest.mark.parametrize("kind", REHEARSED)
def test_every_objective_can_be_rehearsed(kind):
    name = "transformer-tiny" if kind == "translation" else "tiny"
    fields = {"width": 16, "heads": 2, "ffn": 24, "depth": 1, "segments": 2 if "nsp" in kind else 0}
    if kind == "translation":
        fields["decoder_depth"] = 1
    direction = "bidirectional" if kind.startswith("masked") else None
    work = Workload(
        config=preset(name, vocab=50, direction=direction, **fields), head=HeadConfig(kind=kind, classes=3), batch=4,
        lengths=Lengths(12, 9 if kind == "translation" else 0), reading=reading_of(kind), accumulate=2,
    )  # fmt: skip
    update = one_update(rehearsal(work, machine_for(work, 1)))
    found = read([update(0)])[0]
    assert found.is_taken
    assert 0 < found.loss < 20


@pytest.mark.slow
def test_a_calibration_is_measured_and_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path))
    monkeypatch.setitem(calibrating.SECONDS_A_POINT, "cpu", 0.0)
    monkeypatch.setattr(calibrating, "COPIED_NUMBERS", 1 << 10)
    small = dict(list(calibrating.workloads("cpu", "fp32").items())[-2:])
    monkeypatch.setattr(calibrating, "workloads", lambda kind, precision: small)
    told = []
    found = calibrating.calibrate(Machine(torch.device("cpu"), "fp32", 1), told.append)
    assert [point["name"] for point in found.points] == list(small)
    assert len(told) == 2
    assert len(list(tmp_path.glob("calibrations/cpu-fp32-*.json"))) == 1
