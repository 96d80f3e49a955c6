"""The page's own files, and answers that a test makes up: for what no real server would say."""

import contextlib
import json
import threading

from serving import running

from headstart.serve.application import PAGE

KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
LIMITS = {"text_characters": 20_000, "max_tokens": 512, "attention_tokens": 64}
RUN = {
    "name": "made-up", "objective": "causal", "can": ["generate", "score", "attention"], "labels": [],
    "pairs": False, "length": 128, "parameters": 1_240_000, "start": "scratch", "loaded": True,
}  # fmt: skip


class Stub:
    """Answers by path: an object, bytes, or an iterator of lines that is asked for the next until nobody listens."""

    def __init__(self, answers):
        self.answers = {
            "/api/runs": {"version": "0", "runs": [RUN], "studies": [], "limits": LIMITS},
            **answers,
        }
        self.is_abandoned = threading.Event()

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            for stage in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{stage}.complete"})
            return
        await self._read_body(receive)
        answer = self.answers.get(scope["path"])
        if callable(answer):
            await self._stream(answer(), receive, send)
        elif answer is not None:
            kind = "text/html" if isinstance(answer, bytes) else "application/json"
            await _send(send, answer if isinstance(answer, bytes) else json.dumps(answer).encode(), kind)
        else:
            file = PAGE / (scope["path"].rpartition("/")[2] or "index.html")
            await _send(send, file.read_bytes(), KINDS[file.suffix])

    async def _read_body(self, receive):
        while (await receive()).get("more_body"):
            pass

    async def _stream(self, lines, receive, send):
        import asyncio

        gone = asyncio.ensure_future(receive())
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-type", b"application/x-ndjson")],
            }
        )
        for line in lines:
            if gone.done():
                self.is_abandoned.set()
                return
            body = json.dumps(line).encode() + b"\n"
            await send({"type": "http.response.body", "body": body, "more_body": True})
            await asyncio.sleep(0.001)
        await send({"type": "http.response.body", "body": b""})


async def _send(send, body, kind):
    headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextlib.contextmanager
def serving(answers):
    """A server with these answers; gives the stub and its port."""
    stub = Stub(answers)
    with running(stub) as port:
        yield stub, port
