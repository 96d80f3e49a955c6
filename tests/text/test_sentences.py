"""Sentences of French and English, and their joining."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.text.documents import Piece
from headstart.text.sentences import sentence_pieces, split_sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["Il pleut.", "Elle lit."],
        ["Quel livre !", "Vraiment ?", "Oui…", "Bref."],
        ["M. Hugo est mort.", "Mme. Sand aussi."],
        ["J. K. Rowling l'a écrit.", "Je l'ai lu."],
        ["Voir cf. Balzac, p. 12.", "Puis rien."],
        ["It costs 3.14 euros.", "Mr. Smith paid it."],
        ["« Bonjour ! » dit-il en entrant.", "« Sortez. »", "Elle sortit."],
        ["« Viens ! »", "Puis il partit."],
        ["Elle hésite... puis répond.", "Enfin !"],
        ["Fini (ou presque).", "Alors ?"],
        ["— Tu viens ?", "— Non."],
        ["Le site exemple.fr est en panne.", "12 personnes attendent."],
        ["A. Dumas.", "Et voilà."],
        ["Sans fin"],
    ],
)
def test_sentences_are_found(sentences):
    text = " ".join(sentences)
    assert [sentence.strip() for sentence in split_sentences(text)] == sentences


@given(st.text("aA.!?… «»\"')—\n1", max_size=40) | st.text())
def test_sentences_join_to_the_text(text):
    assert "".join(split_sentences(text)) == text
    assert all(split_sentences(text))


def test_the_white_space_belongs_to_what_follows():
    assert split_sentences("Un.  Deux.\nTrois.") == ["Un.", "  Deux.", "\nTrois."]


def test_every_sentence_of_a_piece_becomes_a_segment():
    pieces = [
        Piece("Un. Deux", False, False),
        Piece(" ou trois. Quatre.", True, False),
        Piece("", True, True),
    ]
    assert list(sentence_pieces(pieces)) == [
        Piece("Un.", True, False), Piece(" Deux", False, False), Piece(" ou trois.", True, False),
        Piece(" Quatre.", True, False), Piece("", True, True),
    ]  # fmt: skip
