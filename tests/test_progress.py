"""A bar on a terminal, a line a minute elsewhere; the time that is left."""

import io
import sys

import pytest

from headstart import progress


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets, in seconds."""
    now = [1_000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_in_a_file_there_is_a_line_a_minute(clock, capsys):
    with progress.long_task("study") as (_, update):
        for second in range(301):
            clock[0] = 1_000.0 + second
            update(second / 600, "3 of 21 tasks done")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 5
    assert lines[0] == "study 10%  3 of 21 tasks done  elapsed 0:01:00  time left 0:09:00"
    assert lines[-1] == "study 50%  3 of 21 tasks done  elapsed 0:05:00  time left 0:05:00"


def test_what_was_done_before_is_not_taken_for_speed(clock, capsys):
    with progress.long_task("study") as (_, update):
        update(0.7, "")  # resumed
        clock[0] += 100
        update(0.8, "")
    assert "elapsed 0:01:40  time left 0:03:20" in capsys.readouterr().err


@pytest.mark.parametrize("done", [0.0, 1e-15, 1e-4])
def test_no_time_is_told_before_there_is_progress(clock, capsys, done):
    with progress.long_task("study") as (_, update):
        update(0.5, "")
        clock[0] += 61
        update(0.5 + done, "")
    assert "left" not in capsys.readouterr().err


def test_on_a_terminal_lines_and_warnings_stand_above_the_bar(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "150")
    with progress.long_task("study") as (log, update):
        update(0.25, "5 of 21 tasks done")
        log("measuring")
        print("UserWarning: from a library", file=sys.stderr)  # as the module `warnings` does
        update(0.5, "6 of 21 tasks done")
    text = terminal.getvalue()
    assert "elapsed" in text
    assert "6 of 21 tasks done" in text
    # Each stands at the beginning of a line of its own, after the bar was cleared.
    for said in ("measuring", "UserWarning: from a library"):
        before = text[: text.index(said)].rpartition("\n")[2]
        assert "█" not in before.rpartition("\x1b[2K")[2]
        assert "━" not in before.rpartition("\x1b[2K")[2]


def test_a_plain_bar_takes_a_share(clock, capsys):
    with progress.progress_bar("evaluating") as on_share:
        clock[0] += 60
        on_share(0.5)
    assert capsys.readouterr().err == "evaluating 50%  elapsed 0:01:00\n"
