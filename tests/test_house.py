"""The house of docs/design.md: imports point down, packages are empty rooms, help answers without torch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from headstart.cli.main import GROUPS, VERBS

PACKAGE = Path(__file__).parent.parent / "headstart"
FLOORS = [
    ["errors"],
    ["randomness", "config", "forking"],
    ["text", "model"],
    ["objectives", "plan", "decoding"],
    ["training"],
    ["study", "interop"],
    ["report"],
    ["serve"],
    ["cli"],
    ["__main__"],
]
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}


def rooms_imported(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            rooms |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            rooms.add(node.module or "")
    return {name.split(".")[1] for name in rooms if name.startswith("headstart.")}


def test_imports_point_down():
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        for other in rooms_imported(path):
            assert other == room or FLOOR[other] < FLOOR[room], f"{path} imports {other}"


def test_inner_packages_are_empty():
    for path in PACKAGE.glob("*/__init__.py"):
        # The study is a call and a package at once: headstart.study(...), headstart.study.design.
        assert path.parent.name == "study" or path.read_text() == "", path


def test_top_package_imports_nothing_of_its_own():
    assert rooms_imported(PACKAGE / "__init__.py") == set()


@pytest.mark.parametrize("verb", ["", *GROUPS, *VERBS])
def test_help_answers_and_imports_no_torch(verb):
    program = """
import sys
from headstart.cli.main import run
code = run(sys.argv[1:])
heavy = {"torch", "matplotlib", "transformers", "pyarrow"} & set(sys.modules)
sys.exit(f"{code} {heavy}" if code or heavy else 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, *verb.split(), "--help"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "Usage: headstart" in done.stdout
    if verb and verb not in GROUPS:
        assert f"headstart {verb}" in done.stdout.split("Usage:")[1].partition("\n")[2], "no example"
