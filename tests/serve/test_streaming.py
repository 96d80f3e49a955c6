"""An iterator in a thread of its own, read by the event loop."""

import asyncio
import threading
import time

import pytest

from headstart.serve.streaming import LinesResponse, Stream, StreamTimeout


def read(start, seconds=20.0, most=None):
    """What a stream gives until its end, or so many items; and whether its thread has ended."""
    has_ended = threading.Event()

    async def reading():
        stream = Stream(seconds, has_ended.set)
        found = []
        try:
            await stream.open(start)
            async for item in stream:
                found.append(item)
                if len(found) == most:
                    break
        finally:
            stream.close()
            stream.close()  # once more does no harm
        return found

    try:
        return asyncio.run(reading())
    finally:
        assert has_ended.wait(20)


def test_items_come_in_order():
    assert read(lambda: iter(range(5))) == [0, 1, 2, 3, 4]


def test_nothing_is_computed_before_it_is_wanted_and_the_rest_never():
    made, closed = [], []

    def numbers():
        try:
            for number in range(100):
                made.append(number)
                yield number
        finally:
            closed.append(True)

    assert read(numbers, most=3) == [0, 1, 2]
    assert (made, closed) == ([0, 1, 2], [True])


def test_what_cannot_begin_is_raised_when_it_is_opened():
    def refuse():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        read(refuse)


def test_a_stream_that_lasts_too_long_is_out_of_time():
    def slow():
        yield 1
        time.sleep(0.5)
        yield 2

    with pytest.raises(StreamTimeout):
        read(slow, seconds=0.1)


def test_lines_are_sent_one_by_one_and_the_end_is_told():
    sent, ended = [], []

    async def lines():
        yield b"a\n"
        yield b"b\n"

    async def send(message):
        sent.append(message)

    asyncio.run(LinesResponse(lines(), lambda: ended.append(True))({}, None, send))
    assert sent[0]["status"] == 200
    assert (b"content-type", b"application/x-ndjson") in sent[0]["headers"]
    assert not any(name == b"content-length" for name, _ in sent[0]["headers"])
    assert [message["body"] for message in sent[1:]] == [b"a\n", b"b\n", b""]
    assert ended == [True]
