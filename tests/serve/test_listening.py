"""Where the server listens, and who may call it there."""

import signal
import socket
from functools import partial

import pytest
import tiny_runs
from expected_errors import refused

from headstart.serve.application import create_application
from headstart.serve.listening import access_for, address_of, is_loopback, listen, serve
from headstart.serve.models import Models


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "::1", "127.8.9.10"])
def test_an_address_of_this_machine_needs_no_token(host):
    assert is_loopback(host)
    assert access_for(host, None).token is None


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.4", "example.org"])
def test_an_address_that_others_reach_needs_one(host):
    with refused("missing", f"--host {host}", "--token", "HEADSTART_SERVE_TOKEN"):
        access_for(host, None)
    access = access_for(host, "correct-horse")
    assert access.knows(host)
    assert access.knows(f"{socket.gethostname()}:8000")
    assert access.knows("10.1.2.3:8000"), "no name leads to a bare address"
    assert not access.knows("elsewhere.example")


@pytest.mark.parametrize("token", ["short", "with a space", "pièce-de-résistance"])
def test_a_token_that_is_too_easy_or_cannot_be_sent_is_refused(token):
    with refused("bad-value", "8 or more", "secrets.token_urlsafe"):
        access_for("127.0.0.1", token)


def test_a_port_that_is_free_is_found_and_one_that_is_taken_is_refused():
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        assert address_of(first) == f"http://127.0.0.1:{port}/"
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass
        with refused("in-use", str(port), f"--port {port + 1}"):
            listen("127.0.0.1", port)


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", -1), ("127.0.0.1", 65_536), ("no.such.host.invalid", 0)])
def test_what_cannot_be_listened_at_is_refused(host, port):
    with refused("bad-value", f"--host {host}" if port == 0 else f"port is {port}"):
        listen(host, port)


def test_a_signal_while_it_starts_ends_it_with_its_exit_code():
    models = Models.at([tiny_runs.path_of("classification")], tiny_runs.MACHINE)
    application = create_application(models, access_for("127.0.0.1", None))
    for number in (signal.SIGTERM, signal.SIGINT):
        with pytest.raises(SystemExit) as left:
            serve(application, listen("127.0.0.1", 0), partial(signal.raise_signal, number))
        assert left.value.code == 128 + number
