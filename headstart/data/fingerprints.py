"""Fingerprints of files, to see whether a file is still the one that a store was built from.

Of a file up to 256 MiB all bytes are hashed. Of a larger one 64 blocks are hashed, spread evenly and with both ends,
and its modification time counts too.
"""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.data.readers.files import byte_blocks
from headstart.data.readers.sources import Source, Table, dataset_files, form_of, is_stdin
from headstart.errors import UserError

WHOLE_BYTES = 256 << 20
BLOCK_BYTES = 1 << 20
BLOCKS = 64


@dataclass(frozen=True)
class Fingerprint:
    """What is known of a source file."""

    name: str
    form: str  # how it is read, by its ending: the same bytes as text and as a table are two corpora
    size_bytes: int
    mtime_ns: int
    sha256: str
    is_whole: bool  # whether every byte was hashed

    def identity(self) -> list[Any]:
        """What two equal files share: not the name, and the time only where not every byte was hashed."""
        return [self.form, self.size_bytes, self.sha256, None if self.is_whole else self.mtime_ns]


def fingerprint(path: Source, *, whole_bytes: int = WHOLE_BYTES) -> Fingerprint:
    """The fingerprint of a file as it is now; of a pipe, of what came through it; of a table, of its rows."""
    if isinstance(path, Table):
        return _of_table(path)
    name, form = str(path), form_of(path)
    if form == "dataset":
        return _of_files(name, [fingerprint(file, whole_bytes=whole_bytes) for file in dataset_files(path)])
    if is_stdin(path) or Path(path).is_fifo():
        digest, size = hashlib.sha256(), 0
        for block in byte_blocks(path):
            digest.update(block)
            size += len(block)
        return Fingerprint(name, form, size, 0, digest.hexdigest(), True)
    try:
        with open(path, "rb") as file:
            about = os.fstat(file.fileno())
            size, is_whole = about.st_size, about.st_size <= whole_bytes
            if is_whole:
                digest = hashlib.file_digest(file, "sha256")
            else:
                digest = hashlib.sha256()
                for number in range(BLOCKS):
                    file.seek((size - BLOCK_BYTES) * number // (BLOCKS - 1))
                    digest.update(file.read(BLOCK_BYTES))
    except OSError as error:
        fix = "check the path"
        raise UserError(f"cannot be read ({error.strerror})", where=name, fix=fix, code="no-file") from error
    return Fingerprint(name, form, size, about.st_mtime_ns, digest.hexdigest(), is_whole)


def _of_files(name: str, files: list[Fingerprint]) -> Fingerprint:
    """The fingerprint of a folder's files, in their order, without their names."""
    digest = hashlib.sha256(json.dumps([file.identity() for file in files]).encode()).hexdigest()
    size, mtime_ns = sum(file.size_bytes for file in files), max(file.mtime_ns for file in files)
    return Fingerprint(name, "dataset", size, mtime_ns, digest, all(file.is_whole for file in files))


def _of_table(table: Table) -> Fingerprint:
    digest, size = hashlib.sha256(json.dumps(table.columns).encode()), 0
    for values in table.read(table.columns):
        row = json.dumps(values, default=str).encode() + b"\n"
        digest.update(row)
        size += len(row)
    return Fingerprint(table.name, "table", size, 0, digest.hexdigest(), True)


def is_unchanged(known: Fingerprint) -> bool:
    """Whether size and time of a file, or of a folder's files, still are what they were; pipes and tables stay."""
    if known.form == "table" or not os.path.exists(known.name) or Path(known.name).is_fifo():
        return True
    files = dataset_files(known.name) if known.form == "dataset" else [Path(known.name)]
    about = [file.stat() for file in files]
    size, mtime_ns = sum(one.st_size for one in about), max(one.st_mtime_ns for one in about)
    return (size, mtime_ns) == (known.size_bytes, known.mtime_ns)
