"""The course's SentencePiece model: the lab's own ids, and the same interface as any tokenizer."""

import builtins
import gzip
import io
import json
import os
import shutil
from pathlib import Path

import french_sentences
import pytest
from expected_errors import refused

from headstart.tokenizers.sentencepiece import read_spm
from headstart.tokenizers.tokenizer import Tokenizer

sentencepiece = pytest.importorskip("sentencepiece")
DATA = os.environ.get("HEADSTART_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="HEADSTART_DATA is not set")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A small model and its dictionary, as the lab has them."""
    directory = tmp_path_factory.mktemp("spm")
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(french_sentences.lines(300)),
        model_writer=written,
        vocab_size=100,
        minloglevel=2,
    )
    path = directory / "sentencepiece.model"
    path.write_bytes(written.getvalue())
    processor = sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())
    pieces = [processor.id_to_piece(i) for i in range(3, len(processor))]
    (directory / "dict.txt").write_text("".join(f"{piece} 1\n" for piece in pieces), encoding="utf-8")
    return path


def test_ids_are_four_specials_and_the_lines_of_the_dictionary(model):
    tokenizer = Tokenizer.load(model.parent)
    pieces = [line.rsplit(" ", 1)[0] for line in (model.parent / "dict.txt").read_text().splitlines()]
    assert tokenizer.pieces == ["<s>", "<pad>", "</s>", "<unk>", *pieces]
    assert tokenizer.roles == {
        "pad": 1, "unknown": 3, "begin": 0, "end": 2, "mask": None, "cls": 0, "sep": 2,
    }  # fmt: skip
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    line = french_sentences.lines(1, seed=5)[0]
    expected = [tokenizer.pieces.index(piece) for piece in processor.encode(line, out_type=str)]
    assert tokenizer.encode(line).tolist() == expected
    assert tokenizer.decode(expected) == line


def test_a_piece_that_the_dictionary_lacks_is_unknown(model, tmp_path):
    full, line = Tokenizer.load(model), "Le facteur relit ce roman"
    dropped = int(full.encode(line)[2])
    kept = (model.parent / "dict.txt").read_text(encoding="utf-8").splitlines()
    del kept[dropped - 4]
    (tmp_path / "dict.txt").write_text("\n".join(kept), encoding="utf-8")
    tokenizer = Tokenizer(read_spm(shutil.copy(model, tmp_path / "x.model")))
    expected = [3 if i == dropped else i - (i > dropped) for i in full.encode(line).tolist()]
    assert tokenizer.encode(line).tolist() == expected


def test_without_a_dictionary_the_ids_are_the_models_own(model, tmp_path):
    (tmp_path / "other.model").write_bytes(model.read_bytes())
    tokenizer = Tokenizer.load(tmp_path)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    assert tokenizer.encode("une lettre").tolist() == processor.encode("une lettre")
    assert (tokenizer.size, tokenizer.roles["unknown"], tokenizer.roles["pad"]) == (len(processor), 0, None)


def test_a_mask_is_appended_and_kept_in_one_file(model, tmp_path):
    tokenizer = Tokenizer.load(model)
    wider, said = tokenizer.with_role("mask")
    assert said.startswith(f"appended <mask> as token {tokenizer.size}")
    wider.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert loaded.fingerprint == wider.fingerprint != tokenizer.fingerprint
    assert loaded.roles == wider.roles
    ids = [*tokenizer.encode("une lettre").tolist(), loaded.id_of("mask"), 3]
    assert loaded.decode(ids, keep_specials=True) == "une lettre<mask> ⁇ "
    assert loaded.decode(ids) == "une lettre ⁇ "


def test_text_that_spells_a_special_token_is_text(model):
    wider, _ = Tokenizer.load(model).with_role("mask")
    for text in ("<s>", "</s> <pad>", "<mask>", "a <unk> b"):
        assert set(wider.encode(text).tolist()) & wider.special_ids <= {3}


@pytest.mark.parametrize(
    ("lines", "number", "code"),
    [
        ("▁a 1\n▁b\n", 2, "bad-format"),
        ("▁a 1\n▁a 2\n", 2, "conflict"),
        ("<pad> 1\n", 1, "conflict"),
        ("\n▁a 1", 1, "bad-format"),
    ],
)
def test_a_bad_line_of_the_dictionary_is_refused_with_its_number(lines, number, code, model, tmp_path):
    dictionary = tmp_path / "dict.txt"
    dictionary.write_text(lines, encoding="utf-8")
    with refused(code) as caught:
        read_spm(shutil.copy(model, tmp_path / "x.model"))
    assert caught.value.where == f"{dictionary}:{number}"


def test_a_model_that_is_none_is_refused(tmp_path):
    (tmp_path / "x.model").write_bytes(b"nothing of the kind")
    with refused("bad-format", "x.model"):
        Tokenizer.load(tmp_path / "x.model")


def test_without_the_package_the_way_to_get_it_is_told(model, monkeypatch):
    real = builtins.__import__

    def without(name, *arguments, **keywords):
        if name == "sentencepiece":
            raise ImportError(name)
        return real(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", without)
    with refused("no-package", "headstart[sentencepiece]"):
        Tokenizer.load(model)


# ---- the lab's own ----


@needs_data
def test_the_lab_has_50001_tokens_and_no_mask():
    tokenizer = Tokenizer.load(Path(DATA) / "cls-books" / "original")
    assert tokenizer.size == 50_001
    assert tokenizer.roles["mask"] is None
    assert tokenizer.pieces[:6] == ["<s>", "<pad>", "</s>", "<unk>", "▁d", "es"]


@needs_data
def test_every_review_has_the_ids_of_the_labs_pieces_and_decodes_to_its_text():
    books = Path(DATA) / "cls-books"
    tokenizer = Tokenizer.load(books / "original")
    ids_of = {piece: i for i, piece in enumerate(tokenizer.pieces)}
    reviews = with_unknown = 0
    for split in ("train", "valid", "test"):
        with gzip.open(books / f"{split}.jsonl.gz", "rt", encoding="utf-8") as file:
            texts = [json.loads(line)["text"] for line in file]
        with gzip.open(books / "original" / f"{split}.review.spm.gz", "rt", encoding="utf-8") as file:
            pieces = [line.rstrip("\n").split(" ") for line in file]
        for text, ours, lab in zip(texts, tokenizer.encode_many(texts), pieces, strict=True):
            assert ours.tolist() == [ids_of.get(piece, 3) for piece in lab]
            # An unknown character has no id to come back from: it shows as the library shows it.
            shown = [piece if piece in ids_of else " ⁇ " for piece in lab]
            assert tokenizer.decode(ours) == "".join(shown).replace("▁", " ").removeprefix(" ")
            with_unknown += 3 in ours
            assert 3 in ours or tokenizer.decode(ours) == text
            reviews += 1
    assert (reviews, with_unknown) == (4_000, 189)
