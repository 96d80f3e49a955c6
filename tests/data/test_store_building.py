"""Stores of several parts are built in one pass, with the bytes that each has when it is built alone."""

from collections import Counter

import french_sentences
import pytest
from expected_errors import refused

from headstart.config.reading import DEFAULT_READING, Reading
from headstart.data.readers.documents import pieces
from headstart.data.store_building import StorePart, build_stores, training_stores
from headstart.tokenizers.training import train

LINES = french_sentences.lines(120)
TOKENIZER = train(lambda: LINES, vocab=400).tokenizer


@pytest.fixture
def corpora(tmp_path):
    paths = [tmp_path / f"{name}.txt" for name in "abc"]
    for path, lines in zip(paths, (LINES[:40], LINES[40:80], LINES[80:]), strict=True):
        path.write_text("\n".join(lines), encoding="utf-8")
    return paths


@pytest.fixture
def encode_counts(monkeypatch):
    """How often each text is encoded."""
    counts = Counter()
    encode = type(TOKENIZER).encode_flat

    def counting(self, texts):
        counts.update(texts)
        return encode(self, texts)

    monkeypatch.setattr(type(TOKENIZER), "encode_flat", counting)
    return counts


def stores_of(corpora, directory, weights=(), valid=None, reading=DEFAULT_READING):
    return training_stores(corpora, weights, valid, TOKENIZER, directory, reading)


def test_every_piece_is_encoded_once(corpora, tmp_path, encode_counts):
    train_store, valid_store = stores_of(corpora, tmp_path / "stores")
    assert train_store.document_count + valid_store.document_count == len(LINES)
    assert encode_counts == Counter(piece.text for piece in pieces(corpora))
    encode_counts.clear()
    again = stores_of(corpora, tmp_path / "stores")
    assert not encode_counts
    assert [store.path for store in again] == [train_store.path, valid_store.path]


def test_every_piece_is_encoded_once_with_weights_with_valid_and_with_few_documents(corpora, tmp_path, encode_counts):
    reading = Reading(documents="file")
    for number, (weights, valid, how) in enumerate(
        [([2.0, 1.0, 2.0], None, DEFAULT_READING), ([], corpora[0], DEFAULT_READING), ([], None, reading)]
    ):
        sources = corpora[1:] if valid else corpora
        stores_of(sources, tmp_path / str(number), weights or [1.0] * len(sources), valid, how)
        assert encode_counts == Counter(piece.text for piece in pieces(corpora, how))
        encode_counts.clear()


def test_parts_have_the_same_bytes_in_one_pass_and_alone(corpora, tmp_path):
    parts = [
        StorePart([0, 2], "kept"),
        StorePart([1], "kept"),
        StorePart(range(3), "held out"),
        StorePart([1]),
    ]
    together = build_stores(corpora, TOKENIZER, tmp_path / "together", DEFAULT_READING, parts=parts)
    for part, store in zip(parts, together, strict=True):
        (alone,) = build_stores(corpora, TOKENIZER, tmp_path / "alone", DEFAULT_READING, parts=[part])
        assert alone.path.name == store.path.name
        assert alone.path.read_bytes() == store.path.read_bytes()
    whole = build_stores(corpora[1:2], TOKENIZER, tmp_path / "alone")[0]
    assert whole.path.name == together[3].path.name


def test_few_documents_are_cut_at_the_end_of_the_text(corpora, tmp_path):
    before, after = stores_of(corpora, tmp_path / "stores", reading=Reading(documents="file"))
    assert len(before) == int(0.9 * (len(before) + len(after)))
    with refused("too-few", "--valid"):
        stores_of(corpora, tmp_path / "stores", [2.0, 1.0, 1.0], reading=Reading(documents="file"))
