"""What goes wrong: an exit code for scripts, a stable code for tests and searches, and a sentence for people.

Each error says what came, what was expected and how to fix it; the command line prints it without a traceback.
Sentences may change, codes do not.
"""

import difflib
import re
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

Code = Literal[
    "bad-value",  # a setting has a value that it cannot have
    "unknown-name",  # a key, column, label, preset, format … that does not exist
    "conflict",  # settings that exclude each other, or one given twice
    "missing",  # something that is needed was not given, or is not in the file
    "no-file",  # nothing is there, or it cannot be opened
    "exists",  # something else is there already
    "bad-format",  # a file is not what its name or its use says
    "bad-text",  # not UTF-8, control characters, empty
    "bad-row",  # a row of data cannot be used
    "too-few",  # rows, classes, documents
    "too-large",  # beyond a limit
    "not-a-run",  # a directory that is no run, no study, no checkpoint
    "wrong-run",  # a run that cannot serve this verb
    "changed",  # not what the run or study was begun with
    "in-use",  # another process works on it
    "unsupported",  # well-formed, but not built
    "no-package",  # an extra is not installed
    "no-device",  # no such accelerator, precision or node
    "failed",  # a run could not be brought to its end
    "not-finite",  # NaN or infinity in training
    "corrupt",  # what is on disk is not what was written
    "mismatch",  # what belongs together does not fit: tokenizer, shapes, digests
    "disk-full",
    "memory-full",
    "device-lost",
    "try-again",
    "stopped",  # by a signal
]
Log = Callable[[str], None]  # takes what is not wrong, but worth a line: progress, a note, a warning


def visible(text: str) -> str:
    """Show control and direction characters as escapes, so that data cannot drive the reader's terminal."""
    return "".join(
        character if character == "\n" or unicodedata.category(character) not in ("Cc", "Cf", "Cs")
        else character.encode("unicode_escape", "surrogatepass").decode("ascii")
        for character in text
    )  # fmt: skip


def visible_spaces(text: str) -> str:
    """Show the spaces that cannot be seen: at the ends, and several in a row."""
    return re.sub("^ +| +$| {2,}", lambda spaces: "␣" * len(spaces[0]), text)


# What a caller in Python has under the same name stays without its program, a command for a shell as it is. A flag may
# have a value: --jobs 4, or --task=translation where it is a word.
_FLAG = re.compile(
    r"`headstart (?P<verb>study|predict|evaluate|embed|generate|translate)`"
    r"|(?P<command>\b(?:headstart|torchrun|ray) [a-z][^;:,`\n]*)"
    r"|(?<![\w./-])--(?P<flag>[a-z][a-z0-9]*(?:-[a-z0-9]+)*)"
    r"(?:=(?P<word>[^\s;,`]*[^\s;,`.])| (?P<number>-?\d[\d.e-]*(?<![.-]))(?!\d|:|,\d))?"
)


def in_python(text: str) -> str:
    """A message that names flags, for a caller in Python: with the names of the arguments."""

    def argument(match: re.Match[str]) -> str:
        if match["verb"] or match["command"]:
            return f"`{match['verb']}`" if match["verb"] else match["command"]
        name = match["flag"].replace("-", "_")
        value = repr(match["word"]).replace("'", '"') if match["word"] else match["number"]
        return f"{name}={value}" if value else name

    return _FLAG.sub(argument, text)


class HeadstartError(Exception):
    """An error that has a meaning for the user.

    `text` is the message for the command line, with flags; as a string the error names Python's arguments.
    """

    exit_code = 1
    code: Code = "failed"
    is_of_one_rank = False  # whether the first of several ranks does not fail with it too, and so does not report it

    def __init__(self, what: str, *, where: str | Path = "", fix: str = "", code: Code | None = None) -> None:
        self.what, self.where, self.fix = what, str(where), fix
        self.code = code or self.code
        self.text = self._lines(what, fix)
        super().__init__(self.text)

    def __str__(self) -> str:
        return self._lines(in_python(self.what), in_python(self.fix))

    def _lines(self, what: str, fix: str) -> str:
        place, advice = f"{self.where}: " if self.where else "", f"\nfix: {fix}" if fix else ""
        return visible(f"{place}{what}{advice}")


class RunFailed(HeadstartError):
    """The run started and could not be brought to its end."""


class UserError(HeadstartError):
    """The command or its input cannot be used as given."""

    exit_code = 2
    code: Code = "bad-value"


class IntegrityError(HeadstartError):
    """What is on disk is not what was written, or belongs to something else."""

    exit_code = 3
    code: Code = "corrupt"


class TryAgain(HeadstartError):
    """Nothing is wrong with the input: the disk or the memory is full."""

    exit_code = 75
    code: Code = "try-again"


class MemoryFull(TryAgain):
    """There is not enough of a memory, which may be another's doing."""

    code: Code = "memory-full"


class DeviceLost(TryAgain):
    """The accelerator has failed, and in this process nothing works on it any more."""

    code: Code = "device-lost"


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown word: what was probably meant, or what there is."""
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
