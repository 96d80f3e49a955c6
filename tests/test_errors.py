"""Errors: their text, and the exit code of each kind."""

import pytest

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
