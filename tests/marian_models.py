"""Small Marian directories as others write them: random weights, SentencePiece models of our own sentences."""

import io
import json
from functools import cache

import pytest
import tiny_runs
import torch

from headstart.demo.corpus import pairs

sentencepiece = pytest.importorskip("sentencepiece", reason="needs the extra sentencepiece")
transformers = pytest.importorskip("transformers", reason="needs the extra hf")

SHAPE = {
    "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "max_position_embeddings": 128,
    "activation_function": "swish", "scale_embedding": True,
}  # fmt: skip
LANGUAGES = [">>eng<<", ">>deu<<"]


@cache
def sentences():
    """French and English, side by side."""
    found = [pair for pair in pairs(0, "train", 300) if len(pair.english) < 80]
    return [pair.french for pair in found], [pair.english for pair in found]


@cache
def models():
    """A SentencePiece model of each side, as bytes."""
    made = []
    for texts in sentences():
        written = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts), model_writer=written, vocab_size=110, minloglevel=2
        )
        made.append(written.getvalue())
    return made


def pieces(raw):
    processor = sentencepiece.SentencePieceProcessor(model_proto=raw)
    return [processor.id_to_piece(i) for i in range(3, len(processor))]


def vocabulary(*sides, extra=()):
    """In an order that is neither model's: the ids are the vocabulary's own."""
    found = sorted({piece for raw in sides for piece in pieces(raw)})
    return {piece: i for i, piece in enumerate(["</s>", "<unk>", *found, *extra, "<pad>"])}


def write_tokenizer(folder, *, separate=False, extra=()):
    """The files of a Marian tokenizer; returns the sizes of both vocabularies and the id of the padding."""
    source, target = models()
    (folder / "source.spm").write_bytes(source)
    (folder / "target.spm").write_bytes(target)
    words = vocabulary(source, extra=extra) if separate else vocabulary(source, target, extra=extra)
    other = vocabulary(target) if separate else words
    (folder / "vocab.json").write_text(json.dumps(words), encoding="utf-8")
    if separate:
        (folder / "target_vocab.json").write_text(json.dumps(other), encoding="utf-8")
    settings = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": separate, "source_lang": "fra"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return len(words), len(other), other["<pad>"]


@cache
def path_of(kind="joint"):
    """A directory: one vocabulary and matrix for all, separate ones, an output layer of its own, two languages."""
    folder = tiny_runs.directory() / f"marian-{kind}"
    folder.mkdir()
    vocab, target_vocab, padding = write_tokenizer(
        folder, separate=kind == "separate", extra=LANGUAGES if kind == "languages" else ()
    )
    config = transformers.MarianConfig(
        **SHAPE, vocab_size=vocab, decoder_vocab_size=target_vocab, pad_token_id=padding,
        decoder_start_token_id=padding, eos_token_id=0, forced_eos_token_id=0,
        share_encoder_decoder_embeddings=kind != "separate", tie_word_embeddings=kind != "untied",
    )  # fmt: skip
    torch.manual_seed(3)
    model = transformers.MarianMTModel(config)
    randomise(model)
    model.save_pretrained(folder)
    return folder


def randomise(model):
    """Every tensor away from its special values, so that a forgotten bias, norm or column shows."""
    generator = torch.Generator().manual_seed(5)
    positions = [model.model.encoder.embed_positions.weight, model.model.decoder.embed_positions.weight]
    with torch.no_grad():
        for tensor in [*model.parameters(), model.final_logits_bias]:
            if not any(tensor is one for one in positions):
                tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.3)


def theirs(folder):
    """The model and the tokenizer as `transformers` reads them."""
    return (
        transformers.MarianMTModel.from_pretrained(folder).eval(),
        transformers.AutoTokenizer.from_pretrained(folder),
    )
