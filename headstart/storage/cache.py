"""Where what can be made again is kept: token stores, calibrations."""

import os
from pathlib import Path


def cache_directory() -> Path:
    """HEADSTART_CACHE, else headstart in the platform's cache directory."""
    if given := os.environ.get("HEADSTART_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headstart"
