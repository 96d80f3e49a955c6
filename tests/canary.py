"""What must never sing: something whose unpickling would run code."""

import builtins


class Canary:
    """Unpickled, it makes a file: the proof that code has run."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return builtins.open, (str(self.path), "w")
