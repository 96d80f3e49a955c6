"""BERT and its kin: encoders with learned positions, norms after the residual sum, and a pooler below classifiers."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from headstart.config.model import HeadConfig, HeadKind, ModelConfig
from headstart.config.run import FrameName, ObjectiveName
from headstart.interop.directory import ForeignDirectory
from headstart.interop.families.family import Described, Exported, Family, Part, block_parts, linear, scatter
from headstart.interop.families.fields import ACTIVATIONS_OUT, Fields, heads_of, sentence_head
from headstart.planning.parameters import SENTENCE_KINDS
from headstart.runs.load import LoadedRun
from headstart.tokenizers.tokenizer import Vocabularies

_NO_HEAD = "it has no head for masked tokens: it serves `embed` and as a start, and does not predict masks"
_MASKED = ("masked", "masked-nsp")


class Bert(Family):
    """BERT, with the heads of its pretraining, a classifier, or none."""

    model_type, prefix = "bert", "bert."
    settings: ClassVar[dict[str, tuple[str, Any]]] = {
        "vocab": ("vocab_size", None), "width": ("hidden_size", None), "depth": ("num_hidden_layers", None),
        "heads": ("num_attention_heads", None), "ffn": ("intermediate_size", None),
        "activation": ("hidden_act", "gelu"), "dropout": ("hidden_dropout_prob", 0.1),
        "attention_dropout": ("attention_probs_dropout_prob", 0.1), "context": ("max_position_embeddings", 512),
        "segments": ("type_vocab_size", 2), "norm_epsilon": ("layer_norm_eps", 1e-12),
        "tied": ("tie_word_embeddings", True),
    }  # fmt: skip
    also_reads = """position_embedding_type directionality pooler_fc_size pooler_num_attention_heads
        pooler_num_fc_layers pooler_size_per_head pooler_type"""
    wants: ClassVar[dict[str, tuple[Any, ...]]] = {
        "decoder_depth": (0,), "direction": ("bidirectional",), "positions": ("learned",), "norm": ("layer",),
        "norm_place": ("post",), "embedding_norm": (True,), "activation": tuple(ACTIVATIONS_OUT), "bias": (True,),
        "scale_embedding": (False,),
    }  # fmt: skip
    comes_with: ClassVar[dict[str, Any]] = {"output_bias": True, "pooler": True, "init": "normal"}
    drops = r"embeddings\.(position_ids|token_type_ids)|pooler\.dense\.(weight|bias)"
    heads: ClassVar = {**heads_of("Bert", masked="BertForMaskedLM"), "masked-nsp": "BertForPreTraining"}
    # Where the tensors of each part stand.
    block: ClassVar[dict[str, str]] = {
        "attention.qkv": "attention.self.query attention.self.key attention.self.value",
        "attention.output": "attention.output.dense", "attention_norm": "attention.output.LayerNorm",
        "feed_forward.input": "intermediate.dense", "feed_forward.output": "output.dense",
        "feed_forward_norm": "output.LayerNorm",
    }  # fmt: skip
    layer = "encoder.layer"
    transform, transform_norm = "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm"
    decoder, output_bias = "cls.predictions.decoder.weight", "cls.predictions.bias"
    bias_copy = "cls.predictions.decoder.bias"
    pooler, classifier = "pooler.dense", "classifier"
    classifier_wants: ClassVar = {"pooler": (True,), "pooler_activation": ("tanh",)}
    frame: FrameName = "masked"
    # Rows of the table of segments that adds nothing, where a run has none (0: the family has no such table).
    empty_segments = 2

    # ---- in ----

    def plain_name(self, name: str) -> str:
        name = name.removeprefix(self.prefix)  # and as the first checkpoints were written
        return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")

    def described(self, fields: Fields, names: frozenset[str]) -> Described:
        head, labels, notes = self._head(fields, names)
        objective: ObjectiveName = {"none": "base"}.get(head.kind, head.kind)  # type: ignore[assignment]
        fields.must_be("position_embedding_type", "absolute", default="absolute")
        return Described(
            model=self.read_model(fields, **self._positions(fields)), head=head, objective=objective,
            frame=self.frame, labels=labels, notes=notes,
        )  # fmt: skip

    def _positions(self, fields: Fields) -> dict[str, int]:
        """What the table of positions says of the model, where no setting does."""
        return {}

    def _head(self, fields: Fields, names: frozenset[str]) -> tuple[HeadConfig, tuple[str, ...], tuple[str, ...]]:
        """The head that config.json names, or that the tensors are of, its labels, and a note where it is missing."""
        named = self.architecture_in(fields)
        if named in SENTENCE_KINDS or (named is None and f"{self.classifier}.weight" in names):
            return *sentence_head(fields, self.pooling), ()
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
        yield from linear("base.embedding.norm", "embeddings.LayerNorm")
        yield from block_parts(model, "base.stack", model.depth, self.layer, self.block)
        if head.kind in _MASKED:
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
        if head.kind not in _MASKED:
            return {}
        tied = {self.decoder: "base.embedding.tokens.weight"} if model.tied else {}
        return tied | {self.bias_copy: "head.output.bias"}

    # ---- out ----

    def exported(self, run: LoadedRun, weights: Mapping[str, Tensor]) -> Exported:
        model, head = run.config.model, run.config.head
        ours = dict(weights)
        if head.kind in _MASKED:
            ours.setdefault("head.output.bias", torch.zeros(model.vocab))
        theirs = scatter(self.parts(model, head), ours)
        padding = {"pad_token_id": run.tokenizer.roles["pad"]}
        config = {**self.model_out(model), **padding, **self.head_out(run.config)}
        if self.empty_segments and not model.segments:
            theirs["embeddings.token_type_embeddings.weight"] = torch.zeros(self.empty_segments, model.width)
            config["type_vocab_size"] = self.empty_segments
        own = ("embeddings.", f"{self.layer}.", "pooler.")
        return config, {(self.prefix if name.startswith(own) else "") + name: theirs[name] for name in theirs}


class DistilBert(Bert):
    """DistilBERT: half of BERT without segments; its classifier's layer ends in a ReLU."""

    model_type, prefix = "distilbert", "distilbert."
    settings: ClassVar[dict[str, tuple[str, Any]]] = {
        "vocab": ("vocab_size", None), "width": ("dim", 768), "depth": ("n_layers", 6), "heads": ("n_heads", 12),
        "ffn": ("hidden_dim", 3072), "activation": ("activation", "gelu"), "dropout": ("dropout", 0.1),
        "attention_dropout": ("attention_dropout", 0.1), "context": ("max_position_embeddings", 512),
        "tied": ("tie_word_embeddings", True),
    }  # fmt: skip
    also_reads = "tie_weights_ sinusoidal_pos_embds qa_dropout seq_classif_dropout output_past"
    wants: ClassVar[dict[str, tuple[Any, ...]]] = {**Bert.wants, "segments": (0,), "norm_epsilon": (1e-12,)}
    comes_with: ClassVar[dict[str, Any]] = {**Bert.comes_with, "pooler_activation": "relu"}
    drops = r"embeddings\.position_ids"
    heads: ClassVar = heads_of("DistilBert", masked="DistilBertForMaskedLM")
    block: ClassVar[dict[str, str]] = {
        "attention.qkv": "attention.q_lin attention.k_lin attention.v_lin",
        "attention.output": "attention.out_lin", "attention_norm": "sa_layer_norm",
        "feed_forward.input": "ffn.lin1", "feed_forward.output": "ffn.lin2",
        "feed_forward_norm": "output_layer_norm",
    }  # fmt: skip
    layer = "transformer.layer"
    transform, transform_norm = "vocab_transform", "vocab_layer_norm"
    decoder, output_bias, bias_copy = "vocab_projector.weight", "vocab_projector.bias", ""
    pooler = "pre_classifier"
    classifier_wants: ClassVar = {"pooler": (True,), "pooler_activation": ("relu",)}
    empty_segments = 0


class Roberta(Bert):
    """RoBERTa: BERT whose positions are counted from the padding token on, and whose classifier has its own layer."""

    model_type, prefix = "roberta", "roberta."
    wants: ClassVar[dict[str, tuple[Any, ...]]] = {**Bert.wants, "segments": (0, 1)}
    heads: ClassVar = heads_of("Roberta", masked="RobertaForMaskedLM")
    transform, transform_norm = "lm_head.dense", "lm_head.layer_norm"
    decoder, output_bias, bias_copy = "lm_head.decoder.weight", "lm_head.bias", "lm_head.decoder.bias"
    pooler, classifier = "classifier.dense", "classifier.out_proj"
    frame = "roberta"
    empty_segments = 1

    def described(self, fields: Fields, names: frozenset[str]) -> Described:
        described = super().described(fields, names)
        if described.head.kind == "masked" and described.model.activation != "gelu":
            fields.refuse("hidden_act", "'gelu' where there is a head for masked tokens")
        return described

    def _positions(self, fields: Fields) -> dict[str, int]:
        """The first rows of the table stand for padding, up to its token's number."""
        first = fields.integer("pad_token_id", 1) + 1
        rows = fields.integer("max_position_embeddings", 512)
        if rows <= first:
            fields.refuse("max_position_embeddings", f"more than the {first} rows that padding has")
        return {"context": rows - first}

    def tensors_in(self, described: Described, theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        name = "embeddings.position_embeddings.weight"
        if name in theirs and theirs[name].ndim == 2:
            first = len(theirs[name]) - described.model.context
            theirs = {**theirs, name: theirs[name][max(0, first) :].contiguous()}
        return super().tensors_in(described, theirs)

    def read_vocabularies(
        self, directory: ForeignDirectory, fields: Fields, described: Described
    ) -> tuple[Vocabularies, list[str]]:
        """The tokenizer; positions are not counted over the padding token, so no text may hold it."""
        vocabularies, notes = super().read_vocabularies(directory, fields, described)
        roles, padding = vocabularies.source.roles, fields.integer("pad_token_id", 1)
        others = [identity for role, identity in roles.items() if role != "pad"]
        if padding != roles["pad"] or padding in others:
            fields.refuse("pad_token_id", "a padding token that the tokenizer has for nothing else", 1)
        return vocabularies, notes

    def obstacle(self, run: LoadedRun, weights: Mapping[str, Tensor]) -> str | None:
        obstacle = super().obstacle(run, weights)
        activation, roles = run.config.model.activation, run.tokenizer.roles
        if obstacle is None and run.config.head.kind == "masked" and activation != "gelu":
            return f"activation is {activation!r}, and its head for masked tokens needs 'gelu'"
        if obstacle is None and roles["pad"] in (None, roles["cls"], roles["sep"]):
            return "the tokenizer has no padding token of its own, by which this family counts its positions"
        return obstacle

    def exported(self, run: LoadedRun, weights: Mapping[str, Tensor]) -> Exported:
        config, tensors = super().exported(run, weights)
        name = f"{self.prefix}embeddings.position_embeddings.weight"
        padding = torch.zeros(run.tokenizer.id_of("pad") + 1, run.config.model.width)
        tensors[name] = torch.cat([padding, tensors[name]])
        config["max_position_embeddings"] = len(tensors[name])
        return config, tensors


class Camembert(Roberta):
    """CamemBERT computes as RoBERTa does."""

    model_type = "camembert"
    heads: ClassVar = heads_of("Camembert", masked="CamembertForMaskedLM")


class XlmRoberta(Roberta):
    """XLM-RoBERTa too, on a hundred languages."""

    model_type = "xlm-roberta"
    heads: ClassVar = heads_of("XLMRoberta", masked="XLMRobertaForMaskedLM")
