"""Marian's family: translators such as those of OPUS-MT, in as translation runs, and our translators out.

Theirs is the Transformer of 2017 with an activation of one's choice and a bias over the vocabulary. What differs from
ours is the order of the columns (`marian_tensors.py`), the tokenizers (`marian_tokenizer.py`) and the frame: a source
has no first token, and a translation begins after the padding token.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headstart.errors import IntegrityError, visible
from headstart.interop.expressing import ACTIVATIONS_IN, ACTIVATIONS_OUT, head_obstacle, model_obstacle
from headstart.interop.families import Described, Exported, Family, Part, scattered
from headstart.interop.fields import Fields
from headstart.interop.marian_tensors import block_parts, marian_order, marian_positions, our_order, reordered
from headstart.interop.marian_tokenizer import (
    read_marian,
    refuse_other_frame,
    tokenizer_obstacle,
    write_marian,
)
from headstart.interop.reading import ForeignDirectory
from headstart.model.presets import HeadConfig, ModelConfig
from headstart.plan.parameters import shape, symbols, tensors
from headstart.text.frames import target_frame_of
from headstart.text.tokenizer import Tokenizer
from headstart.training.loading import LoadedRun
from headstart.training.run_directory import RunConfig, TranslationConfig
from headstart.training.translation import CPU_BATCH_TOKENS, DEFAULT_SMOOTHING
from headstart.training.vocabularies import Vocabularies

NORM_EPSILON = 1e-5  # theirs is not configurable
POSITION_ERROR = 1e-3
MOST_SHOWN = 8
_EMBEDDINGS = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
_READ = (
    "vocab_size", "decoder_vocab_size", "d_model", "hidden_size", "encoder_layers", "num_hidden_layers",
    "decoder_layers", "encoder_ffn_dim", "decoder_ffn_dim", "encoder_attention_heads",
    "num_attention_heads", "decoder_attention_heads", "max_position_embeddings", "activation_function",
    "dropout", "attention_dropout", "activation_dropout", "encoder_layerdrop", "decoder_layerdrop",
    "scale_embedding", "share_encoder_decoder_embeddings", "tie_word_embeddings", "is_encoder_decoder",
)  # fmt: skip
# What the oldest configurations carry, and the only value that they can have in this family.
_OF_OLD: dict[str, Any] = {
    "normalize_before": False, "normalize_embedding": False, "add_final_layer_norm": False,
    "static_position_embeddings": True,
}  # fmt: skip
_WITHOUT_EFFECT = (
    "add_bias_logits", "classif_dropout", "extra_pos_embeddings", "force_bos_token_to_be_generated", "init_std",
    "output_past",
)  # fmt: skip
# What a run must have to be one of them.
_EXPRESSED: dict[str, tuple[Any, ...]] = {
    "positions": ("sinusoidal",), "norm": ("layer",), "norm_place": ("post",), "norm_epsilon": (NORM_EPSILON,),
    "embedding_norm": (False,), "segments": (0,), "activation": tuple(ACTIVATIONS_OUT),
}  # fmt: skip


class Marian(Family):
    """Encoder-decoders of `MarianMTModel`."""

    name = "Marian"
    model_types = ("marian",)
    is_translator = True
    prefix = "model."
    drops = r"(encoder|decoder)\.embed_positions\.weight|shared\.weight"
    reads = frozenset({*_READ, *_OF_OLD, *_WITHOUT_EFFECT})

    # ---- in ----

    def described(self, fields: Fields, names: frozenset[str]) -> Described:
        fields.must_be("is_encoder_decoder", True, default=True)
        for name, value in _OF_OLD.items():
            fields.must_be(name, value, None, default=value)
        width, depth = fields.integer("d_model"), fields.integer("encoder_layers")
        heads, ffn = fields.integer("encoder_attention_heads"), fields.integer("encoder_ffn_dim")
        # Names for the same thing, and things that are one and the same in our model.
        for name, value in (
            ("hidden_size", width), ("num_hidden_layers", depth), ("num_attention_heads", heads),
            ("decoder_attention_heads", heads), ("decoder_ffn_dim", ffn),
        ):  # fmt: skip
            fields.must_be(name, value, default=value)
        model = ModelConfig(
            vocab=fields.integer("vocab_size"),
            target_vocab=self._target_vocab(fields, names),
            width=width,
            depth=depth,
            decoder_depth=fields.integer("decoder_layers"),
            heads=heads,
            ffn=ffn,
            context=fields.integer("max_position_embeddings", 1024),
            direction="bidirectional",
            positions="sinusoidal",
            norm_place="post",
            norm_epsilon=NORM_EPSILON,
            activation=fields.one_of("activation_function", ACTIVATIONS_IN, "gelu"),
            dropout=fields.number("dropout", 0.1),
            attention_dropout=fields.number("attention_dropout", 0.0),
            ffn_dropout=fields.number("activation_dropout", 0.0),
            scale_embedding=fields.flag("scale_embedding", False),
            tied=fields.flag("tie_word_embeddings", True),
            output_bias="final_logits_bias" in names,
            init="xavier",
        )
        is_padded = fields.integer("decoder_start_token_id") == fields.integer("pad_token_id")
        drops = [name for name in ("encoder_layerdrop", "decoder_layerdrop") if fields.number(name, 0.0)]
        return Described(
            model=model,
            head=HeadConfig(kind="translation"),
            objective="translation",
            notes=tuple(f"{name} is not applied when it is trained further" for name in drops),
            translation=TranslationConfig(
                batch_tokens=CPU_BATCH_TOKENS,
                smoothing=DEFAULT_SMOOTHING,
                beam=max(1, fields.integer("num_beams", TranslationConfig.beam)),
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
        yield from block_parts(model)
        if not model.tied:
            yield Part("head.output.weight", ("lm_head.weight",))
        if model.output_bias:
            yield Part("head.output.bias", ("final_logits_bias",))

    def copies(self, model: ModelConfig, head: HeadConfig) -> Mapping[str, str]:
        embedding = "base.embedding.tokens.weight"
        output = "base.target_embedding.tokens.weight" if model.target_vocab else embedding
        found = {} if model.target_vocab else dict.fromkeys(_EMBEDDINGS, embedding)
        return {**found, "lm_head.weight": output} if model.tied else found

    def tensors_in(self, found: Described, theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        theirs, width = dict(theirs), found.model.width
        for name in ("encoder.embed_positions.weight", "decoder.embed_positions.weight"):
            table = theirs.get(name)
            if table is not None and not _are_sinusoids(table, width):
                raise IntegrityError(
                    f"{name} are not the sinusoids that this family has",
                    fix="such a checkpoint cannot be imported",
                )
        if not found.model.target_vocab:  # the file may have it under any of its names
            present = [name for name in (*_EMBEDDINGS, "lm_head.weight") if name in theirs]
            for name in present if found.model.tied else [name for name in present if name in _EMBEDDINGS]:
                theirs.setdefault("shared.weight", theirs[name])
        if "final_logits_bias" in theirs:
            theirs["final_logits_bias"] = theirs["final_logits_bias"].flatten()
        return reordered(super().tensors_in(found, theirs), our_order(width))

    def read_vocabularies(
        self, directory: ForeignDirectory, fields: Fields, found: Described
    ) -> tuple[Vocabularies, list[str]]:
        """The tokenizers of both sides."""
        words = read_marian(directory, fields, found.model.vocab, found.model.target_vocab)
        refuse_other_frame(directory, words, found.frame, fields)
        codes = [piece for piece in words.source.pieces if piece.startswith(">>") and piece.endswith("<<")]
        shown = visible(", ".join(codes[:MOST_SHOWN]) + (" …" if len(codes) > MOST_SHOWN else ""))
        told = f"it translates into several languages: begin each text with one of {shown}"
        return words, [told] if codes else []

    # ---- out ----

    def obstacle(
        self,
        run: RunConfig,
        tokenizer: Tokenizer,
        weights: Mapping[str, Tensor],
        target: Tokenizer | None = None,
    ) -> str | None:
        model, words = run.model, Vocabularies(tokenizer, target or tokenizer)
        found = head_obstacle(run, {"translation": "MarianMTModel"}) or model_obstacle(
            model, self.wanted(model)
        )
        if found is not None:
            return found
        padding = words.target.id_of("pad")
        if padding >= model.vocab:  # theirs has one number for both sides
            return f"pad is {padding} in the target's vocabulary, and the source's has {model.vocab:,} tokens"
        return tokenizer_obstacle(words, run.frame)

    def wanted(self, model: ModelConfig) -> Mapping[str, tuple[Any, ...]]:
        return {**_EXPRESSED, "kv_heads": (0, model.heads)}

    def exported(
        self,
        run: RunConfig,
        tokenizer: Tokenizer,
        weights: Mapping[str, Tensor],
        target: Tokenizer | None = None,
    ) -> Exported:
        model = run.model
        whole = dataclasses.replace(model, bias=True, output_bias=True)
        ours = reordered(_with_zeros(weights, whole, run.head), marian_order(model.width))
        ours["head.output.bias"] = ours["head.output.bias"][None]
        theirs = scattered(self.parts(whole, run.head), ours)
        if not model.tied and not model.target_vocab:
            theirs |= {name: theirs["shared.weight"].clone() for name in _EMBEDDINGS}
        outside = ("lm_head.weight", "final_logits_bias")
        named = {name if name in outside else self.prefix + name: tensor for name, tensor in theirs.items()}
        words = Vocabularies(tokenizer, target or tokenizer)
        return Exported({**_shape_out(model), **special_ids(run, words)}, named)

    def generation_out(self, run: LoadedRun, tokenizer: Tokenizer) -> dict[str, Any]:
        """How the run writes, so that `generate` does the same: what never comes, and the search."""
        words, config = run.vocabularies, run.config
        ids = special_ids(config, words)
        search = config.translation
        assert search is not None
        return {
            **ids, "num_beams": search.beam, "length_penalty": search.length_penalty, "max_length": config.length,
            "early_stopping": search.beam > 1,
            "bad_words_ids": [[never] for never in sorted(words.target.special_ids - {ids["eos_token_id"]})],
        }  # fmt: skip

    def write_vocabularies(self, run: LoadedRun, directory: Path) -> None:
        """The tokenizers' files."""
        write_marian(run.vocabularies, run.config.frame, run.config.length, directory)


def special_ids(run: RunConfig, words: Vocabularies) -> dict[str, int]:
    """The special tokens that a translation is written with."""
    frame = target_frame_of(words.target, run.frame)
    assert frame.first is not None
    assert frame.last is not None
    return {
        "decoder_start_token_id": frame.first, "eos_token_id": frame.last, "forced_eos_token_id": frame.last,
        "pad_token_id": words.target.id_of("pad"),
    }  # fmt: skip


def _shape_out(model: ModelConfig) -> dict[str, Any]:
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "vocab_size": model.vocab,
        "decoder_vocab_size": model.output_vocab,
        "d_model": model.width,
        "encoder_layers": model.depth,
        "decoder_layers": model.decoder_depth,
        "encoder_attention_heads": model.heads,
        "decoder_attention_heads": model.heads,
        "encoder_ffn_dim": model.ffn,
        "decoder_ffn_dim": model.ffn,
        "max_position_embeddings": model.context,
        "activation_function": ACTIVATIONS_OUT[model.activation],
        "dropout": model.dropout,
        "attention_dropout": model.attention_dropout,
        "activation_dropout": model.ffn_dropout,
        "scale_embedding": model.scale_embedding,
        "share_encoder_decoder_embeddings": not model.target_vocab,
        "tie_word_embeddings": model.tied,
        "torch_dtype": "float32",
    }


def _with_zeros(weights: Mapping[str, Tensor], model: ModelConfig, head: HeadConfig) -> dict[str, Tensor]:
    """All tensors of a model with every bias: one that ours has not is zero."""
    values = symbols(model, head)
    return {
        planned.name: weights[planned.name].detach()
        if planned.name in weights
        else torch.zeros(shape(planned, values))
        for planned in tensors(model, head)
    }


def _are_sinusoids(table: Tensor, width: int) -> bool:
    if table.ndim != 2 or table.shape[1] != width:
        return False
    return bool(torch.allclose(table, marian_positions(len(table), width), rtol=0, atol=POSITION_ERROR))
