"""Text that is not text, files without any, and files that are not what they say."""

import codecs
import gzip
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from expected_errors import refused

from headstart.config.reading import Reading
from headstart.data.labelled import read_labelled, read_pairs
from headstart.data.readers import files
from headstart.data.readers.documents import pieces
from headstart.data.readers.files import GZIP_FREE_BYTES, byte_blocks

READERS = {
    "corpus": lambda path: list(pieces([path])),
    "labelled": read_labelled,
    "pairs": read_pairs,
}


@pytest.fixture(params=["corpus.txt", "labelled.jsonl", "labelled.csv", "pairs.tsv"])
def reader_and_name(request):
    kind, _, ending = request.param.partition(".")
    return READERS[kind], f"a.{ending}"


def message_of(code, reader, path):
    with refused(code, str(path)) as caught:
        reader(path)
    assert caught.value.fix
    assert caught.value.exit_code == 2
    return caught.value.text


@pytest.mark.parametrize("is_gzip", [False, True])
def test_latin1_file_is_refused_with_its_offset(tmp_path, reader_and_name, is_gzip):
    reader, name = reader_and_name
    path = tmp_path / (name + ".gz" if is_gzip else name)
    data = b"x" * 300_000 + "caf\xe9 noir".encode("latin-1")
    path.write_bytes(gzip.compress(data) if is_gzip else data)
    message = message_of("bad-text", reader, path)
    assert "byte 300,003: e9" in message
    assert "--encoding=latin-1" in message
    assert "--errors=replace" in message


@pytest.mark.parametrize(
    ("data", "data_in_it"),
    [
        (b"ab\xed\xa0\x80cd", "byte 2: ed"),
        (b"ab\xed\xb0\x80", "byte 2: ed"),
        (b"ab\xc0\xafcd", "byte 2: c0"),
        (b"\xe0\x80\xafcd", "byte 0: e0"),
        (b"abc\xf4\x90\x80\x80", "byte 3: f4"),
        (b"abc\xe2\x82", "byte 3: e2 82"),
        (b"abc\xff", "byte 3: ff"),
        (b"ab\x00c", "byte 2: "),
        ("abc".encode("utf-16-le"), "byte 1: "),
        (codecs.BOM_UTF16_LE + "abc".encode("utf-16-le"), "ff fe"),
        (codecs.BOM_UTF16_BE + "abc".encode("utf-16-be"), "fe ff"),
        (codecs.BOM_UTF32_LE + "abc".encode("utf-32-le"), "--encoding=utf-32"),
        (codecs.BOM_UTF32_BE + "abc".encode("utf-32-be"), "--encoding=utf-32"),
    ],
    ids=[
        "high surrogate", "low surrogate", "overlong of two", "overlong of three", "beyond Unicode",
        "cut character", "never a byte", "NUL", "UTF-16 without mark", "UTF-16 little", "UTF-16 big",
        "UTF-32 little", "UTF-32 big",
    ],
)  # fmt: skip
def test_what_is_not_utf8_is_refused_with_its_byte(tmp_path, reader_and_name, data, data_in_it):
    reader, name = reader_and_name
    (tmp_path / name).write_bytes(data)
    assert data_in_it in message_of("bad-text", reader, tmp_path / name)


def test_utf16_is_read_when_it_is_named(tmp_path):
    (tmp_path / "a.txt").write_bytes("été\nœuvre".encode("utf-16"))
    assert [piece.text for piece in pieces([tmp_path / "a.txt"], Reading(encoding="utf-16"))] == [
        "été",
        "œuvre",
    ]


@pytest.mark.parametrize("encoding", ["klingon", "hex"])
def test_unknown_encoding_is_refused(tmp_path, encoding):
    (tmp_path / "a.txt").write_text("a")
    with refused("unknown-name", encoding):
        list(pieces([tmp_path / "a.txt"], Reading(encoding=encoding)))


def test_an_unknown_way_with_errors_is_refused():
    with refused("bad-value", "errors", "'maybe'"):
        Reading(errors="maybe")


@pytest.mark.parametrize("data", [b"", b"\n\n", b" \t\r\n \n", b"\xef\xbb\xbf", "\u00a0\u2003\n".encode()])
@pytest.mark.parametrize("way", ["auto", "line", "blank", "file"])
def test_a_corpus_without_text_is_refused(tmp_path, data, way):
    (tmp_path / "a.txt").write_bytes(data)
    with refused("bad-text"):
        list(pieces([tmp_path / "a.txt"], Reading(documents=way)))


@pytest.mark.parametrize("data", [b"", b"\n \n", b"\xef\xbb\xbf\n"])
def test_a_table_without_rows_is_refused(tmp_path, reader_and_name, data):
    reader, name = reader_and_name
    (tmp_path / name).write_bytes(data)
    blank = {"a.csv": "unknown-name", "a.tsv": "bad-row"} if data == b"\n \n" else {}
    code = "bad-text" if name == "a.txt" else blank.get(name, "too-few")
    message_of(code, reader, tmp_path / name)


def test_a_table_of_a_header_only_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\n")
    message_of("too-few", read_labelled, tmp_path / "a.csv")


def test_an_empty_gzip_is_refused(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b""))
    message_of("bad-text", READERS["corpus"], tmp_path / "a.txt.gz")
    (tmp_path / "b.txt.gz").write_bytes(b"")
    message_of("bad-text", READERS["corpus"], tmp_path / "b.txt.gz")


# ---- files ----------------------------------------------------------------------------------------------


def test_a_missing_file_names_its_neighbour(tmp_path, reader_and_name):
    reader, name = reader_and_name
    (tmp_path / name).write_text("x")
    message = message_of("no-file", reader, tmp_path / name.replace("a.", "aa."))
    assert str(tmp_path / name) in message


def test_a_missing_folder_is_named(tmp_path):
    message = message_of("no-file", READERS["corpus"], tmp_path / "nowhere" / "a.txt")
    assert message.endswith(str(tmp_path / "nowhere"))


def test_a_directory_is_refused(tmp_path):
    assert f"{tmp_path}/*.txt" in message_of("no-file", READERS["corpus"], tmp_path)


def test_a_device_is_refused():
    message_of("no-file", READERS["corpus"], "/dev/null")


def test_a_file_without_permission_is_refused(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "a.txt").chmod(0)
    if os.access(tmp_path / "a.txt", os.R_OK):  # root may read everything

        def forbidden(*_):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr("headstart.data.readers.files.open", forbidden, raising=False)
    assert "chmod +r" in message_of("no-file", READERS["corpus"], tmp_path / "a.txt")


@pytest.mark.parametrize(
    "name",
    ["model.pt", "model.bin", "x.pkl", "x.npy", "a.safetensors", "a.docx", "a.pdf", "a.zip", "a.bin.gz"],
)
def test_endings_that_are_not_text_are_refused(tmp_path, name):
    (tmp_path / name).write_text("looks like text")
    ending = Path(name.removesuffix(".gz")).suffix
    assert f" {ending} " in message_of("bad-format", READERS["corpus"], tmp_path / name)


@pytest.mark.parametrize(
    ("data", "form"),
    [
        (b"PK\x03\x04....", "zip"),
        (b"%PDF-1.7", "PDF"),
        (b"\xfd7zXZ\x00..", "xz"),
        (b"\x28\xb5\x2f\xfd..", "zstd"),
    ],
)
def test_content_that_is_not_text_is_refused_under_any_name(tmp_path, data, form):
    (tmp_path / "a.txt").write_bytes(data)
    assert form in message_of("bad-format", READERS["corpus"], tmp_path / "a.txt")


def test_a_pickle_is_no_text_under_any_name(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\x80\x04\x95\x0a\x00\x00\x00\x00\x00\x00\x00")
    assert "byte 4" in message_of("bad-text", READERS["corpus"], tmp_path / "a.txt")


# ---- gzip -----------------------------------------------------------------------------------------------


def noise(byte_count):
    return os.urandom(byte_count // 2).hex().encode()


def test_truncated_gzip_is_refused_with_the_bytes_before_it(tmp_path):
    whole = gzip.compress(noise(2_000_000))
    for size in (12, len(whole) // 2, len(whole) - 1):
        (tmp_path / "a.txt.gz").write_bytes(whole[:size])
        message = message_of("corrupt", READERS["corpus"], tmp_path / "a.txt.gz")
        assert re.search(r"[\d,]+ decompressed bytes", message)


def test_corrupt_gzip_is_refused(tmp_path):
    whole = gzip.compress(noise(200_000))
    for offset in (len(whole) // 2, len(whole) - 6):
        broken = bytearray(whole)
        broken[offset] ^= 0xFF
        (tmp_path / "a.txt.gz").write_bytes(broken)
        message_of("corrupt", READERS["corpus"], tmp_path / "a.txt.gz")
    (tmp_path / "a.txt.gz").write_bytes(whole + b"trailing rubbish")
    message_of("corrupt", READERS["corpus"], tmp_path / "a.txt.gz")


def test_a_name_that_says_gzip_must_be_gzip(tmp_path):
    (tmp_path / "a.txt.gz").write_text("plain")
    assert ".gz" in message_of("bad-format", READERS["corpus"], tmp_path / "a.txt.gz")


@pytest.fixture(scope="module")
def bomb(tmp_path_factory):
    """Half a megabyte that becomes 500 MB."""
    path = tmp_path_factory.mktemp("bomb") / "a.txt.gz"
    member = gzip.compress(b"0" * 50_000_000)
    path.write_bytes(member * 10)
    assert path.stat().st_size < 600_000
    return path


@pytest.mark.parametrize("name", ["a.txt.gz", "a.jsonl.gz", "a.csv.gz", "a.tsv.gz"])
def test_a_decompression_bomb_is_refused_early(bomb, name):
    path = bomb.with_name(name)
    if not path.exists():
        path.hardlink_to(bomb)
    start = time.perf_counter()
    message = message_of("too-large", READERS["pairs" if name == "a.tsv.gz" else "corpus"], path)
    assert "gunzip" in message
    assert time.perf_counter() - start < 4


def test_a_bomb_is_read_when_the_cap_is_lifted(bomb, monkeypatch):
    monkeypatch.setattr(files, "GZIP_RATIO", float("inf"))
    total = sum(map(len, byte_blocks(bomb)))
    assert total == 500_000_000


def test_ordinary_text_beyond_the_free_bytes_is_read(tmp_path):
    path = tmp_path / "a.txt.gz"
    block = noise(1 << 20)
    path.write_bytes(gzip.compress(block, 1) * (2 * GZIP_FREE_BYTES // len(block)))
    assert sum(map(len, byte_blocks(path))) == 2 * GZIP_FREE_BYTES


def test_small_files_may_repeat_themselves_a_thousandfold(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"oui\n" * 5_000_000))
    assert sum(map(len, byte_blocks(tmp_path / "a.txt.gz"))) == 20_000_000


# ---- memory ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("word", ["mot ", "x" * 4], ids=["with spaces", "without"])
@pytest.mark.parametrize("way", ["auto", "line", "blank", "file"])
def test_a_gigabyte_in_one_line_is_read_in_bounded_memory(tmp_path, word, way):
    path = tmp_path / "a.txt"
    with open(path, "w") as file:
        for _ in range(1024):
            file.write(word * (1 << 18))
    program = (
        "import resource, sys; from headstart.data.readers.documents import pieces\n"
        "from headstart.config.reading import Reading\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "count = sum(len(piece.text) for piece in pieces([sys.argv[1]], Reading(documents=sys.argv[2])))\n"
        "print(count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run([sys.executable, "-c", program, path, way], capture_output=True, text=True, check=True)
    character_count, grown_kilobytes = map(int, done.stdout.split())
    assert character_count == 1 << 30
    assert grown_kilobytes < 20_000
