"""How long the server waits for a client: uvicorn's protocol with time-outs of its own.

A request's headers have so many seconds from their first moment, answers so many to be read. Sockets that say nothing
cost next to nothing and are closed in time; where there are too many of them, the one that has waited longest goes.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from headstart.serve.refusals import Refused


@dataclass(frozen=True)
class Patience:
    """How long, in seconds, and with how many."""

    header_seconds: float = 10.0
    reader_seconds: float = 60.0
    """For a client that does not read what it is sent."""

    rest_seconds: float = 2.0
    """For the rest of a body that was refused: a client that is cut off while it sends may not see the answer."""

    rest_bytes: int = 1 << 22
    """Of such a rest."""

    connections: int = 512


class PatientProtocol(H11Protocol):
    """A connection that is waited for just so long."""

    patience: Patience
    waiting: "dict[PatientProtocol, None]"
    """Connections that have not sent the headers of a request yet, the one that has waited longest first."""

    _header_timer: asyncio.TimerHandle | None = None
    _reader_timer: asyncio.TimerHandle | None = None
    _rest_timer: asyncio.TimerHandle | None = None
    _rest_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_headers()
        if len(self.connections) > self.patience.connections:
            oldest = next(iter(self.waiting))
            oldest._has_headers()  # at once: the next of many that come together must find another
            oldest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._has_headers()
        for timer in (self._reader_timer, self._rest_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    # ---- headers ----

    def data_received(self, data: bytes) -> None:
        if self._rest_timer is not None:
            self._rest_bytes += len(data)
            if self._rest_bytes > self.patience.rest_bytes:
                self.transport.abort()
                return
        super().data_received(data)
        is_asked = self.cycle is not None and not self.cycle.response_complete
        if self._rest_timer is not None and (is_asked or self.conn.their_state is not h11.SEND_BODY):
            self._rest_timer.cancel()
            self._rest_timer = None
        if self.transport.is_closing() or is_asked:
            self._has_headers()
        elif self._header_timer is None and self.conn.their_state is h11.IDLE:
            self._await_headers()

    def _await_headers(self) -> None:
        self.waiting[self] = None
        self._header_timer = self.loop.call_later(self.patience.header_seconds, self._give_up)

    def _has_headers(self) -> None:
        self.waiting.pop(self, None)
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _give_up(self) -> None:
        if not self.conn.trailing_data[0]:  # it never said a word
            self.transport.close()
            return
        what = f"the headers did not arrive within {self.patience.header_seconds:g} seconds"
        self._refuse(Refused(408, what, "send them at once"))

    def send_400_response(self, msg: str) -> None:
        self._refuse(Refused(400, "this is not HTTP", "speak HTTP/1.1"))

    def _refuse(self, refused: Refused) -> None:
        """Answer what is no whole request, and hang up."""
        self._has_headers()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            headers = {"content-type": "application/json", "connection": "close"}
            headers |= {"content-length": str(len(refused.body))}
            events: list[Any] = [
                h11.Response(status_code=refused.status, headers=list(headers.items())),
                h11.Data(data=refused.body),
                h11.EndOfMessage(),
            ]
            self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
        self.transport.close()

    # ---- readers, and bodies that nobody wants ----

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reader_timer = self.loop.call_later(self.patience.reader_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._reader_timer is not None:
            self._reader_timer.cancel()

    def on_response_complete(self) -> None:
        if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
            self._rest_bytes = 0
            self._rest_timer = self.loop.call_later(self.patience.rest_seconds, self.transport.abort)
        super().on_response_complete()


def patient_protocol(patience: Patience) -> type[PatientProtocol]:
    """The protocol with this patience, as uvicorn wants it: a class."""
    return type("Protocol", (PatientProtocol,), {"patience": patience, "waiting": {}})
