"""GPT-2: a causal decoder with learned positions and LayerNorm."""

from collections.abc import Iterator
from typing import Any, ClassVar

from headstart.interop.decoders import CausalFamily
from headstart.interop.expressing import ACTIVATIONS_IN, ACTIVATIONS_OUT
from headstart.interop.families import Part, linear
from headstart.interop.fields import Fields, words
from headstart.interop.sentence_heads import SENTENCE_KINDS
from headstart.model.presets import ModelConfig


class Gpt2(CausalFamily):
    """GPT-2; its matrices are stored turned."""

    name = "gpt2"
    model_types = ("gpt2",)
    prefix = "transformer."
    reads = words(
        """vocab_size n_positions n_ctx n_embd n_layer n_head n_inner activation_function resid_pdrop embd_pdrop
        attn_pdrop layer_norm_epsilon tie_word_embeddings scale_attn_weights scale_attn_by_inverse_layer_idx
        reorder_and_upcast_attn summary_type summary_use_proj summary_activation summary_proj_to_labels
        summary_first_dropout predict_special_tokens"""
    )
    drops = r"h\.\d+\.attn\.(bias|masked_bias)"
    heads: ClassVar[dict[str, str]] = {
        "lm": "GPT2LMHeadModel", "none": "GPT2Model",
        **dict.fromkeys(SENTENCE_KINDS, "GPT2ForSequenceClassification"),
    }  # fmt: skip
    embedding = "wte.weight"
    wants: ClassVar[dict[str, tuple[Any, ...]]] = {
        "positions": ("learned",), "norm": ("layer",), "activation": tuple(ACTIVATIONS_OUT), "bias": (True,),
    }  # fmt: skip

    def wanted(self, model: ModelConfig) -> dict[str, tuple[Any, ...]]:
        return {**super().wanted(model), "kv_heads": (0, model.heads)}

    def shape(self, fields: Fields) -> ModelConfig:
        fields.must_be("scale_attn_weights", True, default=True)
        fields.must_be("scale_attn_by_inverse_layer_idx", False, default=False)
        fields.must_be("reorder_and_upcast_attn", False, default=False)
        width = fields.integer("n_embd", 768)
        return ModelConfig(
            vocab=fields.integer("vocab_size"), width=width, depth=fields.integer("n_layer", 12),
            heads=fields.integer("n_head", 12), ffn=fields.integer("n_inner", 4 * width),
            context=fields.integer("n_positions", 1024), positions="learned",
            norm_epsilon=fields.number("layer_norm_epsilon", 1e-5),
            activation=fields.one_of("activation_function", ACTIVATIONS_IN, "gelu_new"),
            dropout=fields.number("resid_pdrop", 0.1), attention_dropout=fields.number("attn_pdrop", 0.1),
            tied=fields.flag("tie_word_embeddings", True),
        )  # fmt: skip

    def base_parts(self, model: ModelConfig) -> Iterator[Part]:
        yield Part("base.embedding.positions.weight", ("wpe.weight",))
        for index in range(model.depth):
            ours, theirs = f"base.stack.blocks.{index}", f"h.{index}"
            yield from linear(f"{ours}.attention.qkv", f"{theirs}.attn.c_attn", turned=True)
            yield from linear(f"{ours}.attention.output", f"{theirs}.attn.c_proj", turned=True)
            yield from linear(f"{ours}.attention_norm", f"{theirs}.ln_1")
            yield from linear(f"{ours}.feed_forward.input", f"{theirs}.mlp.c_fc", turned=True)
            yield from linear(f"{ours}.feed_forward.output", f"{theirs}.mlp.c_proj", turned=True)
            yield from linear(f"{ours}.feed_forward_norm", f"{theirs}.ln_2")
        yield from linear("base.stack.final_norm", "ln_f")

    def config_out(self, model: ModelConfig) -> dict[str, Any]:
        return {
            "model_type": "gpt2", "vocab_size": model.vocab, "n_positions": model.context, "n_embd": model.width,
            "n_layer": model.depth, "n_head": model.heads, "n_inner": model.ffn,
            "activation_function": ACTIVATIONS_OUT[model.activation], "resid_pdrop": model.dropout,
            "embd_pdrop": model.dropout, "attn_pdrop": model.attention_dropout,
            "layer_norm_epsilon": model.norm_epsilon,
        }  # fmt: skip
