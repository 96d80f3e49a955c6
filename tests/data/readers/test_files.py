"""Bytes to text: wherever the blocks are cut, plain or gzip, from a file, a pipe or standard input."""

import gzip
import io
import itertools
import os
import sys
import threading
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.config.reading import DEFAULT_READING, Reading
from headstart.data.readers.files import byte_blocks, decoded, lines, lines_as_they_come, text_blocks
from headstart.data.readers.sources import form_of
from headstart.errors import UserError

# Every character that a text file may hold: all but NUL and surrogates.
TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))


def cut(data, positions):
    positions = sorted({position % (len(data) + 1) for position in positions})
    return [data[a:b] for a, b in zip([0, *positions], [*positions, len(data)], strict=True)]


def read(path, reading=DEFAULT_READING):
    return "".join(text_blocks(path, reading))


@settings(deadline=None)
@given(TEXT, st.lists(st.integers(0, 10_000)))
def test_cuts_of_the_byte_stream_do_not_matter(text, positions):
    blocks = cut(text.encode(), positions)
    assert "".join(decoded(blocks, "f", DEFAULT_READING)) == text.removeprefix("\ufeff")


@settings(deadline=None)
@given(TEXT, st.sampled_from(["utf-16", "utf-32", "utf-16-le", "utf-8-sig"]), st.lists(st.integers(0, 10_000)))
def test_other_encodings_are_read_when_named(text, encoding, positions):
    blocks = cut(text.encode(encoding), positions)
    assert "".join(decoded(blocks, "f", Reading(encoding=encoding))) == text.removeprefix("\ufeff")


@settings(deadline=None)
@given(st.binary(), st.lists(st.integers(0, 10_000)))
def test_refusal_and_offset_do_not_depend_on_the_cuts(data, positions):
    def outcome(blocks):
        try:
            return "".join(decoded(blocks, "f", DEFAULT_READING))
        except UserError as error:
            # Among several faults the first block with one decides, so only a single kind is compared.
            return str(error) if b"\x00" not in data else "refused"

    assert outcome([data]) == outcome(cut(data, positions))


def test_byte_order_mark_is_dropped_once_and_only_at_the_start(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeff\ufeffa\ufeffb".encode())
    assert read(path) == "\ufeffa\ufeffb"


def test_nothing_else_is_normalised(tmp_path):
    text = "e\u0301 é ﬁ \u00a0\u2028\r\nA\rB\x0b\x85 "
    path = tmp_path / "a.txt"
    path.write_bytes(text.encode())
    assert read(path) == text


def test_replace_and_ignore_read_on(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("été".encode("latin-1"))
    assert read(path, Reading(errors="replace")) == "\ufffdt\ufffd"
    assert read(path, Reading(errors="ignore")) == "t"
    assert read(path, Reading(encoding="latin-1")) == "été"


def test_gzip_equals_plain_by_content_not_by_name(tmp_path):
    data = "ligne é\n".encode() * 100_000
    for name, content in [("a.txt", data), ("a.txt.gz", gzip.compress(data)), ("b.txt", gzip.compress(data))]:
        (tmp_path / name).write_bytes(content)
        assert b"".join(byte_blocks(tmp_path / name)) == data


def test_gzip_of_several_members_is_read_whole(tmp_path):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"one ") + gzip.compress(b"two ") + gzip.compress(b""))
    assert read(path) == "one two "


def test_bytes_read_are_told_as_they_stand_on_disk(tmp_path):
    for name, content in [
        ("a.txt", b"x" * 600_000),
        ("a.txt.gz", gzip.compress(os.urandom(300_000).hex().encode())),
    ]:
        (tmp_path / name).write_bytes(content)
        told = []
        list(text_blocks(tmp_path / name, DEFAULT_READING, told.append))
        assert sum(told) == len(content)
        assert len(told) > 1


def stdin_of(data):
    return SimpleNamespace(buffer=io.BytesIO(data))


def test_standard_input_can_be_read_again_and_again(monkeypatch):
    monkeypatch.setattr(sys, "stdin", stdin_of("été".encode()))
    assert [read("-"), read("-"), read("/dev/stdin")] == ["été"] * 3
    monkeypatch.setattr(sys, "stdin", stdin_of(gzip.compress(b"another")))
    assert read("-") == "another"


def test_a_pipe_is_read_twice_though_it_gives_its_content_once(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_bytes(b"from a pipe"))
    writer.start()
    assert [read(path), read(path)] == ["from a pipe"] * 2
    writer.join()


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a.txt", "text"), ("a", "text"), ("a.md.gz", "text"), ("-", "text"), ("dir.csv/a", "text"),
        ("a.JSONL", "jsonl"), ("a.jsonl.gz", "jsonl"), ("-.jsonl", "jsonl"), ("a.ndjson", "jsonl"),
        ("a.csv", "csv"), ("a.tsv.gz", "tsv"), ("a.parquet", "parquet"), ("train.review.spm.gz", "spm"),
    ],
)  # fmt: skip
def test_form_goes_by_the_name(name, form):
    assert form_of(name) == form


class _Pieces:
    """A stream that gives what it has, piece by piece."""

    def __init__(self, data, cuts):
        edges = [0, *sorted(cuts), len(data)]
        self.pieces = [data[a:b] for a, b in itertools.pairwise(edges) if a < b]

    def read1(self, size):
        return self.pieces.pop(0) if self.pieces else b""


@given(st.text("aé\r\n\u2028😀", max_size=12), st.data())
def test_lines_that_come_piece_by_piece_are_those_of_the_file(tmp_path_factory, text, data):
    path, content = tmp_path_factory.mktemp("lines") / "a.txt", text.encode()
    path.write_bytes(content)
    cuts = data.draw(st.lists(st.integers(0, len(content)), max_size=5))
    groups = list(lines_as_they_come(_Pieces(content, cuts), "-", DEFAULT_READING))
    assert [line for group in groups for line in group] == list(lines(path, DEFAULT_READING))


def test_a_line_that_has_come_is_there_before_the_next():
    stream = _Pieces(b"a\nb\nc\r\n", [2])
    found = lines_as_they_come(stream, "-", DEFAULT_READING)
    assert next(found) == ["a"]
    assert stream.pieces == [b"b\nc\r\n"]
    assert next(found) == ["b", "c"]
