"""Tokens as a reader sees them: their text is all there, and half a character is not shown as rubbish."""

import small
from hypothesis import given
from hypothesis import strategies as st

from headstart.tokenizers.token_texts import shown_tokens, text_of_stretch, whole_stretches
from headstart.tokenizers.training import train

CHARACTERS = train(lambda: iter(small.sentences(50)), vocab=60, kind="char").tokenizer


def ids_of(text, tokenizer=None):
    return list(map(int, (tokenizer or small.tokenizer()).encode(text)))


def texts(text, tokenizer=None):
    return [token.text for token in shown_tokens(tokenizer or small.tokenizer(), ids_of(text, tokenizer))]


def test_a_token_is_shown_with_its_white_space():
    assert "".join(texts("une belle fin.")) == "une belle fin."
    assert " fin" in texts("une belle fin.")


def test_bytes_of_a_character_are_shown_as_the_character_and_their_number():
    assert len(ids_of("☺")) == 3, "the tokenizer has not seen it: three bytes"
    assert texts("☺") == ["☺ (1/3)", "☺ (2/3)", "☺ (3/3)"]
    assert texts("fin☺.")[1:] == ["☺ (1/3)", "☺ (2/3)", "☺ (3/3)", "."]


def test_bytes_of_a_character_that_is_cut_off_stay_bytes():
    tokenizer, ids = small.tokenizer(), ids_of("☺")
    assert [token.text for token in shown_tokens(tokenizer, ids[:2])] == ["<E2>", "<98>"]
    broken = [ids[0], *ids_of("fin"), tokenizer.id_of("end")]
    shown = shown_tokens(tokenizer, [ids[0], tokenizer.id_of("end"), *broken])
    assert shown[0] == ("<E2>", False)
    assert "\ufffd" not in "".join(token.text for token in shown)
    assert [token.is_special for token in shown] == [False, True, *[False] * (len(broken) - 1), True]


def test_text_that_looks_like_a_byte_is_text():
    assert "".join(texts("<C3> <A9>")) == "<C3> <A9>"
    assert "".join(texts("<C3>\ufffd fin", CHARACTERS)).endswith(" fin")


def test_the_unknown_token_stands_in_the_text_and_others_around_it():
    (shown,) = shown_tokens(CHARACTERS, ids_of("☺", CHARACTERS))
    assert not shown.is_special
    assert shown_tokens(CHARACTERS, [CHARACTERS.id_of("pad")])[0].is_special


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufffd"), max_size=30))
def test_stretches_are_whole_characters_and_add_up_to_the_text(text):
    tokenizer, ids = small.tokenizer(), ids_of(text)
    stretches = whole_stretches(tokenizer, ids)
    assert [position for stretch in stretches for position in stretch] == list(range(len(ids)))
    assert "".join(text_of_stretch(tokenizer, ids, stretch) for stretch in stretches) == tokenizer.decode(ids)
    assert len(shown_tokens(tokenizer, ids)) == len(ids)
