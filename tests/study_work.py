"""Work for the tests of the study's workers: it has to be importable in another process."""

import os
import signal
import time
from pathlib import Path

from headstart.errors import UserError


def work(argument, on_share):
    """What each kind of task does; `place` is where it leaves a file when it is done."""
    kind, place = argument
    place = Path(place)
    on_share(0.5)
    if kind == "user error":
        raise UserError("came", fix="give something else")
    if kind == "bug":
        raise ZeroDivisionError("a bug")
    if kind == "dies once" and not place.with_suffix(".tried").exists():
        place.with_suffix(".tried").write_text("")
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "sleeps":
        place.with_suffix(".pid").write_text(str(os.getpid()))
        time.sleep(600)
    place.write_text(str(time.monotonic()))
