"""The public names: there, light, and the same as where they live."""

import ast
import importlib
import inspect
import subprocess
import sys
import tomllib
import typing

import public_stub
import pytest

import headstart
from headstart.config.reading import Reading
from headstart.config.study import SETTINGS


@pytest.mark.parametrize("name", sorted(headstart._PUBLIC))
def test_every_public_name_is_there(name):
    home = importlib.import_module(headstart._PUBLIC[name])
    assert getattr(headstart, name) is getattr(home, name)
    assert name in dir(headstart)


def test_the_study_is_a_call_and_a_package(monkeypatch):
    module = importlib.import_module("headstart.full_study")
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


# ---- what a type checker and a reader of signatures see ------------------------------------------------------


def test_the_stub_is_what_the_signatures_give():
    """Where this fails: python tests/public_stub.py && ruff check --fix headstart && ruff format headstart."""

    def statements(text):
        nodes = ast.parse(text).body
        imports = [(n.module, one.name, one.asname) for n in nodes if isinstance(n, ast.ImportFrom) for one in n.names]
        return sorted(map(str, imports)), [ast.dump(n) for n in nodes if not isinstance(n, ast.ImportFrom)]

    assert statements(public_stub.STUB.read_text()) == statements(public_stub.made())


def test_the_package_says_that_it_is_typed():
    package = public_stub.STUB.parent
    assert (package / "py.typed").exists()
    shipped = tomllib.loads((package.parent / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    assert {"py.typed", "*.pyi"} <= set(shipped["headstart"])


def annotations(function):
    signature = inspect.signature(function)
    return [*(one.annotation for one in signature.parameters.values()), signature.return_annotation]


def holds_any(kind):
    return kind is typing.Any or any(map(holds_any, typing.get_args(kind)))


@pytest.mark.parametrize("name", [name for name in [*sorted(headstart._PUBLIC), "study"] if name != "PRESETS"])
def test_no_annotation_at_the_top_is_any(name):
    public = getattr(headstart, name)
    methods = {
        f"{name}.{own}": method
        for own, method in (vars(public) if inspect.isclass(public) else {}).items()
        if inspect.isfunction(method) and not own.startswith("_")
    }
    for called, function in (methods if inspect.isclass(public) else {name: public}).items():
        assert not any(map(holds_any, annotations(function))), called
        assert typing.get_type_hints(function).get("return") is not typing.Any, called


def test_the_study_shows_its_settings_with_their_types():
    shown = inspect.signature(headstart.study).parameters
    flags = {name: setting for name, setting in SETTINGS.items() if name not in ("train", "valid", "test")}
    assert {*flags, *Reading.names(), "width", "vocab", "seed", "threads", "out", "jobs"} <= set(shown)
    assert all(shown[name].annotation == (setting.type | None) for name, setting in flags.items())
    assert all(one.kind is not one.VAR_KEYWORD for one in shown.values())
