"""headstart/__init__.pyi, made from the signatures: `python tests/public_stub.py` writes it.

The settings are declared in headstart/config, and the signatures are derived from them when the package is loaded. A
type checker loads nothing: it reads this file.
"""

import inspect
import types
import typing
from pathlib import Path

import headstart

STUB = Path(headstart.__file__).with_suffix(".pyi")
# Classes whose methods take settings as keywords; the rest of them is as it is declared.
DERIVED = {"Run": ("generate", "translate", "translations", "evaluate"), "TextClassifier": ("__init__",)}


class Stub:
    """Lines of a stub, and the imports that they need."""

    def __init__(self) -> None:
        self.imports: set[tuple[str, str]] = set()
        self.aliases: list[str] = []
        self.lines: list[str] = []

    def type_of(self, kind: object) -> str:
        """An annotation as source."""
        if kind is None or kind is types.NoneType:
            return "None"
        if kind is ...:
            return "..."
        if isinstance(kind, str):
            return kind
        if isinstance(kind, list):
            return f"[{', '.join(map(self.type_of, kind))}]"
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if origin is typing.Literal:
            self.imports.add(("typing", "Literal"))
            return f"Literal[{', '.join(map(repr, arguments))}]"
        if origin in (typing.Union, types.UnionType):
            return " | ".join(map(self.type_of, arguments))
        if origin is not None:
            return f"{self.type_of(origin)}[{', '.join(map(self.type_of, arguments))}]"
        if kind.__module__ != "builtins":
            self.imports.add((kind.__module__.replace("pathlib._local", "pathlib"), kind.__name__))
        return kind.__name__

    def function(self, name: str, function: object, indent: str = "") -> None:
        """A function, a line for each parameter."""
        signature, lines, is_keyword = inspect.signature(function), [], False
        for parameter in signature.parameters.values():
            if parameter.kind is parameter.KEYWORD_ONLY and not is_keyword:
                lines.append("*")
                is_keyword = True
            if parameter.kind is parameter.VAR_KEYWORD:
                raise TypeError(f"{name} takes more than its signature shows")
            is_typed = parameter.annotation is not parameter.empty
            shown = f"{parameter.name}: {self.type_of(parameter.annotation)}" if is_typed else parameter.name
            lines.append(shown if parameter.default is parameter.empty else f"{shown} = ...")
        inner = "".join(f"\n{indent}    {line}," for line in lines)
        returned = "None" if name == "__init__" else self.type_of(signature.return_annotation)
        # A method of a subclass, which takes settings where the class takes any keyword.
        ignored = "  # type: ignore[override]" if indent and name != "__init__" else ""
        self.lines.append(f"{indent}def {name}({ignored}{inner}\n{indent}) -> {returned}: ...")

    def of_class(self, name: str, module: str) -> None:
        self.aliases.append(f"from {module} import {name} as _{name}")
        self.lines.append(f"class {name}(_{name}):")
        for method in DERIVED[name]:
            self.function(method, getattr(getattr(headstart, name), method), "    ")

    def __str__(self) -> str:
        head = ['"""Made by tests/public_stub.py from the signatures."""', ""]
        imports = [f"from {module} import {name}" for module, name in sorted(self.imports)]
        return "\n".join([*head, *imports, *self.aliases, "", *self.lines]) + "\n"


def made() -> str:
    """The stub."""
    stub = Stub()
    stub.lines.append("__version__: str")
    for name, module in sorted(headstart._PUBLIC.items()):
        if name in DERIVED:
            stub.of_class(name, module)
    for name, module in sorted(headstart._PUBLIC.items()):
        public = getattr(headstart, name)
        if hasattr(public, "__signature__") or name == "load":
            stub.function(name, public)
        elif name not in DERIVED:
            stub.aliases.append(f"from {module} import {name} as {name}")
    stub.function("study", headstart.study)
    stub.imports = {(module, name) for module, name in stub.imports if name not in headstart._PUBLIC}
    return str(stub)


if __name__ == "__main__":
    STUB.write_text(made())
