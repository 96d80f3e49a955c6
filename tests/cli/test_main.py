"""The command line's contract: exit codes, where messages go, settings from files and variables."""

import json
import subprocess
import sys

from expected_errors import refused

from headstart.cli.main import run
from headstart.errors import HeadstartError, IntegrityError, RunFailed, TryAgain, UserError, visible

PLAN = ["plan", "--preset", "lab", "--vocab", "100"]


def planned(capsys, *arguments):
    assert run([*PLAN, *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_usage_errors_exit_2_and_suggest(capsys):
    assert run([*PLAN, "--wdth", "3"]) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert "Did you mean --width?" in streams.err
    assert "try: headstart plan --help" in streams.err
    assert run(["plam"]) == 2
    assert 'Did you mean "plan"?' in capsys.readouterr().err


def test_bad_values_exit_2_with_the_fix(capsys):
    assert run([*PLAN, "--heads", "3"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("headstart [")
    for name in ("3 heads", "200", "--heads one of 1, 2, 4, 5"):
        assert name in error


def test_debug_shows_the_traceback():
    with refused("conflict", "3 heads", "200", "--heads"):
        run([*PLAN, "--heads", "3", "--debug"])


def test_exit_codes_are_those_of_the_contract():
    codes = {RunFailed: 1, UserError: 2, IntegrityError: 3, TryAgain: 75}
    kin = [cls for cls in HeadstartError.__subclasses__() if cls.__module__ == HeadstartError.__module__]
    assert {cls: cls.exit_code for cls in kin} == codes


def test_flags_win_over_variables_and_variables_over_the_file(tmp_path, monkeypatch, capsys):
    settings = tmp_path / "settings.toml"
    settings.write_text("width = 64\ndepth = 1\nffn = 8\n")
    assert planned(capsys)["config"]["width"] == 200
    from_file = planned(capsys, "--config", str(settings))["config"]
    assert (from_file["width"], from_file["depth"], from_file["ffn"]) == (64, 1, 8)
    monkeypatch.setenv("HEADSTART_PLAN_WIDTH", "32")
    monkeypatch.setenv("HEADSTART_PLAN_DEPTH", "2")
    both = planned(capsys, "--config", str(settings), "--width", "16")["config"]
    assert (both["width"], both["depth"], both["ffn"]) == (16, 2, 8)


def test_a_key_that_no_flag_has_and_ranks_that_cannot_share_a_verb_are_refused(tmp_path, monkeypatch, capsys):
    settings = tmp_path / "settings.toml"
    settings.write_text("wdth = 64\n")
    assert run([*PLAN, "--config", str(settings)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"headstart [unknown-name]: {settings}")
    assert "'wdth'" in error
    assert "'width'" in error
    for name, value in (("MASTER_ADDR", "localhost"), ("WORLD_SIZE", "2"), ("RANK", "0")):
        monkeypatch.setenv(name, value)
    assert run(PLAN) == 2
    assert capsys.readouterr().err.startswith("headstart [unsupported]: torchrun with headstart plan")


def test_output_is_plain_when_piped_and_a_closed_pipe_is_quiet():
    command = f"{sys.executable} -m headstart {' '.join(PLAN)}"
    done = subprocess.run(command.split(), capture_output=True, text=True)
    assert "\x1b" not in done.stdout
    for flag in ("--tensors", "--json"):
        done = subprocess.run(["bash", "-c", f"{command} {flag} | true"], capture_output=True)
        assert done.stderr == b""


def test_messages_show_escape_codes_instead_of_obeying_them():
    assert visible("a\x1b]0;title\x07\u202eb\n") == "a\\x1b]0;title\\x07\\u202eb\n"
    assert visible("œuvre d'été ☺") == "œuvre d'été ☺"
    assert "\x1b" not in str(UserError("bad \x1b[31m row", where="f\x1b.txt"))
