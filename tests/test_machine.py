"""Device, precision and threads: chosen by what is there, taken as asked, refused with a reason."""

import pytest
import torch
from expected_errors import refused

from headstart import machine


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.parametrize(("has_bf16", "precision"), [(True, "bf16"), (False, "fp32")])
def test_auto_looks_at_the_cpu_first(no_gpu, monkeypatch, has_bf16, precision):
    monkeypatch.setattr(machine, "cpu_has_fast_bf16", lambda: has_bf16)
    found = machine.choose()
    assert (found.device.type, found.precision) == ("cpu", precision)
    assert len(found.reasons) == 3


def test_what_is_asked_is_taken(no_gpu):
    found = machine.choose("cpu", "bf16", 3)
    assert (found.device.type, found.precision, found.threads) == ("cpu", "bf16", 3)
    assert found.reasons == ("cpu, as asked", "bf16, as asked", "3 threads, as asked")


def test_what_is_not_there_is_refused(no_gpu):
    with refused("no-device", "--device=cpu"):
        machine.choose("cuda")
    with refused("bad-value", "threads is 0"):
        machine.choose(threads=0)


@pytest.mark.parametrize(("capability", "precision"), [((9, 0), "bf16"), ((8, 0), "bf16"), ((7, 5), "fp32")])
def test_a_gpu_is_used_with_the_numbers_it_is_good_at(monkeypatch, capability, precision):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "some GPU")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    found = machine.choose()
    assert (found.device.type, found.precision) == ("cuda", precision)
    assert found.reasons[0] == "cuda: some GPU"


def test_on_a_cpu_fast_has_nothing_to_give_up(no_gpu):
    found = machine.choose("cpu", "fp32", 1, fast=True)
    assert not found.is_fast
    assert "exact" in found.reasons[-1]
    assert found.facts() == machine.choose("cpu", "fp32", 1).facts()


def test_a_gpu_that_is_to_be_fast_says_that_it_is_not_exact(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "some GPU")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    found = machine.choose(fast=True)
    assert found.is_fast
    assert "need not give the same bytes" in found.reasons[-1]
    assert found.facts()["exact"] == "no, --fast"
    exact = machine.choose()
    assert "exact" not in exact.facts()


def test_fast_and_exact_leave_torch_as_they_want_it(monkeypatch):
    fast = machine.Machine(torch.device("cpu"), "fp32", 1, is_fast=True)
    exact = machine.Machine(torch.device("cpu"), "fp32", 1)
    before = torch.get_num_threads()
    try:
        exact.prepare()
        assert torch.get_deterministic_debug_mode() == 2
        fast.prepare()
        assert torch.get_deterministic_debug_mode() == 0
    finally:
        exact.prepare()
        torch.set_num_threads(before)
        torch.set_deterministic_debug_mode("default")


def test_a_cpu_writes_token_by_token_in_the_precision_of_the_weights():
    product = torch.ones(2, 2) @ torch.ones(2, 2)
    chosen = machine.choose("cpu", "bf16")
    with chosen.autocast():
        assert (torch.ones(2, 2) @ product).dtype is torch.bfloat16
    with chosen.autocast_steps():
        assert (torch.ones(2, 2) @ product).dtype is torch.float32
