"""The table of the plan's errors: planned again from a file, and its configurations."""

import json
from pathlib import Path

import pytest

from headstart.planning.machines import CARDS
from headstart.planning.memory import training_memory
from headstart.planning.time import paper_prices, step_seconds

ROOT = Path(__file__).parents[2]


@pytest.fixture
def plan_error(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import plan_error

    return plan_error


def test_an_earlier_run_is_planned_by_the_code_as_it_is(plan_error, capsys):
    case = plan_error.CUDA[5]
    work = plan_error.workload(case, "cuda", "bf16")
    planned = training_memory(work).total
    seconds = step_seconds(work, paper_prices(CARDS["h200"], "bf16")).total
    row = {
        "name": plan_error.name_of(case),
        "measured_memory": 2 * planned,
        "measured_seconds": seconds,
        "spread": 0.1,
    }
    data = {"device": "NVIDIA H200", "kind": "cuda", "precision": "bf16", "threads": 2, "rows": [row]}
    (found,) = plan_error.replayed(json.loads(json.dumps(data)))
    assert found["memory_error"] == pytest.approx(-0.5)
    assert found["seconds_error"] == pytest.approx(0.0)
    assert "-50.0%" in capsys.readouterr().out


def test_steps_that_were_timed_then_price_the_plan_again(plan_error):
    from headstart.training.calibration.calibrate import workloads

    prices = paper_prices(CARDS["h200"], "bf16")
    timed = {name: 3 * step_seconds(w, prices).total for name, w in workloads("cuda", "bf16").items()}
    points = [{"name": name, "measured": seconds} for name, seconds in timed.items()]
    data = {"device": "NVIDIA H200", "kind": "cuda", "precision": "bf16", "threads": 2, "calibration": points}
    found, _ = plan_error.prices_of(data)
    assert found.seconds["products"] == pytest.approx(3 * prices.seconds["products"], rel=0.05)


def test_a_child_answers_row_by_row_and_its_death_is_noticed(plan_error):
    def dies():
        yield 1
        raise SystemExit(3)

    assert list(plan_error.in_children(dies)) == [1]
    assert plan_error.in_child(lambda: 7) == 7


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_configurations_have_names_of_their_own(plan_error, device):
    every = [case for held_out in (False, True) for case in plan_error.cases(device, held_out=held_out)]
    names = [plan_error.name_of(case) for case in every]
    assert len(set(names)) == len(names)
    assert len(plan_error.cases(device, held_out=False)) >= 20
    for case in every:
        assert plan_error.case_named(plan_error.name_of(case), device) == case
