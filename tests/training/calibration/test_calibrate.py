"""The fit of a calibration, on times that were made up from known prices; and every rehearsed step trains."""

import numpy as np
import pytest
import torch

from headstart.machine import Machine
from headstart.planning.machines import cpu
from headstart.planning.time import UNITS, counts, paper_prices
from headstart.training.calibration import calibrate as calibrating


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
