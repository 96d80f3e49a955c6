"""What goes wrong, and the exit code that goes with it.

Each error says what came, what was expected and how to fix it; the command line prints it without a traceback.
"""

import unicodedata


def visible(text: str) -> str:
    """Show control and direction characters as escapes, so that data cannot drive the reader's terminal."""
    return "".join(
        character if character == "\n" or unicodedata.category(character) not in ("Cc", "Cf", "Cs")
        else character.encode("unicode_escape", "surrogatepass").decode("ascii")
        for character in text
    )  # fmt: skip


class HeadstartError(Exception):
    """An error that has a meaning for the user."""

    exit_code = 1
    is_of_one_rank = False
    """With several ranks: whether the first one does not fail with it too, and so does not tell of it."""

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        self.what, self.where, self.fix = what, where, fix
        lines = [f"{where}: {what}" if where else what]
        if fix:
            lines.append(f"fix: {fix}")
        super().__init__(visible("\n".join(lines)))


class RunFailed(HeadstartError):
    """The run started and could not be brought to its end."""

    exit_code = 1


class UserError(HeadstartError):
    """The command or its input cannot be used as given."""

    exit_code = 2


class IntegrityError(HeadstartError):
    """What is on disk is not what was written, or belongs to something else."""

    exit_code = 3


class TryAgain(HeadstartError):
    """Nothing is wrong with the input: the disk or the memory is full."""

    exit_code = 75


class MemoryFull(TryAgain):
    """There is not enough of a memory, which may be another's doing."""


class DeviceLost(TryAgain):
    """The accelerator has failed, and in this process nothing works on it any more."""
