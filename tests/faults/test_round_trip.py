"""Mixed line ends, a byte order mark and decomposed letters come through files, ids and back."""

import unicodedata

import french_sentences
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.config.reading import Reading
from headstart.data.store_building import build_stores
from headstart.tokenizers.training import train

TOKENIZERS = {
    kind: train(lambda: french_sentences.lines(200), vocab=400, kind=kind).tokenizer for kind in ("bpe", "unigram")
}
PARTS = st.sampled_from(
    ["\r\n", "\n", "\r", "\n\n", "été", "e\u0301te\u0301", "œ", "’", "'", "🙂", "  ", "\t", "\ufeff"]
)
# A file with a NUL is refused as binary, one without any text as empty.
TEXTS = (
    st.lists(PARTS | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5))
    .map("".join)
    .filter(lambda text: text.strip().strip("\ufeff"))
)


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@given(text=TEXTS)
@settings(max_examples=60, deadline=None)
def test_a_file_comes_back_from_its_ids_to_the_character(kind, mark, text, tmp_path_factory):
    directory = tmp_path_factory.mktemp("trip")
    path = directory / "text.txt"
    path.write_bytes((mark + text).encode())
    store = build_stores([path], TOKENIZERS[kind], directory, Reading(documents="file"))[0]
    assert TOKENIZERS[kind].decode(store.tokens) == (mark + text).removeprefix("\ufeff")


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_composed_and_decomposed_letters_stay_what_they_are(kind):
    tokenizer = TOKENIZERS[kind]
    composed = unicodedata.normalize("NFC", "L’été à Noël")
    decomposed = unicodedata.normalize("NFD", composed)
    assert tokenizer.encode(composed).tolist() != tokenizer.encode(decomposed).tolist()
    assert tokenizer.decode(tokenizer.encode(decomposed)) == decomposed
