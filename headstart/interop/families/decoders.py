"""Causal decoders: GPT-2, GPT-NeoX, Llama and Mistral, with a language model's head or a classifier."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from headstart.config.model import HeadConfig, ModelConfig
from headstart.errors import UserError
from headstart.interop.families.family import Described, Exported, Family, Part, block_parts, linear, scatter
from headstart.interop.families.fields import ACTIVATIONS_OUT, Fields, heads_of, sentence_head
from headstart.planning.parameters import SENTENCE_KINDS
from headstart.runs.load import LoadedRun

# What every decoder here has, and what those with LayerNorm have besides.
_DECODER: dict[str, tuple[Any, ...]] = {
    "decoder_depth": (0,), "direction": ("causal",), "norm_place": ("pre",), "embedding_norm": (False,),
    "scale_embedding": (False,), "segments": (0,), "output_bias": (False,),
}  # fmt: skip
_LAYER_NORM = {"norm": ("layer",), "activation": tuple(ACTIVATIONS_OUT), "bias": (True,)}

FOLDED_TO = 1e-6  # how near a bias that was folded away must come to itself
_NO_HEAD = "it has no language model's head: it serves `embed` and as a start, and does not generate"


class CausalFamily(Family):
    """What causal decoders have in common: a language model's head or a classifier without bias on the last token."""

    embedding: str
    positions = ""  # the table of learned positions, where there is one
    block: ClassVar[dict[str, str]]
    layer: str
    final_norm: str
    output = "lm_head.weight"
    pooling = "last"
    classifier_wants: ClassVar = {"pooler": (False,)}
    is_turned = False  # whether matrices are stored as (in, out)

    # ---- in ----

    def read_shape(self, fields: Fields) -> ModelConfig:
        """The base, with what the table of settings does not hold."""
        raise NotImplementedError

    def described(self, fields: Fields, names: frozenset[str]) -> Described:
        model = self.read_shape(fields)
        named = self.architecture_in(fields)
        if named in SENTENCE_KINDS or (named is None and "score.weight" in names):
            head, labels = sentence_head(fields, self.pooling)
            objective: Any = head.kind
            return Described(model=model, head=head, objective=objective, frame="causal", labels=labels)
        if model.tied or self.output in names:  # a tied output needs no tensor of its own
            return Described(model=model, head=HeadConfig(kind="lm"), objective="causal", frame="causal")
        return Described(model=model, head=HeadConfig(kind="none"), objective="base", frame="causal", notes=(_NO_HEAD,))

    def parts(self, model: ModelConfig, head: HeadConfig) -> Iterator[Part]:
        yield Part("base.embedding.tokens.weight", (self.embedding,))
        if self.positions:
            yield Part("base.embedding.positions.weight", (self.positions,))
        yield from block_parts(model, "base.stack", model.depth, self.layer, self.block, self.is_turned)
        yield from linear("base.stack.final_norm", self.final_norm, bias=model.bias)
        if head.kind == "lm" and not model.tied:
            yield Part("head.output.weight", (self.output,))
        if head.kind in SENTENCE_KINDS:
            yield Part("head.classifier.weight", ("score.weight",))

    def copies(self, model: ModelConfig, head: HeadConfig) -> Mapping[str, str]:
        return {self.output: "base.embedding.tokens.weight"} if model.tied or head.kind != "lm" else {}

    def completed(self, described: Described, ours: dict[str, Tensor]) -> dict[str, Tensor]:
        """Theirs have no bias in the classifier: ours is zero."""
        if described.head.kind in SENTENCE_KINDS:
            ours["head.classifier.bias"] = torch.zeros(described.head.classes)
        return ours

    # ---- out ----

    def obstacle(self, run: LoadedRun, weights: Mapping[str, Tensor]) -> str | None:
        obstacle = super().obstacle(run, weights)
        is_sentence = run.config.head.kind in SENTENCE_KINDS
        if obstacle is not None or not is_sentence or not weights["head.classifier.bias"].any():
            return obstacle
        has_bias = self.wants["bias"] == (True,)
        if has_bias and shift_for_bias(weights) is not None:
            return None
        last = "bias that could take it up" if has_bias else "bias at all"
        return f"the classifier has a bias, and this family's has none, nor has its last norm a {last}"

    def exported(self, run: LoadedRun, weights: Mapping[str, Tensor]) -> Exported:
        model, head, ours = run.config.model, run.config.head, dict(weights)
        if head.kind in SENTENCE_KINDS and ours["head.classifier.bias"].any():
            name, shift = "base.stack.final_norm.bias", shift_for_bias(weights)
            assert shift is not None, "an obstacle"
            ours[name] = (ours[name].double() + shift).to(ours[name].dtype)
        named = {
            name if name.startswith(("score.", self.output)) else self.prefix + name: tensor
            for name, tensor in scatter(self.parts(model, head), ours).items()
        }
        return {**self.model_out(model), **self.head_out(run.config), **self.special_ids(run)}, named


class Gpt2(CausalFamily):
    """GPT-2, with learned positions and LayerNorm; its matrices are stored turned."""

    model_type, prefix = "gpt2", "transformer."
    settings: ClassVar[dict[str, tuple[str, Any]]] = {
        "vocab": ("vocab_size", None), "context": ("n_positions", 1024), "width": ("n_embd", 768),
        "depth": ("n_layer", 12), "heads": ("n_head", 12), "ffn": ("n_inner", None),
        "activation": ("activation_function", "gelu_new"), "dropout": ("resid_pdrop", 0.1),
        "attention_dropout": ("attn_pdrop", 0.1), "norm_epsilon": ("layer_norm_epsilon", 1e-5),
        "tied": ("tie_word_embeddings", True),
    }  # fmt: skip
    also_reads = """n_ctx embd_pdrop scale_attn_weights scale_attn_by_inverse_layer_idx reorder_and_upcast_attn
        summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout
        predict_special_tokens"""
    wants: ClassVar = {**_DECODER, "positions": ("learned",), **_LAYER_NORM}
    drops = r"h\.\d+\.attn\.(bias|masked_bias)"
    heads: ClassVar = heads_of("GPT2", lm="GPT2LMHeadModel")
    embedding, positions, layer, final_norm, is_turned = "wte.weight", "wpe.weight", "h", "ln_f", True
    block: ClassVar[dict[str, str]] = {
        "attention.qkv": "attn.c_attn", "attention.output": "attn.c_proj", "attention_norm": "ln_1",
        "feed_forward.input": "mlp.c_fc", "feed_forward.output": "mlp.c_proj", "feed_forward_norm": "ln_2",
    }  # fmt: skip

    def read_shape(self, fields: Fields) -> ModelConfig:
        fields.must_be("scale_attn_weights", True, default=True)
        fields.must_be("scale_attn_by_inverse_layer_idx", False, default=False)
        fields.must_be("reorder_and_upcast_attn", False, default=False)
        return self.read_model(fields, ffn=fields.integer("n_inner", 4 * fields.integer("n_embd", 768)))

    def model_out(self, model: ModelConfig) -> dict[str, Any]:
        return {**super().model_out(model), "embd_pdrop": model.dropout}


class GptNeoX(CausalFamily):
    """GPT-NeoX with its sublayers one after the other, and every number of a head turned: our preset `tiny`."""

    model_type, prefix = "gpt_neox", "gpt_neox."
    settings: ClassVar[dict[str, tuple[str, Any]]] = {
        "vocab": ("vocab_size", None), "width": ("hidden_size", None), "depth": ("num_hidden_layers", None),
        "heads": ("num_attention_heads", None), "ffn": ("intermediate_size", None),
        "activation": ("hidden_act", "gelu"), "rotary_base": ("rotary_emb_base", None),
        "context": ("max_position_embeddings", 2048), "norm_epsilon": ("layer_norm_eps", 1e-5),
        "attention_dropout": ("attention_dropout", 0.0), "dropout": ("hidden_dropout", 0.0),
        "tied": ("tie_word_embeddings", False),
    }  # fmt: skip
    also_reads = "rotary_pct rope_theta rope_scaling rope_parameters use_parallel_residual attention_bias"
    wants: ClassVar = {**_DECODER, "positions": ("rotary",), **_LAYER_NORM}
    drops = r"layers\.\d+\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)"
    heads: ClassVar = heads_of("GPTNeoX", lm="GPTNeoXForCausalLM")
    embedding, output, layer, final_norm = "embed_in.weight", "embed_out.weight", "layers", "final_layer_norm"
    block: ClassVar[dict[str, str]] = {
        "attention.qkv": "attention.query_key_value", "attention.output": "attention.dense",
        "attention_norm": "input_layernorm", "feed_forward.input": "mlp.dense_h_to_4h",
        "feed_forward.output": "mlp.dense_4h_to_h", "feed_forward_norm": "post_attention_layernorm",
    }  # fmt: skip

    def read_shape(self, fields: Fields) -> ModelConfig:
        fields.must_be("use_parallel_residual", False, default=True)
        fields.must_be("attention_bias", True, default=True)
        return self.read_model(fields, rotary_base=rotary_base(fields, "rotary_emb_base", share=("rotary_pct", 0.25)))

    def completed(self, described: Described, ours: dict[str, Tensor]) -> dict[str, Tensor]:
        """Theirs have the query, key and value of one head side by side; ours all queries first."""
        for name in [name for name in ours if ".attention.qkv." in name]:
            if len(ours[name]) == 3 * described.model.width:
                heads = ours[name].unflatten(0, (described.model.heads, 3, -1))
                ours[name] = heads.transpose(0, 1).flatten(0, 2).contiguous()
        return super().completed(described, ours)

    def exported(self, run: LoadedRun, weights: Mapping[str, Tensor]) -> Exported:
        by_head = {
            name: tensor.unflatten(0, (3, run.config.model.heads, -1)).transpose(0, 1).flatten(0, 2)
            for name, tensor in weights.items()
            if ".attention.qkv." in name
        }
        return super().exported(run, {**weights, **by_head})

    def model_out(self, model: ModelConfig) -> dict[str, Any]:
        own = {"rotary_pct": 1.0, "rope_theta": model.rotary_base}
        return {**super().model_out(model), **own, "use_parallel_residual": False, "attention_bias": True}


class Llama(CausalFamily):
    """Llama: rotary positions, RMSNorm, a gated feed-forward layer, no biases, heads that may share keys."""

    model_type, prefix = "llama", "model."
    settings: ClassVar[dict[str, tuple[str, Any]]] = {
        "vocab": ("vocab_size", None), "width": ("hidden_size", None), "depth": ("num_hidden_layers", None),
        "heads": ("num_attention_heads", None), "kv_heads": ("num_key_value_heads", None),
        "ffn": ("intermediate_size", None), "context": ("max_position_embeddings", 2048),
        "norm_epsilon": ("rms_norm_eps", 1e-6), "rotary_base": ("rope_theta", None),
        "attention_dropout": ("attention_dropout", 0.0), "tied": ("tie_word_embeddings", False),
    }  # fmt: skip
    also_reads = """hidden_act rope_scaling rope_parameters attention_bias mlp_bias head_dim pretraining_tp
        is_llama_config rope_interleaved"""
    wants: ClassVar[dict[str, tuple[Any, ...]]] = {
        **_DECODER, "positions": ("rotary",), "norm": ("rms",), "activation": ("swiglu",), "bias": (False,),
    }  # fmt: skip
    shares_keys = True
    drops = r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq"
    heads: ClassVar = heads_of("Llama", lm="LlamaForCausalLM")
    embedding, layer, final_norm = "embed_tokens.weight", "layers", "norm"
    block: ClassVar[dict[str, str]] = {
        "attention.qkv": "self_attn.q_proj self_attn.k_proj self_attn.v_proj",
        "attention.output": "self_attn.o_proj", "attention_norm": "input_layernorm",
        "feed_forward.input": "mlp.gate_proj mlp.up_proj", "feed_forward.output": "mlp.down_proj",
        "feed_forward_norm": "post_attention_layernorm",
    }  # fmt: skip
    default_kv_heads: int | None = None
    own_fields: ClassVar[dict[str, Any]] = {"attention_bias": False, "mlp_bias": False}

    def read_shape(self, fields: Fields) -> ModelConfig:
        width, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
        fields.must_be("attention_bias", False, default=False)
        fields.must_be("mlp_bias", False, default=False)
        fields.must_be("pretraining_tp", 1, None, default=1)
        fields.must_be("rope_interleaved", False, None)
        if heads:
            fields.must_be("head_dim", width // heads, None)
        fields.one_of("hidden_act", {"silu": "silu", "swish": "silu"}, "silu")
        kv_heads = fields.integer("num_key_value_heads", self.default_kv_heads or heads)
        own = 0 if kv_heads == heads else kv_heads
        return self.read_model(fields, kv_heads=own, rotary_base=rotary_base(fields))

    def model_out(self, model: ModelConfig) -> dict[str, Any]:
        kv_heads = {"num_key_value_heads": model.kv_heads or model.heads, "hidden_act": "silu"}
        return {**super().model_out(model), **kv_heads, **self.own_fields}


class Mistral(Llama):
    """Mistral without a sliding window computes as Llama does."""

    model_type = "mistral"
    also_reads = """hidden_act rope_scaling rope_parameters head_dim is_llama_config rope_interleaved
        sliding_window"""
    heads: ClassVar = heads_of("Mistral", lm="MistralForCausalLM")
    default_kv_heads = 8
    own_fields: ClassVar[dict[str, Any]] = {"sliding_window": None}

    def read_shape(self, fields: Fields) -> ModelConfig:
        fields.must_be("sliding_window", None, default=4096)
        return super().read_shape(fields)


def shift_for_bias(weights: Mapping[str, Tensor]) -> Tensor | None:
    """What added to the pooled vector does what the classifier's bias does; None where nothing does.

    Classifiers over a causal stack have no bias elsewhere. With W·δ = b the last norm's own bias takes δ up.
    """
    matrix, bias = (weights[f"head.classifier.{name}"].double() for name in ("weight", "bias"))
    shift = torch.linalg.lstsq(matrix, bias[:, None], driver="gelsd").solution[:, 0]
    is_near = bool((matrix @ shift - bias).abs().max() <= FOLDED_TO * (1 + bias.abs().max()))
    return shift if is_near else None


# ---- rotary positions ---------------------------------------------------------------------------------------


def rotary_base(fields: Fields, name: str = "rope_theta", share: tuple[str, float] = ("", 1.0)) -> float:
    """The base of rotary positions, from the field of old or from the table of today; any scaling is refused.

    `share` is the field that says how much of each head is turned, with its default: here it must be all of it.
    """
    tables = {key: _unscaled(fields, key) for key in ("rope_scaling", "rope_parameters")}
    field, usual = share
    shares = [table["partial_rotary_factor"] for table in tables.values() if "partial_rotary_factor" in table]
    shares += [fields.content[field]] if field in fields else []
    if any(turned != 1.0 for turned in shares or [usual]):
        name = field if field in fields or not any(tables.values()) else "rope_parameters"
        fields.refuse(name, "1.0: all of it", usual)
    given = [
        Fields(table, f"{fields.where}: {key}").number("rope_theta")
        for key, table in tables.items()
        if "rope_theta" in table
    ]
    given = given or [fields.number(name, 10_000.0)]
    given += [fields.number(key) for key in (name, "rope_theta") if fields.content.get(key) is not None]
    if len(set(given)) > 1:  # which of them counts differs from version to version
        what = f"gives the base of rotary positions more than once: {', '.join(f'{one:g}' for one in set(given))}"
        fix = f"leave the one that it was trained with, as {name}"
        raise UserError(what, where=fields.where, fix=fix, code="conflict")
    return given[0]


def _unscaled(fields: Fields, key: str) -> dict[str, Any]:
    """A table of rotary positions, empty where there is none."""
    table = fields.content.get(key) or {}
    allowed = {"rope_type": (None, "default"), "type": (None, "default")}
    scaled = set(table) - {"rope_theta", "partial_rotary_factor", *allowed} if isinstance(table, dict) else {key}
    if scaled or any(table.get(name) not in values for name, values in allowed.items()):
        fields.refuse(key, "null, or of the type 'default'")
    return dict(table)
