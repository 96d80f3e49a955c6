"""The security middleware, which every request passes before the application sees it.

It checks Host, Origin and token before it reads the body, limits the size of bodies, the time for their arrival and
the number of requests at once, and cancels the work for clients that have gone.
"""

import asyncio
import hashlib
import hmac
import ipaddress
import re
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers, MutableHeaders

from headstart.serve.errors import RequestError, busy

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

# Served without a token: the page has to ask for it.
_OPEN = ("/", "/icon.svg", "/health")

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

# The value of a Host header: a name, or an IPv6 address in brackets, and perhaps a port.
_HOST = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[^\[\]:]+))(?::[0-9]*)?")

_ONCE = ("host", "origin", "authorization", "content-type", "content-length")
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
    """Which requests are accepted."""

    hosts: frozenset[str] = LOOPBACK  # a foreign name that resolves to us (DNS rebinding) is none of them
    any_address: bool = False  # whether any IP address is accepted too
    token: str | None = None  # the bearer token that every request needs

    def knows(self, host: str) -> bool:
        """Whether the value of a Host header names this server, at any port."""
        if (known := _HOST.fullmatch(host)) is None:
            return False
        name = (known["address"] or known["name"].removesuffix(".")).lower()
        return name in self.hosts or (self.any_address and _is_address(name))

    def accepts(self, authorization: str) -> bool:
        """Whether the value of an Authorization header has the token, compared in constant time."""
        kind, _, given = authorization.partition(" ")
        known = hashlib.sha256((self.token or "").encode()).digest()
        same = hmac.compare_digest(hashlib.sha256(given.strip().encode("utf-8", "replace")).digest(), known)
        return same and kind.lower() == "bearer"


@dataclass(frozen=True)
class Limits:
    """Limits in bytes, seconds and requests."""

    body_bytes: int = 1 << 19  # enough for two texts of the largest size with every character escaped
    body_seconds: float = 30.0
    requests: int = 64  # at once
    streams: int = 4  # texts that are generated at once
    generation_seconds: float = 60.0
    answer_seconds: float = 60.0  # for every other answer


class SecurityMiddleware:
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
            self._check(scope["method"], scope["path"], Headers(scope=scope))
            body = b"" if scope["method"] != "POST" else await self._body(receive)
            if body is not None:
                await self._pass(scope, body, receive, answer)
        except RequestError as error:
            await error.response(scope, receive, answer)
        except asyncio.CancelledError:  # only a server that shuts down cancels a request
            if not answer.is_begun:
                await busy("the server is shutting down").response(scope, receive, answer)
            elif not answer.is_whole:
                await answer({"type": "http.response.body", "body": b""})

    def _check(self, method: str, path: str, headers: Headers) -> None:
        for name in _ONCE:
            if len(headers.getlist(name)) > 1:  # parsers could disagree on it
                raise RequestError(400, f"the header {name} comes twice", "send it once")
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self._access.knows(host):
            raise RequestError(403, "the Host header does not name this server", "use the address of this server")
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            raise RequestError(403, "the request comes from a page of another site", "use the page of this server")
        is_open = path in _OPEN or path.startswith("/page/")
        if self._access.token and not is_open and not self._access.accepts(headers.get("authorization", "")):
            fix = "send Authorization: Bearer TOKEN, with the token that the server was started with"
            raise RequestError(401, "the token is missing or wrong", fix, {"WWW-Authenticate": "Bearer"})
        if method != "POST":
            return
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise RequestError(415, "the body is not JSON", "send Content-Type: application/json")
        self._check_size(int(headers.get("content-length", 0)))  # uvicorn checked that it is a number

    def _check_size(self, size: int) -> None:
        if size > (most := self._limits.body_bytes):
            raise RequestError(413, f"the body is larger than {most:,} bytes", "send less text")

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
                    self._check_size(len(body))
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            what = f"the body did not arrive within {self._limits.body_seconds:g} seconds"
            raise RequestError(408, what, "send it at once", {"Connection": "close"}) from None

    async def _pass(self, scope: Scope, body: bytes, receive: Receive, answer: "_Answer") -> None:
        """Pass it to the application unless too many are in progress; only whole requests count."""
        is_work = scope["path"].startswith("/api/")
        if is_work and self._working >= self._limits.requests:
            raise busy(f"{self._limits.requests} requests are in progress")
        self._working += is_work
        try:
            await _while_connected(self._application, scope, body, receive, answer)
        finally:
            self._working -= is_work


class _Answer:
    """An answer that is being sent, with security headers added."""

    def __init__(self, send: Send) -> None:
        self._send, self.is_begun, self.is_whole = send, False, False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.is_begun = True
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        self.is_whole = message["type"] == "http.response.body" and not message.get("more_body", False)
        await self._send(message)


async def _while_connected(
    application: Application, scope: Scope, body: bytes, receive: Receive, answer: _Answer
) -> None:
    """Run the application; cancel it when the client goes away."""
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


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
