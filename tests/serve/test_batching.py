"""Requests that arrive together: what is computed together, in which order, and what happens to those who leave."""

import threading
from concurrent.futures import CancelledError

import pytest
import small
import tiny_runs
import translators
from expected_errors import refused
from hypothesis import given
from hypothesis import strategies as st

from headstart.cancellation import Cancelled, stop_if_cancelled
from headstart.config.generation import GenerationConfig
from headstart.errors import UserError
from headstart.inference.predict import predict
from headstart.inference.translate import Translator
from headstart.serve.batching import Batcher
from headstart.serve.service import LIKE, SHORT_TOKENS, alike, classified, translated


class Gated:
    """Work that waits to be let through, and remembers what it was given."""

    def __init__(self):
        self.batches, self.begun, self.gate = [], threading.Semaphore(0), threading.Semaphore(0)

    def __call__(self, items):
        self.batches.append(list(items))
        self.begun.release()
        assert self.gate.acquire(timeout=10)
        for index, item in enumerate(items):
            if item == "bad":
                raise UserError("bad")
            yield index, item * 2


@pytest.fixture
def gated_batcher():
    work = Gated()
    batcher = Batcher(work)
    yield work, batcher
    work.gate.release(100)
    batcher.close()


def test_what_waits_while_a_batch_is_computed_is_the_next_batch(gated_batcher):
    work, batcher = gated_batcher
    futures = [batcher.submit(1)]
    work.begun.acquire()
    futures += [batcher.submit(number) for number in (2, 3, 4)]
    work.gate.release(2)
    assert [future.result(10) for future in futures] == [2, 4, 6, 8]
    assert work.batches == [[1], [2, 3, 4]]


def test_one_by_one_is_one_by_one():
    work = Gated()
    work.gate.release(3)
    batcher = Batcher(work, most_items=1)
    assert [future.result(10) for future in [batcher.submit(number) for number in (1, 2, 3)]] == [2, 4, 6]
    batcher.close()
    assert work.batches == [[1], [2], [3]]


def test_one_that_cannot_be_done_does_not_take_the_others_with_it(gated_batcher):
    work, batcher = gated_batcher
    first = batcher.submit("a")
    work.begun.acquire()
    futures = {item: batcher.submit(item) for item in ("b", "bad", "c")}
    work.gate.release(10)
    assert [first.result(10), futures["b"].result(10), futures["c"].result(10)] == ["aa", "bb", "cc"]
    with refused("bad-value", "bad"):
        futures["bad"].result(10)


def test_what_nobody_waits_for_any_more_is_not_computed(gated_batcher):
    work, batcher = gated_batcher
    first = batcher.submit("a")
    work.begun.acquire()
    left, right = batcher.submit("b"), batcher.submit("c")
    assert left.cancel()
    work.gate.release(10)
    assert (first.result(10), right.result(10)) == ("aa", "cc")
    assert work.batches == [["a"], ["c"]]


def test_a_batch_ends_at_its_next_step_once_nobody_waits_for_any_of_it():
    ask, asked, seen = threading.Semaphore(0), threading.Semaphore(0), []

    def work(items):
        for index, item in enumerate(items):
            asked.release()
            assert ask.acquire(timeout=10)
            stop_if_cancelled()
            seen.append(item)
            yield index, item

    batcher = Batcher(work)
    first = batcher.submit("a")
    asked.acquire()
    others = [batcher.submit(item) for item in "bcd"]
    ask.release()
    assert first.result(10) == "a"
    asked.acquire()
    others[0].cancel()  # while it is computed: two are left who wait
    ask.release()
    asked.acquire()
    for other in others[1:]:
        other.cancel()
    ask.release(9)
    with pytest.raises(Cancelled):
        others[1].result(10)
    batcher.close()
    assert seen == ["a", "b"]


def test_closing_cancels_what_waits_and_finishes_what_is_begun():
    work = Gated()
    batcher = Batcher(work)
    first = batcher.submit("a")
    work.begun.acquire()
    second = batcher.submit("b")
    closing = threading.Thread(target=batcher.close)
    closing.start()
    work.gate.release()
    closing.join(10)
    assert first.result(10) == "aa"
    with pytest.raises(CancelledError):
        second.result(10)
    with pytest.raises(RuntimeError, match="closed"):
        batcher.submit("c")


@given(st.lists(st.integers(1, 300), max_size=60), st.integers(1, 3_000))
def test_batches_hold_every_text_once_and_texts_of_like_length(lengths, budget):
    batches = list(alike(lengths, budget))
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        shortest, longest = min(lengths[p] for p in batch), max(lengths[p] for p in batch)
        assert longest <= max(SHORT_TOKENS, LIKE * shortest)
        assert len(batch) == 1 or longest * len(batch) <= budget


@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression", "pairs", "char"])
def test_a_batch_gives_what_predict_gives_one_by_one(kind):
    run = tiny_runs.run_of(kind)
    texts = [*small.sentences(30, seed=8), "", "x", " ".join(small.sentences(9))]
    if kind == "pairs":
        texts = list(zip(texts, texts[::-1], strict=True))
    found = dict(classified(run, texts, tiny_runs.MACHINE))
    assert sorted(found) == list(range(len(texts)))
    for index, text in enumerate(texts):
        (alone,) = predict(run, [text], tiny_runs.MACHINE)
        assert found[index].is_cut == alone.is_cut
        assert numbers(found[index].answer) == pytest.approx(numbers(alone.answer), abs=1e-6)
        assert {k: v for k, v in found[index].answer.items() if k in ("label", "labels")} == {
            k: v for k, v in alone.answer.items() if k in ("label", "labels")
        }


def numbers(answer):
    return answer.get("probabilities") or answer["value"]


def test_translations_of_a_batch_are_those_of_one_by_one():
    translator = Translator.of(translators.run_of(), tiny_runs.MACHINE)
    beams = [GenerationConfig(beam=2), GenerationConfig(beam=1), GenerationConfig(beam=2)]
    texts = ["le livre est long.", "", "une histoire belle."]
    found = dict(translated(translator, list(zip(texts, beams, strict=True))))
    for index, (text, beam) in enumerate(zip(texts, beams, strict=True)):
        (alone,) = translator.translate([text], beam)
        assert found[index]["text"] == alone.candidates[0].text
        assert found[index]["score"] == pytest.approx(alone.candidates[0].score, abs=1e-5)
        assert len(found[index]["target"]) == len(alone.candidates[0].ids) == len(found[index]["weights"])
        assert all(sum(row) == pytest.approx(1, abs=1e-4) for row in found[index]["weights"])
