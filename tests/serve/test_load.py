"""Thirty-two clients at once for half a minute: all are answered, and the server grows no larger."""

import http.client
import json
import os
import signal
import threading
import time
from pathlib import Path

import commands
import pytest
import serving
import small
import tiny_runs

CLIENTS, SECONDS, WARM_SECONDS = 32, 30, 6
MOST_GROWTH_BYTES = 8_000_000


def resident_bytes(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def classify_until(end, port, number, counts, failures):
    """One client: a connection of its own, a request after the other."""
    texts = small.sentences(50, seed=number)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        while time.monotonic() < end:
            body = json.dumps({"text": texts[counts[number] % len(texts)]})
            connection.request("POST", "/api/classify", body, serving.JSON)
            answer = connection.getresponse()
            found = json.loads(answer.read())
            if answer.status != 200 or set(found["probabilities"]) != {"oui", "non"}:
                failures.append((answer.status, found))
                return
            counts[number] += 1
    except OSError as error:
        failures.append(error)
    finally:
        connection.close()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
def test_32_clients_are_all_answered_and_the_memory_does_not_grow(tmp_path):
    log = tmp_path / "log"
    words = ["serve", tiny_runs.path_of("classification"), "--port", "0", "--threads", "1"]
    child = commands.forked.start(commands.COMMAND, *words, output=log)
    commands.wait_until(lambda: log.exists() and "\n" in log.read_text(), child)
    port = int(log.read_text().strip().rstrip("/").rpartition(":")[2])
    counts, failures, start = [0] * CLIENTS, [], time.monotonic()
    clients = [
        threading.Thread(target=classify_until, args=(start + SECONDS, port, number, counts, failures))
        for number in range(CLIENTS)
    ]
    for client in clients:
        client.start()
    time.sleep(WARM_SECONDS)
    warm = resident_bytes(child.pid)
    for client in clients:
        client.join()
    grown = resident_bytes(child.pid) - warm
    os.kill(child.pid, signal.SIGTERM)
    assert commands.exit_code_of(child) == 143
    assert not failures
    assert min(counts) > 0, "nobody was left waiting"
    assert grown < MOST_GROWTH_BYTES
    assert log.read_text().count("\n") == 1, "and nothing went wrong in it"
