"""What this machine has, without torch."""

import os
from pathlib import Path

import pytest

from headstart import hardware


def test_cores_are_those_that_this_process_may_use():
    assert 1 <= hardware.available_cores() <= (os.cpu_count() or 1)


@pytest.mark.parametrize(
    ("flags", "expected"), [("fma avx512_bf16 sse", True), ("amx_bf16", True), ("avx512f amx_tile", False)]
)
def test_fast_bf16_is_a_flag_of_the_cpu(monkeypatch, flags, expected):
    text = f"processor\t: 0\nmodel name\t: A CPU @ 2 GHz\nflags\t\t: {flags}\n"
    monkeypatch.setattr(Path, "read_text", lambda path, **options: text)
    assert hardware.cpu_has_fast_bf16() == expected
    assert hardware.cpu_name() == "A CPU @ 2 GHz"


def test_a_machine_that_tells_nothing_has_a_plain_cpu(monkeypatch):
    def refuse(path, **options):
        raise OSError

    monkeypatch.setattr(Path, "read_text", refuse)
    assert (hardware.cpu_name(), hardware.cpu_has_fast_bf16()) == ("cpu", False)


@pytest.mark.parametrize("visible", ["", "-1"])
def test_a_hidden_gpu_is_not_there(monkeypatch, visible):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert hardware.first_gpu() is None
