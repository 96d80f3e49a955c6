"""Systems that live in processes of their own and take turns: one that crashes or swells disturbs no other.

The parent asks in lines of JSON, a child answers each with one line. What a library prints goes to the child's log.
"""

import json
import os
import select
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


class Failed(Exception):
    """A child that crashed, answered with an error, or took too long."""


class Child:
    """A process that builds a system, keeps it, and measures it when asked."""

    def __init__(self, script: str, *arguments: str | Path, log: Path) -> None:
        self.log = log
        with log.open("w") as file:
            self.process = subprocess.Popen(
                [sys.executable, script, "--child", *map(str, arguments)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True,
            )  # fmt: skip

    def ask(self, question: str, limit_seconds: float, **given: Any) -> dict[str, Any]:
        """What the child answers; Failed where it cannot."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps({"question": question, **given}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failed(self._last_words()) from None
        ready, _, _ = select.select([self.process.stdout], [], [], limit_seconds)
        if not ready:
            raise Failed(f"no answer within {limit_seconds:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            raise Failed(self._last_words())
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def close(self) -> None:
        """End it: it holds nothing that has to be saved."""
        self.process.kill()
        self.process.communicate()

    def _last_words(self) -> str:
        code = self.process.wait()
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return f"ended with {code}: {lines[-1] if lines else 'without a word'}"


def answer_questions(answers: Mapping[str, Callable[..., dict[str, Any]]]) -> None:
    """A child's life: answer until nobody asks any more. An error is an answer, too."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = answers[asked.pop("question")](**asked)
        except Exception as error:
            traceback.print_exc()
            first = (str(error).strip().splitlines() or [""])[0]
            answer = {"error": f"{type(error).__name__}: {first[:200]}"}
        print(json.dumps(answer), file=replies, flush=True)


def seconds_of(action: Callable[[], None], wait: Callable[[], None]) -> float:
    """Wall time of something, from when all before it is done until all of it is."""
    wait()
    started = time.perf_counter()
    action()
    wait()
    return time.perf_counter() - started
