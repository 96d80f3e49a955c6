"""BERT and its kin: encoders with learned positions, norms after the residual sum, and a pooler below classifiers."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from headstart.interop.expressing import (
    ACTIVATIONS_IN,
    ACTIVATIONS_OUT,
    head_obstacle,
    model_obstacle,
    pooling_obstacle,
)
from headstart.interop.families import Described, Exported, Family, Part, linear, scattered
from headstart.interop.fields import Fields, words
from headstart.interop.sentence_heads import SENTENCE_KINDS, label_fields, sentence_head
from headstart.model.presets import HeadConfig, HeadKind, ModelConfig
from headstart.text.frames import FrameName
from headstart.text.tokenizer import Tokenizer
from headstart.training.run_directory import ObjectiveName, RunConfig

# What every encoder of this kind has.
_ENCODER: dict[str, tuple[Any, ...]] = {
    "decoder_depth": (0,), "direction": ("bidirectional",), "positions": ("learned",), "norm": ("layer",),
    "norm_place": ("post",), "embedding_norm": (True,), "activation": tuple(ACTIVATIONS_OUT), "bias": (True,),
    "scale_embedding": (False,),
}  # fmt: skip
_NO_HEAD = "it has no head for masked tokens: it serves `embed` and as a start, and does not predict masks"


class Bert(Family):
    """BERT, with the heads of its pretraining, a classifier, or none."""

    name = "bert"
    model_types = ("bert",)
    prefix = "bert."
    reads = words(
        """vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size hidden_act hidden_dropout_prob
        attention_probs_dropout_prob max_position_embeddings type_vocab_size layer_norm_eps position_embedding_type
        tie_word_embeddings directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers
        pooler_size_per_head pooler_type"""
    )
    drops = r"embeddings\.(position_ids|token_type_ids)|pooler\.dense\.(weight|bias)"
    heads: ClassVar[dict[str, str]] = {
        "none": "BertModel", "masked": "BertForMaskedLM", "masked-nsp": "BertForPreTraining",
        **dict.fromkeys(SENTENCE_KINDS, "BertForSequenceClassification"),
    }  # fmt: skip
    # Where the tensors of each part stand.
    embedding_norm = "embeddings.LayerNorm"
    block: ClassVar[dict[str, str]] = {
        "query": "attention.self.query", "key": "attention.self.key", "value": "attention.self.value",
        "attention.output": "attention.output.dense", "attention_norm": "attention.output.LayerNorm",
        "feed_forward.input": "intermediate.dense", "feed_forward.output": "output.dense",
        "feed_forward_norm": "output.LayerNorm",
    }  # fmt: skip
    layer = "encoder.layer"
    transform, transform_norm = "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm"
    decoder, output_bias = "cls.predictions.decoder.weight", "cls.predictions.bias"
    bias_copy = "cls.predictions.decoder.bias"
    pooler, classifier = "pooler.dense", "classifier"
    frame: FrameName = "masked"

    # ---- in ----

    def plain_name(self, name: str) -> str:
        name = name.removeprefix(self.prefix)
        if "LayerNorm." in name:  # as the first checkpoints were written
            name = name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
                "LayerNorm.beta", "LayerNorm.bias"
            )
        return name

    def described(self, fields: Fields, names: frozenset[str]) -> Described:
        head, labels, notes = self._head(fields, names)
        objective: ObjectiveName = {"none": "base"}.get(head.kind, head.kind)  # type: ignore[assignment]
        return Described(
            model=self.shape(fields),
            head=head,
            objective=objective,
            frame=self.frame,
            labels=labels,
            notes=notes,
        )

    def shape(self, fields: Fields) -> ModelConfig:
        """The base."""
        fields.must_be("position_embedding_type", "absolute", default="absolute")
        return ModelConfig(
            vocab=fields.integer("vocab_size"), width=fields.integer("hidden_size"),
            depth=fields.integer("num_hidden_layers"), heads=fields.integer("num_attention_heads"),
            ffn=fields.integer("intermediate_size"), context=self._context(fields),
            segments=fields.integer("type_vocab_size", 2), direction="bidirectional", positions="learned",
            norm_place="post", norm_epsilon=fields.number("layer_norm_eps", 1e-12), embedding_norm=True,
            activation=fields.one_of("hidden_act", ACTIVATIONS_IN, "gelu"),
            dropout=fields.number("hidden_dropout_prob", 0.1),
            attention_dropout=fields.number("attention_probs_dropout_prob", 0.1),
            tied=fields.flag("tie_word_embeddings", True), output_bias=True, pooler=True, init="normal",
        )  # fmt: skip

    def _context(self, fields: Fields) -> int:
        return fields.integer("max_position_embeddings", 512)

    def _head(
        self, fields: Fields, names: frozenset[str]
    ) -> tuple[HeadConfig, tuple[str, ...], tuple[str, ...]]:
        """The head that config.json names, or that the tensors are of; one that is missing is told."""
        named = self.architecture_in(fields)
        if named in SENTENCE_KINDS or (named is None and f"{self.classifier}.weight" in names):
            return *sentence_head(fields, "first"), ()
        kind: HeadKind = "masked" if f"{self.transform}.weight" in names else "none"
        if kind == "masked" and {"cls.seq_relationship.weight", "pooler.dense.weight"} <= names:
            kind = "masked-nsp"
        if kind == "none":
            has_pooler = self.pooler == "pooler.dense" and f"{self.pooler}.weight" in names
            return HeadConfig(kind=kind, pooling="first" if has_pooler else None), (), (_NO_HEAD,)
        return HeadConfig(kind=kind), (), ()

    # ---- tensors ----

    def parts(self, model: ModelConfig, head: HeadConfig) -> Iterator[Part]:
        for ours, theirs in (("tokens", "word"), ("positions", "position"), ("segments", "token_type")):
            if ours != "segments" or model.segments:
                yield Part(f"base.embedding.{ours}.weight", (f"embeddings.{theirs}_embeddings.weight",))
        yield from linear("base.embedding.norm", self.embedding_norm)
        for index in range(model.depth):
            ours, theirs = f"base.stack.blocks.{index}", f"{self.layer}.{index}"
            three = [f"{theirs}.{self.block[name]}" for name in ("query", "key", "value")]
            yield from linear(f"{ours}.attention.qkv", *three, rows=(model.width,) * 3)
            for name in (name for name in self.block if name not in ("query", "key", "value")):
                yield from linear(f"{ours}.{name}", f"{theirs}.{self.block[name]}")
        yield from self._head_parts(model, head)

    def _head_parts(self, model: ModelConfig, head: HeadConfig) -> Iterator[Part]:
        if head.kind in ("masked", "masked-nsp"):
            yield from linear("head.transform", self.transform)
            yield from linear("head.transform_norm", self.transform_norm)
            yield Part("head.output.bias", (self.output_bias,))
            if not model.tied:
                yield Part("head.output.weight", (self.decoder,))
        if head.kind == "masked-nsp":
            yield from linear("head.next_sentence", "cls.seq_relationship")
        if head.kind in ("masked-nsp", *SENTENCE_KINDS) or (head.kind == "none" and head.pooling):
            yield from linear("head.pooler", self.pooler)
        if head.kind in SENTENCE_KINDS:
            yield from linear("head.classifier", self.classifier)

    def copies(self, model: ModelConfig, head: HeadConfig) -> Mapping[str, str]:
        if head.kind not in ("masked", "masked-nsp"):
            return {}
        tied = {self.decoder: "base.embedding.tokens.weight"} if model.tied else {}
        return tied | {self.bias_copy: "head.output.bias"}

    # ---- out ----

    def obstacle(self, run: RunConfig, tokenizer: Tokenizer, weights: Mapping[str, Tensor]) -> str | None:
        found = model_obstacle(run.model, self.wanted(run.model)) or head_obstacle(run, self.heads)
        if found is None and run.head.kind in SENTENCE_KINDS:
            pooler = {"pooler": (True,), "pooler_activation": (self.pooler_activation,)}
            found = model_obstacle(run.model, pooler) or pooling_obstacle(run, "first")
        return found

    pooler_activation = "tanh"

    def wanted(self, model: ModelConfig) -> dict[str, tuple[Any, ...]]:
        """The fields of a model that this family can express, with their values."""
        return {**_ENCODER, "kv_heads": (0, model.heads)}

    def exported(self, run: RunConfig, tokenizer: Tokenizer, weights: Mapping[str, Tensor]) -> Exported:
        model, head = run.model, run.head
        ours = dict(weights)
        if head.kind in ("masked", "masked-nsp"):
            ours.setdefault("head.output.bias", torch.zeros(model.vocab))
        theirs = scattered(self.parts(model, head), ours)
        theirs = self._with_all_tables(theirs, model)
        config = {
            **self.config_out(run, tokenizer),
            "architectures": [self.heads[head.kind]],
            **label_fields(run),
        }
        return Exported(config, self._with_prefix(theirs))

    def _with_all_tables(self, theirs: dict[str, Tensor], model: ModelConfig) -> dict[str, Tensor]:
        """A base without segments gets one that adds nothing."""
        if not model.segments:
            theirs["embeddings.token_type_embeddings.weight"] = torch.zeros(2, model.width)
        return theirs

    def _with_prefix(self, theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        own = ("embeddings.", f"{self.layer}.", "pooler.")
        return {
            (self.prefix if name.startswith(own) else "") + name: tensor for name, tensor in theirs.items()
        }

    def config_out(self, run: RunConfig, tokenizer: Tokenizer) -> dict[str, Any]:
        """The base in their words."""
        model = run.model
        return {
            "model_type": self.name, "vocab_size": model.vocab, "hidden_size": model.width,
            "num_hidden_layers": model.depth, "num_attention_heads": model.heads, "intermediate_size": model.ffn,
            "hidden_act": ACTIVATIONS_OUT[model.activation], "hidden_dropout_prob": model.dropout,
            "attention_probs_dropout_prob": model.attention_dropout, "max_position_embeddings": model.context,
            "type_vocab_size": model.segments or 2, "layer_norm_eps": model.norm_epsilon,
            "tie_word_embeddings": model.tied, "pad_token_id": tokenizer.roles["pad"],
        }  # fmt: skip
