"""Text that spells a special token is text. No special id ever comes from what a user wrote."""

import json

import french_sentences
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Library

from headstart.data.store_building import build_stores
from headstart.tokenizers.special_tokens import KNOWN
from headstart.tokenizers.tokenizer import Tokenizer
from headstart.tokenizers.training import train

SPELLINGS = sorted(KNOWN)
LINES = [
    *french_sentences.lines(200),
    *(f"balise {spelling} dans le texte" for spelling in SPELLINGS for _ in range(9)),
]


def unigram_of_another_maker():
    """SentencePiece's way: white space as a mark, special pieces in the model's own table, a normalizer."""
    specials = [(spelling, 0.0) for spelling in ("<s>", "<pad>", "</s>", "<unk>")]
    signs = [(sign, -3.0) for sign in sorted(set("▁aemskpdun<>/[]|MASKPD"))]
    pieces = [*specials, *signs, ("▁ma", -2.0), ("<mask>", 0.0)]
    library = Library(models.Unigram(pieces, unk_id=3))
    library.normalizer = normalizers.NFKC()
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    library.decoder = decoders.Metaspace()
    library.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True)])
    return library


def words_of_another_maker():
    """Words between white space, looked up as they are: the spelling itself is in the table."""
    table = {"[UNK]": 0, "[PAD]": 1, "[MASK]": 2, "</s>": 3, "mot": 4, "<|endoftext|>": 5}
    library = Library(models.WordLevel(table, unk_token="[UNK]"))
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    # One of them is marked as ordinary, as some files have it.
    library.add_tokens([AddedToken("[MASK]", special=False)])
    library.add_special_tokens(["[UNK]", "[PAD]", "</s>", "<|endoftext|>"])
    return library


def merges_that_look_up_whole_words():
    table = {"[UNK]": 0, "<s>": 1, "<": 2, "s": 3, ">": 4, "[": 5, "M": 6, "]": 7, "[MASK]": 8}
    library = Library(models.BPE(table, [], unk_token="[UNK]", ignore_merges=True))
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    library.add_special_tokens(["[UNK]", "<s>", "[MASK]"])
    return library


TOKENIZERS = {
    kind: train(lambda: LINES, vocab=600, kind=kind).tokenizer for kind in ("bpe", "unigram", "wordpiece", "char")
} | {
    maker.__name__: Tokenizer(json.loads(maker().to_str()))
    for maker in (unigram_of_another_maker, words_of_another_maker, merges_that_look_up_whole_words)
}  # fmt: skip
SPELLED = st.lists(st.sampled_from([*SPELLINGS, "＜s＞", "▁", " ", "mot", "\n"]) | st.text(max_size=3)).map("".join)


@pytest.mark.parametrize("name", TOKENIZERS)
@given(texts=st.lists(SPELLED, min_size=1, max_size=3))
@settings(max_examples=60, deadline=None)
def test_no_special_id_comes_from_text(name, texts):
    tokenizer = TOKENIZERS[name]
    barred = tokenizer.special_ids - {tokenizer.roles["unknown"]}
    assert barred
    for ids in [tokenizer.encode(texts[0]), *tokenizer.encode_many(texts)]:
        assert not barred & set(ids.tolist())


@pytest.mark.parametrize("name", ["bpe", "unigram", "char"])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_spelled_special_token_comes_back_as_it_was_written(name, spelling):
    tokenizer = TOKENIZERS[name]
    text = f"avant {spelling} après{spelling}"
    ids = tokenizer.encode(text).tolist()
    assert tokenizer.decode(ids) == text
    assert not tokenizer.special_ids & set(ids)


@pytest.mark.parametrize("name", ["bpe", "unigram", "wordpiece", "char"])
def test_a_spelled_unknown_token_is_not_the_unknown_token(name):
    tokenizer = TOKENIZERS[name]
    assert tokenizer.roles["unknown"] not in tokenizer.encode("<unk>").tolist()


def test_the_models_of_other_makers_would_have_read_them_as_special():
    """Else the property above would say nothing."""
    for maker, text in (
        (unigram_of_another_maker, "ma <mask>"),
        (words_of_another_maker, "mot [MASK]"),
        (merges_that_look_up_whole_words, "[MASK]"),
    ):
        library = maker()
        library.encode_special_tokens = True
        ids = set(library.encode(text, add_special_tokens=False).ids)
        assert ids & TOKENIZERS[maker.__name__].special_ids, maker.__name__


def test_a_name_that_nobody_should_know_is_left_out_rather_than_read():
    tokenizer = TOKENIZERS["merges_that_look_up_whole_words"]
    disguise = "\ufdd0[MASK]\ufdd1"
    ids, lengths = tokenizer.encode_flat(["s", f"s {disguise} s", disguise, "s s"])
    assert ids.tolist() == [3] * 5
    assert lengths.tolist() == [1, 2, 0, 2]


def test_no_special_id_gets_into_a_store(tmp_path):
    path = tmp_path / "balises.txt"
    path.write_text("\n".join(LINES), encoding="utf-8")
    for name in ("bpe", "unigram", "char"):
        store = build_stores([path], TOKENIZERS[name], tmp_path)[0]
        assert not TOKENIZERS[name].special_ids & set(store.tokens.tolist())
