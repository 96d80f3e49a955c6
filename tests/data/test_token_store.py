"""The token store: what goes in comes out, in memory and on disk, and it is built once."""

import gzip
import itertools

import french_sentences
import numpy as np
import pytest
from expected_errors import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from small import store_of

from headstart.config.reading import Reading
from headstart.data import fingerprints
from headstart.data import store_building as module
from headstart.data.readers.documents import Piece
from headstart.data.store_building import build_stores, write_stores
from headstart.data.token_store import Header, TokenStore
from headstart.tokenizers import tokenizer as tokenizer_module
from headstart.tokenizers.training import train

LINES = french_sentences.lines(120)
BPE = train(lambda: LINES, vocab=400).tokenizer
NESTED = st.lists(st.lists(st.lists(st.integers(0, 99), max_size=5), max_size=4), max_size=5)


def documents_in(store):
    """The content as lists: documents of segments of ids."""
    found = []
    for number in range(store.document_count):
        first, last = np.searchsorted(store.segments, store.documents[number : number + 2])
        bounds = store.segments[first : last + 1]
        found.append([store.tokens[a:b].tolist() for a, b in itertools.pairwise(bounds)])
        start, end = store.documents[number : number + 2]
        assert store.tokens[start:end].tolist() == [i for segment in found[-1] for i in segment]
    return found


@given(NESTED)
def test_a_store_in_memory_gives_back_its_lists(documents):
    kept = [[segment for segment in document if segment] for document in documents]
    store = store_of(documents)
    assert documents_in(store) == [document for document in kept if document]
    assert len(store) == sum(len(segment) for document in documents for segment in document)


class Letters:
    """A tokenizer that a reader can check by eye: a letter is its place in the alphabet, spaces are nothing."""

    def encode_flat(self, texts):
        ids = [[ord(letter) - 96 for letter in text if letter != " "] for text in texts]
        return np.array([i for one in ids for i in one], np.uint32), np.array([len(one) for one in ids], np.int64)


@given(
    st.lists(st.lists(st.lists(st.text("abc ", max_size=4), min_size=1, max_size=3), min_size=1, max_size=3)),
    st.sampled_from([1, 3, 100]),
    st.sampled_from(["uint16", "uint32"]),
)
@settings(max_examples=60, deadline=None)
def test_a_written_store_holds_what_the_pieces_hold(tmp_path_factory, documents, batch, token_type):
    """Documents of segments of pieces; without a letter a segment, or a document, is not kept."""
    pieces = [
        Piece(text, i == len(segment) - 1, i == len(segment) - 1 and s == len(document) - 1)
        for document in documents
        for s, segment in enumerate(document)
        for i, text in enumerate(segment)
    ]
    path = tmp_path_factory.mktemp("store") / "x.tokens"
    with pytest.MonkeyPatch.context() as patch, path.open("w+b") as file:
        patch.setattr(tokenizer_module, "BATCH_CHARACTERS", batch)
        write_stores([file], [Header(token_type)], (((0,), piece) for piece in pieces), Letters())
    store = TokenStore.open(path, verify=True)
    letters = [["".join(segment).replace(" ", "") for segment in document] for document in documents]
    expected = [[[ord(x) - 96 for x in segment] for segment in d if segment] for d in letters if any(d)]
    assert documents_in(store) == expected
    assert store.tokens.dtype == token_type
    assert store.header.text_bytes == sum(len(piece.text) for piece in pieces)


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("un chat\nun chien\n\nle soleil\n", encoding="utf-8")
    return path


def test_a_file_becomes_its_documents_and_segments(corpus, tmp_path):
    store = build_stores([corpus], BPE, tmp_path / "stores")[0]
    texts = [[BPE.decode(segment) for segment in document] for document in documents_in(store)]
    assert texts == [["un chat", "un chien"], ["le soleil"]]
    header = store.header
    assert (header.tokenizer, header.vocabulary, header.text_bytes) == (BPE.fingerprint, BPE.size, 7 + 8 + 9)
    assert [source["name"] for source in header.sources] == [str(corpus)]


def test_sentences_of_a_line_become_its_segments(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("Il pleut. Elle lit ! Rien.\nUn mot\n", encoding="utf-8")
    store = build_stores([path], BPE, tmp_path, segments="sentences")[0]
    texts = [[BPE.decode(segment) for segment in document] for document in documents_in(store)]
    assert texts == [["Il pleut.", " Elle lit !", " Rien."], ["Un mot"]]
    whole = build_stores([path], BPE, tmp_path)[0]
    assert whole.tokens.tolist() == store.tokens.tolist()
    assert whole.path != store.path


def test_many_batches_give_the_same_store_as_one(tmp_path, monkeypatch):
    path = tmp_path / "many.txt.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write("\n".join(LINES))
    whole = build_stores([path], BPE, tmp_path / "a")[0]
    monkeypatch.setattr(tokenizer_module, "BATCH_CHARACTERS", 90)
    parts = build_stores([path], BPE, tmp_path / "b")[0]
    assert parts.path.read_bytes() == whole.path.read_bytes()
    assert parts.document_count == len(LINES)


def test_a_large_vocabulary_takes_wider_numbers(corpus, tmp_path):
    spec = {**BPE.spec, "added_tokens": list(BPE.spec["added_tokens"])}
    for identity in range(BPE.size, 65_537):
        spec["added_tokens"].append({**spec["added_tokens"][0], "id": identity, "content": f"<extra {identity}>"})
    wide = type(BPE)(spec)
    assert wide.size == 65_537
    assert build_stores([corpus], wide, tmp_path)[0].tokens.dtype == np.uint32
    assert build_stores([corpus], BPE, tmp_path)[0].tokens.dtype == np.uint16


# ---- once ----


def test_a_second_call_finds_the_store(corpus, tmp_path, monkeypatch):
    first = build_stores([corpus], BPE, tmp_path / "stores")[0]
    monkeypatch.setattr(module, "write_stores", None)  # building would fail
    second = build_stores([corpus], BPE, tmp_path / "stores")[0]
    assert second.path == first.path
    moved = corpus.rename(tmp_path / "renamed.txt")  # the same text under another name
    assert build_stores([moved], BPE, tmp_path / "stores")[0].path == first.path


def test_another_text_tokenizer_or_reading_is_another_store(corpus, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text(corpus.read_text().replace("chien", "chiot"))
    table = tmp_path / "corpus.tsv"
    table.write_bytes(b"text\tx\n" + corpus.read_bytes().replace(b"\n\n", b"\n").replace(b"\n", b"\ty\n"))
    wider, _ = BPE.with_role("mask")
    assert wider is BPE
    small = train(lambda: LINES, vocab=300).tokenizer
    stores = [
        build_stores([corpus], BPE, tmp_path)[0],
        build_stores([corpus], small, tmp_path)[0],
        build_stores([other], BPE, tmp_path)[0],
        build_stores([corpus, other], BPE, tmp_path)[0],
        build_stores([other, corpus], BPE, tmp_path)[0],
        build_stores([corpus], BPE, tmp_path, Reading(documents="line"))[0],
        build_stores([table], BPE, tmp_path)[0],
        build_stores([table], BPE, tmp_path, Reading(text_column="x"))[0],
    ]
    assert len({store.path for store in stores}) == len(stores)


def test_of_a_large_file_blocks_from_everywhere_are_hashed(tmp_path, monkeypatch):
    monkeypatch.setattr(fingerprints, "BLOCK_BYTES", 100)
    path = tmp_path / "large.txt"
    size = 63 * 1_000 + 100  # so that a block of 100 starts at every thousand
    path.write_bytes(b"x" * size)
    before = fingerprints.fingerprint(path, whole_bytes=1_000)
    assert not before.is_whole
    assert before.identity() == fingerprints.fingerprint(path, whole_bytes=1_000).identity()
    for position, is_seen in ((0, True), (31_050, True), (31_500, False), (size - 1, True)):
        path.write_bytes(b"x" * position + b"y" + b"x" * (size - position - 1))
        after = fingerprints.fingerprint(path, whole_bytes=1_000)
        assert (after.sha256 != before.sha256) == is_seen
        assert after.identity() != before.identity()  # the time of the change counts too


def test_a_file_that_changes_while_it_is_read_is_refused(corpus, tmp_path, monkeypatch):
    def growing(*arguments, **keywords):
        corpus.write_text(corpus.read_text() + "de plus\n")
        return iter([Piece("un", True, True)])

    monkeypatch.setattr(module, "pieces", growing)
    with refused("changed"):
        build_stores([corpus], BPE, tmp_path / "stores")
    assert list((tmp_path / "stores").iterdir()) == []
