"""What every request goes through before the application sees it."""

import asyncio
import json

import pytest

from headstart.serve.security import Access, Limits, SecurityMiddleware

LOCAL = {"host": "127.0.0.1:8000"}
POST = {**LOCAL, "content-type": "application/json"}


async def echo(scope, receive, send):
    """An application that answers with the body that it was sent."""
    body = (await receive())["body"]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"cache-control", b"max-age=1")]})
    await send({"type": "http.response.body", "body": body})


def asked(method="GET", path="/api/runs", headers=LOCAL, body=(b"",), access=None, limits=None):
    """Status, headers and body of the answer; `headers` may be pairs, `body` comes in parts."""
    pairs = headers.items() if isinstance(headers, dict) else headers
    scope = {"type": "http", "method": method, "path": path}
    scope["headers"] = [(name.encode(), value.encode()) for name, value in pairs]
    parts, sent = list(body), []

    async def receive():
        if parts:
            return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}
        await asyncio.sleep(60)

    async def send(message):
        sent.append(message)

    asyncio.run(SecurityMiddleware(echo, access or Access(), limits or Limits())(scope, receive, send))
    answer = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], dict(sent[0]["headers"]), answer


def test_what_is_sent_reaches_the_application_in_one_piece():
    assert asked("POST", headers=POST, body=[b'{"a"', b": 1}"])[::2] == (200, b'{"a": 1}')


def test_every_answer_has_the_headers_of_a_careful_server_and_its_own_stay():
    _, headers, _ = asked()
    assert headers[b"x-content-type-options"] == b"nosniff"
    assert headers[b"x-frame-options"] == b"DENY"
    assert headers[b"cache-control"] == b"max-age=1"
    policy = headers[b"content-security-policy"].decode()
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:8000", "localhost."])
def test_the_servers_own_names_are_known(host):
    assert asked(headers={"host": host})[0] == 200


@pytest.mark.parametrize(
    "host",
    [
        "", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1", "[::1]evil.example",
        "[::1].evil.example:80", "[::1", "::1]", "[localhost]", "localhost:evil.example", "localhost:80:80",
        "localhost..",
    ],
)  # fmt: skip
def test_another_host_is_refused(host):
    assert asked(headers={"host": host})[0] == 403
    assert asked(headers=[])[0] == 403


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://127.0.0.1:8000", 200),
        ("http://evil.example", 403),
        ("null", 403),
        ("http://127.0.0.1:9", 403),
    ],
)
def test_a_page_of_another_origin_is_refused(origin, status):
    assert asked(headers={**LOCAL, "origin": origin})[0] == status


@pytest.mark.parametrize(
    ("authorization", "status"),
    [("Bearer correct-horse", 200), ("bearer correct-horse", 200), ("Bearer wrong", 401), ("Basic correct-horse", 401),
     ("", 401), ("Bearer ", 401)],
)  # fmt: skip
def test_a_token_is_asked_for_where_there_is_one(authorization, status):
    access = Access(token="correct-horse")
    given, headers, body = asked(headers={**LOCAL, "authorization": authorization}, access=access)
    assert given == status
    if status == 401:
        assert headers[b"www-authenticate"] == b"Bearer"
        assert "correct-horse" not in json.loads(body)["error"]["what"]
    assert asked(path="/", access=access)[0] == 200, "the page itself is open: it asks for the token"


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded"])
def test_a_body_that_a_form_could_send_is_refused(kind):
    assert asked("POST", headers={**LOCAL, "content-type": kind})[0] == 415


def test_a_body_that_is_too_large_is_refused_by_its_length_or_while_it_comes():
    limits = Limits(body_bytes=10)
    assert asked("POST", headers={**POST, "content-length": "11"}, limits=limits)[0] == 413
    assert asked("POST", headers=POST, body=[b"123456", b"7890"], limits=limits)[0] == 200
    assert asked("POST", headers=POST, body=[b"123456", b"78901"], limits=limits)[0] == 413


def test_a_body_that_does_not_come_is_not_waited_for():
    assert asked("POST", headers=POST, body=[], limits=Limits(body_seconds=0.05))[0] == 408


@pytest.mark.parametrize("name", ["host", "origin", "authorization", "content-length"])
def test_a_header_that_comes_twice_is_refused(name):
    assert asked(headers=[*LOCAL.items(), (name, "1"), (name, "2")])[0] == 400


def test_more_than_are_worked_at_are_put_off():
    status, headers, _ = asked(limits=Limits(requests=0))
    assert (status, headers[b"retry-after"]) == (503, b"1")
    assert asked(path="/health", limits=Limits(requests=0))[0] == 200
