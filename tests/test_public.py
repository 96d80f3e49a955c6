"""The public names: there, light, and the same as where they live."""

import importlib
import subprocess
import sys

import pytest

import headstart


@pytest.mark.parametrize("name", sorted(headstart._PUBLIC))
def test_every_public_name_is_there(name):
    home = importlib.import_module(headstart._PUBLIC[name])
    assert getattr(headstart, name) is getattr(home, name)
    assert name in dir(headstart)


def test_the_study_is_a_call_and_a_package(monkeypatch):
    module = importlib.import_module("headstart.study.study")
    monkeypatch.setattr(module, "study", lambda *arguments, **settings: (arguments, settings))
    assert headstart.study(1, out="here") == ((1,), {"out": "here"})
    assert headstart.study.design is importlib.import_module("headstart.study.design")
    assert "study" in dir(headstart)


def test_importing_headstart_imports_no_torch():
    program = "import headstart, sys; assert 'torch' not in sys.modules; headstart.ModelConfig"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'pretain'"):
        _ = headstart.pretain
