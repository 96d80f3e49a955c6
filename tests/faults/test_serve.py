"""Clients that send too much, too slowly or nonsense, that leave, or come from elsewhere."""

import asyncio
import concurrent.futures
import contextlib
import json
import os
import shutil
import signal
import socket
import string
import threading
import time
from pathlib import Path

import checksummed
import commands
import pytest
import serving
import tiny_runs
import translators
from expected_errors import refused
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headstart import cancellation
from headstart.config.generation import LEAST_TEMPERATURE, LEAST_TOP_P, GenerationConfig
from headstart.errors import IntegrityError, UserError
from headstart.inference.decoding.readers import CachedReader
from headstart.inference.generate import MOST_ALTERNATIVES, TokenStep
from headstart.serve import batching, messages, service, streaming
from headstart.serve.errors import RequestError, as_json, error_for
from headstart.serve.listening import ANSWERING_SECONDS, LEAVING_SECONDS, Timeouts, access_for
from headstart.serve.messages import MOST_CHARACTERS, MOST_TOKENS
from headstart.serve.security import Access, Limits, SecurityMiddleware

TEXT = {"text": "un livre."}
ROUTES = ("classify", "generate", "score", "translate", "attention", "classify/batch", "translate/batch")


@pytest.fixture(scope="module")
def served():
    paths = [tiny_runs.path_of("classification"), tiny_runs.path_of("causal"), translators.path_of()]
    with serving.serving(*paths) as found:
        assert found.post("/api/classify", **TEXT)[0] == 200  # loaded
        yield found


def status_of(answer):
    return int(answer.split()[1])


# ---- 37: too much -------------------------------------------------------------------------------------------


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def stream(found, head, block, count):
    """Send until somebody hangs up; what was answered, and the most memory that was seen meanwhile."""
    found.sendall(head)
    most = 0
    with contextlib.suppress(OSError):
        for _ in range(count):
            found.sendall(block)
            most = max(most, resident_bytes())
    return serving.all_of(found), most


HEAD = b"POST /api/classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_of_300_megabytes_is_refused_before_it_is_read(served, is_chunked):
    block, count = b"x" * 1_000_000, 300
    head = HEAD + b"Content-Length: 300000000\r\n\r\n"
    if is_chunked:
        head, block = HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"%x\r\n%s\r\n" % (len(block), block)
    before = resident_bytes()
    with served.connect() as found:
        answer, most = stream(found, head, block, count)
    assert status_of(answer) == 413
    assert b"524,288 bytes" in answer
    assert max(most, resident_bytes()) - before < 20_000_000
    assert served.post("/api/classify", **TEXT)[0] == 200


def test_a_body_that_is_announced_too_large_is_refused_at_its_headers(served):
    with served.connect() as found:
        found.sendall(HEAD + b"Content-Length: 524289\r\nExpect: 100-continue\r\n\r\n")
        assert serving.first_status(found) == 413


def test_the_largest_texts_that_are_allowed_fit_into_a_body(served):
    escaped = "\U0001f4d6" * MOST_CHARACTERS
    body = json.dumps({"text": escaped, "text_b": escaped})
    assert len(body) <= Limits().body_bytes
    answer = served.ask("POST", "/api/classify", body)
    assert (answer.status, b"single texts" in answer.body) == (400, True)


def test_a_client_that_goes_on_sending_is_cut_off():
    with (
        serving.serving(tiny_runs.path_of("classification"), timeouts=Timeouts(rest_seconds=0.1)) as served,
        served.connect() as found,
    ):
        found.sendall(HEAD + b"Content-Length: 600000\r\n\r\n")
        assert serving.first_status(found) == 413
        with pytest.raises(OSError, match=r"reset|[Bb]roken pipe"):
            drip(found, b"x" * 1_000)


def test_a_connection_goes_on_after_the_rest_of_a_refused_body():
    timeouts = Timeouts(rest_seconds=0.5)
    with (
        serving.serving(tiny_runs.path_of("classification"), timeouts=timeouts) as served,
        served.connect() as found,
    ):
        body = b"x" * 600_000
        found.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body))
        assert serving.first_status(found) == 413
        found.sendall(body)
        whole = serving.request("/api/classify", TEXT, Connection="close")
        found.sendall(whole[:-5])
        time.sleep(0.7)  # what was waited for is there: the next body has its own time
        found.sendall(whole[-5:])
        assert status_of(serving.all_of(found)) == 200


LONG = "\U0001f600" * MOST_CHARACTERS  # four tokens each


def test_a_prompt_is_bounded_by_the_context_before_the_model_reads_it(served, monkeypatch):
    context, sizes, read = tiny_runs.run_of("causal").config.model.context, [], CachedReader.read
    monkeypatch.setattr(CachedReader, "read", lambda *given: sizes.append(given[1].shape[1]) or read(*given))
    asked = {"prompt": LONG, "max_tokens": 3, "temperature": 5, "stream": False}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        answers = list(pool.map(lambda _: served.post("/api/generate", **asked), range(4)))
    for status, answer in answers:
        assert status == 200
        assert any("tokens of the prompt are dropped" in note for note in answer["notes"])
    assert max(sizes) == context


def test_a_text_to_score_is_cut_at_the_context(served):
    status, answer = served.post("/api/score", text=LONG)
    context = tiny_runs.run_of("causal").config.model.context
    assert (status, answer["is_cut"], len(answer["tokens"])) == (200, True, context)
    assert not served.post("/api/score", **TEXT)[1]["is_cut"]


def drip(found, sent):
    """A byte now and a byte then."""
    for byte in sent:
        found.sendall(bytes([byte]))
        time.sleep(0.005)


# ---- 38: too slow -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def impatient_server():
    """A server with little timeouts."""
    timeouts = Timeouts(header_seconds=0.4, reader_seconds=0.4)
    limits = Limits(body_seconds=0.4, generation_seconds=0.4, streams=2)
    paths = [tiny_runs.path_of("classification"), tiny_runs.path_of("causal")]
    with serving.serving(*paths, limits=limits, timeouts=timeouts) as found:
        assert found.post("/api/classify", **TEXT)[0] == 200
        assert found.post("/api/generate", max_tokens=1, stream=False)[0] == 200
        yield found


def test_headers_that_do_not_come_are_not_waited_for(impatient_server):
    with impatient_server.connect() as silent, impatient_server.connect() as begun:
        begun.sendall(b"GET /health HTTP/1.1\r\nHo")
        assert status_of(serving.all_of(begun)) == 408
        assert serving.all_of(silent) == b""


def test_headers_that_drip_are_not_waited_for(impatient_server):
    with impatient_server.connect() as found, pytest.raises(OSError, match=r"reset|[Bb]roken pipe"):
        drip(found, b"GET /health HTTP/1.1\r\nX-Slow: " + b"x" * 1_000)


def test_a_second_request_on_a_connection_has_no_more_time_than_the_first(impatient_server):
    with impatient_server.connect() as found:
        found.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert serving.first_status(found) == 200
        found.sendall(b"GET /hea")
        assert status_of(serving.all_of(found)) == 408


def test_a_body_that_does_not_come_is_not_waited_for(impatient_server):
    with impatient_server.connect() as found:
        found.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
        answer = serving.all_of(found)
        assert status_of(answer) == 408
        assert b"the body did not arrive" in answer


def test_the_time_outs_are_those_that_are_promised():
    assert (Timeouts().header_seconds, Limits().body_seconds, Limits().generation_seconds) == (10, 30, 60)


def test_a_hundred_idle_sockets_keep_nobody_from_being_answered(served):
    with contextlib.ExitStack() as stack:
        for number in range(100):
            idle = stack.enter_context(served.connect())
            idle.sendall((b"", b"POST /api/cl", HEAD + b"Content-Length: 9\r\n\r\n{")[number % 3])
        assert served.post("/api/classify", **TEXT)[0] == 200
        assert served.get("/health").status == 200


def test_where_there_are_too_many_sockets_the_one_that_waited_longest_goes():
    timeouts = Timeouts(header_seconds=60, connections=20)
    with (
        serving.serving(tiny_runs.path_of("classification"), timeouts=timeouts) as served,
        contextlib.ExitStack() as stack,
    ):
        first, second, *_ = [stack.enter_context(served.connect()) for _ in range(20)]
        assert served.get("/health").status == 200
        assert serving.all_of(first) == b""
        second.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert status_of(serving.all_of(second)) == 200


SLOW = {
    "bodies": (HEAD + b"Content-Length: 100\r\n\r\n{", 0),
    "bodies of refused requests": (HEAD + b"Content-Length: 600000\r\n\r\n{", 413),
    "next requests": (b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
}


@pytest.mark.parametrize("kind", SLOW)
def test_clients_who_keep_us_waiting_for_anything_lock_nobody_out(kind):
    sent, status = SLOW[kind]
    timeouts = Timeouts(header_seconds=60, rest_seconds=60, connections=20)
    with (
        serving.serving(tiny_runs.path_of("classification"), timeouts=timeouts) as served,
        contextlib.ExitStack() as stack,
    ):
        slow = [stack.enter_context(served.connect()) for _ in range(20)]
        for one in slow:
            one.sendall(sent)
            assert not status or serving.first_status(one) == status
        assert served.post("/api/classify", **TEXT)[0] == 200
        assert served.get("/health").status == 200
        assert [is_open(one) for one in slow] == [False] + 19 * [True], "the slowest made room"


def test_many_sockets_that_come_together_are_too_many_together():
    with (
        serving.serving(
            tiny_runs.path_of("classification"), timeouts=Timeouts(header_seconds=60, connections=20)
        ) as served,
        contextlib.ExitStack() as stack,
    ):
        idle = [stack.enter_context(socket.socket()) for _ in range(80)]
        for one in idle:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", served.port))
        assert served.get("/health").status == 200
        serving.wait_until(lambda: sum(map(is_open, idle)) <= 20)


def is_open(found):
    found.setblocking(False)
    try:
        return found.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def steps(wait=lambda: None, on_close=lambda: None, text="x"):
    """A stand-in for the writing: endless, and it tells when it is closed."""
    started = []

    def stream_tokens(*arguments, **settings):
        return generator()

    def generator():
        try:
            while True:
                started.append(len(started))
                wait()
                yield TokenStep(0, text, 1, len(started), None, 0.5, [])
        finally:
            on_close()

    return stream_tokens, started


def test_writing_that_takes_too_long_ends_with_the_reason(impatient_server, monkeypatch):
    monkeypatch.setattr(service, "stream_tokens", steps(lambda: time.sleep(0.01))[0])
    status, whole = impatient_server.post("/api/generate", stream=False)
    assert (status, whole["stop"]) == (200, "time")
    assert 1 <= whole["token_count"] == len(whole["tokens"]) < 60


def test_a_token_that_takes_too_long_ends_the_answer_too(impatient_server, monkeypatch):
    gate = threading.Semaphore(0)
    monkeypatch.setattr(service, "stream_tokens", steps(gate.acquire)[0])
    assert impatient_server.post("/api/generate", stream=False)[1] == {
        "run": "causal", "text": "", "tokens": [], "stop": "time", "token_count": 0, "notes": [],
    }  # fmt: skip
    gate.release(9)


def test_writing_that_cannot_begin_in_time_is_put_off():
    limits = Limits(generation_seconds=0)
    with serving.serving(tiny_runs.path_of("causal"), limits=limits) as served:
        for _ in range(2 * limits.streams):  # and leaves room for the next
            status, answer = served.post("/api/generate")
            assert (status, answer["error"]["what"]) == (503, "the generation could not start in time")
            serving.wait_until(lambda: served.application._working == 0)


def test_a_reader_who_does_not_read_stops_the_writing_and_is_cut_off(impatient_server, monkeypatch):
    closed = threading.Event()
    stream_tokens, started = steps(on_close=closed.set, text="x" * 100_000)
    monkeypatch.setattr(service, "stream_tokens", stream_tokens)
    with impatient_server.streaming(stream=True) as (found, _):
        found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        assert closed.wait(10)
        seen = len(started)
        assert seen < 200, "it was written far ahead of its reader"
        assert impatient_server.get("/health").status == 200
    assert len(started) == seen


def test_more_texts_at_once_than_there_are_writers_are_put_off(impatient_server, monkeypatch):
    gate, closed = threading.Semaphore(0), threading.Semaphore(0)
    monkeypatch.setattr(service, "stream_tokens", steps(gate.acquire, closed.release)[0])
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            found = stack.enter_context(impatient_server.connect())
            found.sendall(serving.request("/api/generate", {}))
        serving.wait_until(lambda: impatient_server.post("/api/generate", stream=False)[0] == 503)
        answer = impatient_server.ask("POST", "/api/generate", "{}")
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        assert impatient_server.post("/api/classify", **TEXT)[0] == 200, "others are served meanwhile"
    gate.release(100)
    assert closed.acquire(timeout=10)
    assert closed.acquire(timeout=10)


def test_more_requests_at_once_than_are_worked_at_are_put_off(monkeypatch):
    gate, working = threading.Semaphore(0), threading.Semaphore(0)

    def wait(*arguments, **settings):
        working.release()
        gate.acquire()
        raise UserError("waited")

    monkeypatch.setattr(service, "score_tokens", wait)
    with serving.serving(tiny_runs.path_of("causal"), limits=Limits(requests=1)) as served:
        with served.connect() as found:
            found.sendall(serving.request("/api/score", TEXT, Connection="close"))
            assert working.acquire(timeout=10)
            answer = served.ask("POST", "/api/score", json.dumps(TEXT))
            assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
            assert served.get("/health").status == 200
            gate.release(9)
            assert status_of(serving.all_of(found)) == 400
        assert served.post("/api/score", **TEXT)[0] == 400, "there is room again"


# ---- 39: gone -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
def test_writing_stops_within_a_token_when_the_client_goes_away(served, monkeypatch, stream):
    gate, closed = threading.Semaphore(0), threading.Event()
    stream_tokens, started = steps(gate.acquire, closed.set)
    monkeypatch.setattr(service, "stream_tokens", stream_tokens)
    found = served.connect()
    found.sendall(serving.request("/api/generate", {"stream": stream}))
    gate.release(3)
    serving.wait_until(lambda: len(started) == 4)  # three are written, the fourth is being computed
    found.close()
    working = served.application
    serving.wait_until(lambda: working._working == 0)
    gate.release(100)
    assert closed.wait(10)
    assert len(started) == 4, "nothing was begun after the client had gone"


def test_streams_of_clients_who_left_leave_room_for_others(served):
    for _ in range(3 * Limits().streams):
        with served.streaming(max_tokens=MOST_TOKENS, temperature=5) as (_, lines):
            next(lines)
        serving.wait_until(lambda: served.application._working == 0)
    serving.wait_until(lambda: served.post("/api/generate", max_tokens=1, stream=False)[0] == 200)


def test_a_request_whose_client_left_before_its_turn_is_not_computed(served, monkeypatch):
    gate, computed, really = threading.Semaphore(0), [], service.classified

    def classified(run, texts, machine):
        computed.append(list(texts))
        gate.acquire()
        yield from really(run, texts, machine)

    monkeypatch.setattr(served.application._application.state.service, "_batchers", {})
    monkeypatch.setattr(service, "classified", classified)
    first, second = served.connect(), served.connect()
    first.sendall(serving.request("/api/classify", {"text": "one"}, Connection="close"))
    serving.wait_until(lambda: computed)
    second.sendall(serving.request("/api/classify", {"text": "two"}))
    serving.wait_until(lambda: served.application._working == 2)
    second.close()
    serving.wait_until(lambda: served.application._working == 1)
    gate.release(9)
    assert status_of(serving.all_of(first)) == 200
    assert served.post("/api/classify", text="three")[0] == 200
    assert computed == [["one"], ["three"]]
    first.close()


WORK = {
    "classify": {"run": "classification", **TEXT},
    "classify with attribution": {"run": "classification", **TEXT, "attribution": "leave-one-out"},
    "score": {"run": "causal", **TEXT},
    "generate": {"run": "causal", "prompt": "un livre."},
    "translate": TEXT,
    "attention": {"run": "translator-joint", **TEXT},
}


@pytest.fixture
def steps_of_work(monkeypatch):
    """Work that waits before each of its steps: the steps so far, a gate for them, and how the work ended."""
    steps, gate, ends = [], threading.Semaphore(0), []

    @contextlib.contextmanager
    def gated(is_cancelled):
        def waits():
            steps.append(len(steps))
            gate.acquire()
            return is_cancelled()

        try:
            with cancellation.cancelled_when(waits):
                yield
            ends.append("done")
        except cancellation.Cancelled:
            ends.append("cancelled")
            raise

    monkeypatch.setattr(batching, "cancelled_when", gated)
    monkeypatch.setattr(streaming, "cancelled_when", gated)
    yield steps, gate, ends
    gate.release(1_000)


@pytest.mark.parametrize("name", WORK)
def test_what_a_client_who_left_has_asked_for_is_given_up_at_its_next_step(served, steps_of_work, name):
    steps, gate, ends = steps_of_work
    if name == "classify with attribution":
        gate.release()  # the prediction itself
    found = served.connect()
    found.sendall(serving.request(f"/api/{name.split()[0]}", WORK[name]))
    serving.wait_until(lambda: len(steps) == 1 + name.endswith("attribution"))
    seen = len(steps)
    found.close()
    serving.wait_until(lambda: served.application._working == 0)
    gate.release(100)
    serving.wait_until(lambda: "cancelled" in ends)
    assert len(steps) == seen


def test_an_answer_that_takes_too_long_is_given_up(steps_of_work):
    steps, gate, ends = steps_of_work
    with serving.serving(tiny_runs.path_of("causal"), limits=Limits(answer_seconds=0.2)) as served:
        answer = served.ask("POST", "/api/score", json.dumps(TEXT))
        assert (answer.status, answer.headers["Retry-After"], len(steps)) == (503, "1", 1)
        gate.release(100)
        serving.wait_until(lambda: ends == ["cancelled"])
        assert served.application._working == 0


# What the server computes, when it is asked to end: it asks between its steps, or never.
ENDLESS = """
import time
from headstart.cancellation import stop_if_cancelled
from headstart.serve import listening, service

def endless(*arguments, **settings):
    print("computing", flush=True)
    while True:
        time.sleep(0.01)
        {asks}

service.score_tokens = endless
listening.ANSWERING_SECONDS, listening.LEAVING_SECONDS = 0.1, {seconds}
"""


@pytest.mark.parametrize(("asks", "seconds"), [("stop_if_cancelled()", 60), ("", 0.5)])
def test_a_server_ends_in_time_whatever_it_computes(tmp_path, asks, seconds):
    log = tmp_path / "log"
    program = ENDLESS.format(asks=asks, seconds=seconds) + commands.COMMAND
    words = ["serve", str(tiny_runs.path_of("causal")), "--port", "0", "--threads", "1"]
    child = commands.forked.start(program, *words, output=log)
    commands.wait_until(lambda: log.exists() and "\n" in log.read_text(), child)
    port = int(log.read_text().strip().rstrip("/").rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as found:
        found.sendall(serving.request("/api/score", TEXT))
        commands.wait_until(lambda: "computing" in log.read_text(), child)
        os.kill(child.pid, signal.SIGTERM)
        assert commands.exit_code_of(child) == 143


def test_a_server_is_given_less_than_five_seconds_to_end():
    assert ANSWERING_SECONDS < LEAVING_SECONDS < 5


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_server_that_ends_breaks_off_in_order(is_begun):
    sent = []

    async def application(scope, receive, send):
        if is_begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.sleep(60)

    async def receive():
        await asyncio.sleep(60)

    async def send(message):
        sent.append(message)

    async def cancelled():
        scope = {"type": "http", "method": "GET", "path": "/api/runs", "headers": [(b"host", b"localhost")]}
        request = asyncio.ensure_future(SecurityMiddleware(application, Access(), Limits())(scope, receive, send))
        await asyncio.sleep(0.01)
        request.cancel()
        await request

    asyncio.run(cancelled())
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert sent[0]["status"] == (200 if is_begun else 503)
    assert not sent[1].get("more_body")


# ---- 40: nonsense -------------------------------------------------------------------------------------------

KEYS = (
    "run", "text", "text_b", "attribution", "prompt", "max_tokens", "temperature", "top_k", "top_p", "seed",
    "alternatives", "stream", "beam", "length_penalty", "target", "texts", "texts_b",
)  # fmt: skip
NUMBERS = st.one_of(
    st.integers(-(10**30), 10**30),
    st.floats(),
    st.sampled_from([10**9, 0, -1, 1e308, float("nan"), float("inf")]),
)
WORDS = st.one_of(
    st.sampled_from(["classification", "causal", "translator-joint", "", "\x00", "\ud800", "é" * 50, "none"]),
    st.text(st.characters(), max_size=30),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, WORDS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(WORDS, inner, max_size=3)),
    max_leaves=5,
)
RUNS = {"classify": "classification", "translate": "translator-joint", "attention": "classification"}
OBJECTS = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=5)


@st.composite
def requests(draw):
    """A route, and a body from nearly right to not JSON at all."""
    route = draw(st.sampled_from(ROUTES))
    name = {"generate": "prompt"}.get(route, "texts" if "batch" in route else "text")
    right = {"run": RUNS.get(route.split("/")[0], "causal"), name: ["un livre."] if name == "texts" else "un livre."}
    right |= {"max_tokens": 2, "stream": draw(st.booleans())} if route == "generate" else {}
    nearly_right = OBJECTS.map(lambda wrong: {**right, **wrong})
    body = draw(st.one_of(nearly_right, OBJECTS, VALUES, st.binary(max_size=40)))
    return route, body if isinstance(body, bytes) else json.dumps(body).encode()


NESTED = b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
WORST = [
    b"", b"null", b"[]", b"{", b'{"text": NaN}', b'{"text": "\xff\xfe"}', b'{"text": "\\ud800"}', NESTED,
    b'{"max_tokens": 1000000000}', b'{"max_tokens": 1e400}', b'{"max_tokens": ' + b"9" * 9_000 + b"}",
    b'{"text": "x", "text": 5}', b"\xef\xbb\xbf{}", b'{"__proto__": {}, "text": "x"}',
]  # fmt: skip


def assert_is_refused_or_served(answer):
    assert answer.status < 500, answer
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert b"Traceback" not in answer.body
    assert b".py" not in answer.body
    if answer.status != 200:
        error = json.loads(answer.body)["error"]
        assert set(error) == {"what", "fix"}
        assert len(answer.body) < 5_000


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("body", WORST, ids=range(len(WORST)))
def test_the_worst_bodies_are_refused_with_a_short_word(served, route, body):
    answer = served.ask("POST", f"/api/{route}", body)
    assert_is_refused_or_served(answer)
    assert answer.status in (200, 400, 422)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=requests())
def test_no_body_is_answered_with_500(served, asked):
    route, body = asked
    assert_is_refused_or_served(served.ask("POST", f"/api/{route}", body))


@settings(max_examples=60, deadline=None)
@given(
    method=st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "X"]),
    path=st.text(string.ascii_letters + string.digits + "/%.-_~?&=:;@", max_size=40),
)
def test_no_address_is_answered_with_500(served, method, path):
    answer = served.ask(method, f"/{path}", "{}" if method == "POST" else None)
    assert answer.status < 500


@settings(max_examples=60, deadline=None)
@given(sent=st.binary(min_size=1, max_size=200))
def test_what_is_not_http_is_answered_with_400_or_not_at_all(served, sent):
    with served.connect() as found:
        found.sendall(sent + b"\r\n\r\n")
        found.shutdown(socket.SHUT_WR)
        answer = serving.all_of(found)
    assert not answer or 400 <= status_of(answer) < 500
    assert b"uvicorn" not in answer.lower()


@pytest.mark.parametrize("number", [{"temperature": 1e-40}, {"temperature": 5e-324}, {"top_p": 1e-320}])
def test_a_number_that_the_arithmetic_does_not_hold_is_refused(served, number):
    status, answer = served.post("/api/generate", stream=False, **number)
    assert (status, answer["error"]["what"].split()[0]) == (422, *number)
    with refused("bad-value"):
        GenerationConfig(**number)
    with refused("bad-value"):
        GenerationConfig(temperature=1e300)


@pytest.mark.parametrize(
    "number", [{"temperature": LEAST_TEMPERATURE}, {"temperature": 100.0}, {"top_p": LEAST_TOP_P}, {"top_k": 10**6}]
)
def test_the_numbers_at_the_bounds_are_held(served, number):
    status, answer = served.post("/api/generate", stream=False, max_tokens=5, **number)
    assert status == 200
    assert all(0 <= token["probability"] <= 1 for token in answer["tokens"])


def test_a_length_that_no_number_holds_is_refused(served):
    with served.connect() as found:
        found.sendall(HEAD + b"Content-Length: " + b"9" * 5_000 + b"\r\nConnection: close\r\n\r\n")
        assert status_of(serving.all_of(found)) in (400, 413)


def test_a_header_that_comes_twice_is_not_read_one_way_or_the_other(served):
    with served.connect() as found:
        found.sendall(b"GET /health HTTP/1.0\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
        assert status_of(serving.all_of(found)) == 400


# ---- 41: from elsewhere -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example:80",
        "",
        "[::2]",
        "10.0.0.1",
        "@",
        "[::1]evil.com",
        "[::1]evil.com:80",
        "localhost:evil.com",
    ],
)
def test_a_foreign_host_is_refused(served, host):
    assert served.get("/api/runs", Host=host).status == 403
    assert served.get("/", Host=host).status == 403


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9", "127.0.0.1:8000", "[::1]:8000", "localhost."])
def test_the_own_host_is_served_at_whatever_port_it_is_called(served, host):
    assert served.get("/api/runs", Host=host).status == 200


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "https://localhost.evil.example",
        "http://localhost:1",
        "",
        "localhost:80",
    ],
)
def test_a_foreign_origin_is_refused(served, origin):
    host = f"localhost:{served.port}"
    assert served.get("/api/runs", Host=host, Origin=origin).status == 403
    own = served.get("/api/runs", Host=host, Origin=f"http://{host}")
    assert own.status == 200
    assert not [name for name in own.headers if name.lower().startswith("access-control")]


def test_work_is_asked_for_by_post_and_json_alone(served):
    body = json.dumps(TEXT)
    for kind in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "",
        "application/jsonp",
    ):
        assert served.ask("POST", "/api/classify", body, {"Content-Type": kind}).status == 415
    assert served.ask("POST", "/api/classify", body, {}).status == 415
    assert served.ask("GET", "/api/classify").status == 405
    assert served.ask("POST", "/api/classify", body, {"Content-Type": "Application/JSON; charset=utf-8"}).status == 200


def test_another_host_needs_a_token():
    with refused("missing", "0.0.0.0", "--token", "HEADSTART_SERVE_TOKEN"):
        access_for("0.0.0.0", None)
    with refused("bad-value", "8 or more"):
        access_for("0.0.0.0", "short")
    assert access_for("127.0.0.1", None).token is None
    access = access_for("0.0.0.0", "a-long-token")
    assert access.knows("192.168.1.7:8000")
    assert access.knows(socket.gethostname())
    assert not access.knows("evil.example")
    assert not access_for("127.0.0.1", None).knows("192.168.1.7")


def test_with_a_token_everything_but_the_page_itself_needs_it():
    access = Access(token="s3cret-token")
    with serving.serving(tiny_runs.path_of("classification"), access=access) as served:
        for path in ("/", "/icon.svg", "/page/api.js", "/health"):
            assert served.get(path).status == 200, path
        for path in ("/api/runs", "/openapi.json", "/api/studies/x/report", "/nothing", "/page", "/health/"):
            assert served.get(path).status == 401, path
        for wrong in ("", "Bearer", "Bearer x", "Basic s3cret-token", "s3cret-token", "Bearer s3cret-token2"):
            answer = served.get("/api/runs", Authorization=wrong)
            assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
            assert b"s3cret" not in answer.body
        assert served.ask("POST", "/api/classify", json.dumps(TEXT)).status == 401
        assert served.get("/api/runs", Authorization="Bearer s3cret-token").status == 200


# ---- 42: text that would like to be markup ------------------------------------------------------------------

PAYLOADS = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</script>", "\u202e\x1b]0;x\x07"]


def test_text_from_runs_is_data_in_every_answer(tmp_path):
    named = tmp_path / "<img src=x onerror=alert(1)>"
    shutil.copytree(tiny_runs.path_of("classification"), named)
    checksummed.change_config(named, lambda text: text.replace('"oui"', json.dumps(PAYLOADS[0])))
    with serving.serving(named) as served:
        answers = [served.get("/api/runs"), served.get("/%3Cscript%3E"), served.get("/page/%3Cscript%3E.js")]
        for payload in PAYLOADS:
            for asked in ({"text": payload}, {"text": "x", "run": payload}, {"text": "x", payload: 1}):
                answers.append(served.ask("POST", "/api/classify", json.dumps(asked)))
                answers.append(served.ask("POST", "/api/attention", json.dumps(asked)))
        assert {answer.status for answer in answers} == {200, 404, 422}
        for answer in answers:
            assert answer.headers["Content-Type"] == "application/json"
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
            json.loads(answer.body)
        label = json.loads(answers[0].body)["runs"][0]
        assert (label["name"], label["labels"]) == (named.name, ["non", PAYLOADS[0]])


# ---- what is told -------------------------------------------------------------------------------------------


def test_errors_tell_no_path_of_the_machine():
    for error in (
        IntegrityError("cannot be read ([Errno 2] No such file: '/home/ada/my runs/tuned/weights.safetensors')"),
        UserError("is no run", where="/home/ada/runs/tuned", fix="look at /home/ada/runs/tuned/config.toml"),
        UserError(f"{os.getcwd()}/secret place/tuned is no run"),
    ):
        told = error_for(error)
        assert told is not None
        assert "/home" not in told.body.decode()
        assert os.getcwd() not in told.body.decode()
    assert error_for(ZeroDivisionError("x")) is None
    assert error_for(MemoryError()).status == 503


def test_a_number_that_is_not_finite_is_null():
    assert json.loads(as_json({"a": [float("nan"), 1.5], "b": float("inf")})) == {"a": [None, 1.5], "b": None}
    assert len(RequestError(400, "x" * 10_000).body) < 1_000


def test_the_bounds_of_a_request_are_within_what_the_package_takes():
    fields = {name: _bounds(messages.GenerateRequest, name) for name in ("temperature", "top_k", "top_p")}
    GenerationConfig(**{name: most for name, (_, most) in fields.items()})
    GenerationConfig(top_p=fields["top_p"][0])
    for penalty in _bounds(messages.TranslateRequest, "length_penalty"):
        GenerationConfig(beam=messages.MOST_BEAMS, length_penalty=penalty)
    assert messages.MOST_ALTERNATIVES <= MOST_ALTERNATIVES


def _bounds(kind, name):
    schema = kind.model_json_schema()["properties"][name]
    return schema.get("minimum", 0), schema["maximum"]
