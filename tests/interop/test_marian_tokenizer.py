"""The tokenizers of a Marian directory give the ids of `MarianTokenizer`, and its files again."""

import json
import shutil
from functools import cache

import marian_models
import numpy as np
import pytest
from expected_errors import refused
from hypothesis import given
from hypothesis import strategies as st
from marian_models import transformers

from headstart.interop.directory import ForeignDirectory
from headstart.interop.families.fields import Fields
from headstart.interop.marian_tokenizer import read_marian, write_marian
from headstart.tokenizers.sentencepiece import marian_spec
from headstart.tokenizers.tokenizer import Tokenizer

pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
TEXTS = [
    *marian_models.sentences()[0][:3], *marian_models.sentences()[1][:3], "", " ", "  deux  espaces ", "ici\nfin\tlà",
    "☃☃ été ß Ÿ", "ﬁ ① ２", ">>eng<< un roman", ">>xyz<< un roman", ">>eng<<", "un >>eng<< roman", ">> un", "< / s >",
]  # fmt: skip


@cache
def words_of(kind):
    folder = marian_models.path_of(kind)
    vocab = len(json.loads((folder / "vocab.json").read_text()))
    target = folder / "target_vocab.json"
    target_vocab = len(json.loads(target.read_text())) if target.exists() else 0
    return read_marian(ForeignDirectory(folder), Fields({}, str(folder)), vocab, target_vocab)


@cache
def theirs(kind):
    return transformers.MarianTokenizer.from_pretrained(marian_models.path_of(kind))


@pytest.mark.parametrize("kind", ["joint", "separate", "languages"])
def test_ids_are_those_of_marians_tokenizer(kind):
    words, other = words_of(kind), theirs(kind)
    for text in TEXTS:
        assert [*words.source.encode(text), words.source.id_of("end")] == other(text).input_ids, text
        assert [*words.target.encode(text), words.target.id_of("end")] == other(text_target=text).input_ids, text


@given(text=st.text(st.sampled_from("abé ▁ßœ>.,'\u2028\u0301☃"), max_size=30))
def test_any_text_has_the_same_ids(text):
    assert [*words_of("joint").source.encode(text), 0] == theirs("joint")(text).input_ids


@pytest.mark.parametrize("kind", ["joint", "separate", "languages"])
def test_ids_become_the_text_that_marians_tokenizer_gives(kind):
    words, other = words_of(kind), theirs(kind)
    draws = np.random.default_rng(0)
    for _ in range(20):  # pieces of the source's model too, where the sides share a vocabulary
        ids = [int(i) for i in draws.integers(words.target.size, size=12) if i != words.target.roles["unknown"]]
        assert words.target.decode(ids) == other.decode(ids, skip_special_tokens=True)


def test_the_sides_share_their_ids_but_not_their_pieces():
    words = words_of("joint")
    assert words.source.pieces == words.target.pieces
    assert not words.is_joint
    english = marian_models.sentences()[1][0]
    assert words.source.encode(english).tolist() != words.target.encode(english).tolist()


def test_text_that_spells_a_special_token_is_text():
    source = words_of("joint").source
    ids = source.encode("<pad></s>")
    assert len(ids) > 2
    assert not {source.id_of("pad"), source.id_of("end")} & set(ids.tolist())


def test_a_saved_side_is_the_same_tokenizer(tmp_path):
    source = words_of("joint").source
    source.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.fingerprint == source.fingerprint
    assert again.encode(TEXTS[0]).tolist() == source.encode(TEXTS[0]).tolist()


@pytest.mark.parametrize("kind", ["joint", "separate", "languages"])
def test_what_is_written_is_what_was_read(kind, tmp_path):
    write_marian(words_of(kind), "marian", 128, tmp_path)
    folder = marian_models.path_of(kind)
    for name in ("source.spm", "target.spm", "vocab.json", "target_vocab.json"):
        before, after = folder / name, tmp_path / name
        assert before.exists() == after.exists()
        if before.exists():
            as_read = json.loads if name.endswith("json") else lambda data: data
            assert as_read(before.read_bytes()) == as_read(after.read_bytes())
    again, other = transformers.AutoTokenizer.from_pretrained(tmp_path), theirs(kind)
    assert type(again) is type(other)
    assert again(TEXTS).input_ids == other(TEXTS).input_ids


def test_rows_without_a_piece_are_special_tokens():
    words = marian_models.vocabulary(*marian_models.models())
    source = Tokenizer(marian_spec(marian_models.models()[0], words, len(words) + 2, "vocab.json"))
    assert source.size == len(words) + 2
    assert source.special_ids == {0, 1, words["<pad>"], len(words), len(words) + 1}
    assert source.decode([5, len(words)]) == source.decode([5])


@pytest.mark.parametrize(
    ("identity", "code"),
    [(10**6, "bad-format"), (True, "bad-format"), (-1, "bad-format"), (1, "conflict"), (None, "bad-format")],
)
def test_a_vocabulary_that_is_none_is_refused(identity, code):
    model = marian_models.models()[0]
    words = marian_models.vocabulary(model)
    with refused(code, "'</s>'", f" {identity}"):
        marian_spec(model, {**words, "</s>": identity}, len(words), "vocab.json")


def test_an_embedding_of_any_size_is_not_believed():
    model = marian_models.models()[0]
    words = marian_models.vocabulary(model)
    with refused("mismatch", "vocab.json", "1,000,000,000"):
        marian_spec(model, words, 10**9, "vocab.json")


def test_a_vocabulary_without_its_special_tokens_is_refused():
    with refused("missing", "</s>", "<pad>"):
        marian_spec(marian_models.models()[0], {"<unk>": 0}, 1, "vocab.json")


def copied(tmp_path, kind="joint", **settings):
    """A directory of ours to spoil."""
    for file in marian_models.path_of(kind).iterdir():
        shutil.copy(file, tmp_path / file.name)
    if settings:
        (tmp_path / "tokenizer_config.json").unlink()
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    return ForeignDirectory(tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sp_model_kwargs": {"enable_sampling": True}}, "sp_model_kwargs"),
        ({"pad_token": "<blank>"}, "pad_token is '<blank>'"),
        ({"eos_token": {"content": "<end>"}}, "eos_token is '<end>'"),
        ({"added_tokens_decoder": {"7": {"content": "<sep>"}}}, "'<sep>'"),
    ],
)
def test_settings_that_would_give_other_ids_are_refused(settings, message, tmp_path):
    with refused("unsupported", "tokenizer_config.json", message):
        read_marian(copied(tmp_path, **settings), Fields({}, "config.json"), 165, 0)


def test_a_link_out_of_the_directory_is_not_followed(tmp_path):
    directory = copied(tmp_path)
    (tmp_path / "source.spm").unlink()
    (tmp_path / "source.spm").symlink_to(marian_models.path_of("joint") / "source.spm")
    with refused("unsupported"):
        read_marian(directory, Fields({}, "config.json"), 165, 0)


def test_what_is_no_sentencepiece_model_is_refused(tmp_path):
    directory = copied(tmp_path)
    (tmp_path / "target.spm").unlink()
    (tmp_path / "target.spm").write_bytes(b"\x80\x04no model")
    with refused("bad-format", "target.spm"):
        read_marian(directory, Fields({}, "config.json"), 165, 0)
