"""The package is also the call: `headstart.study(...)` runs a study, `headstart.study.design` is a module of it."""

import importlib
import inspect
import sys
from types import ModuleType
from typing import Any


def _call() -> Any:
    return importlib.import_module("headstart.full_study").study


class _CallablePackage(ModuleType):
    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        return _call()(*arguments, **settings)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(_call())


sys.modules[__name__].__class__ = _CallablePackage
