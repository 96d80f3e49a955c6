"""Writing that somebody reads as it is written: a thread for each stream, asked for one item at a time.

Nothing is computed before it is wanted, so a reader who is slow slows the writing, and one who has gone ends it: the
thread finishes the item that it is at, and no other.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from fastapi import Response

Item = TypeVar("Item")
_END = object()


class OutOfTime(Exception):
    """The stream has lasted as long as it may."""


class Stream(Generic[Item]):
    """An iterator that lives in a thread of its own."""

    def __init__(self, seconds: float, on_end: Callable[[], None]) -> None:
        """`on_end` is called in the thread when it has nothing left to do."""
        self._deadline = asyncio.get_running_loop().time() + seconds
        self._on_end, self._is_closed = on_end, False
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="stream")
        self._items: Iterator[Item] = iter(())

    async def open(self, start: Callable[[], Iterator[Item]]) -> None:
        """Have the iterator made; what it refuses to do is known then."""

        def opened() -> None:
            self._items = start()

        await self._in_thread(opened)

    def __aiter__(self) -> AsyncIterator[Item]:
        return self

    async def __anext__(self) -> Item:
        found: Any = await self._in_thread(lambda: next(self._items, _END))
        if found is _END:
            raise StopAsyncIteration
        return found

    def close(self) -> None:
        """Let the thread end once it has finished what it is at."""
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
        try:
            async with asyncio.timeout_at(self._deadline):
                return await asyncio.get_running_loop().run_in_executor(self._worker, work)
        except TimeoutError:
            raise OutOfTime from None


class Lines(Response):
    """An answer in lines, each sent as soon as it is there."""

    media_type = "application/x-ndjson"

    def __init__(self, lines: AsyncIterator[bytes], on_end: Callable[[], None]) -> None:
        """`on_end` is called when nobody reads the lines any more, or there are none left."""
        super().__init__()
        del self.headers["content-length"]
        self._lines, self._on_end = lines, on_end

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for line in self._lines:
                await send({"type": "http.response.body", "body": line, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._on_end()
