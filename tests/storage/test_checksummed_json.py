"""JSON with its own sha256: every cut, every flipped bit and every edit is found."""

import json

import checksummed
import pytest
from expected_errors import refused

from headstart.errors import IntegrityError
from headstart.randomness import stream
from headstart.storage.checksummed_json import dump, parse, read

DATA = {"name": "été", "values": [1, 2.5, None], "inner": {"a": True, "b": {}}, "empty": []}


@pytest.mark.parametrize("indent", [None, 1])
def test_it_is_read_as_it_was_written_and_any_reader_of_json_reads_it(indent):
    raw = dump(DATA, indent)
    assert parse(raw) == DATA
    read_by_others = json.loads(raw)
    assert (list(read_by_others)[-1], len(read_by_others.pop("sha256"))) == ("sha256", 64)
    assert read_by_others == DATA


def test_the_checksum_is_that_of_the_text_without_it():
    assert dump({"a": 1, "b": [2]}) == checksummed.signed({"a": 1, "b": [2]})


@pytest.mark.parametrize("indent", [None, 1])
def test_every_cut_and_every_flipped_bit_is_found(indent):
    raw = dump(DATA, indent)
    for end in range(len(raw)):
        with pytest.raises(ValueError, match="not what was written"):
            parse(raw[:end])
    draws = stream(0, "flips")
    for offset in range(len(raw)):
        damaged = bytearray(raw)
        damaged[offset] ^= 1 << int(draws.integers(8))
        with pytest.raises(ValueError, match="not what was written"):
            parse(bytes(damaged))


@pytest.mark.parametrize("raw", [b"", b"{}", b"[1]", b"null", b"[" * 10**5, json.dumps(DATA).encode()])
def test_what_has_no_checksum_is_refused_with_its_place_and_the_fix(tmp_path, raw):
    (tmp_path / "x.json").write_bytes(raw)
    with refused("corrupt", str(tmp_path / "x.json"), "delete it", by=IntegrityError):
        read(tmp_path / "x.json", "delete it")


def test_what_cannot_be_read_is_refused(tmp_path):
    with refused("corrupt", str(tmp_path), by=IntegrityError):
        read(tmp_path, "delete it")


def test_a_number_that_is_not_finite_is_no_json():
    with pytest.raises(ValueError, match="not JSON compliant"):
        dump({"a": float("nan")})
