"""Fingerprints of files."""

import hashlib
import os

from expected_errors import refused

from headstart.data.fingerprints import BLOCK_BYTES, fingerprint, is_unchanged


def test_a_file_is_known_by_all_its_bytes_and_not_by_its_name(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"un\ndeux\n")
    (tmp_path / "b.txt").write_bytes(b"un\ndeux\n")
    one, other = fingerprint(tmp_path / "a.txt"), fingerprint(tmp_path / "b.txt")
    assert one.sha256 == hashlib.sha256(b"un\ndeux\n").hexdigest()
    assert (one.size_bytes, one.is_whole) == (8, True)
    assert one.identity() == other.identity()


def test_the_same_bytes_read_in_another_way_are_another_corpus(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"x\n")
    (tmp_path / "a.csv").write_bytes(b"x\n")
    assert fingerprint(tmp_path / "a.txt").identity() != fingerprint(tmp_path / "a.csv").identity()


def test_of_a_large_file_blocks_and_the_time_count(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"a" * (2 * BLOCK_BYTES))
    before = fingerprint(path, whole_bytes=BLOCK_BYTES)
    assert not before.is_whole
    os.utime(path, ns=(1, before.mtime_ns + 1))
    after = fingerprint(path, whole_bytes=BLOCK_BYTES)
    assert after.sha256 == before.sha256
    assert after.identity() != before.identity()
    assert fingerprint(path).identity() == fingerprint(path).identity()


def test_a_change_is_seen_by_size_or_time(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"x\n")
    known = fingerprint(path)
    assert is_unchanged(known)
    path.write_bytes(b"xy\n")
    assert not is_unchanged(known)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with refused("no-file", "nowhere.txt"):
        fingerprint(tmp_path / "nowhere.txt")
