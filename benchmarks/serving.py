"""Requests a second of `headstart serve` and their 95th percentile, with batching and one by one.

    python benchmarks/serving.py [RUN] [--clients 32] [--seconds 10] [--rounds 2] [--threads 2]

RUN is a classification run that reads 130 tokens or more; without one, a model of the lab's shape is trained for a few
steps on the embedded corpus. The server is a process of its own on loopback, the clients are here: each has a
connection that stays open and sends a text as soon as it has the answer to the last. Texts have 10 tokens, or 130, or
as many of the one as of the other. The two servers take turns, also at being first; the best of the rounds counts.
One client alone shows what waiting for company would cost: nobody waits. Prints rates, percentiles and ratios, and a
JSON line.
"""

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

SIZES = {"10": (10,), "130": (130,), "both": (10, 130)}
MODES = ("batching", "one by one")
TEXTS = 64


# ---- the server ---------------------------------------------------------------------------------------------


def child(run: str, mode: str, threads: str) -> None:
    """Serve until killed; the address is printed first."""
    from headstart.machine import choose
    from headstart.serve.application import create_application
    from headstart.serve.listening import address_of, listen, server_for
    from headstart.serve.models import Models

    machine = choose("cpu", "fp32", int(threads))
    machine.prepare()
    application = create_application(Models.at([run], machine), batching=mode == MODES[0])
    socket = listen("127.0.0.1", 0)
    print(address_of(socket), flush=True)
    server_for(application).run(sockets=[socket])


@contextlib.contextmanager
def server(run: str, mode: str, threads: int) -> Iterator[int]:
    """The port of a server in a process of its own."""
    command = [sys.executable, __file__, "--child", run, mode, str(threads)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline().strip().rstrip("/").rpartition(":")[2])
        finally:
            process.kill()


# ---- the clients --------------------------------------------------------------------------------------------


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: str) -> float:
    """The seconds until the answer is there."""
    body = json.dumps({"text": text}).encode()
    head = (
        "POST /api/classify HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    started = time.perf_counter()
    writer.write(head.encode() + body)
    answer = await reader.readuntil(b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200"), answer
    length = int(answer.lower().partition(b"content-length:")[2].split()[0])
    await reader.readexactly(length)
    return time.perf_counter() - started


async def client(port: int, texts: list[str], first: int, end: float) -> list[float]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    taken = []
    while time.perf_counter() < end:
        taken.append(await ask(reader, writer, texts[(first + len(taken)) % len(texts)]))
    writer.close()
    return taken


async def load(port: int, texts: list[str], clients: int, seconds: float) -> dict[str, float]:
    """Requests a second, and the 95th percentile of their time, after a second to warm up."""
    await asyncio.gather(*(client(port, texts, n, time.perf_counter() + 1) for n in range(clients)))
    started = time.perf_counter()
    found = await asyncio.gather(*(client(port, texts, n, started + seconds) for n in range(clients)))
    elapsed = time.perf_counter() - started
    taken = np.concatenate([np.array(one) for one in found])
    return {"rate": len(taken) / elapsed, "p95_ms": float(np.percentile(taken, 95)) * 1e3}


# ---- the run and its texts ----------------------------------------------------------------------------------


def lab_run(place: Path) -> str:
    """A classification run of the lab's shape; what it has learned does not matter here."""
    from headstart.demo.corpus import write_demo
    from headstart.training.tasks.finetune import finetune

    write_demo(place / "demo")
    finetune(
        place / "demo" / "train.jsonl",
        out=place / "run",
        preset="lab",
        length=160,
        steps=3,
    )
    return str(place / "run")


def texts_of(run: str, tokens: int) -> list[str]:
    """Texts that the run reads as so many tokens, its special ones counted."""
    from headstart.demo.corpus import reviews
    from headstart.inference.predict import framed
    from headstart.runs.load import load as load_run

    loaded, found = load_run(run), []
    words = " ".join(review.french for review in reviews(0, "unlabelled", count=40 * TEXTS)).split()
    while len(found) < TEXTS:
        text, words = words[0], words[1:]
        while len(framed(loaded, [text])[0].tokens) < tokens:
            text, words = f"{text} {words[0]}", words[1:]
        if len(framed(loaded, [text])[0].tokens) == tokens:
            found.append(text)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--child", nargs=3)
    options = parser.parse_args()
    if options.child:
        return child(*options.child)
    with tempfile.TemporaryDirectory() as name:
        run = options.run or lab_run(Path(name))
        measure(run, options)


def measure(run: str, options: argparse.Namespace) -> None:
    by_size = {size: texts_of(run, size) for size in (10, 130)}
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name, sizes in SIZES.items():
        texts = [text for together in zip(*(by_size[size] for size in sizes), strict=True) for text in together]
        for clients in (options.clients, 1):
            best = found.setdefault(f"{name} tokens, {clients} clients", {})
            for number in range(options.rounds):
                for mode in MODES if number % 2 == 0 else MODES[::-1]:  # neither is always the first
                    with server(run, mode, options.threads) as port:
                        once = asyncio.run(load(port, texts, clients, options.seconds))
                    if mode not in best or once["rate"] > best[mode]["rate"]:
                        best[mode] = once
    for case, modes in found.items():
        print(case)
        for mode, numbers in modes.items():
            print(f"  {mode:11} {numbers['rate']:8.1f} requests a second, 95 % within {numbers['p95_ms']:.1f} ms")
        print(f"  ratio       {modes[MODES[0]]['rate'] / modes[MODES[1]]['rate']:8.2f}")
    settings = {key: getattr(options, key) for key in ("clients", "seconds", "rounds", "threads")}
    print(json.dumps({"cases": found, **settings}))


if __name__ == "__main__":
    main()
