"""The package is also the call: `headstart.study(...)` runs a study, `headstart.study.design` is a module of it."""

import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        from headstart.study.study import study

        return study(*arguments, **settings)


sys.modules[__name__].__class__ = _CallablePackage
