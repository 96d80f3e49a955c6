"""The socket and the server: where they listen, who may call them, how they end."""

import errno
import signal
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from headstart.errors import UserError
from headstart.serve.gate import LOOPBACK, Access, Application
from headstart.serve.patience import Patience, patient_protocol

LEAST_TOKEN_CHARACTERS = 8
_LAST_SECONDS = 2  # for what is being answered when the server is asked to end
_A_TOKEN = "python -c 'import secrets; print(secrets.token_urlsafe())'"


def access_for(host: str, token: str | None) -> Access:
    """Who may ask at this address; one that others can reach needs a token."""
    if token is not None and (len(token) < LEAST_TOKEN_CHARACTERS or not token.isascii() or " " in token):
        raise UserError(
            f"the token is not {LEAST_TOKEN_CHARACTERS} or more plain characters without a space",
            fix=f"make one: {_A_TOKEN}",
        )
    if is_loopback(host):
        return Access(LOOPBACK | {host.lower()}, token=token)
    if token is None:
        raise UserError(
            f"--host {host} can be reached by others, and there is no --token",
            fix=f"give --token, or HEADSTART_SERVE_TOKEN; make one: {_A_TOKEN}",
        )
    own_names = {socket.gethostname().lower(), socket.getfqdn().lower(), host.lower()}
    return Access(LOOPBACK | own_names, any_address=True, token=token)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    return host.lower() in LOOPBACK or host.startswith("127.")


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; the port 0 is any that is free."""
    if not 0 <= port <= 65_535:
        raise UserError(f"port is {port}", fix="give 0 (any that is free) to 65535")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise UserError(f"--host {host} is no address of this machine", fix="give 127.0.0.1") from error
    found = socket.socket(family, kind, protocol)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(1024)
    except OSError as error:
        found.close()
        raise _not_bound(error, host, port) from error
    return found


def _not_bound(error: OSError, host: str, port: int) -> UserError:
    if error.errno == errno.EADDRINUSE:
        return UserError(f"port {port} is taken", fix=f"give another: --port {port + 1}, or 0 for any")
    if error.errno in (errno.EACCES, errno.EPERM):
        return UserError(f"port {port} needs rights that you have not", fix="give one from 1024 on")
    return UserError(f"cannot listen at {host} ({error.strerror})", fix="give an address of this machine")


def address_of(found: socket.socket) -> str:
    """The address to type into a browser."""
    host, port = found.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def server_for(application: Application, patience: Patience | None = None) -> uvicorn.Server:
    """The server, not running yet."""
    return uvicorn.Server(uvicorn.Config(
        application,
        http=patient_protocol(patience or Patience()), ws="none", loop="asyncio", lifespan="on",
        log_level="error", access_log=False, server_header=False, proxy_headers=False,
        timeout_keep_alive=5, timeout_graceful_shutdown=_LAST_SECONDS,
    ))  # fmt: skip


def serve(application: Application, at: socket.socket, on_start: Callable[[], None]) -> None:
    """Serve until SIGINT or SIGTERM, then leave with the signal's exit code."""
    # Both: a shell starts what runs in its background with SIGINT ignored, and uvicorn gives back what it found.
    before = {number: signal.signal(number, _leave) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        on_start()
        server_for(application).run(sockets=[at])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        at.close()


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
