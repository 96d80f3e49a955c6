"""Text made alike on request: what comes back is the text so made, and nothing else changes."""

import json
from typing import get_args

import french_sentences
import pytest
from expected_errors import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from tokenizers import normalizers

from headstart.config.training import Normalisation
from headstart.tokenizers.diagnosis import diagnose
from headstart.tokenizers.huggingface import (
    APOSTROPHES,
    WordCache,
    in_order,
    normalisations_of,
    normalised,
    normaliser,
)
from headstart.tokenizers.tokenizer import Tokenizer
from headstart.tokenizers.training import train

BOTH = ("apostrophes", "lower-case")
LINES = [line.replace("'", "’") for line in french_sentences.lines(200)] + ["L’ÉTÉ À L'OMBRE, <MASK>"] * 3
KINDS = ["bpe", "unigram", "wordpiece", "char"]
TOKENIZERS = {kind: train(lambda: iter(LINES), vocab=450, kind=kind, normalise=BOTH).tokenizer for kind in KINDS}
TEXTS = st.lists(
    st.sampled_from(["L’", "l'", "ÉTÉ", "e\u0301", "İ", "ΣΑΣ", "ß", "ǅ", " ", "\n", "\u00a0", *APOSTROPHES])
    | st.text(max_size=4)
).map("".join)


def test_what_is_made_of_a_text_by_hand():
    assert normalised("L’Été, ‘ÇA’ ?", BOTH) == "l'été, 'ça' ?"
    assert normalised("L’Été", ["lower-case"]) == "l’été"
    assert normalised("L’Été", ["apostrophes"]) == "L'Été"
    assert normalised("L’Été", []) == "L’Été"


@given(text=TEXTS)
@settings(max_examples=200, deadline=None)
def test_it_goes_by_the_character_and_once_is_enough(text):
    whole = normalised(text, BOTH)
    assert "".join(normalised(character, BOTH) for character in text) == whole
    assert normalised(whole, BOTH) == whole
    assert [c.isspace() for c in text if c.isspace()] == [c.isspace() for c in whole if c.isspace()]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@given(text=TEXTS)
@settings(max_examples=100, deadline=None)
def test_decoding_gives_the_text_so_made(kind, text):
    words = TOKENIZERS[kind]
    ids = words.encode(text)
    assert words.decode(ids) == words.normalised(text) == normalised(text, BOTH)
    assert ids.tolist() == words.encode(words.normalised(text)).tolist()
    assert not words.special_ids & set(ids.tolist())


@pytest.mark.parametrize("kind", KINDS)
def test_texts_that_differ_in_that_alone_have_the_same_ids(kind):
    words = TOKENIZERS[kind]
    assert words.encode("L’AUTEUR d’Été").tolist() == words.encode("l'auteur D'été").tolist()
    # No place in the vocabulary is lost to what cannot occur, but for the alphabet of single bytes.
    longer = [i for i, piece in enumerate(words.pieces) if i not in words.special_ids and len(piece) > 1]
    texts = [text for text in words.pieces_of(longer) if "<" not in text]  # which halves of characters have
    assert texts == [text.lower() for text in texts]


@pytest.mark.parametrize("kind", KINDS)
@given(texts=st.lists(TEXTS, max_size=4))
@settings(max_examples=60, deadline=None)
def test_words_one_by_one_give_the_same_ids_as_whole_texts(kind, texts):
    whole = TOKENIZERS[kind]._engine.encode_whole
    memory = WordCache(whole)
    memory._known.learn(["L’", " ÉTÉ"])
    assert [a.tolist() for a in memory.encode_flat(texts * 3)] == [a.tolist() for a in whole(texts * 3)]


def test_a_special_token_spelled_in_capitals_is_text():
    for words in TOKENIZERS.values():
        ids = set(words.encode("<MASK> <PAD> </S>").tolist())
        assert not (words.special_ids - {words.roles["unknown"]}) & ids


def test_it_is_kept_in_the_file_and_in_the_fingerprint(tmp_path):
    one, other = (train(lambda: iter(LINES), vocab=450, normalise=names).tokenizer for names in (BOTH, BOTH[::-1]))
    assert one.fingerprint == other.fingerprint  # whatever the order that they are named in
    assert Tokenizer.load(one.save(tmp_path)).normalise == BOTH
    fingerprints = {
        train(lambda: iter(["le livre"] * 9), vocab=270, normalise=names).tokenizer.fingerprint
        for names in ((), ("lower-case",), ("apostrophes",), BOTH)
    }
    assert len(fingerprints) == 4


def test_without_a_word_nothing_is_made_alike():
    plain = train(lambda: iter(LINES), vocab=450).tokenizer
    assert plain.spec["normalizer"] is None
    assert plain.normalise == ()
    assert plain.decode(plain.encode("L’ÉTÉ")) == plain.normalised("L’ÉTÉ") == "L’ÉTÉ"


def test_the_library_reads_the_file_alike_and_points_into_the_text_as_it_was():
    words, text = TOKENIZERS["bpe"], "L’ÉTÉ à l'ombre"
    library = Library.from_str(json.dumps(words.spec))
    encoding = library.encode(text, add_special_tokens=False)
    assert encoding.ids == words.encode(text).tolist()
    assert "".join(text[a:b] for a, b in encoding.offsets) == text


def test_a_normalizer_of_another_file_is_not_ours():
    spec = dict(TOKENIZERS["bpe"].spec)
    for other in (
        normalizers.Lowercase(),
        normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()]),
    ):
        library = Library.from_str(json.dumps(spec))
        library.normalizer = other
        found = json.loads(library.to_str())
        assert normalisations_of(found) is None
        assert Tokenizer(found).normalised("ÉTÉ") == "ÉTÉ"
    for names in ((), ("lower-case",), ("apostrophes",), BOTH):
        assert normalisations_of({"normalizer": normaliser(names)}) == names


def test_the_page_counts_no_change_that_was_asked_for():
    found = diagnose(TOKENIZERS["bpe"], LINES)
    assert (found.texts_changed, sum(map(bool, found.probes.values()))) == (0, 0)
    assert found.normalise == BOTH
    lost = diagnose(TOKENIZERS["wordpiece"], LINES)
    assert lost.probes["straight apostrophe"].startswith("l ' auteur n ' a pas")


def test_unknown_ways_are_refused_with_their_neighbour():
    with refused("unknown-name", "'lowercase'", "'lower-case'"):
        in_order(["lowercase"])
    assert set(get_args(Normalisation)) == set(BOTH)
