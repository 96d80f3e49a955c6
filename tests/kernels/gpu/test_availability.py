"""Whether kernels of our own can be made."""

from unittest.mock import Mock

import pytest
import torch

from headstart.kernels.gpu import adamw, loss
from headstart.kernels.gpu.availability import can_be_made


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


def failing(error):
    def try_out(device):
        raise error

    return try_out


def test_without_a_gpu_nothing_is_tried(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert not can_be_made(failing(AssertionError("tried")), "slowly")


def test_a_kernel_that_runs_can_be_made(gpu):
    seen = []
    assert can_be_made(seen.append, "slowly")
    assert seen == [torch.device("cuda")]


@pytest.mark.parametrize("error", [ImportError("no triton"), OSError("no compiler"), RuntimeError("old GPU")])
def test_what_is_missing_is_told(gpu, error):
    with pytest.warns(UserWarning, match=f"slowly.*{error}"):
        assert not can_be_made(failing(error), "slowly")


def test_a_full_memory_says_nothing_about_kernels(gpu):
    with pytest.raises(torch.OutOfMemoryError):
        can_be_made(failing(torch.OutOfMemoryError()), "slowly")


@pytest.fixture(autouse=True)
def as_if_there_were_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


@pytest.mark.parametrize("kernels", [adamw, loss])
@pytest.mark.parametrize(
    "missing", [ImportError("no triton"), RuntimeError("no C compiler"), PermissionError("no place to write")]
)
def test_what_a_kernel_needs_and_does_not_find_is_told(missing, kernels, monkeypatch):
    monkeypatch.setattr(kernels, "_try_out", Mock(side_effect=missing))
    with pytest.warns(UserWarning, match=str(missing)):
        assert not kernels.is_available.__wrapped__()


@pytest.mark.parametrize("kernels", [adamw, loss])
@pytest.mark.parametrize("fault", [ValueError("a fault"), torch.OutOfMemoryError("no memory")])
def test_a_fault_of_a_kernel_is_not_passed_over(fault, kernels, monkeypatch):
    monkeypatch.setattr(kernels, "_try_out", Mock(side_effect=fault))
    with pytest.raises(type(fault)):
        kernels.is_available.__wrapped__()
