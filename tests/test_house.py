"""The house of docs/design.md: how modules, imports, functions and tests are laid out."""

import ast
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

import headstart
from headstart.cli.main import GROUPS, VERBS

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "headstart"
FLOORS = [
    ["errors"],
    ["hardware", "randomness", "cancellation", "progress", "storage", "config", "distributed"],
    ["machine"],
    ["data", "tokenizers", "model", "kernels", "demo"],
    ["objectives", "planning"],
    ["runs"],
    ["inference"],
    ["training"],
    ["study", "interop"],
    ["report"],
    ["full_study"],
    ["serve"],
    ["cli"],
    ["__main__"],
]
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
MOST_MODULES, MOST_LEVELS, MOST_PARAMETERS, MOST_LINES = 15, 4, 8, 80

# Modules that are tested in a file of another name, and why.
TESTED_ELSEWHERE = {
    "__main__.py": "cli/test_main.py runs `python -m headstart`",
    "cli/consoles.py": "the tests of the verbs read what they print",
    "cli/plan_tables.py": "cli/test_plan.py reads the tables",
    "config/defaults.py": "numbers alone",
    "kernels/constants.py": "numbers alone",
    "kernels/gpu/adamw_kernel.py": "kernels/gpu/test_adamw.py runs it, without a GPU in triton's interpreter",
    "kernels/gpu/loss_kernel.py": "kernels/gpu/test_loss.py runs it, without a GPU in triton's interpreter",
}

# ---- what there is ------------------------------------------------------------------------------------------


def name_of(path: Path) -> str:
    """The dotted name under which a file is imported."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


PATHS = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}
MODULES = {name: path for name, path in PATHS.items() if path.name != "__init__.py"}
FOLDERS = sorted({path.parent.relative_to(PACKAGE).as_posix() for path in MODULES.values()})


def modules_in(folder: str) -> dict[str, Path]:
    return {name: path for name, path in MODULES.items() if path.parent == PACKAGE / folder}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def nodes_at_run_time(node: ast.AST):
    """All nodes except those that only a type checker reads."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING")):
            yield from nodes_at_run_time(child)


@cache
def imports_of(name: str) -> frozenset[str]:
    """The modules of the package that a module imports, lazily too."""
    found = set()
    for node in nodes_at_run_time(tree_of(PATHS[name])):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: a relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in PATHS else node.module)
    return frozenset(found & PATHS.keys() - {name})


def room_of(name: str) -> str:
    return name.split(".")[1] if "." in name else ""


# ---- imports ------------------------------------------------------------------------------------------------


def test_imports_point_down():
    for name in MODULES:
        for other in imports_of(name):
            floor, room = FLOOR[room_of(name)], room_of(other)
            assert not room or room == room_of(name) or FLOOR[room] <= floor, f"{name} imports {other}"


def test_no_import_cycle():
    remaining = {name: set(imports_of(name)) for name in PATHS}
    while leaves := {name for name, others in remaining.items() if not others & remaining.keys()}:
        remaining = {name: others for name, others in remaining.items() if name not in leaves}
    assert not remaining, f"import each other, or those who do: {sorted(remaining)}"


def test_only_the_loop_knows_the_kernels_of_a_device():
    for name in MODULES:
        if room_of(name) not in ("kernels", "training"):
            found = {
                other
                for other in imports_of(name)
                if other.startswith(("headstart.kernels.cpu", "headstart.kernels.gpu"))
            }
            assert not found, f"{name} imports {found}"


def test_top_package_imports_nothing_of_its_own():
    assert imports_of("headstart") == set()


def test_inner_packages_are_empty():
    for path in PACKAGE.glob("*/**/__init__.py"):
        # The study is a call and a package at once: headstart.study(...), headstart.study.design.
        assert path.parent == PACKAGE / "study" or path.read_text() == "", path


@pytest.mark.parametrize("folder", FOLDERS)
def test_imports_within_a_folder_are_few_levels_deep(folder):
    inside = modules_in(folder)

    def chain(name):
        """The longest chain of modules, each imported by the one before."""
        return [name, *max((chain(other) for other in imports_of(name) & inside.keys()), key=len, default=[])]

    longest = max(map(chain, inside), key=len)
    assert len(longest) <= MOST_LEVELS, " imports ".join(longest)


# ---- sizes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_has_few_modules(folder):
    # The command line has many verbs.
    assert folder == "cli" or len(modules_in(folder)) <= MOST_MODULES


def functions_in(path: Path):
    """Every function and method with its name; the name of a private one, or of one inside another, has a _."""

    def walk(node, prefix):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{prefix}{child.name}", child
                yield from walk(child, f"{prefix}{child.name}._")
            else:
                inner = f"{prefix}{child.name}." if isinstance(child, ast.ClassDef) else prefix
                yield from walk(child, inner)

    return walk(tree_of(path), "")


def is_public(name: str) -> bool:
    return all(part == "__init__" or not part.startswith("_") for part in name.split("."))


def parameters_of(function) -> list[str]:
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    names = [parameter.arg for parameter in every if parameter]
    return names[names[:1] in (["self"], ["cls"]) :]


def code_lines(path: Path, function) -> int:
    """Lines with code, from the name to the end: no docstring, no blank line, no line that is a comment."""
    lines = range(function.lineno, function.end_lineno + 1)
    if ast.get_docstring(function):
        text = function.body[0]
        lines = [line for line in lines if not text.lineno <= line <= text.end_lineno]
    source = path.read_text().splitlines()
    return sum(1 for line in lines if (words := source[line - 1].strip()) and not words.startswith("#"))


@pytest.mark.parametrize("folder", FOLDERS)
def test_public_functions_have_few_parameters(folder):
    if folder.split("/")[0] in ("cli", "kernels"):
        return  # flags are parameters there, and a kernel takes what it computes with
    many = {
        f"{path.name}: {name}": len(parameters_of(function))
        for path in modules_in(folder).values()
        for name, function in functions_in(path)
        if is_public(name)
        and len(parameters_of(function)) > MOST_PARAMETERS
        # The names of the top package, the estimators among them, take every setting.
        and name.removesuffix(".__init__") not in dir(headstart)
    }
    assert not many


@pytest.mark.parametrize("folder", FOLDERS)
def test_functions_fit_on_a_screen(folder):
    long = {
        f"{path.name}: {name}": code_lines(path, function)
        for path in modules_in(folder).values()
        for name, function in functions_in(path)
        if code_lines(path, function) > MOST_LINES
    }
    assert not long


# ---- tests --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_module_has_its_tests(folder):
    modules = [path.relative_to(PACKAGE).as_posix() for path in modules_in(folder).values()]
    own = [module for module in modules if (TESTS / folder / f"test_{Path(module).name}").exists()]
    assert set(modules) - {*own, *TESTED_ELSEWHERE} == set()


def test_exceptions_are_few_and_needed():
    assert len(TESTED_ELSEWHERE) <= 15
    for module in TESTED_ELSEWHERE:
        folder, _, name = module.rpartition("/")
        assert (PACKAGE / module).exists(), f"{module} is gone"
        assert not (TESTS / folder / f"test_{name}").exists(), f"{module} has a file of its own"


# ---- the command line ---------------------------------------------------------------------------------------


HELP = """
import os, sys
from headstart.cli.main import run
for verb in sys.argv[1:]:  # each in a child of its own, which has imported no more than `run` needs
    child = os.fork()
    if not child:
        code = run([*verb.split(), "--help"])
        heavy = {"torch", "matplotlib", "transformers", "pyarrow", "sklearn", "tokenizers"} & set(sys.modules)
        sys.exit(f"{verb}: {code} {heavy}" if code or heavy else 0)
    ended = os.waitpid(child, 0)[1]
    print(f"\\f{ended}", end="\\f", flush=True)
"""
HELPED = ["", *GROUPS, *VERBS]


@pytest.fixture(scope="module")
def helped():
    """The help of every verb and the status that it ended with, and all errors."""
    done = subprocess.run([sys.executable, "-c", HELP, *HELPED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    parts = done.stdout.split("\f")
    return dict(zip(HELPED, zip(parts[::2], parts[1::2], strict=False), strict=True)), done.stderr


@pytest.mark.parametrize("verb", HELPED)
def test_help_answers_and_imports_nothing_heavy(helped, verb):
    said, errors = helped
    answer, status = said[verb]
    assert status == "0", errors
    assert "Usage: headstart" in answer
    if verb and verb not in GROUPS:
        assert f"headstart {verb}" in answer.split("Usage:")[1].partition("\n")[2], "no example"


def declared_settings():
    """Each setting and the classes of headstart/config that declare it."""
    found = defaultdict(list)
    for path in sorted((PACKAGE / "config").glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and node.name not in RECORDS:
                for line in node.body:
                    if isinstance(line, ast.AnnAssign):
                        found[ast.unparse(line.target)].append(f"{path.stem}.{node.name}")
    return found


# What is made of settings, and of facts about a run; how a setting itself is described.
RECORDS = {"RunConfig", "StudyConfig", "Setting", "Bound"}
# Different things: of a model and of the tokenizer to train, of a head and of a tokenizer, of a base and of trials.
SAME_NAME = {"tokenizer", "vocab", "dropout", "kind"}


def test_every_setting_is_declared_once():
    twice = {name: places for name, places in declared_settings().items() if len(places) > 1}
    assert set(twice) <= SAME_NAME, twice


def test_every_setting_has_its_sentence():
    from headstart.config.generation import GenerationConfig
    from headstart.config.model import HeadConfig, ModelConfig
    from headstart.config.schema import fields_of
    from headstart.config.study import FinetunePart, PretrainPart, StudyPart, TokenizerPart
    from headstart.config.training import FinetuneSettings, MachineConfig, PretrainSettings

    classes = [
        GenerationConfig,
        HeadConfig,
        ModelConfig,
        FinetunePart,
        PretrainPart,
        StudyPart,
        TokenizerPart,
    ]
    for name, setting in fields_of(*classes, FinetuneSettings, MachineConfig, PretrainSettings).items():
        assert setting.sentence.endswith((".", ")")), name
