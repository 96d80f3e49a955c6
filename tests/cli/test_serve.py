"""`headstart serve`: where it listens, what it says, how it ends."""

import json
import os
import signal
import socket
import sys
import urllib.error
import urllib.request

import commands
import pytest
import tiny_runs


@pytest.fixture
def workspace(tmp_path):
    return commands.Workspace(tmp_path)


def started(workspace, *flags):
    """A server in a child, once it has said where it is."""
    words = ["serve", str(tiny_runs.path_of("classification")), "--port", "0", "--threads", "1", *flags]
    child = commands.forked.start(commands.COMMAND, *words, output=workspace.log)
    commands.wait_until(lambda: "\n" in workspace.log.read_text() if workspace.log.exists() else False, child)
    return child, workspace.log.read_text().strip()


def asked(address, path, **headers):
    request = urllib.request.Request(address + path, headers=headers)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_it_serves_until_it_is_asked_to_end(workspace, number, code):
    child, address = started(workspace)
    assert address.startswith("http://127.0.0.1:")
    assert asked(address, "health") == {"status": "ok"}
    os.kill(child.pid, number)
    assert commands.exit_code_of(child) == code
    assert workspace.log.read_text().strip() == address, "nothing else is printed"


def test_it_ends_although_clients_are_connected(workspace):
    child, address = started(workspace, "--json")
    said = json.loads(address)
    assert said["runs"] == ["classification"]
    assert said["studies"] == []
    port = int(said["address"].rstrip("/").rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as idle:
        idle.sendall(b"GET /hea")
        os.kill(child.pid, signal.SIGTERM)
        assert commands.exit_code_of(child) == 143


def test_a_token_may_stand_in_the_environment(workspace):
    words = ["serve", str(tiny_runs.path_of("classification")), "--port", "0", "--host", "0.0.0.0"]
    environment = {"HEADSTART_SERVE_TOKEN": "from-the-environment"}
    child = commands.forked.start(commands.COMMAND, *words, output=workspace.log, environment=environment)
    commands.wait_until(lambda: "\n" in workspace.log.read_text() if workspace.log.exists() else False, child)
    address = workspace.log.read_text().strip().replace("0.0.0.0", "127.0.0.1")
    assert "from-the-environment" not in workspace.log.read_text()
    with pytest.raises(urllib.error.HTTPError, match="401"):
        asked(address, "api/runs")
    found = asked(address, "api/runs", Authorization="Bearer from-the-environment")
    assert found["runs"][0]["name"] == "classification"
    os.kill(child.pid, signal.SIGTERM)
    assert commands.exit_code_of(child) == 143


def test_a_port_that_is_taken_exits_2_with_the_fix(capsys):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        answer = commands.invoke(capsys, ["serve", str(tiny_runs.path_of("classification")), "--port", str(port)])
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"headstart [in-use]: port {port}")
    assert f"--port {port + 1}" in answer.err


@pytest.mark.parametrize(
    ("flags", "code", "named", "fix"),
    [
        (["--host", "0.0.0.0"], "missing", "--host 0.0.0.0", "--token"),
        (["--host", "192.0.2.1", "--token", "long-enough"], "bad-value", "192.0.2.1", "address"),
        (
            ["--host", "no.such.host.invalid", "--token", "long-enough"],
            "bad-value",
            "--host no.such",
            "127.0.0.1",
        ),
        (["--token", "short"], "bad-value", "8 or more", "secrets.token_urlsafe"),
        (["--port", "70000"], "bad-value", "port is 70000", "65535"),
    ],
)
def test_what_cannot_be_listened_at_exits_2_with_the_fix(capsys, flags, code, named, fix):
    answer = commands.invoke(capsys, ["serve", str(tiny_runs.path_of("classification")), *flags])
    assert answer.code == 2
    assert answer.err.startswith(f"headstart [{code}]: ")
    assert named in answer.err
    assert fix in answer.err.partition("fix: ")[2]


def test_a_directory_that_is_no_run_exits_2(capsys, tmp_path):
    answer = commands.invoke(capsys, ["serve", str(tmp_path)])
    assert answer.code == 2
    assert str(tmp_path) in answer.err
    assert "config.toml" in answer.err


@pytest.mark.parametrize("name", ["fastapi", "uvicorn"])
def test_without_its_extra_it_says_what_to_install(capsys, monkeypatch, name):
    for module in [*sys.modules]:
        if module.split(".")[0] in ("fastapi", "uvicorn") or module.startswith("headstart.serve"):
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    answer = commands.invoke(capsys, ["serve", str(tiny_runs.path_of("classification"))])
    assert answer.code == 2
    assert answer.err.startswith("headstart [no-package]: ")
    assert name in answer.err
    assert "pip install 'headstart[serve]'" in answer.err
