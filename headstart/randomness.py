"""The only source of randomness: a generator for each (seed, purpose, counters), which no earlier draw changes.

Keys are hashed, not added: seed 1 step 5 must not be seed 2 step 4.
"""

import hashlib

import numpy as np


def _digest(seed: int, purpose: str, counters: tuple[int | str, ...], size: int) -> int:
    key = repr((int(seed), purpose, *(c if isinstance(c, str) else int(c) for c in counters)))
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=size).digest(), "little")


def seed_of(seed: int, purpose: str, *counters: int | str) -> int:
    """A 63-bit seed for a library that wants a number, such as `torch.Generator.manual_seed`."""
    return _digest(seed, purpose, counters, 8) >> 1


def stream(seed: int, purpose: str, *counters: int | str) -> np.random.Generator:
    """The generator for this purpose and these counters; calling again gives the same numbers again."""
    return np.random.Generator(np.random.Philox(key=_digest(seed, purpose, counters, 16)))
