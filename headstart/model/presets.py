"""What a model is: one configuration, one table of presets. Nothing here needs torch."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal

from headstart.config import nearest
from headstart.errors import UserError


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The shape of a base: embedding, positions, blocks. Every field can be overridden, in Python and as a flag."""

    vocab: int = 0
    """Size of the vocabulary, special tokens included; the tokenizer gives it."""

    target_vocab: int = 0
    """Size of the target's own vocabulary in an encoder-decoder (0: source and target share one)."""

    width: int
    """Width of the embedding and of every layer (d)."""

    depth: int
    """Number of blocks; in an encoder-decoder, of the encoder (L)."""

    decoder_depth: int = 0
    """Number of decoder blocks (M); 0 means a single stack."""

    heads: int
    """Attention heads; they divide the width."""

    kv_heads: int = 0
    """Heads of the keys and values; they divide the heads, which share them in groups (0: as many as heads)."""

    ffn: int
    """Inner width of the feed-forward layer (f)."""

    context: int = 512
    """Longest sequence; only learned positions cannot go beyond it (T)."""

    segments: int = 0
    """Number of segment embeddings (BERT: 2); 0 for none."""

    direction: Literal["causal", "bidirectional"] = "causal"
    """What a position may see: itself and the past, or everything."""

    positions: Literal["sinusoidal", "learned", "rotary"] = "sinusoidal"
    """How the model knows where a token stands."""

    rotary_base: float = 10_000.0
    """The base of the angles of rotary positions: a larger one turns more slowly."""

    norm: Literal["layer", "rms"] = "layer"
    """Normalisation: LayerNorm or RMSNorm."""

    norm_place: Literal["pre", "post"] = "pre"
    """Normalise before each sublayer (with one more at the end) or after each residual sum, as in 2017."""

    norm_epsilon: float = 1e-5
    """What is added to the variance before the root."""

    embedding_norm: bool = False
    """Normalise the sum of the embeddings, as BERT does."""

    activation: Literal["relu", "gelu", "gelu-tanh", "silu", "swiglu"] = "gelu"
    """The feed-forward layer's non-linearity; swiglu is silu with a gate and so a third matrix."""

    bias: bool = True
    """Whether linear layers and norms have biases."""

    dropout: float = 0.0
    """Dropout on the embedding, on every residual branch and before a classifier."""

    attention_dropout: float = 0.0
    """Dropout on the attention weights."""

    ffn_dropout: float = 0.0
    """Dropout inside the feed-forward layer."""

    scale_embedding: bool = False
    """Multiply the embedding by the root of the width."""

    tied: bool = True
    """Whether the output layer shares its matrix with the embedding."""

    output_bias: bool = False
    """Whether the output layer over the vocabulary has a bias."""

    pooler: bool = False
    """Whether sentence heads have BERT's dense layer below them."""

    pooler_activation: Literal["tanh", "relu"] = "tanh"
    """What follows that layer: tanh as in BERT, ReLU as in DistilBERT."""

    init: Literal["lab", "xavier", "normal", "normal-residual"] = "normal-residual"
    """The initialisation: see model/initialise.py."""

    tokenizer: str = ""
    """Fingerprint of the tokenizer whose ids the embedding knows (empty: not known)."""

    def __post_init__(self) -> None:
        for name in ("width", "depth", "heads", "ffn", "context"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}", fix=f"give a {name} of at least 1")
        for name in ("vocab", "target_vocab", "decoder_depth", "segments", "kv_heads"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} is {getattr(self, name)}", fix=f"give a {name} of at least 0")
        for name in ("dropout", "attention_dropout", "ffn_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}", fix="give a share from 0 to under 1")
        if self.width % self.heads:
            raise UserError(
                f"{self.heads} heads do not divide the width {self.width}",
                fix=f"give --heads one of {', '.join(str(h) for h in _divisors(self.width))}",
            )
        if self.kv_heads and self.heads % self.kv_heads:
            raise UserError(
                f"{self.kv_heads} heads of keys and values do not divide {self.heads} heads",
                fix=f"give --kv-heads one of {', '.join(str(h) for h in _divisors(self.heads))}",
            )
        if not 1 < self.rotary_base < math.inf:
            raise UserError(f"rotary_base is {self.rotary_base}", fix="give a number over 1, such as 10000")
        if self.positions == "rotary" and (self.width // self.heads) % 2:
            raise UserError(
                f"rotary positions turn pairs of numbers, and a head has {self.width // self.heads}",
                fix="choose heads and width so that width / heads is even",
            )
        if self.target_vocab and not self.decoder_depth:
            raise UserError("a target vocabulary without a decoder", fix="give --decoder-depth too")

    @property
    def shape(self) -> Literal["causal", "bidirectional", "encoder-decoder"]:
        """One of the three shapes of a base."""
        return "encoder-decoder" if self.decoder_depth else self.direction

    @property
    def kv_width(self) -> int:
        """Width of the keys, and of the values: that of the model, or less where heads share them."""
        return self.width // self.heads * (self.kv_heads or self.heads)

    @property
    def output_vocab(self) -> int:
        """Size of the vocabulary that the model writes in."""
        return self.target_vocab or self.vocab


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, min(number, 64) + 1) if number % n == 0]


HeadKind = Literal[
    "lm",
    "masked",
    "next-sentence",
    "masked-nsp",
    "translation",
    "classification",
    "multilabel",
    "regression",
    "none",
]
Pooling = Literal["last", "mean", "first"]


@dataclass(frozen=True, kw_only=True)
class HeadConfig:
    """What stands on the base: the kind of head, and for a sentence head its outputs and its pooling."""

    kind: HeadKind = "lm"
    """What the head predicts."""

    classes: int = 2
    """Outputs of a classification or multilabel head (C); values of a regression head."""

    pooling: Pooling | None = None
    """How a sentence head makes one vector of a sequence (not recorded: last if causal, else first)."""

    def __post_init__(self) -> None:
        if self.classes < 1:
            raise UserError(f"classes is {self.classes}", fix="give --classes of at least 1")

    def pooling_for(self, config: ModelConfig) -> Pooling:
        """The pooling that was recorded, or what it is where none was."""
        return self.pooling or ("last" if config.direction == "causal" else "first")


def usual_pooling(config: ModelConfig) -> Pooling | None:
    """What suits a base where nothing was asked for; None is what a head does by itself.

    The first token has learned to stand for a text only where a pooler was trained on it, as BERT's is by its pairs
    of sentences.
    """
    return "mean" if config.direction == "bidirectional" and not config.pooler else None


def check_head(config: ModelConfig, head: HeadConfig) -> None:
    """Refuse a head that cannot stand on this base."""
    if (head.kind == "translation") != (config.shape == "encoder-decoder"):
        raise UserError(
            f"a {head.kind} head on a base of shape {config.shape}",
            fix="translation needs an encoder-decoder (--preset transformer-tiny), the other heads a single stack",
        )
    if config.vocab < 1:
        raise UserError("the vocabulary is not known", fix="give --vocab, the tokenizer's size")


_MODERN: dict[str, Any] = {
    "positions": "rotary", "norm": "rms", "activation": "swiglu", "bias": False, "context": 1024,
}  # fmt: skip
_2017: dict[str, Any] = {
    "positions": "sinusoidal", "norm_place": "post", "activation": "relu", "scale_embedding": True,
    "dropout": 0.1, "attention_dropout": 0.1, "ffn_dropout": 0.1, "init": "xavier",
}  # fmt: skip

# A gated layer has three matrices: two thirds of 4d, rounded up to 128, keep the size of a plain one.
PRESETS: dict[str, dict[str, Any]] = {
    # name               width        depth       heads        ffn            the rest
    "lab":              {"width": 200, "depth": 4, "heads": 2, "ffn": 200, **_2017, "tied": False,
                         "output_bias": True, "dropout": 0.2, "attention_dropout": 0.2, "ffn_dropout": 0.2,
                         "init": "lab"},
    "tiny":             {"width": 128, "depth": 2, "heads": 4, "ffn": 512, "context": 256,
                         "positions": "rotary"},
    "gpt2":             {"width": 768, "depth": 12, "heads": 12, "ffn": 3072, "context": 1024,
                         "positions": "learned", "activation": "gelu-tanh", "dropout": 0.1,
                         "attention_dropout": 0.1},
    "bert-base":        {"width": 768, "depth": 12, "heads": 12, "ffn": 3072, "positions": "learned",
                         "direction": "bidirectional", "segments": 2, "norm_place": "post",
                         "norm_epsilon": 1e-12, "embedding_norm": True, "dropout": 0.1,
                         "attention_dropout": 0.1, "output_bias": True, "pooler": True, "init": "normal"},
    "transformer-base": {"width": 512, "depth": 6, "decoder_depth": 6, "heads": 8, "ffn": 2048, **_2017,
                         "direction": "bidirectional"},
    "transformer-tiny": {"width": 256, "depth": 4, "decoder_depth": 4, "heads": 4, "ffn": 1024, **_2017,
                         "direction": "bidirectional"},
    "modern-small":     {"width": 512, "depth": 6, "heads": 8, "ffn": 1408, **_MODERN},
    "modern-base":      {"width": 768, "depth": 12, "heads": 12, "ffn": 2048, **_MODERN},
}  # fmt: skip


def preset(name: str, **overrides: Any) -> ModelConfig:
    """The configuration of a preset, with fields overridden; None leaves a field as the preset has it."""
    if name not in PRESETS:
        raise UserError(f"no preset {name!r}", fix=nearest(name, PRESETS))
    known = {f.name for f in dataclasses.fields(ModelConfig)}
    for key in overrides:
        if key not in known:
            raise UserError(f"no model field {key!r}", fix=nearest(key, known))
    return ModelConfig(**{**PRESETS[name], **{k: v for k, v in overrides.items() if v is not None}})
