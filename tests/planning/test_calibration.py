"""A calibration is kept, found again for the same machine alone, and no danger when it is broken."""

import json

import pytest
from expected_errors import refused

from headstart.hardware import cpu_name
from headstart.planning import calibration
from headstart.planning.calibration import Calibration, facts_of, load_calibration, this_machine
from headstart.planning.time import UNITS


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path))
    return tmp_path


def made(facts, price=1e-9):
    return Calibration(facts, dict.fromkeys(UNITS, price), 1e10, 8 * 2**30, [])


def test_it_is_found_for_its_own_machine_alone():
    facts = facts_of("cpu", "some CPU", "fp32", 2)
    made(facts).save()
    assert load_calibration(facts) == made(facts)
    for other in (
        ("cpu", "some CPU", "fp32", 1),
        ("cpu", "some CPU", "bf16", 2),
        ("cpu", "another", "fp32", 2),
    ):
        assert load_calibration(facts_of(*other)) is None
    assert facts_of("cuda", "a card", "bf16", 1) == facts_of("cuda", "a card", "bf16", 64)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", json.dumps({"format": 99})])
def test_one_that_cannot_be_read_counts_as_none(text):
    facts = facts_of("cpu", "some CPU", "fp32", 2)
    path = made(facts).save()
    path.write_text(text)
    assert load_calibration(facts) is None


def test_one_of_another_form_counts_as_none():
    facts = facts_of("cpu", "some CPU", "fp32", 2)
    path = made(facts).save()
    data = json.loads(path.read_text())
    del data["seconds"]["logits"]
    path.write_text(json.dumps(data))
    assert load_calibration(facts) is None


def test_this_machine_is_planned_by_its_calibration_once_there_is_one():
    target, prices = this_machine("cpu", "fp32", 3)
    assert not prices.is_calibrated
    assert target.title == "3 cores"
    made(facts_of("cpu", cpu_name(), "fp32", 3), 7e-9).save()
    _, prices = this_machine("cpu", "fp32", 3)
    assert prices.is_calibrated
    assert prices.seconds["logits"] == 7e-9


def test_a_cpu_that_multiplies_bf16_is_planned_in_bf16(monkeypatch):
    monkeypatch.setattr(calibration, "cpu_has_fast_bf16", lambda: True)
    assert this_machine("cpu", None, 1)[0].precision == "bf16"
    monkeypatch.setattr(calibration, "cpu_has_fast_bf16", lambda: False)
    assert this_machine("cpu", None, 1)[0].precision == "fp32"


def test_a_card_here_is_found_in_the_table_with_its_own_memory(monkeypatch):
    monkeypatch.setattr(calibration, "first_gpu", lambda: ("NVIDIA GeForce RTX 3090", 24 * 2**30 - 5))
    target, prices = this_machine("cuda", None, None)
    assert (target.title, target.memory, target.precision) == (
        "NVIDIA GeForce RTX 3090",
        24 * 2**30 - 5,
        "bf16",
    )
    assert not prices.is_calibrated


def test_a_card_of_no_table_asks_for_a_calibration(monkeypatch):
    monkeypatch.setattr(calibration, "first_gpu", lambda: ("NVIDIA Something 9", 2**33))
    with refused("unknown-name", "--calibrate"):
        this_machine("cuda", None, None)
    made(facts_of("cuda", "NVIDIA Something 9", "fp32", 0)).save()
    target, prices = this_machine("cuda", None, None)
    assert prices.is_calibrated
    assert target.memory == 2**33


def test_without_a_card_cuda_is_refused(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with refused("no-device", "--device cpu"):
        this_machine("cuda", None, None)
