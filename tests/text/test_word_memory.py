"""Encoding by words gives what the library gives, word for word."""

import json

import prose
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Library

from headstart.text import huggingface, word_memory
from headstart.text.tokenizer_training import train
from headstart.text.word_memory import WordMemory

LINES = prose.lines(300)
KINDS = ["bpe", "unigram", "wordpiece", "char"]
ENGINES = {kind: train(lambda: LINES, vocab=450, kind=kind).tokenizer._engine for kind in KINDS}
# Every kind of white space, and what looks like it.
SPACES = " \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\u00a0\u1680\u2003\u200b\u2028\u2029\u202f\u205f\u3000\ufeff"
WORDS = st.sampled_from(
    ["le", "marin", "l'auteur", "’", "œ", "!", "1984", "e\u0301", "中", "\0", *SPACES, "  "]
)


@pytest.mark.parametrize("kind", KINDS)
@given(texts=st.lists(st.lists(WORDS, max_size=30).map("".join) | st.text(max_size=9), max_size=4))
@settings(max_examples=150, deadline=None)
def test_words_one_by_one_give_the_same_ids_as_whole_texts(kind, texts):
    whole = ENGINES[kind].encode_whole
    memory = WordMemory(whole)
    memory._known.learn(["le", " marin"])
    for _ in range(2):  # the second time from memory
        ids, lengths = memory.encode_flat(texts * 3)
        expected_ids, expected_lengths = whole(texts * 3)
        assert ids.tolist() == expected_ids.tolist()
        assert lengths.tolist() == expected_lengths.tolist()


def test_a_known_word_is_not_encoded_again():
    asked = []

    def encode(words):
        asked.extend(words)
        return ENGINES["bpe"].encode_whole(words)

    memory = WordMemory(encode)
    long = " " + "x" * 70
    text = "le marin relit" * 3 + long
    first = memory.encode_flat([text] * 3)[0].tolist()
    asked.clear()
    assert memory.encode_flat([text] * 3)[0].tolist() == first
    assert set(asked) == {long}  # only what is too long to be remembered


def test_the_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(word_memory, "REMEMBERED_WORDS", 20)
    memory = WordMemory(ENGINES["bpe"].encode_whole)
    for line in LINES:
        assert (
            memory.encode_flat([line] * 3)[0].tolist() == ENGINES["bpe"].encode_whole([line] * 3)[0].tolist()
        )
        assert len(memory._known) <= 20 + len(line.split())


@pytest.mark.parametrize(("threads", "by_words"), [("1", True), ("4", True), ("5", False)])
def test_on_many_cores_the_library_does_all(monkeypatch, threads, by_words):
    monkeypatch.setenv("RAYON_NUM_THREADS", threads)
    tokenizer = train(lambda: LINES, vocab=300).tokenizer
    assert (tokenizer._engine.encode_flat != tokenizer._engine.encode_whole) == by_words
    assert tokenizer.decode(tokenizer.encode(" ".join(LINES))) == " ".join(LINES)


def test_only_what_cuts_at_white_space_is_encoded_by_words():
    def by_words(change):
        library = Library(models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")]))
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        change(library)
        spec = {"added_tokens": [], **json.loads(library.to_str())}
        return huggingface._is_by_words(spec)

    def setting(name, value):
        return lambda library: setattr(library, name, value)

    assert by_words(lambda library: None)
    assert not by_words(setting("pre_tokenizer", pre_tokenizers.ByteLevel(add_prefix_space=True)))
    assert not by_words(
        setting("pre_tokenizer", pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    )
    assert not by_words(setting("pre_tokenizer", pre_tokenizers.Metaspace()))
    assert not by_words(lambda library: setattr(library, "pre_tokenizer", None))
    assert not by_words(setting("normalizer", normalizers.NFC()))
    assert not by_words(setting("model", models.BPE({"a": 0}, [], dropout=0.5)))
    assert not by_words(lambda library: library.add_tokens([AddedToken("New York", special=False)]))
    assert by_words(lambda library: library.add_special_tokens(["<s>"]))
