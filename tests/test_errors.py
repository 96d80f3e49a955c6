"""Errors: their text, and the exit code of each kind."""

import ast
import re
from pathlib import Path

import pytest

import headstart.errors
from headstart.errors import (
    DeviceLost,
    HeadstartError,
    IntegrityError,
    MemoryFull,
    RunFailed,
    TryAgain,
    UserError,
    visible,
)


@pytest.mark.parametrize(
    ("kind", "code"),
    [(RunFailed, 1), (UserError, 2), (IntegrityError, 3), (TryAgain, 75), (MemoryFull, 75), (DeviceLost, 75)],
)
def test_every_kind_has_its_exit_code(kind, code):
    assert kind("what").exit_code == code
    assert isinstance(kind("what"), HeadstartError)


def test_the_text_says_where_what_and_how_to_fix_it():
    assert str(UserError("is empty", where="a.txt", fix="fill it")) == "a.txt: is empty\nfix: fill it"
    assert str(UserError("is empty")) == "is empty"
    error = IntegrityError("is empty", where="a.txt")
    assert (error.what, error.where, error.fix) == ("is empty", "a.txt", "")


def test_every_error_has_a_stable_code():
    assert (UserError("").code, IntegrityError("").code, MemoryFull("").code) == (
        "bad-value",
        "corrupt",
        "memory-full",
    )
    assert UserError("", code="conflict").code == "conflict"


def test_data_in_a_message_cannot_drive_the_terminal():
    assert str(UserError("label \x1b[31mred", where="\u202ea.txt")) == "\\u202ea.txt: label \\x1b[31mred"
    assert visible("été\n中文 🙂\t\ud800") == "été\n中文 🙂\\t\\ud800"


# ---- one message, two callers -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "arguments"),
    [
        ("--freeze=base without --start", 'freeze="base" without start'),
        (
            "give --text-column=1 and --jobs 4, or --learning-rate 1e-4",
            'give text_column="1" and jobs=4, or learning_rate=1e-4',
        ),
        ("at most 3 with --patience 3.", "at most 3 with patience=3."),
        ("give a smaller model (--width, --depth) or `--length`", "give a smaller model (width, depth) or `length`"),
        ("--length 1,024 and --out", "length 1,024 and out"),
        (
            "train one: headstart tokenizer F… --out DIR; or give --out",
            "train one: headstart tokenizer F… --out DIR; or give out",
        ),
        ("a -- b, a--b, --", "a -- b, a--b, --"),
        ("`headstart generate` serves it; see `headstart doctor`", "`generate` serves it; see `headstart doctor`"),
    ],
)
def test_a_caller_in_python_reads_arguments_where_the_command_line_has_flags(flags, arguments):
    error = UserError(flags, where="my --dir/a--b.txt", fix=flags)
    assert error.text == f"my --dir/a--b.txt: {flags}\nfix: {flags}"
    assert str(error) == f"my --dir/a--b.txt: {arguments}\nfix: {arguments}"


def test_no_message_of_the_package_shows_a_flag_to_python():
    """Every text in the source that has a flag, but those of commands for a shell."""
    package = Path(headstart.errors.__file__).parent
    texts = [
        node.value
        for path in package.rglob("*.py")
        if "cli" not in path.relative_to(package).parts
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.search(r"(^|[\s(`])--[a-z]", node.value)
    ]
    assert len(texts) > 50
    left = [text for text in map(headstart.errors.in_python, texts) if re.search(r"(^|[\s(`])--[a-z]", text)]
    assert not [text for text in left if not re.search("headstart [a-z]|torchrun|ray start|nvidia", text)]
