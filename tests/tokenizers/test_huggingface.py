"""A tokenizer.json is read as the `tokenizers` library reads it, but text is only ever text."""

import json

import french_sentences
import pytest
import tokenizers
from expected_errors import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, trainers

from headstart.tokenizers import huggingface
from headstart.tokenizers.huggingface import HuggingFaceEngine, WordCache, shown_bytes
from headstart.tokenizers.tokenizer import Tokenizer
from headstart.tokenizers.training import train

LINES = french_sentences.lines(200)
TEXTS = [*LINES[:20], "", "déjà 中 🙂 </s>", "  deux  espaces "]


def byte_pairs():
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(LINES, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False))
    return made


def word_pieces():
    made = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    made.train_from_iterator(
        LINES, trainers.WordPieceTrainer(vocab_size=200, special_tokens=specials, show_progress=False)
    )
    return made


def ids_of(engine, texts):
    flat, lengths = engine.encode_flat(texts)
    found, ids = [], flat.tolist()
    for length in lengths:
        found.append(ids[:length])
        ids = ids[length:]
    return found


@pytest.mark.parametrize("make", [byte_pairs, word_pieces])
def test_ids_are_those_of_the_library(make):
    made = make()
    engine = HuggingFaceEngine(json.loads(made.to_str()))
    wanted = [encoding.ids for encoding in made.encode_batch(TEXTS, add_special_tokens=False)]
    assert ids_of(engine, TEXTS) == wanted
    assert engine.decode(wanted[0]) == made.decode(wanted[0], skip_special_tokens=False)
    assert len(engine.pieces) == made.get_vocab_size()


def test_text_that_spells_a_special_token_is_text():
    engine = HuggingFaceEngine(json.loads(word_pieces().to_str()))
    special = set(engine.specials.values()) - {engine.specials["[UNK]"]}
    assert not special & set(ids_of(engine, ["le [SEP] [CLS] livre"])[0])


def test_a_special_token_is_appended_at_the_end():
    spec = json.loads(byte_pairs().to_str())
    engine = HuggingFaceEngine(spec)
    more = HuggingFaceEngine(engine.with_special(spec, "<mask>"))
    assert more.pieces == [*engine.pieces, "<mask>"]
    assert more.specials == {"<mask>": len(engine.pieces)}


def test_pieces_that_continue_a_word_say_so_where_they_can():
    tokenizer = Tokenizer(json.loads(word_pieces().to_str()))
    ordinary = [i for i in range(tokenizer.size) if i not in tokenizer.special_ids]
    for identity in ordinary:
        assert tokenizer.word_starts[identity] != tokenizer.pieces[identity].startswith("##")


def test_bytes_that_are_no_character_are_shown():
    assert shown_bytes("é".encode()) == "é"
    assert shown_bytes(b"a\xc3") == "a<C3>"


@pytest.mark.parametrize("change", [{"model": {"type": "Nonsense"}}, {"roles": {"end": "nowhere"}}])
def test_what_the_library_cannot_read_is_refused(change):
    with refused("bad-format", "tokenizer.json"):
        HuggingFaceEngine({**json.loads(byte_pairs().to_str()), **change})


# ---- encoding by words gives what the library gives ---------------------------------------------------------

KINDS = ["bpe", "unigram", "wordpiece", "char"]
ENGINES = {kind: train(lambda: LINES, vocab=450, kind=kind).tokenizer._engine for kind in KINDS}
# Every kind of white space, and what looks like it.
SPACES = " \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\u00a0\u1680\u2003\u200b\u2028\u2029\u202f\u205f\u3000\ufeff"
WORDS = st.sampled_from(["le", "marin", "l'auteur", "’", "œ", "!", "1984", "e\u0301", "中", "\0", *SPACES, "  "])


@pytest.mark.parametrize("kind", KINDS)
@given(texts=st.lists(st.lists(WORDS, max_size=30).map("".join) | st.text(max_size=9), max_size=4))
@settings(max_examples=150, deadline=None)
def test_words_one_by_one_give_the_same_ids_as_whole_texts(kind, texts):
    whole = ENGINES[kind].encode_whole
    memory = WordCache(whole)
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

    memory = WordCache(encode)
    long = " " + "x" * 70
    text = "le marin relit" * 3 + long
    first = memory.encode_flat([text] * 3)[0].tolist()
    asked.clear()
    assert memory.encode_flat([text] * 3)[0].tolist() == first
    assert set(asked) == {long}  # only what is too long to be remembered


def test_the_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(huggingface, "CACHED_WORDS", 20)
    memory = WordCache(ENGINES["bpe"].encode_whole)
    for line in LINES:
        assert memory.encode_flat([line] * 3)[0].tolist() == ENGINES["bpe"].encode_whole([line] * 3)[0].tolist()
        assert len(memory._known) <= 20 + len(line.split())


@pytest.mark.parametrize(("threads", "by_words"), [("1", True), ("4", True), ("5", False)])
def test_on_many_cores_the_library_does_all(monkeypatch, threads, by_words):
    monkeypatch.setenv("RAYON_NUM_THREADS", threads)
    tokenizer = train(lambda: LINES, vocab=300).tokenizer
    assert (tokenizer._engine.encode_flat != tokenizer._engine.encode_whole) == by_words
    assert tokenizer.decode(tokenizer.encode(" ".join(LINES))) == " ".join(LINES)


def test_only_what_cuts_at_white_space_is_encoded_by_words():
    def by_words(change):
        library = tokenizers.Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")]))
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        change(library)
        spec = {"added_tokens": [], **json.loads(library.to_str())}
        return huggingface._is_by_words(spec)

    def setting(name, value):
        return lambda library: setattr(library, name, value)

    assert by_words(lambda library: None)
    assert not by_words(setting("pre_tokenizer", pre_tokenizers.ByteLevel(add_prefix_space=True)))
    assert not by_words(setting("pre_tokenizer", pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)))
    assert not by_words(setting("pre_tokenizer", pre_tokenizers.Metaspace()))
    assert not by_words(lambda library: setattr(library, "pre_tokenizer", None))
    assert not by_words(setting("normalizer", normalizers.NFC()))
    assert not by_words(setting("model", models.BPE({"a": 0}, [], dropout=0.5)))
    assert not by_words(lambda library: library.add_tokens([AddedToken("New York", special=False)]))
    assert by_words(lambda library: library.add_special_tokens(["<s>"]))
