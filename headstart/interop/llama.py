"""Llama-like decoders: rotary positions, RMSNorm, a gated feed-forward layer, no biases, heads that share keys."""

from collections.abc import Iterator
from typing import Any, ClassVar

from headstart.interop.decoders import CausalFamily, rotary_base
from headstart.interop.families import Part, linear
from headstart.interop.fields import Fields, words
from headstart.interop.sentence_heads import SENTENCE_KINDS
from headstart.model.presets import ModelConfig


class Llama(CausalFamily):
    """Llama, and whatever is written as one."""

    name = "llama"
    model_types = ("llama",)
    prefix = "model."
    reads = words(
        """vocab_size hidden_size num_hidden_layers num_attention_heads num_key_value_heads intermediate_size hidden_act
        max_position_embeddings rms_norm_eps rope_theta rope_scaling rope_parameters attention_bias mlp_bias head_dim
        attention_dropout tie_word_embeddings pretraining_tp is_llama_config rope_interleaved"""
    )
    drops = r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq"
    heads: ClassVar[dict[str, str]] = {
        "lm": "LlamaForCausalLM", "none": "LlamaModel",
        **dict.fromkeys(SENTENCE_KINDS, "LlamaForSequenceClassification"),
    }  # fmt: skip
    embedding = "embed_tokens.weight"
    has_bias = False
    wants: ClassVar[dict[str, tuple[Any, ...]]] = {
        "positions": ("rotary",), "norm": ("rms",), "activation": ("swiglu",), "bias": (False,),
    }  # fmt: skip

    def shape(self, fields: Fields) -> ModelConfig:
        width, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
        fields.must_be("attention_bias", False, default=False)
        fields.must_be("mlp_bias", False, default=False)
        fields.must_be("pretraining_tp", 1, None, default=1)
        fields.must_be("rope_interleaved", False, None)
        if heads:
            fields.must_be("head_dim", width // heads, None)
        fields.one_of("hidden_act", {"silu": "silu", "swish": "silu"}, "silu")
        kv_heads = fields.integer("num_key_value_heads", self._default_kv_heads(heads))
        return ModelConfig(
            vocab=fields.integer("vocab_size"), width=width, depth=fields.integer("num_hidden_layers"), heads=heads,
            kv_heads=0 if kv_heads == heads else kv_heads, ffn=fields.integer("intermediate_size"),
            context=fields.integer("max_position_embeddings", 2048), positions="rotary",
            rotary_base=rotary_base(fields), norm="rms", norm_epsilon=fields.number("rms_norm_eps", 1e-6),
            activation="swiglu", bias=False, attention_dropout=fields.number("attention_dropout", 0.0),
            tied=fields.flag("tie_word_embeddings", False),
        )  # fmt: skip

    def _default_kv_heads(self, heads: int) -> int:
        return heads

    def base_parts(self, model: ModelConfig) -> Iterator[Part]:
        three = (model.width, model.kv_width, model.kv_width)
        for index in range(model.depth):
            ours, theirs = f"base.stack.blocks.{index}", f"layers.{index}"
            names = [f"{theirs}.self_attn.{letter}_proj" for letter in "qkv"]
            yield from linear(f"{ours}.attention.qkv", *names, rows=three, bias=False)
            yield from linear(f"{ours}.attention.output", f"{theirs}.self_attn.o_proj", bias=False)
            yield from linear(f"{ours}.attention_norm", f"{theirs}.input_layernorm", bias=False)
            gated = [f"{theirs}.mlp.gate_proj", f"{theirs}.mlp.up_proj"]
            yield from linear(f"{ours}.feed_forward.input", *gated, rows=(model.ffn,) * 2, bias=False)
            yield from linear(f"{ours}.feed_forward.output", f"{theirs}.mlp.down_proj", bias=False)
            yield from linear(f"{ours}.feed_forward_norm", f"{theirs}.post_attention_layernorm", bias=False)
        yield from linear("base.stack.final_norm", "norm", bias=False)

    def config_out(self, model: ModelConfig) -> dict[str, Any]:
        return {
            "model_type": self.name, "vocab_size": model.vocab, "hidden_size": model.width,
            "num_hidden_layers": model.depth, "num_attention_heads": model.heads,
            "num_key_value_heads": model.kv_heads or model.heads, "intermediate_size": model.ffn,
            "hidden_act": "silu", "max_position_embeddings": model.context, "rms_norm_eps": model.norm_epsilon,
            "rope_theta": model.rotary_base, "attention_bias": False, "mlp_bias": False,
            "attention_dropout": model.attention_dropout,
        }  # fmt: skip


class Mistral(Llama):
    """Mistral without a sliding window computes as Llama does."""

    name = "mistral"
    model_types = ("mistral",)
    reads = (Llama.reads - {"attention_bias", "mlp_bias", "pretraining_tp"}) | {"sliding_window"}
    heads: ClassVar[dict[str, str]] = {
        kind: name.replace("Llama", "Mistral") for kind, name in Llama.heads.items()
    }

    def shape(self, fields: Fields) -> ModelConfig:
        fields.must_be("sliding_window", None, default=4096)
        return super().shape(fields)

    def _default_kv_heads(self, heads: int) -> int:
        return 8

    def config_out(self, model: ModelConfig) -> dict[str, Any]:
        own = {key: value for key, value in super().config_out(model).items() if not key.endswith("_bias")}
        return {**own, "sliding_window": None}
