"""Stopping by a signal: finish the step, save, exit with the signal's code; a second SIGINT exits at once."""

import os
import signal
import threading
from types import FrameType

from headstart.errors import Code, HeadstartError


class Stopped(HeadstartError):
    """A signal stopped the run, and a checkpoint is saved."""

    code: Code = "stopped"

    def __init__(self, number: int, step: int) -> None:
        self.exit_code = 128 + number
        what = f"stopped at step {step} by {signal.Signals(number).name}; it is saved"
        super().__init__(what, fix="run the same command again to resume")


class StopRequests:
    """Within `with`, SIGINT and SIGTERM are recorded in `number`; a second SIGINT ends the process."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> "StopRequests":
        # Elsewhere Python allows no handlers.
        is_main = threading.current_thread() is threading.main_thread()
        for number in (signal.SIGINT, signal.SIGTERM) if is_main else ():
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.number is not None:
            os._exit(130)  # at once: the files on disk are complete at every moment
        self.number = number
