"""The tokenizer object: round trips, roles, files of other makers, and words."""

import json

import french_sentences
import numpy as np
import pytest
import small
import tiny_runs
from expected_errors import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Library

from headstart.data.readers.documents import PIECE_CHARACTERS
from headstart.errors import IntegrityError
from headstart.tokenizers import tokenizer as module
from headstart.tokenizers.special_tokens import ROLES, SPELLINGS
from headstart.tokenizers.tokenizer import Tokenizer, Vocabularies, read_separate
from headstart.tokenizers.training import train

LINES = french_sentences.lines(400)
KINDS = ["bpe", "unigram", "wordpiece", "char"]
TRAINED = {kind: train(lambda: LINES, vocab=500, kind=kind).tokenizer for kind in KINDS}
# Any text at all, but with more of what goes wrong: marks, line ends, signs of the vocabularies themselves.
TEXTS = st.text() | st.text("aé e\u0301œ'’\r\n\t\0Ġ▁#<>/[]🙂\u00a0 中ñ")


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@given(text=TEXTS)
@settings(max_examples=200, deadline=None)
def test_bytes_come_back_as_they_were(kind, text):
    tokenizer = TRAINED[kind]
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(text=st.text(sorted({character for line in LINES for character in line})))
def test_known_characters_come_back_as_they_were(text):
    tokenizer = TRAINED["char"]
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.encode(text)) == len(text)


@pytest.mark.parametrize("kind", KINDS)
@given(texts=st.lists(TEXTS, max_size=6))
@settings(max_examples=30, deadline=None)
def test_many_texts_give_the_ids_of_each(kind, texts):
    tokenizer = TRAINED[kind]
    many = tokenizer.encode_many(texts)
    assert [ids.tolist() for ids in many] == [tokenizer.encode(text).tolist() for text in texts]
    flat, lengths = tokenizer.encode_flat(texts)
    assert lengths.tolist() == [len(ids) for ids in many]
    assert flat.tolist() == [i for ids in many for i in ids.tolist()]


def test_a_text_of_any_length_has_the_tokens_of_its_words(monkeypatch):
    text = " ".join(LINES)
    whole = TRAINED["bpe"].encode(text)
    monkeypatch.setattr(module, "BATCH_CHARACTERS", 1_000)
    assert TRAINED["bpe"].encode(text).tolist() == whole.tolist()
    long = text * (1 + 2 * PIECE_CHARACTERS // len(text))
    words = [w if i == 0 else " " + w for i, w in enumerate(long.split(" "))]
    assert len(long) > 2 * PIECE_CHARACTERS
    expected = [i for ids in TRAINED["bpe"].encode_many(words) for i in ids.tolist()]
    assert TRAINED["bpe"].encode(long).tolist() == expected


def test_a_long_stretch_without_white_space_comes_back():
    text = "é" * (PIECE_CHARACTERS + 17)
    assert TRAINED["bpe"].decode(TRAINED["bpe"].encode(text)) == text
    assert set(TRAINED["wordpiece"].pieces_of(TRAINED["wordpiece"].encode(text))) <= {"é", "##é"}


@pytest.mark.parametrize("kind", KINDS)
def test_saving_and_loading_changes_nothing(kind, tmp_path):
    before = TRAINED[kind]
    path = before.save(tmp_path / "deep" / "er")
    after = Tokenizer.load(path)
    assert after.fingerprint == before.fingerprint == Tokenizer.load(tmp_path / "deep" / "er").fingerprint
    assert after.encode("Ma sœur relit").tolist() == before.encode("Ma sœur relit").tolist()
    assert after.roles == before.roles
    assert path.read_bytes() == after.save(tmp_path / "again").read_bytes()
    assert [p.name for p in path.parent.iterdir()] == ["tokenizer.json"]


def test_swapping_two_ids_changes_the_fingerprint():
    spec = json.loads(json.dumps(TRAINED["bpe"].spec))
    vocab = spec["model"]["vocab"]
    a, b = list(vocab)[300:302]
    vocab[a], vocab[b] = vocab[b], vocab[a]
    assert Tokenizer(spec).fingerprint != TRAINED["bpe"].fingerprint


def test_the_pieces_of_a_text_join_to_the_text():
    text = "L’héroïne relit 🙂 son œuvre"
    pieces = TRAINED["bpe"].pieces_of(TRAINED["bpe"].encode(text))
    assert pieces[0].startswith("L")
    assert "<F0>" in "".join(pieces)  # an emoji that was never seen is left in bytes
    assert "".join(p for p in pieces if "<" not in p) == text.replace("🙂", "")


# ---- roles ----


@pytest.mark.parametrize("kind", KINDS)
def test_a_trained_tokenizer_has_every_role_at_the_start(kind):
    assert TRAINED[kind].roles == {role: number for number, role in enumerate(ROLES)}
    assert TRAINED[kind].special_ids == frozenset(range(7))
    assert TRAINED[kind].pieces[:7] == [SPELLINGS[role][0] for role in ROLES]


def wordpiece(specials, *, whole_words=False):
    """A tokenizer as another tool would write it."""
    words = [*specials, "chat", "##s", "noir", ".", "<", ">", "[", "]", "mask", "MASK"]
    library = Library(models.WordPiece({w: i for i, w in enumerate(words)}, unk_token=specials[0]))
    splitter = pre_tokenizers.WhitespaceSplit() if whole_words else pre_tokenizers.BertPreTokenizer()
    library.pre_tokenizer = splitter
    library.decoder = decoders.WordPiece()
    library.add_special_tokens(list(specials))
    return json.loads(library.to_str())


def test_roles_of_bert_are_found_and_what_it_lacks_is_none():
    tokenizer = Tokenizer(wordpiece(["[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]"]))
    assert tokenizer.roles == {
        "pad": 1, "unknown": 0, "begin": None, "end": None, "mask": 4, "cls": 2, "sep": 3,
    }  # fmt: skip
    with refused("missing", "begin"):
        tokenizer.id_of("begin")


def test_roles_of_roberta_and_gpt2_share_their_tokens():
    roberta = Tokenizer(wordpiece(["<unk>", "<s>", "</s>", "<pad>", "<mask>"])).roles
    assert (roberta["cls"], roberta["sep"], roberta["begin"], roberta["end"]) == (1, 2, 1, 2)
    gpt2 = Tokenizer(wordpiece(["[UNK]", "<|endoftext|>"])).roles
    assert (gpt2["begin"], gpt2["end"], gpt2["pad"], gpt2["mask"]) == (1, 1, None, None)


@pytest.mark.parametrize("whole_words", [False, True])
def test_a_missing_role_is_appended_when_asked_and_said(whole_words, tmp_path):
    tokenizer = Tokenizer(wordpiece(["[UNK]", "[PAD]"], whole_words=whole_words))
    wider, said = tokenizer.with_role("mask")
    assert said == "appended <mask> as token 12 for the role mask: the vocabulary is 13 now"
    assert (tokenizer.size, tokenizer.roles["mask"]) == (12, None)
    assert (wider.size, wider.id_of("mask")) == (13, 12)
    assert wider.with_role("mask") == (wider, "")
    assert wider.encode("chats noir").tolist() == tokenizer.encode("chats noir").tolist()
    assert 12 not in wider.encode("chat <mask> noir").tolist()
    assert wider.decode([2, 12, 4], keep_specials=True) == "chat <mask> noir"
    assert wider.decode([2, 12, 4]) == "chat noir"
    wider.save(tmp_path)
    assert Tokenizer.load(tmp_path).roles == wider.roles


def test_a_role_is_not_given_to_an_ordinary_token_of_its_spelling():
    library = Library(models.WordLevel({"[UNK]": 0, "<mask>": 1, "a": 2}, unk_token="[UNK]"))
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    library.add_special_tokens(["[UNK]"])
    tokenizer = Tokenizer(json.loads(library.to_str()))
    assert tokenizer.roles["mask"] is None
    assert tokenizer.encode("a <mask>").tolist() == [2, 1]
    wider, _ = tokenizer.with_role("mask")
    assert wider.pieces[wider.id_of("mask")] == "[MASK]"
    assert wider.encode("a <mask> [MASK]").tolist() == [2, 1, 0]


def test_truncation_padding_and_templates_of_another_file_are_not_applied():
    spec = wordpiece(["[UNK]", "[PAD]", "[CLS]", "[SEP]"])
    spec["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    spec["padding"] = {
        "strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 1,
        "pad_type_id": 0, "pad_token": "[PAD]",
    }  # fmt: skip
    tokenizer = Tokenizer(spec)
    assert tokenizer.encode("chat noir chat noir").tolist() == [4, 6, 4, 6]


def test_a_normalizer_of_another_file_is_kept():
    library = Library(models.WordLevel({"[UNK]": 0, "été": 1}, unk_token="[UNK]"))
    library.normalizer = normalizers.Lowercase()
    library.pre_tokenizer = pre_tokenizers.Split(Regex(" "), "removed")
    library.add_special_tokens(["[UNK]"])
    assert Tokenizer(json.loads(library.to_str())).encode("ÉTÉ Été").tolist() == [1, 1]


# ---- words ----


def test_words_start_at_spaces_and_signs():
    tokenizer = TRAINED["bpe"]
    text = "Le marin relit, sans se presser."
    ids = tokenizer.encode(text)
    starts = tokenizer.word_starts[ids]
    words = np.split(np.array(tokenizer.pieces_of(ids), object), np.flatnonzero(starts))
    assert ["".join(word) for word in words if len(word)] == [
        "Le", " marin", " relit", ",", " sans", " se", " presser", ".",
    ]  # fmt: skip
    assert tokenizer.word_starts[:7].all()


def test_words_of_wordpiece_start_where_no_mark_is():
    tokenizer = TRAINED["wordpiece"]
    ids = tokenizer.encode("Marinette relit l'œuvre")
    assert tokenizer.word_starts[ids].tolist() == [not piece.startswith("##") for piece in tokenizer.pieces_of(ids)]
    assert 0 < tokenizer.word_starts[ids].sum() < len(ids)


def test_half_a_character_and_a_combining_mark_start_no_word():
    tokenizer = TRAINED["bpe"]
    for text in ("中", "e\u0301"):
        assert not tokenizer.word_starts[tokenizer.encode(text)[1:]].any()


# ---- files that are none ----


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80\x04\x95pickle",
        b"[" * 100_000,
        b"[1, 2]",
        b'{"version": "1.0"}',
        b'{"model": {"type": "BPE"}}',
        b'{"model": {"type": "Nonsense"}}',
        b'{"model": "x", "format": "y"}',
        b'{"model": {"type": "BPE"}, "added_tokens": [1]}',
    ],
)
def test_a_file_that_is_no_tokenizer_is_refused(content, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with refused("bad-format") as caught:
        Tokenizer.load(path)
    assert caught.value.where == str(path)


def test_a_directory_without_a_tokenizer_is_refused(tmp_path):
    with refused("no-file", "tokenizer.json"):
        Tokenizer.load(tmp_path)
    with refused("no-file", "nowhere.json"):
        Tokenizer.load(tmp_path / "nowhere.json")


def test_a_role_can_be_named_where_no_spelling_tells_it():
    spec = TRAINED["bpe"].spec
    added = [{**token, "content": "<|fin|>" if token["content"] == "</s>" else token["content"]}
             for token in spec["added_tokens"] if token["content"] != "<pad>"]  # fmt: skip
    vocabulary = {("<|fin|>" if piece == "</s>" else piece): i for piece, i in spec["model"]["vocab"].items()}
    bare = {**spec, "added_tokens": added, "model": {**spec["model"], "vocab": vocabulary}}
    assert Tokenizer(bare).roles["end"] is None
    named = Tokenizer({**bare, "roles": {"end": "<|fin|>", "pad": "<|fin|>"}})
    assert named.roles["end"] == named.roles["pad"] == 3
    assert named.roles["begin"] == 2
    assert 3 not in named.encode("la <|fin|> fin").tolist()
    assert named.fingerprint != Tokenizer(bare).fingerprint
    wider, said = named.with_role("cls")
    assert (wider.roles["end"], said) == (3, "")
    for wrong in (7, {"end": "nobody"}, {"king": "<|fin|>"}, {"end": 3}):
        with refused("bad-format", "roles"):
            Tokenizer({**bare, "roles": wrong})


# ---- the two sides of a translation


@pytest.fixture
def byte_tokenizer():
    return small.tokenizer()


@pytest.fixture
def char_tokenizer():
    return tiny_runs.run_of("char").tokenizer


def test_the_same_tokenizer_twice_is_one_file(byte_tokenizer, tmp_path):
    both = Vocabularies(byte_tokenizer, byte_tokenizer)
    both.save(tmp_path)
    assert both.is_joint
    assert both.fingerprint == byte_tokenizer.fingerprint
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]
    assert Tokenizer.load(tmp_path).fingerprint == byte_tokenizer.fingerprint


def test_two_have_a_file_each_and_are_read_again(byte_tokenizer, char_tokenizer, tmp_path):
    both = Vocabularies(byte_tokenizer, char_tokenizer)
    both.save(tmp_path)
    assert not both.is_joint
    assert both.fingerprint == f"{byte_tokenizer.fingerprint}+{char_tokenizer.fingerprint}"
    found = read_separate(tmp_path, byte_tokenizer.fingerprint, char_tokenizer.fingerprint, str)
    assert found.fingerprint == both.fingerprint


def test_another_than_the_one_that_was_trained_with_is_refused(byte_tokenizer, char_tokenizer, tmp_path):
    Vocabularies(byte_tokenizer, char_tokenizer).save(tmp_path)
    with refused("mismatch", "tokenizer.target.json", by=IntegrityError):
        read_separate(tmp_path, byte_tokenizer.fingerprint, byte_tokenizer.fingerprint, str)
