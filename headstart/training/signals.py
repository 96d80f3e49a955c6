"""Being asked to stop: finish the step, save, leave with the signal's exit code; asked twice, leave at once."""

import os
import signal
import threading
from types import FrameType, TracebackType

from headstart.errors import HeadstartError


class Stopped(HeadstartError):
    """The run was asked to stop, and has saved where it was."""

    def __init__(self, number: int, step: int) -> None:
        self.exit_code = 128 + number
        super().__init__(
            f"stopped at step {step} by {signal.Signals(number).name}; it is saved",
            fix="run the same command again to go on",
        )


class StopRequests:
    """Within `with`, SIGINT and SIGTERM are noted instead of obeyed; a second SIGINT ends the process.

    Outside the main thread, where Python lets nobody take signals, whoever owns the main thread has them.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> "StopRequests":
        is_main = threading.current_thread() is threading.main_thread()
        for number in (signal.SIGINT, signal.SIGTERM) if is_main else ():
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.number is not None:
            os._exit(130)  # at once: what is on disk is whole at every moment
        self.number = number
