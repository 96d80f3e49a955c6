"""A real server on a port of its own, in a thread of this process, and ways to talk to it."""

import contextlib
import http.client
import json
import socket
import threading
import time
from collections import namedtuple

import tiny_runs

from headstart.serve.application import create_application
from headstart.serve.listening import listen, server_for
from headstart.serve.models import Models
from headstart.serve.security import Access, Limits

JSON = {"Content-Type": "application/json"}
Answer = namedtuple("Answer", "status headers body")


class Served:
    """A server that is running, and how it is asked."""

    def __init__(self, port, models, application):
        self.port, self.models, self.application = port, models, application

    def ask(self, method, path, body=None, headers=JSON):
        """One request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def get(self, path, **headers):
        return self.ask("GET", path, headers=headers)

    def post(self, path, **asked):
        """The answer to a JSON object, as a status and an object."""
        answer = self.ask("POST", path, json.dumps(asked))
        return answer.status, json.loads(answer.body)

    def connect(self):
        """A bare socket."""
        found = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return found

    @contextlib.contextmanager
    def streaming(self, **asked):
        """The socket of a text that is being written, and its lines as they come."""
        with self.connect() as found, found.makefile("rb") as file:
            found.sendall(request("/api/generate", asked))
            while file.readline().strip():
                pass
            yield found, chunks(file)


def request(path, asked, **headers):
    """The bytes of a POST."""
    body = json.dumps(asked).encode()
    lines = {"Host": "127.0.0.1", **JSON, "Content-Length": len(body), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def chunks(file):
    """The chunks of a body that comes in chunks: here a line each."""
    while size := int(file.readline(), 16):
        yield file.read(size)
        file.readline()


def all_of(found):
    """What a socket gives until the other side hangs up; a reset is a way to hang up."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := found.recv(65_536):
            parts.append(part)
    return b"".join(parts)


def first_status(found):
    """The status of the next answer on a socket, whose body is read too."""
    answer = http.client.HTTPResponse(found)
    answer.begin()
    answer.read()
    return answer.status


@contextlib.contextmanager
def serving(*paths, access=None, limits=None, timeouts=None):
    """A server for the runs in these directories."""
    models = Models.at(paths, tiny_runs.MACHINE)
    application = create_application(models, access or Access(), limits or Limits())
    with running(application, timeouts) as port:
        yield Served(port, models, application)


@contextlib.contextmanager
def running(application, timeouts=None):
    """An application in a server of its own; gives its port."""
    server, at = server_for(application, timeouts), listen("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [at]}, daemon=True)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.005)
        yield at.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(60)
        at.close()
        assert not thread.is_alive(), "the server does not end"


def wait_until(true, seconds=10):
    last = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < last, "it does not come"
        time.sleep(0.002)
