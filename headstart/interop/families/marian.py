"""Marian's family: translators such as those of OPUS-MT, in as translation runs, and our translators out.

Theirs is the Transformer of 2017 with an activation of one's choice and a bias over the vocabulary. What differs from
ours are the tokenizers (`marian_tokenizer.py`), the frame (a source has no first token, and a translation begins after
the padding token) and the order of the columns: both models add sinusoids to the embedding, but Marian has the sines
in the first half of the columns and the cosines in the second, ours alternate. Nothing in a block depends on that
order as long as every tensor that reads or writes the residual stream agrees on it.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from headstart.config.defaults import TRANSLATION_BATCH_TOKENS
from headstart.config.model import HeadConfig, ModelConfig
from headstart.config.run import TranslationConfig
from headstart.errors import IntegrityError, visible
from headstart.interop import marian_tokenizer
from headstart.interop.directory import ForeignDirectory
from headstart.interop.families.family import Described, Exported, Family, Part, block_parts, scatter
from headstart.interop.families.fields import ACTIVATIONS_OUT, Fields
from headstart.model.positions import sinusoids
from headstart.planning.parameters import shape, symbols, tensors
from headstart.runs.load import LoadedRun
from headstart.tokenizers.templates import target_template_of
from headstart.tokenizers.tokenizer import Vocabularies

NORM_EPSILON = 1e-5  # theirs is not configurable
POSITION_ERROR = 1e-3
MOST_SHOWN = 8
_EMBEDDINGS = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")

# What the oldest configurations carry, and the only value that they can have in this family.
_OF_OLD: dict[str, Any] = {
    "normalize_before": False, "normalize_embedding": False, "add_final_layer_norm": False,
    "static_position_embeddings": True,
}  # fmt: skip

# Where the columns of the residual stream are in our tensors: matrices that read it, and what writes or norms it.
_READS = re.compile(r".*\.(tokens|qkv|feed_forward\.input)\.weight|head\.output\.weight")
_WRITES = re.compile(r".*\.((cross_)?attention\.output|feed_forward\.output|\w+_norm)\.(weight|bias)")

_ENCODER_BLOCK = {
    "attention.qkv": "self_attn.q_proj self_attn.k_proj self_attn.v_proj",
    "attention.output": "self_attn.out_proj", "attention_norm": "self_attn_layer_norm",
    "feed_forward.input": "fc1", "feed_forward.output": "fc2", "feed_forward_norm": "final_layer_norm",
}  # fmt: skip

_DECODER_BLOCK = {
    **_ENCODER_BLOCK, "cross_attention.qkv": "encoder_attn.q_proj encoder_attn.k_proj encoder_attn.v_proj",
    "cross_attention.output": "encoder_attn.out_proj", "cross_norm": "encoder_attn_layer_norm",
}  # fmt: skip


class Marian(Family):
    """Encoder-decoders of `MarianMTModel`."""

    name = "Marian"
    model_type, prefix, is_translator = "marian", "model.", True
    drops = r"(encoder|decoder)\.embed_positions\.weight|shared\.weight"
    settings: ClassVar[dict[str, tuple[str, Any]]] = {
        "vocab": ("vocab_size", None), "width": ("d_model", None), "depth": ("encoder_layers", None),
        "decoder_depth": ("decoder_layers", None), "heads": ("encoder_attention_heads", None),
        "ffn": ("encoder_ffn_dim", None), "context": ("max_position_embeddings", 1024),
        "activation": ("activation_function", "gelu"), "dropout": ("dropout", 0.1),
        "attention_dropout": ("attention_dropout", 0.0), "ffn_dropout": ("activation_dropout", 0.0),
        "scale_embedding": ("scale_embedding", False), "tied": ("tie_word_embeddings", True),
    }  # fmt: skip
    also_reads = """decoder_vocab_size hidden_size num_hidden_layers decoder_ffn_dim num_attention_heads
        decoder_attention_heads encoder_layerdrop decoder_layerdrop share_encoder_decoder_embeddings is_encoder_decoder
        normalize_before normalize_embedding add_final_layer_norm static_position_embeddings add_bias_logits
        classif_dropout extra_pos_embeddings force_bos_token_to_be_generated init_std output_past"""
    wants: ClassVar[dict[str, tuple[Any, ...]]] = {
        "positions": ("sinusoidal",), "norm": ("layer",), "norm_place": ("post",), "norm_epsilon": (NORM_EPSILON,),
        "embedding_norm": (False,), "segments": (0,), "activation": tuple(ACTIVATIONS_OUT),
    }  # fmt: skip
    comes_with: ClassVar[dict[str, Any]] = {"direction": "bidirectional", "init": "xavier"}
    heads: ClassVar[dict[str, str]] = {"translation": "MarianMTModel"}

    # ---- in ----

    def described(self, fields: Fields, names: frozenset[str]) -> Described:
        fields.must_be("is_encoder_decoder", True, default=True)
        for name, value in _OF_OLD.items():
            fields.must_be(name, value, None, default=value)
        model = self.read_model(
            fields, target_vocab=self._target_vocab(fields, names), output_bias="final_logits_bias" in names
        )
        # Names for the same thing, and things that are one and the same in our model.
        for name, value in (
            ("hidden_size", model.width), ("num_hidden_layers", model.depth), ("num_attention_heads", model.heads),
            ("decoder_attention_heads", model.heads), ("decoder_ffn_dim", model.ffn),
        ):  # fmt: skip
            fields.must_be(name, value, default=value)
        is_padded = fields.integer("decoder_start_token_id") == fields.integer("pad_token_id")
        drops = [name for name in ("encoder_layerdrop", "decoder_layerdrop") if fields.number(name, 0.0)]
        return Described(
            model=model,
            head=HeadConfig(kind="translation"),
            objective="translation",
            notes=tuple(f"{name} is not applied when it is trained further" for name in drops),
            translation=TranslationConfig(
                batch_tokens=TRANSLATION_BATCH_TOKENS["cpu"],
                beam=max(1, fields.integer("num_beams", TranslationConfig.beam or 1)),
                length_penalty=fields.number("length_penalty", TranslationConfig.length_penalty, least=-1e12),
            ),
            frame="marian" if is_padded else "causal",
        )

    def _target_vocab(self, fields: Fields, names: frozenset[str]) -> int:
        """The rows of the decoder's own embedding, or 0 where it is the encoder's."""
        vocab = fields.integer("vocab_size")
        own = fields.integer("decoder_vocab_size", vocab)
        if not fields.flag("share_encoder_decoder_embeddings", True):
            return own
        fields.must_be("decoder_vocab_size", vocab, None, default=vocab)
        is_tied = fields.flag("tie_word_embeddings", True)
        return 0 if is_tied or not names.issuperset(_EMBEDDINGS) else own

    def parts(self, model: ModelConfig, head: HeadConfig) -> Iterator[Part]:
        if model.target_vocab:
            yield Part("base.embedding.tokens.weight", _EMBEDDINGS[:1])
            yield Part("base.target_embedding.tokens.weight", _EMBEDDINGS[1:])
        else:
            yield Part("base.embedding.tokens.weight", ("shared.weight",))
        yield from block_parts(model, "base.encoder", model.depth, "encoder.layers", _ENCODER_BLOCK)
        yield from block_parts(model, "base.decoder", model.decoder_depth, "decoder.layers", _DECODER_BLOCK)
        if not model.tied:
            yield Part("head.output.weight", ("lm_head.weight",))
        if model.output_bias:
            yield Part("head.output.bias", ("final_logits_bias",))

    def copies(self, model: ModelConfig, head: HeadConfig) -> Mapping[str, str]:
        embedding = "base.embedding.tokens.weight"
        output = "base.target_embedding.tokens.weight" if model.target_vocab else embedding
        inputs = {} if model.target_vocab else dict.fromkeys(_EMBEDDINGS, embedding)
        return {**inputs, "lm_head.weight": output} if model.tied else inputs

    def tensors_in(self, described: Described, theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        theirs, model = dict(theirs), described.model
        for name in ("encoder.embed_positions.weight", "decoder.embed_positions.weight"):
            table = theirs.get(name)
            if table is not None and not _are_sinusoids(table, model.width):
                what = f"{name} are not the sinusoids that this family has"
                raise IntegrityError(what, fix="such a checkpoint cannot be imported", code="unsupported")
        if not model.target_vocab:  # the file may have it under any of its names
            present = [name for name in (*_EMBEDDINGS, "lm_head.weight") if name in theirs]
            for name in present if model.tied else [name for name in present if name in _EMBEDDINGS]:
                theirs.setdefault("shared.weight", theirs[name])
        if "final_logits_bias" in theirs:
            theirs["final_logits_bias"] = theirs["final_logits_bias"].flatten()
        return reordered(super().tensors_in(described, theirs), our_order(model.width))

    def read_vocabularies(
        self, directory: ForeignDirectory, fields: Fields, described: Described
    ) -> tuple[Vocabularies, list[str]]:
        """The tokenizers of both sides."""
        model = described.model
        vocabularies = marian_tokenizer.read_marian(directory, fields, model.vocab, model.target_vocab)
        marian_tokenizer.refuse_other_frame(directory, vocabularies, described.frame, fields)
        pieces = vocabularies.source.pieces
        codes = [piece for piece in pieces if piece.startswith(">>") and piece.endswith("<<")]
        shown = visible(", ".join(codes[:MOST_SHOWN]) + (" …" if len(codes) > MOST_SHOWN else ""))
        note = f"it translates into several languages: begin each text with one of {shown}"
        return vocabularies, [note] if codes else []

    # ---- out ----

    def obstacle(self, run: LoadedRun, weights: Mapping[str, Tensor]) -> str | None:
        obstacle = self.head_obstacle(run.config.head.kind) or super().obstacle(run, weights)
        if obstacle is not None:
            return obstacle
        padding, vocab = run.vocabularies.target.id_of("pad"), run.config.model.vocab
        if padding >= vocab:  # theirs has one number for both sides
            return f"pad is {padding} in the target's vocabulary, and the source's has {vocab:,} tokens"
        return marian_tokenizer.tokenizer_obstacle(run.vocabularies, run.config.frame)

    def exported(self, run: LoadedRun, weights: Mapping[str, Tensor]) -> Exported:
        model, head = run.config.model, run.config.head
        whole = dataclasses.replace(model, bias=True, output_bias=True)
        ours = reordered(_with_zeros(weights, whole, head), marian_order(model.width))
        ours["head.output.bias"] = ours["head.output.bias"][None]
        theirs = scatter(self.parts(whole, head), ours)
        if not model.tied and not model.target_vocab:
            theirs |= {name: theirs["shared.weight"].clone() for name in _EMBEDDINGS}
        outside = ("lm_head.weight", "final_logits_bias")
        named = {name if name in outside else self.prefix + name: tensor for name, tensor in theirs.items()}
        return {**self.model_out(model), **self.special_ids(run)}, named

    def model_out(self, model: ModelConfig) -> dict[str, Any]:
        return {
            **super().model_out(model), "architectures": ["MarianMTModel"], "is_encoder_decoder": True,
            "decoder_vocab_size": model.output_vocab, "decoder_attention_heads": model.heads,
            "decoder_ffn_dim": model.ffn, "share_encoder_decoder_embeddings": not model.target_vocab,
            "torch_dtype": "float32",
        }  # fmt: skip

    def special_ids(self, run: LoadedRun) -> dict[str, Any]:
        target = run.vocabularies.target
        frame = target_template_of(target, run.config.frame)
        return {
            "decoder_start_token_id": frame.first, "eos_token_id": frame.last, "forced_eos_token_id": frame.last,
            "pad_token_id": target.id_of("pad"),
        }  # fmt: skip

    def generation_out(self, run: LoadedRun) -> dict[str, Any]:
        """How the run translates, so that `generate` does the same: what never comes, and the search."""
        config, search = run.config, run.config.translation
        assert search is not None
        ids = self.special_ids(run)
        never = sorted(run.vocabularies.target.special_ids - {ids["eos_token_id"]})
        return {
            **ids, "num_beams": search.beam, "length_penalty": search.length_penalty, "max_length": config.length,
            "early_stopping": (search.beam or 1) > 1, "bad_words_ids": [[identity] for identity in never],
        }  # fmt: skip

    def write_vocabularies(self, run: LoadedRun, directory: Path) -> None:
        """The tokenizers' files."""
        marian_tokenizer.write_marian(run.vocabularies, run.config.frame, run.config.length, directory)


def _with_zeros(weights: Mapping[str, Tensor], model: ModelConfig, head: HeadConfig) -> dict[str, Tensor]:
    """All tensors of a model with every bias: one that ours has not is zero."""
    values = symbols(model, head)
    missing = [planned for planned in tensors(model, head) if planned.name not in weights]
    return {**weights, **{planned.name: torch.zeros(shape(planned, values)) for planned in missing}}


def _are_sinusoids(table: Tensor, width: int) -> bool:
    if table.ndim != 2 or table.shape[1] != width:
        return False
    return bool(torch.allclose(table, marian_positions(len(table), width), rtol=0, atol=POSITION_ERROR))


# ---- the order of the columns ---------------------------------------------------------------------------------


def marian_order(width: int) -> Tensor:
    """For each of Marian's columns, ours: the even ones, which hold the sines, and then the odd ones."""
    return torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])


def our_order(width: int) -> Tensor:
    """For each of our columns, Marian's."""
    return marian_order(width).argsort()


def reordered(ours: Mapping[str, Tensor], order: Tensor) -> dict[str, Tensor]:
    """Tensors under our names with the columns of the residual stream in this order, wherever they are."""

    def moved(name: str, tensor: Tensor) -> Tensor:
        if _READS.fullmatch(name):
            return tensor[:, order]
        return tensor[order] if _WRITES.fullmatch(name) else tensor

    return {name: moved(name, tensor) for name, tensor in ours.items()}


def marian_positions(length: int, width: int) -> Tensor:
    """What Marian adds to the embedding, (length, width)."""
    return sinusoids(torch.arange(length), width, torch.float32)[:, marian_order(width)]
