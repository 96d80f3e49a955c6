"""Device, precision and threads: chosen by what is there, taken as asked, refused with a reason."""

import pytest
import torch

from headstart.errors import UserError
from headstart.training import machine


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
    with pytest.raises(UserError, match="no CUDA device"):
        machine.choose("cuda")
    with pytest.raises(UserError, match="threads is 0"):
        machine.choose(threads=0)


@pytest.mark.parametrize(("capability", "precision"), [((9, 0), "bf16"), ((8, 0), "bf16"), ((7, 5), "fp32")])
def test_a_gpu_is_used_with_the_numbers_it_is_good_at(monkeypatch, capability, precision):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "some GPU")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    found = machine.choose()
    assert (found.device.type, found.precision) == ("cuda", precision)
    assert found.reasons[0] == "cuda: some GPU"
