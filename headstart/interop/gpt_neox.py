"""GPT-NeoX: a causal decoder with rotary positions and LayerNorm."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from torch import Tensor

from headstart.interop.decoders import CausalFamily, rotary_base
from headstart.interop.expressing import ACTIVATIONS_IN, ACTIVATIONS_OUT
from headstart.interop.families import Described, Exported, Part, linear
from headstart.interop.fields import Fields, words
from headstart.interop.sentence_heads import SENTENCE_KINDS
from headstart.model.presets import ModelConfig
from headstart.text.tokenizer import Tokenizer
from headstart.training.run_directory import RunConfig


class GptNeoX(CausalFamily):
    """GPT-NeoX with its sublayers one after the other, and every number of a head turned: our preset `tiny`."""

    name = "gpt_neox"
    model_types = ("gpt_neox",)
    prefix = "gpt_neox."
    reads = words(
        """vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size hidden_act rotary_pct
        rotary_emb_base rope_theta rope_scaling rope_parameters max_position_embeddings layer_norm_eps
        use_parallel_residual attention_bias attention_dropout hidden_dropout tie_word_embeddings"""
    )
    drops = r"layers\.\d+\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)"
    heads: ClassVar[dict[str, str]] = {
        "lm": "GPTNeoXForCausalLM", "none": "GPTNeoXModel",
        **dict.fromkeys(SENTENCE_KINDS, "GPTNeoXForSequenceClassification"),
    }  # fmt: skip
    embedding, output = "embed_in.weight", "embed_out.weight"
    wants: ClassVar[dict[str, tuple[Any, ...]]] = {
        "positions": ("rotary",), "norm": ("layer",), "activation": tuple(ACTIVATIONS_OUT), "bias": (True,),
    }  # fmt: skip

    def wanted(self, model: ModelConfig) -> dict[str, tuple[Any, ...]]:
        return {**super().wanted(model), "kv_heads": (0, model.heads)}

    def shape(self, fields: Fields) -> ModelConfig:
        fields.must_be("use_parallel_residual", False, default=True)
        fields.must_be("attention_bias", True, default=True)
        return ModelConfig(
            vocab=fields.integer("vocab_size"), width=fields.integer("hidden_size"),
            depth=fields.integer("num_hidden_layers"), heads=fields.integer("num_attention_heads"),
            ffn=fields.integer("intermediate_size"), context=fields.integer("max_position_embeddings", 2048),
            positions="rotary", rotary_base=rotary_base(fields, "rotary_emb_base", share=("rotary_pct", 0.25)),
            norm_epsilon=fields.number("layer_norm_eps", 1e-5),
            activation=fields.one_of("hidden_act", ACTIVATIONS_IN, "gelu"),
            dropout=fields.number("hidden_dropout", 0.0),
            attention_dropout=fields.number("attention_dropout", 0.0),
            tied=fields.flag("tie_word_embeddings", False),
        )  # fmt: skip

    def base_parts(self, model: ModelConfig) -> Iterator[Part]:
        for index in range(model.depth):
            ours, theirs = f"base.stack.blocks.{index}", f"layers.{index}"
            yield from linear(f"{ours}.attention.qkv", f"{theirs}.attention.query_key_value")
            yield from linear(f"{ours}.attention.output", f"{theirs}.attention.dense")
            yield from linear(f"{ours}.attention_norm", f"{theirs}.input_layernorm")
            yield from linear(f"{ours}.feed_forward.input", f"{theirs}.mlp.dense_h_to_4h")
            yield from linear(f"{ours}.feed_forward.output", f"{theirs}.mlp.dense_4h_to_h")
            yield from linear(f"{ours}.feed_forward_norm", f"{theirs}.post_attention_layernorm")
        yield from linear("base.stack.final_norm", "final_layer_norm")

    def completed(self, found: Described, ours: dict[str, Tensor]) -> dict[str, Tensor]:
        """Theirs have the query, key and value of one head side by side; ours all queries first."""
        for name in [name for name in ours if ".attention.qkv." in name]:
            if len(ours[name]) == 3 * found.model.width:
                heads = ours[name].unflatten(0, (found.model.heads, 3, -1))
                ours[name] = heads.transpose(0, 1).flatten(0, 2).contiguous()
        return super().completed(found, ours)

    def exported(self, run: RunConfig, tokenizer: Tokenizer, weights: Mapping[str, Tensor]) -> Exported:
        turned = {
            name: tensor.unflatten(0, (3, run.model.heads, -1)).transpose(0, 1).flatten(0, 2)
            for name, tensor in weights.items()
            if ".attention.qkv." in name
        }
        return super().exported(run, tokenizer, {**weights, **turned})

    def config_out(self, model: ModelConfig) -> dict[str, Any]:
        return {
            "model_type": "gpt_neox", "vocab_size": model.vocab, "hidden_size": model.width,
            "num_hidden_layers": model.depth, "num_attention_heads": model.heads, "intermediate_size": model.ffn,
            "hidden_act": ACTIVATIONS_OUT[model.activation], "rotary_pct": 1.0,
            "rotary_emb_base": model.rotary_base, "rope_theta": model.rotary_base,
            "max_position_embeddings": model.context, "layer_norm_eps": model.norm_epsilon,
            "use_parallel_residual": False, "attention_bias": True, "attention_dropout": model.attention_dropout,
            "hidden_dropout": model.dropout,
        }  # fmt: skip
