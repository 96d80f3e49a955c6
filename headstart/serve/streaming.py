"""Streams: an iterator in a thread of its own, which computes an item only when the client wants it.

So a slow client slows the computation, and one that has gone ends it: within an item at its next step.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from starlette.responses import StreamingResponse

from headstart.cancellation import cancelled_when

Item = TypeVar("Item")
_END = object()


class StreamTimeout(Exception):
    """The stream has lasted as long as it may."""


class Stream(Generic[Item]):
    """An iterator that lives in a thread of its own."""

    def __init__(self, seconds: float, on_end: Callable[[], None]) -> None:
        """`on_end` is called in the thread after its last item."""
        self._deadline = asyncio.get_running_loop().time() + seconds
        self._on_end, self._is_closed = on_end, False
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="stream")
        self._items: Iterator[Item] = iter(())

    async def open(self, start: Callable[[], Iterator[Item]]) -> None:
        """Make the iterator; invalid requests fail here."""

        def opened() -> None:
            self._items = start()

        await self._in_thread(opened)

    def __aiter__(self) -> AsyncIterator[Item]:
        return self

    async def __anext__(self) -> Item:
        item: Any = await self._in_thread(lambda: next(self._items, _END))
        if item is _END:
            raise StopAsyncIteration
        return item

    def close(self) -> None:
        """Let the thread end after its current step."""
        if not self._is_closed:
            self._is_closed = True
            self._worker.submit(self._end)
            self._worker.shutdown(wait=False)

    def _end(self) -> None:
        try:
            if close := getattr(self._items, "close", None):
                close()
        finally:
            self._on_end()

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        def until_closed() -> Any:
            with cancelled_when(lambda: self._is_closed):
                return work()

        try:
            async with asyncio.timeout_at(self._deadline):
                return await asyncio.get_running_loop().run_in_executor(self._worker, until_closed)
        except TimeoutError:
            raise StreamTimeout from None


class LinesResponse(StreamingResponse):
    """An answer in lines, each sent at once."""

    media_type = "application/x-ndjson"

    def __init__(self, lines: AsyncIterator[bytes], on_end: Callable[[], None]) -> None:
        """`on_end` is called after the last line, or when the client has gone."""
        super().__init__(lines)
        self._on_end = on_end

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        try:
            await self.stream_response(send)
        finally:
            self._on_end()
