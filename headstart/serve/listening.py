"""The socket and the server: address, access, timeouts, shutdown.

The headers of a request have to arrive in time, and answers have to be read in time. Silent connections are closed in
time. Where all places are taken, the connection that has kept us waiting longest is closed. After a signal the process
ends in time, whatever it is computing.
"""

import asyncio
import errno
import os
import signal
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from headstart.errors import UserError
from headstart.serve.errors import RequestError
from headstart.serve.security import LOOPBACK, Access, Application

LEAST_TOKEN_CHARACTERS = 8
ANSWERING_SECONDS, LEAVING_SECONDS = 2, 4  # after a signal: for answers in progress, and for all
_A_TOKEN = "python -c 'import secrets; print(secrets.token_urlsafe())'"


def access_for(host: str, token: str | None) -> Access:
    """The access rules at this address; one that other machines can reach needs a token."""
    if token is not None and (len(token) < LEAST_TOKEN_CHARACTERS or not token.isascii() or " " in token):
        what = f"the token is not {LEAST_TOKEN_CHARACTERS} or more plain characters without a space"
        raise UserError(what, fix=f"make one: {_A_TOKEN}")
    if is_loopback(host):
        return Access(LOOPBACK | {host.lower()}, token=token)
    if token is None:
        what = f"--host {host} can be reached from other machines, and there is no --token"
        raise UserError(what, fix=f"give --token, or HEADSTART_SERVE_TOKEN; make one: {_A_TOKEN}", code="missing")
    own_names = {socket.gethostname().lower(), socket.getfqdn().lower(), host.lower()}
    return Access(LOOPBACK | own_names, any_address=True, token=token)


def is_loopback(host: str) -> bool:
    """Whether it is reachable from this machine only."""
    return host.lower() in LOOPBACK or host.startswith("127.")


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any free one."""
    if not 0 <= port <= 65_535:
        raise UserError(f"port is {port}", fix="give 0 (any free port) to 65535")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise UserError(f"--host {host} is not an address of this machine", fix="give 127.0.0.1") from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1024)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            fix = f"give another: --port {port + 1}, or 0 for any"
            raise UserError(f"port {port} is taken", fix=fix, code="in-use") from error
        what, fix = f"cannot listen at {host} ({error.strerror})", "give an address of this machine"
        if error.errno in (errno.EACCES, errno.EPERM):
            what, fix = f"port {port} needs more rights", "give one from 1024 on"
        raise UserError(what, fix=fix) from error
    return listener


def address_of(listener: socket.socket) -> str:
    """The address to type into a browser."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


@dataclass(frozen=True)
class Timeouts:
    """Limits in seconds, bytes and connections."""

    header_seconds: float = 10.0
    reader_seconds: float = 60.0  # for a client that does not read its answer
    rest_seconds: float = 2.0  # for the rest of a refused body: cut off, a client may not see the answer
    rest_bytes: int = 1 << 22  # most bytes of such a rest
    connections: int = 512


class TimeoutProtocol(H11Protocol):
    """A connection with timeouts."""

    timeouts: Timeouts
    waiting: "dict[TimeoutProtocol, None]"  # for their client: to send a request, or to read the answer; oldest first
    _timers: dict[str, asyncio.TimerHandle]
    _rest_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timers = {}
        self._await_headers()
        if len(self.connections) > self.timeouts.connections:
            slowest = next(iter(self.waiting))
            del self.waiting[slowest]  # at once: the next of many that come together must find another
            slowest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.waiting.pop(self, None)
        self._stop("headers")
        self._stop("reader")
        self._stop("rest")
        super().connection_lost(exc)

    def _start(self, name: str, seconds: float, action: Callable[[], None]) -> None:
        self._timers[name] = self.loop.call_later(seconds, action)

    def _stop(self, name: str) -> None:
        if timer := self._timers.pop(name, None):
            timer.cancel()

    # ---- requests ----

    def data_received(self, data: bytes) -> None:
        if "rest" in self._timers:
            self._rest_bytes += len(data)
            if self._rest_bytes > self.timeouts.rest_bytes:
                self.transport.abort()
                return
        super().data_received(data)
        is_requested = self.cycle is not None and not self.cycle.response_complete
        if is_requested or self.conn.their_state is not h11.SEND_BODY:
            self._stop("rest")
        if self.transport.is_closing() or is_requested:
            self._stop("headers")
        elif "headers" not in self._timers and self.conn.their_state is h11.IDLE:
            self._await_headers()
        self._note_waiting()

    def _note_waiting(self) -> None:
        """Whose turn it is: ours once the request is whole, until the client has to read or to send again."""
        is_whole = self.cycle is not None and self.conn.their_state is not h11.SEND_BODY
        if is_whole and not self.cycle.response_complete and "reader" not in self._timers:
            self.waiting.pop(self, None)
        elif self in self.connections:
            self.waiting.setdefault(self)

    def _await_headers(self) -> None:
        self._note_waiting()
        self._start("headers", self.timeouts.header_seconds, self._give_up)

    def _give_up(self) -> None:
        if not self.conn.trailing_data[0]:  # it never sent a byte
            self.transport.close()
            return
        what = f"the headers did not arrive within {self.timeouts.header_seconds:g} seconds"
        self._refuse(RequestError(408, what, "send them at once"))

    def send_400_response(self, msg: str) -> None:
        self._refuse(RequestError(400, "this is not HTTP", "send HTTP/1.1"))

    def _refuse(self, error: RequestError) -> None:
        """Answer what is no whole request, and close the connection."""
        self._stop("headers")
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            size = str(len(error.body))
            headers = [("content-type", "application/json"), ("connection", "close"), ("content-length", size)]
            events: list[Any] = [
                h11.Response(status_code=error.status, headers=headers),
                h11.Data(data=error.body),
                h11.EndOfMessage(),
            ]
            self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
        self.transport.close()

    # ---- slow readers, and the rest of refused bodies ----

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start("reader", self.timeouts.reader_seconds, self.transport.abort)
        self._note_waiting()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop("reader")
        self._note_waiting()

    def on_response_complete(self) -> None:
        if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
            self._rest_bytes = 0
            self._start("rest", self.timeouts.rest_seconds, self.transport.abort)
        super().on_response_complete()  # which may begin with the next request
        self._note_waiting()


class _Server(uvicorn.Server):
    """A server that leaves in time, whatever its threads do."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if not self.should_exit:  # what goes on in a thread cannot be ended from outside, and nothing is lost by it
            leave = threading.Timer(LEAVING_SECONDS, os._exit, [128 + sig])
            leave.daemon = True
            leave.start()
        super().handle_exit(sig, frame)


def server_for(application: Application, timeouts: Timeouts | None = None) -> uvicorn.Server:
    """The server, not running yet; uvicorn wants its protocol as a class."""
    own = {"timeouts": timeouts or Timeouts(), "waiting": {}}
    return _Server(uvicorn.Config(
        application,
        http=type("Protocol", (TimeoutProtocol,), own), ws="none", loop="asyncio", lifespan="on",
        log_level="error", access_log=False, server_header=False, proxy_headers=False,
        timeout_keep_alive=5, timeout_graceful_shutdown=ANSWERING_SECONDS,
    ))  # fmt: skip


def serve(application: Application, at: socket.socket, on_start: Callable[[], None]) -> None:
    """Serve until SIGINT or SIGTERM, then leave with the signal's exit code."""
    server, received = server_for(application), list[int]()

    def stop(number: int, frame: FrameType | None) -> None:
        received.append(number)  # no exception: uvicorn, while it starts, would take it for a failure
        server.should_exit = True

    # Both: a shell starts what runs in its background with SIGINT ignored, and uvicorn gives back what it found.
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        on_start()
        server.run(sockets=[at])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        at.close()
    if received:
        raise SystemExit(128 + received[-1])
