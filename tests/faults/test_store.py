"""A token store that was cut, flipped or swapped is never used; one half built is never seen."""

import signal
import subprocess
import sys

import french_sentences
import pytest
from expected_errors import refused

from headstart.data import store_building as module
from headstart.data.readers.documents import Piece
from headstart.data.store_building import build_stores
from headstart.data.token_store import TokenStore
from headstart.errors import IntegrityError, TryAgain, UserError
from headstart.randomness import stream
from headstart.storage.atomic import remove_stale
from headstart.tokenizers.training import train

LINES = french_sentences.lines(60)
BPE = train(lambda: LINES, vocab=400).tokenizer


@pytest.fixture
def corpora(tmp_path):
    paths = [tmp_path / "one.txt", tmp_path / "two.txt"]
    for path, lines in zip(paths, (LINES[:30], LINES[30:]), strict=True):
        path.write_text("\n".join(lines), encoding="utf-8")
    return paths


@pytest.fixture
def store(corpora, tmp_path):
    return build_stores(corpora[:1], BPE, tmp_path / "stores")[0]


def test_every_flipped_bit_is_found(store):
    whole = store.path.read_bytes()
    draws = stream(0, "flips")
    offsets = [*range(16), *draws.integers(len(whole), size=200).tolist(), len(whole) - 1]
    for offset in offsets:
        damaged = bytearray(whole)
        damaged[offset] ^= 1 << int(draws.integers(8))
        store.path.write_bytes(damaged)
        with refused("corrupt", str(store.path), by=IntegrityError):
            TokenStore.open(store.path, verify=True)
    store.path.write_bytes(whole)
    TokenStore.open(store.path, verify=True)


def test_a_flipped_bit_in_the_header_is_found_without_being_asked(store):
    whole = store.path.read_bytes()
    for offset in range(0, 600, 7):
        store.path.write_bytes(whole[:offset] + bytes([whole[offset] ^ 1]) + whole[offset + 1 :])
        with refused("corrupt", str(store.path), by=IntegrityError):
            TokenStore.open(store.path)


@pytest.mark.parametrize("share", [0, 0.01, 0.5, 0.999])
def test_a_cut_or_a_longer_file_is_found_without_being_asked(store, share):
    whole = store.path.read_bytes()
    for content in (whole[: int(share * len(whole))], whole[:-1], whole + b"\0"):
        store.path.write_bytes(content)
        with refused("corrupt", str(store.path), by=IntegrityError) as caught:
            TokenStore.open(store.path)
        assert caught.value.exit_code == 3
        assert caught.value.where == str(store.path)


def test_a_missing_store_and_a_newer_format_are_told(store, tmp_path):
    with refused("no-file", by=IntegrityError):
        TokenStore.open(tmp_path / "nowhere.tokens")
    header = type(store.header)(**{**vars(store.header), "format": 2})
    start = int.from_bytes(store.path.read_bytes()[8:16], "little")
    store.path.write_bytes(header.to_bytes(start) + store.path.read_bytes()[start:])
    with refused("unsupported", "2", by=IntegrityError):
        TokenStore.open(store.path)


def test_a_damaged_store_is_built_again_with_a_note(store, corpora, tmp_path):
    whole, notes = store.path.read_bytes(), []
    store.path.write_bytes(whole[:-9] + bytes([whole[-9] ^ 4]) + whole[-8:])
    again = build_stores(corpora[:1], BPE, tmp_path / "stores", log=notes.append)[0]
    assert again.path.read_bytes() == whole
    assert len(notes) == 1
    assert "checksum" in notes[0]


def test_swapped_stores_are_built_again(store, corpora, tmp_path):
    other = build_stores(corpora[1:], BPE, tmp_path / "stores")[0]
    contents = store.path.read_bytes(), other.path.read_bytes()
    store.path.write_bytes(contents[1])
    other.path.write_bytes(contents[0])
    with refused("mismatch", by=IntegrityError):
        TokenStore.open(store.path, key=store.header.key)
    notes = []
    for paths in (corpora[:1], corpora[1:]):
        build_stores(paths, BPE, tmp_path / "stores", log=notes.append)
    assert (store.path.read_bytes(), other.path.read_bytes()) == contents
    assert len(notes) == 2


# ---- half built ----


def test_an_error_while_building_leaves_nothing(corpora, tmp_path, monkeypatch):
    def failing(*arguments, **keywords):
        yield Piece("un chat", True, True)
        raise UserError("row 2", code="bad-row")

    monkeypatch.setattr(module, "pieces", failing)
    with refused("bad-row", "row 2"):
        build_stores(corpora, BPE, tmp_path / "stores")
    assert list((tmp_path / "stores").iterdir()) == []


def test_a_full_disk_is_told_and_leaves_nothing(corpora, tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_stores", full)
    with refused("disk-full", by=TryAgain) as caught:
        build_stores(corpora, BPE, tmp_path / "stores")
    assert caught.value.exit_code == 75
    assert list((tmp_path / "stores").iterdir()) == []


def test_a_directory_that_cannot_be_is_refused(corpora, tmp_path):
    (tmp_path / "file").write_text("")
    with refused("no-file"):
        build_stores(corpora, BPE, tmp_path / "file" / "stores")


BUILD = """
import os, sys, time
from headstart.data import store_building as module
from headstart.storage.atomic import remove_stale
from headstart.tokenizers import tokenizer

real = module.pieces
def slow(*arguments, **keywords):
    for number, piece in enumerate(real(*arguments, **keywords)):
        if number == 10:
            print("half way", flush=True)
            time.sleep(60)
        yield piece

module.pieces = slow
tokenizer.BATCH_CHARACTERS = 50
module.build_stores([sys.argv[1]], tokenizer.Tokenizer.load(sys.argv[2]), sys.argv[3])
"""


def test_a_killed_builder_leaves_nothing_that_the_next_one_keeps(corpora, tmp_path):
    stores = tmp_path / "stores"
    BPE.save(tmp_path / "bpe")
    child = subprocess.Popen(
        [sys.executable, "-c", BUILD, corpora[0], tmp_path / "bpe", stores], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "half way\n"
    [aside] = stores.iterdir()
    assert aside.name.startswith(".tmp-")
    # While the builder lives its file is left alone, and another one builds beside it.
    store = build_stores(corpora[:1], BPE, stores)[0]
    assert aside.exists()
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert TokenStore.open(store.path, verify=True).document_count == 30
    build_stores(corpora[1:], BPE, stores)
    assert not aside.exists()
    assert sorted(path.suffix for path in stores.iterdir()) == [".tokens", ".tokens"]


def test_a_stale_file_is_removed_and_what_is_not_ours_stays(tmp_path):
    stale = tmp_path / ".tmp-0123456789abcdef.tokens-dead"
    stale.write_bytes(b"half")
    other = tmp_path / ".tmp-something-else"
    other.write_bytes(b"not ours")
    remove_stale(tmp_path, "*.tokens")
    assert list(tmp_path.iterdir()) == [other]
