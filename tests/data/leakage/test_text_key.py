"""What a text is without case, accents, punctuation and white space."""

import hashlib

import pytest

from headstart.data.leakage.text_key import digest, folded_words, text_key


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("L'Été, c'est LONG !", ["l", "ete", "c", "est", "long"]),
        ("Œuvre ﬁne æther", ["oeuvre", "fine", "aether"]),
        ("e\u0301te\u0301 x_y 3.5", ["ete", "x", "y", "3", "5"]),
        ("Straße", ["strasse"]),
        ("漢字 ok", ["漢", "字", "ok"]),
        (" :-) ", []),
    ],
)
def test_words_are_of_letters_and_digits_alone(text, words):
    assert folded_words(text) == words
    assert text_key(text) == ("".join(words) or text.strip())


def test_a_text_of_signs_alone_stays_itself():
    assert text_key("  :-) ") == ":-)"
    assert text_key(" A! ") == "a"


def test_sixteen_bytes_stand_for_a_key():
    assert digest("é") == hashlib.blake2b("é".encode(), digest_size=16).digest()
    assert len(digest("\ud800")) == 16
