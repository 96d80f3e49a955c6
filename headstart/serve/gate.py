"""The gate: what every request goes through before the application sees it.

Who may ask (the Host that was called, the Origin that calls, the token), how much (the size of the body, and how many
at once), how long (a body has to arrive), and that nobody works for a client that has gone. What is refused is refused
before its body is read.
"""

import asyncio
import hashlib
import hmac
import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from headstart.serve.refusals import Refused, busy

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
# Served to everybody: without them nobody could be asked for the token.
_OPEN = ("/", "/icon.svg", "/health")
_OPEN_BELOW = "/page/"

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": PAGE_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


@dataclass(frozen=True)
class Access:
    """Who may ask."""

    hosts: frozenset[str] = LOOPBACK
    """Names that this server is called by: a page from elsewhere whose name leads here is none of them."""

    any_address: bool = False
    """Whether a bare address will do too; no name leads to it, so it cannot be a foreign one."""

    token: str | None = None
    """What whoever asks has to know."""

    def knows(self, host: str) -> bool:
        """Whether the value of a Host header names this server, at whatever port."""
        name = _without_port(host)
        return name in self.hosts or (self.any_address and _is_address(name))

    def accepts(self, authorization: str) -> bool:
        """Whether the value of an Authorization header has the token, compared in constant time."""
        kind, _, given = authorization.partition(" ")
        known = hashlib.sha256((self.token or "").encode()).digest()
        same = hmac.compare_digest(hashlib.sha256(given.strip().encode("utf-8", "replace")).digest(), known)
        return same and kind.lower() == "bearer"


@dataclass(frozen=True)
class Limits:
    """How much, and how long."""

    body_bytes: int = 1 << 19
    """Enough for two of the longest texts with every character escaped."""

    body_seconds: float = 30.0
    requests: int = 64
    """That are worked at together."""

    streams: int = 4
    """Texts that are written together."""

    generation_seconds: float = 60.0


class Gate:
    """An ASGI application around another."""

    def __init__(self, application: Application, access: Access, limits: Limits) -> None:
        self._application, self._access, self._limits = application, access, limits
        self._working = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        answer = _Answer(send)
        try:
            headers = _headers(scope)
            self._check(scope["method"], scope["path"], headers)
            body = b"" if scope["method"] != "POST" else await self._body(receive)
            if body is not None:
                await self._pass(scope, body, receive, answer)
        except Refused as refused:
            await answer.refuse(refused)
        except asyncio.CancelledError:  # only a server that is ending cancels a request
            await answer.end()

    def _check(self, method: str, path: str, headers: dict[str, str]) -> None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self._access.knows(host):
            raise Refused(403, "the Host of this request is not this server", "call it by its own address")
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            raise Refused(403, "the request comes from another site's page", "use the page of this server")
        is_open = path in _OPEN or path.startswith(_OPEN_BELOW)
        if self._access.token and not is_open and not self._access.accepts(headers.get("authorization", "")):
            fix = "send Authorization: Bearer TOKEN, with the token that the server was started with"
            raise Refused(401, "the token is missing or wrong", fix, {"WWW-Authenticate": "Bearer"})
        if method == "POST":
            self._check_body(headers)

    def _check_body(self, headers: dict[str, str]) -> None:
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise Refused(415, "the body is not JSON", "send Content-Type: application/json")
        if (
            int(headers.get("content-length", 0)) > self._limits.body_bytes
        ):  # the protocol knows that it is one
            raise self._too_large()

    def _too_large(self) -> Refused:
        return Refused(413, f"the body is larger than {self._limits.body_bytes:,} bytes", "send less text")

    async def _body(self, receive: Receive) -> bytes | None:
        """The whole body, or None where the client has gone."""
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    body += message.get("body", b"")
                    if len(body) > self._limits.body_bytes:
                        raise self._too_large()
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            what = f"the body did not arrive within {self._limits.body_seconds:g} seconds"
            raise Refused(408, what, "send it at once", {"Connection": "close"}) from None

    async def _pass(self, scope: Scope, body: bytes, receive: Receive, answer: "_Answer") -> None:
        """Have it answered, unless there is too much to do; only whole requests are counted."""
        is_work = scope["path"].startswith("/api/")
        if is_work and self._working >= self._limits.requests:
            raise busy(f"{self._limits.requests} requests are being worked at")
        self._working += is_work
        try:
            await _while_connected(self._application, scope, body, receive, answer)
        finally:
            self._working -= is_work


class _Answer:
    """An answer on its way, with the headers that keep a browser from doing more with it than it should."""

    def __init__(self, send: Send) -> None:
        self._send, self.is_begun, self.is_whole = send, False, False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.is_begun = True
            given = {name.lower() for name, _ in message["headers"]}
            added = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
            message["headers"] = [*message["headers"], *(pair for pair in added if pair[0] not in given)]
        self.is_whole = message["type"] == "http.response.body" and not message.get("more_body", False)
        await self._send(message)

    async def refuse(self, refused: Refused) -> None:
        headers = {
            "content-type": "application/json", "content-length": str(len(refused.body)), **refused.headers,
        }  # fmt: skip
        encoded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await self({"type": "http.response.start", "status": refused.status, "headers": encoded})
        await self({"type": "http.response.body", "body": refused.body})

    async def end(self) -> None:
        """Break off in order, wherever it is."""
        if not self.is_begun:
            await self.refuse(busy("the server is ending"))
        elif not self.is_whole:
            await self({"type": "http.response.body", "body": b""})


async def _while_connected(
    application: Application, scope: Scope, body: bytes, receive: Receive, answer: _Answer
) -> None:
    """Run the application on a body that has arrived; it is cancelled when the client goes away."""
    has_gone, is_read = asyncio.Event(), False

    async def replay() -> Message:
        nonlocal is_read
        if not is_read:
            is_read = True
            return {"type": "http.request", "body": body, "more_body": False}
        await has_gone.wait()
        return {"type": "http.disconnect"}

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        has_gone.set()

    work = asyncio.ensure_future(application(scope, replay, answer))
    watcher = asyncio.ensure_future(watch())
    try:
        await asyncio.wait({work, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if work.done() or answer.is_whole:
            await work
    finally:
        work.cancel()
        watcher.cancel()
        await asyncio.gather(work, watcher, return_exceptions=True)


def _headers(scope: Scope) -> dict[str, str]:
    """By name; one that comes twice must not be read one way here and another way there."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        key = name.decode("latin-1").lower()
        if key in found and key in ("host", "origin", "authorization", "content-type", "content-length"):
            raise Refused(400, f"the header {key} comes twice", "send it once")
        found[key] = value.decode("latin-1")
    return found


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
