"""An object whose unpickling runs code: it creates a file, so that a test sees whether anything unpickled it."""

import builtins


class Canary:
    """Unpickled, it makes a file: the proof that code has run."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return builtins.open, (str(self.path), "w")
