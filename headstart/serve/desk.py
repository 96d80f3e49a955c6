"""The desk: takes requests from the event loop and has threads work at them.

Predictions and translations go through a batcher for each run; whatever is looked into (attention, influence, scores)
through a small pool; texts that are written through a thread each.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from headstart.decoding.beam import Beam
from headstart.serve import answers, messages
from headstart.serve.batching import MOST_ITEMS, Batcher
from headstart.serve.gate import Limits
from headstart.serve.models import Ability, Models, ServedRun
from headstart.serve.refusals import Refused, as_json, busy, refusal_of
from headstart.serve.streaming import OutOfTime, Stream
from headstart.training.attending import attention_of
from headstart.training.influence import influence_of
from headstart.training.loading import LoadedRun
from headstart.training.token_steps import TokenStep, score_tokens, token_steps
from headstart.training.translating import Translator

READERS = 2
Found = TypeVar("Found")


class Desk:
    """Who does the work."""

    def __init__(self, models: Models, limits: Limits, *, is_batching: bool = True) -> None:
        """Without batching requests are worked at one by one, which only a benchmark wants."""
        self.models, self._limits = models, limits
        self._most_items = MOST_ITEMS if is_batching else 1
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="reading")
        self._streams = threading.BoundedSemaphore(limits.streams)
        self._batchers: dict[str, Batcher[Any, Any]] = {}
        self._loading: dict[str, asyncio.Future[LoadedRun]] = {}

    async def close(self) -> None:
        """Let every thread finish what it is at."""
        self._readers.shutdown(wait=False, cancel_futures=True)
        for batcher in self._batchers.values():
            await asyncio.to_thread(batcher.close)

    # ---- runs ----

    async def _run(self, name: str | None, ability: Ability) -> tuple[ServedRun, LoadedRun]:
        """The run for a request, loaded; requests for one that is being loaded wait for it together."""
        served = self.models.run(name, ability)
        if not served.is_loaded:
            loading = self._loading.get(served.name)
            if loading is None:
                loading = asyncio.ensure_future(asyncio.to_thread(served.loaded))
                self._loading[served.name] = loading
                loading.add_done_callback(partial(self._is_loaded, served.name))
            await asyncio.shield(loading)
            self.models.run(served.name, ability)  # its directory may hold another run by now
        return served, served.loaded()

    def _is_loaded(self, name: str, done: "asyncio.Future[LoadedRun]") -> None:
        del self._loading[name]
        if not done.cancelled():
            done.exception()  # seen, although all who asked may have gone

    async def _in_batch(self, served: ServedRun, work: Callable[..., Any], item: Any) -> Any:
        """Have a run's own thread do it, together with what else is waiting there."""
        if served.name not in self._batchers:
            self._batchers[served.name] = Batcher(work, self._most_items)
        return await asyncio.wrap_future(self._batchers[served.name].submit(item))

    async def _read(self, work: Callable[[], Found]) -> Found:
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)

    # ---- requests ----

    async def classify(self, asked: messages.ClassifyRequest) -> bytes:
        served, run = await self._run(asked.run, "classify")
        if run.config.pairs != (asked.text_b is not None):
            what = "pairs of texts" if run.config.pairs else "single texts"
            fix = "give text_b too" if run.config.pairs else "leave text_b out"
            raise Refused(400, f"{served.name} was trained on {what}", fix)
        item = asked.text if asked.text_b is None else (asked.text, asked.text_b)
        work = partial(answers.classified, run, machine=served.machine)
        found = await self._in_batch(served, work, item)
        influence = None
        if asked.influence != "none":
            looking = partial(
                influence_of, run, asked.text, served.machine, text_b=asked.text_b, method=asked.influence
            )
            influence = (await self._read(looking)).as_json()
        return as_json({"run": served.name, **found.answer, "is_cut": found.is_cut, "influence": influence})

    async def translate(self, asked: messages.TranslateRequest) -> bytes:
        served, run = await self._run(asked.run, "translate")
        work = partial(answers.translated, Translator.of(run, served.machine))
        beam = Beam(beams=asked.beam, length_penalty=asked.length_penalty)
        found = await self._in_batch(served, work, (asked.text, beam))
        return as_json({"run": served.name, **found})

    async def score(self, asked: messages.ScoreRequest) -> bytes:
        served, run = await self._run(asked.run, "score")

        def work() -> bytes:
            return as_json({"run": served.name, **score_tokens(run, asked.text, served.machine).as_json()})

        return await self._read(work)

    async def attention(self, asked: messages.AttentionRequest) -> bytes:
        served, run = await self._run(asked.run, "attention")

        def work() -> bytes:
            found = attention_of(
                run, asked.text, served.machine, text_b=asked.text_b, target=asked.target,
                most_tokens=messages.ATTENTION_TOKENS,
            )  # fmt: skip
            return as_json({"run": served.name, **found.as_json()})

        return await self._read(work)

    async def report(self, name: str) -> bytes:
        return await self._read(self.models.study(name).report)

    # ---- texts that are written ----

    async def write(self, asked: messages.GenerateRequest) -> "Writing":
        """Begin to write; whoever asks has to close it. What cannot be written at all is refused now."""
        served, run = await self._run(asked.run, "generate")
        if not self._streams.acquire(blocking=False):
            raise busy(f"{self._limits.streams} texts are being written")
        stream = Stream[TokenStep](self._limits.generation_seconds, self._streams.release)
        notes: list[str] = []
        start = partial(
            token_steps, run, asked.prompt, served.machine, max_tokens=asked.max_tokens,
            sampling=answers.sampling_of(asked), alternatives=asked.alternatives, tell=notes.append,
        )  # fmt: skip
        try:
            await stream.open(start)
        except OutOfTime:
            stream.close()
            raise busy("the writing could not begin in time") from None
        except BaseException:
            stream.close()
            raise
        return Writing(served.name, stream, notes)


@dataclass(frozen=True)
class Writing:
    """A text that is being written."""

    run: str
    stream: Stream[TokenStep]
    notes: list[str]

    async def lines(self) -> AsyncIterator[dict[str, Any]]:
        """One for each token, and the last one, which says why there are no more."""
        count, stop = 0, "end"
        try:
            async for step in self.stream:
                count, stop = step.token_count, step.stop or stop
                if step.stop != "end":
                    yield answers.token_line(step)
        except OutOfTime:
            stop = "time"
        except Exception as error:
            if refused := refusal_of(error):
                yield {"error": refused.error}
                return
            raise
        yield {"stop": stop, "token_count": count, "notes": self.notes}

    async def encoded(self) -> AsyncIterator[bytes]:
        """The lines as they are sent."""
        async for line in self.lines():
            yield as_json(line) + b"\n"

    async def whole(self) -> bytes:
        """All of it as one object."""
        *tokens, last = [line async for line in self.lines()]
        if "error" in last:
            raise Refused(503, **last["error"])
        text = "".join(token["text"] for token in tokens)
        return as_json({"run": self.run, "text": text, "tokens": tokens, **last})
