"""DistilBERT: half of BERT."""

from typing import Any, ClassVar

from torch import Tensor

from headstart.interop.bert import Bert
from headstart.interop.expressing import ACTIVATIONS_IN, ACTIVATIONS_OUT
from headstart.interop.fields import Fields, words
from headstart.interop.sentence_heads import SENTENCE_KINDS
from headstart.model.presets import ModelConfig
from headstart.text.tokenizer import Tokenizer
from headstart.training.run_directory import RunConfig


class DistilBert(Bert):
    """DistilBERT: half of BERT without segments; its classifier's layer ends in a ReLU."""

    name = "distilbert"
    model_types = ("distilbert",)
    prefix = "distilbert."
    reads = words(
        """vocab_size dim n_layers n_heads hidden_dim activation dropout attention_dropout max_position_embeddings
        tie_word_embeddings tie_weights_ sinusoidal_pos_embds qa_dropout seq_classif_dropout output_past"""
    )
    drops = r"embeddings\.position_ids"
    heads: ClassVar[dict[str, str]] = {
        "none": "DistilBertModel", "masked": "DistilBertForMaskedLM",
        **dict.fromkeys(SENTENCE_KINDS, "DistilBertForSequenceClassification"),
    }  # fmt: skip
    block: ClassVar[dict[str, str]] = {
        "query": "attention.q_lin", "key": "attention.k_lin", "value": "attention.v_lin",
        "attention.output": "attention.out_lin", "attention_norm": "sa_layer_norm",
        "feed_forward.input": "ffn.lin1", "feed_forward.output": "ffn.lin2",
        "feed_forward_norm": "output_layer_norm",
    }  # fmt: skip
    layer = "transformer.layer"
    transform, transform_norm = "vocab_transform", "vocab_layer_norm"
    decoder, output_bias, bias_copy = "vocab_projector.weight", "vocab_projector.bias", ""
    pooler, pooler_activation = "pre_classifier", "relu"

    def shape(self, fields: Fields) -> ModelConfig:
        return ModelConfig(
            vocab=fields.integer("vocab_size"), width=fields.integer("dim", 768),
            depth=fields.integer("n_layers", 6), heads=fields.integer("n_heads", 12),
            ffn=fields.integer("hidden_dim", 3072), context=fields.integer("max_position_embeddings", 512),
            direction="bidirectional", positions="learned", norm_place="post", norm_epsilon=1e-12,
            embedding_norm=True, activation=fields.one_of("activation", ACTIVATIONS_IN, "gelu"),
            dropout=fields.number("dropout", 0.1), attention_dropout=fields.number("attention_dropout", 0.1),
            tied=fields.flag("tie_word_embeddings", True), output_bias=True, pooler=True,
            pooler_activation="relu", init="normal",
        )  # fmt: skip

    def wanted(self, model: ModelConfig) -> dict[str, tuple[Any, ...]]:
        return {**super().wanted(model), "segments": (0,), "norm_epsilon": (1e-12,)}

    def _with_all_tables(self, theirs: dict[str, Tensor], model: ModelConfig) -> dict[str, Tensor]:
        return theirs

    def config_out(self, run: RunConfig, tokenizer: Tokenizer) -> dict[str, Any]:
        model = run.model
        return {
            "model_type": "distilbert", "vocab_size": model.vocab, "dim": model.width, "n_layers": model.depth,
            "n_heads": model.heads, "hidden_dim": model.ffn, "activation": ACTIVATIONS_OUT[model.activation],
            "dropout": model.dropout, "attention_dropout": model.attention_dropout,
            "max_position_embeddings": model.context, "tie_word_embeddings": model.tied,
            "pad_token_id": tokenizer.roles["pad"],
        }  # fmt: skip
