"""The service: takes requests from the event loop and computes their answers in threads.

Predictions and translations go through one batcher per run; attention, attribution and scores through a small pool;
generation has a thread per text.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
from fastapi import Response

from headstart import __version__
from headstart.config.generation import GenerationConfig
from headstart.inference.attention_maps import JSON_DIGITS, attention_of
from headstart.inference.attribution import attribution_of
from headstart.inference.generate import TokenStep, stream_tokens
from headstart.inference.perplexity import score_tokens
from headstart.inference.predict import BATCH_TOKENS, Prediction, Text, answer, batched, framed, outputs_of, predict
from headstart.inference.translate import Translated, Translator, aligned, cross_attention
from headstart.machine import Machine
from headstart.runs.load import LoadedRun
from headstart.runs.study_model import StudyModel
from headstart.serve import messages
from headstart.serve.batching import MOST_ITEMS, Answer, Batcher
from headstart.serve.errors import RequestError, as_json, busy, error_for
from headstart.serve.models import Ability, Models, ServedRun
from headstart.serve.security import Limits
from headstart.serve.streaming import LinesResponse, Stream, StreamTimeout
from headstart.tokenizers.token_texts import shown_tokens

POOL_THREADS = 2  # for what is computed one by one

# Texts share a batch if the longest is at most this many times the shortest, or this many tokens.
LIKE, SHORT_TOKENS = 1.25, 32
Result = TypeVar("Result")

# A report is a page of its own: it needs its style and nothing else.
_REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'; sandbox"
)


class Service:
    """Answers requests for the models that are served."""

    def __init__(self, models: Models, limits: Limits, *, batching: bool = True) -> None:
        """Without batching requests are computed one by one, for benchmarks."""
        self.models, self._limits = models, limits
        self._most_items = MOST_ITEMS if batching else 1
        self._pool = Batcher(_one_by_one, most_items=1, threads=POOL_THREADS)
        self._streams = threading.BoundedSemaphore(limits.streams)
        self._batchers: dict[str, Batcher[Any, Any]] = {}
        self._loading: dict[str, asyncio.Future[LoadedRun]] = {}

    async def close(self) -> None:
        """Let every thread finish its current step."""
        for batcher in (self._pool, *self._batchers.values()):
            await asyncio.to_thread(batcher.close)

    # ---- runs ----

    async def _run(self, name: str | None, ability: Ability) -> tuple[ServedRun, Any]:
        """The run for a request, loaded; requests for a run that is being loaded wait for it together."""
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
            done.exception()  # marks it as seen, although all clients may have gone

    async def _in_batch(self, served: ServedRun, work: Callable[..., Any], item: Any) -> Any:
        """Compute it in the run's own thread, together with what else is waiting there."""
        if served.name not in self._batchers:
            self._batchers[served.name] = Batcher(work, self._most_items)
        return await self._in_time(self._batchers[served.name].submit(item))

    async def _all_in_batch(self, served: ServedRun, work: Callable[..., Any], items: Sequence[Any]) -> list[Any]:
        """The answers for several items of one request; if one fails, nobody waits for the others."""
        waiting = [asyncio.ensure_future(self._in_batch(served, work, item)) for item in items]
        try:
            return await asyncio.gather(*waiting)
        finally:
            for one in waiting:
                one.cancel()

    async def _in_pool(self, work: Callable[[], Result]) -> Result:
        return await self._in_time(self._pool.submit(work))

    async def _in_time(self, answer: Answer[Result]) -> Result:
        """The answer, once it is there; where its client leaves or the time ends, it is cancelled."""
        seconds = self._limits.answer_seconds
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.wrap_future(answer)
        except TimeoutError:
            raise busy(f"the answer was not ready within {seconds:g} seconds", "send less text, or try again") from None

    # ---- requests ----

    async def runs(self) -> Response:
        about = [run.about() for run in self.models.runs.values()]
        studies, limits = ([{"name": name} for name in self.models.studies], messages.LimitsAbout().model_dump())
        return _json({"version": __version__, "runs": about, "studies": studies, "limits": limits})

    async def classify(self, request: messages.ClassifyRequest) -> Response:
        served, run = await self._run(request.run, "classify")
        _refuse_other_pairs(served, run, request.text_b is not None, "text_b")
        item = request.text if request.text_b is None else (request.text, request.text_b)
        prediction = await self._in_batch(served, partial(classified, run, machine=served.machine), item)
        attribution = None
        if request.attribution != "none" and isinstance(run, LoadedRun):
            attribute = partial(
                attribution_of, run, request.text, served.machine, text_b=request.text_b, method=request.attribution
            )
            attribution = (await self._in_pool(attribute)).as_json()
        return _json({"run": served.name, **prediction.answer, "is_cut": prediction.is_cut, "attribution": attribution})

    async def classify_batch(self, request: messages.ClassifyBatchRequest) -> Response:
        served, run = await self._run(request.run, "classify")
        texts, seconds = request.texts, request.texts_b
        _refuse_other_pairs(served, run, seconds is not None, "texts_b")
        if seconds is not None and len(seconds) != len(texts):
            raise RequestError(400, f"{len(texts)} texts and {len(seconds)} texts_b", "give as many of both")
        items = texts if seconds is None else list(zip(texts, seconds, strict=True))
        predictions = await self._all_in_batch(served, partial(classified, run, machine=served.machine), items)
        answers = [{**prediction.answer, "is_cut": prediction.is_cut} for prediction in predictions]
        return _json({"run": served.name, "answers": answers})

    async def translate_batch(self, request: messages.TranslateBatchRequest) -> Response:
        served, run = await self._run(request.run, "translate")
        work = partial(translated, Translator.of(run, served.machine))
        found = await self._all_in_batch(served, work, [(text, request.generation) for text in request.texts])
        names = messages.TranslatedText.model_fields
        return _json({"run": served.name, "answers": [{name: one[name] for name in names} for one in found]})

    async def translate(self, request: messages.TranslateRequest) -> Response:
        served, run = await self._run(request.run, "translate")
        work = partial(translated, Translator.of(run, served.machine))
        translation = await self._in_batch(served, work, (request.text, request.generation))
        return _json({"run": served.name, **translation})

    async def score(self, request: messages.ScoreRequest) -> Response:
        served, run = await self._run(request.run, "score")
        score = partial(score_tokens, run, request.text, served.machine, within_context=True)
        scores = await self._in_pool(score)
        return _json({"run": served.name, **scores.as_json()})

    async def attention(self, request: messages.AttentionRequest) -> Response:
        served, run = await self._run(request.run, "attention")

        def work() -> Response:
            maps = attention_of(
                run, request.text, served.machine, text_b=request.text_b, target=request.target,
                most_tokens=messages.ATTENTION_TOKENS,
            )  # fmt: skip
            return _json({"run": served.name, **maps.as_json()})

        return await self._in_pool(work)

    async def report(self, name: str) -> Response:
        page = await self._in_pool(partial(self.models.report, name))
        return Response(page, media_type="text/html", headers={"Content-Security-Policy": _REPORT_POLICY})

    async def generate(self, request: messages.GenerateRequest) -> Response:
        served, run = await self._run(request.run, "generate")
        if not self._streams.acquire(blocking=False):
            raise busy(f"{self._limits.streams} texts are being generated")
        stream = Stream[TokenStep](self._limits.generation_seconds, self._streams.release)
        notes: list[str] = []
        start = partial(
            stream_tokens, run, request.prompt, served.machine, request.generation,
            alternatives=request.alternatives, within_context=True, log=notes.append,
        )  # fmt: skip
        try:
            await stream.open(start)  # invalid requests are refused here
        except BaseException as error:
            stream.close()
            if isinstance(error, StreamTimeout):
                raise busy("the generation could not start in time") from None
            raise
        lines = _lines(stream, notes)
        if request.stream:
            return LinesResponse((as_json(line) + b"\n" async for line in lines), stream.close)
        try:
            *tokens, last = [line async for line in lines]
        finally:
            stream.close()
        if "error" in last:
            raise RequestError(503, **last["error"])
        text = "".join(token["text"] for token in tokens)
        return _json({"run": served.name, "text": text, "tokens": tokens, **last})


async def _lines(stream: Stream[TokenStep], notes: list[str]) -> AsyncIterator[dict[str, Any]]:
    """One for each token, and a last one with the reason to stop."""
    count, stop = 0, "end"
    try:
        async for step in stream:
            count, stop = step.token_count, step.stop or stop
            if step.stop != "end":
                yield {
                    "text": step.text, "token": step.token, "probability": step.probability,
                    "alternatives": [one._asdict() for one in step.alternatives],
                }  # fmt: skip
    except StreamTimeout:
        stop = "time"
    except Exception as error:
        if known := error_for(error):
            yield {"error": known.error}
            return
        raise
    yield {"stop": stop, "token_count": count, "notes": notes}


def _one_by_one(works: Sequence[Callable[[], Any]]) -> Iterator[tuple[int, Any]]:
    for index, work in enumerate(works):
        yield index, work()


def _refuse_other_pairs(served: ServedRun, run: LoadedRun | StudyModel, is_pair: bool, field: str) -> None:
    if run.config.pairs != is_pair:
        what = "pairs of texts" if run.config.pairs else "single texts"
        fix = f"give {field} too" if run.config.pairs else f"leave {field} out"
        raise RequestError(400, f"{served.name} was trained on {what}", fix)


def _json(answer: dict[str, Any]) -> Response:
    return Response(as_json(answer), media_type="application/json")


def classified(
    run: LoadedRun | StudyModel, texts: Sequence[Text], machine: Machine
) -> Iterator[tuple[int, Prediction]]:
    """The index and the prediction of each text, the shortest first."""
    if isinstance(run, StudyModel):
        yield from enumerate(predict(run, texts, machine))
        return
    examples = framed(run, texts)
    for batch in alike([len(example.tokens) for example in examples], BATCH_TOKENS[machine.device.type]):
        chosen = [examples[index] for index in batch]
        outputs = outputs_of(run.model, batched(run, chosen, run.config.head), machine)
        for index, example, output in zip(batch, chosen, outputs, strict=True):
            yield index, Prediction(answer(run, output), example.is_truncated)


def alike(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """The indices of texts of like length, in batches of at most `budget` tokens, padding included."""
    batch = list[int]()
    for index in np.argsort(lengths, kind="stable").tolist():
        length = lengths[index]
        is_unlike = batch and length > max(SHORT_TOKENS, LIKE * lengths[batch[0]])
        if batch and (is_unlike or length * (len(batch) + 1) > budget):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def translated(
    translator: Translator, requests: Sequence[tuple[str, GenerationConfig]]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The index and the translation of each text; those with the same configuration are translated together."""
    groups: dict[GenerationConfig, list[int]] = {}
    for index, (_, config) in enumerate(requests):
        groups.setdefault(config, []).append(index)
    for config, indices in groups.items():
        translations = translator.translate([requests[index][0] for index in indices], config)
        for index, translation in zip(indices, translations, strict=True):
            yield index, _translation_as_json(translator, translation)


def _translation_as_json(translator: Translator, translation: Translated) -> dict[str, Any]:
    best, vocabularies = translation.candidates[0], translator.vocabularies
    source = shown_tokens(vocabularies.source, translation.source_ids)
    weights = np.zeros((0, len(source)))
    if best.ids and source:
        weights = cross_attention(translator, translation.source_ids, best.ids)
    pairs = aligned(weights, [not token.is_special for token in source]) if len(weights) else []
    unknown = "some of the text has no piece in the run's tokenizer: it is read as unknown"
    return {
        "text": best.text, "score": best.score,
        "source": [token._asdict() for token in source],
        "target": [{"text": token.text} for token in shown_tokens(vocabularies.target, best.ids)],
        "weights": np.round(weights.astype(np.float64), JSON_DIGITS).tolist(),
        "alignment": [{**pair._asdict(), "weight": round(pair.weight, JSON_DIGITS)} for pair in pairs],
        "is_cut": translation.is_cut, "notes": [unknown] if translation.has_unknown else [],
    }  # fmt: skip
