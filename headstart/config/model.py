"""What a model is: the settings of the base and of the head. Nothing here needs torch."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from headstart.config.schema import BELOW_ONE, Bound, Settings, fields_of
from headstart.errors import UserError, nearest

# Beyond what anyone has trained, and within what a plan can be made of and a file can hold.
MOST_VOCAB, MOST_WIDTH, MOST_DEPTH, MOST_LENGTH, MOST_CLASSES = 10**7, 10**6, 1_000, 10**6, 10**6


class ModelConfig(Settings):
    """The shape of a base: embedding, positions, blocks. Every field can be overridden, in Python and as a flag."""

    vocab: Annotated[int, Bound(0, MOST_VOCAB)] = 0
    """Size of the vocabulary, special tokens included; the tokenizer gives it."""

    target_vocab: Annotated[int, Bound(0, MOST_VOCAB)] = 0
    """Size of the target's own vocabulary in an encoder-decoder (0: source and target share one)."""

    width: Annotated[int, Bound(1, MOST_WIDTH)]
    """Width of the embedding and of every layer (d)."""

    depth: Annotated[int, Bound(1, MOST_DEPTH)]
    """Number of blocks; in an encoder-decoder, of the encoder (L)."""

    decoder_depth: Annotated[int, Bound(0, MOST_DEPTH)] = 0
    """Number of decoder blocks (M); 0 means a single stack."""

    heads: Annotated[int, Bound(1, MOST_WIDTH)]
    """Attention heads; they divide the width."""

    kv_heads: Annotated[int, Bound(0, MOST_WIDTH)] = 0
    """Heads of the keys and values; they divide the heads, which share them in groups (0: as many as heads)."""

    ffn: Annotated[int, Bound(1, 4 * MOST_WIDTH)]
    """Inner width of the feed-forward layer (f)."""

    context: Annotated[int, Bound(1, MOST_LENGTH)] = 512
    """Longest sequence; only learned positions cannot go beyond it (T)."""

    segments: Annotated[int, Bound(0, 1_000)] = 0
    """Number of segment embeddings (BERT: 2); 0 for none."""

    direction: Literal["causal", "bidirectional"] = "causal"
    """What a position may see: itself and the past, or everything."""

    positions: Literal["sinusoidal", "learned", "rotary"] = "sinusoidal"
    """How the model knows where a token stands."""

    rotary_base: Annotated[float, Bound(1, 1e12, is_open=True)] = 10_000.0
    """The base of the angles of rotary positions: a larger one turns more slowly."""

    norm: Literal["layer", "rms"] = "layer"
    """Normalisation: LayerNorm or RMSNorm."""

    norm_place: Literal["pre", "post"] = "pre"
    """Normalise before each sublayer (with one more at the end) or after each residual sum, as in 2017."""

    norm_epsilon: Annotated[float, Bound(1e-20, 1)] = 1e-5
    """What is added to the variance before the root."""

    embedding_norm: bool = False
    """Normalise the sum of the embeddings, as BERT does."""

    activation: Literal["relu", "gelu", "gelu-tanh", "silu", "swiglu"] = "gelu"
    """The feed-forward layer's non-linearity; swiglu is silu with a gate and so a third matrix."""

    bias: bool = True
    """Whether linear layers and norms have biases."""

    dropout: Annotated[float, BELOW_ONE] = 0.0
    """Dropout on the embedding, on every residual branch and before a classifier."""

    attention_dropout: Annotated[float, BELOW_ONE] = 0.0
    """Dropout on the attention weights."""

    ffn_dropout: Annotated[float, BELOW_ONE] = 0.0
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
        super().__post_init__()
        _check_divides(f"{self.heads} heads", self.heads, f"the width {self.width}", self.width, "--heads")
        if self.kv_heads:
            what = f"{self.kv_heads} heads of keys and values"
            _check_divides(what, self.kv_heads, f"{self.heads} heads", self.heads, "--kv-heads")
        if self.positions == "rotary" and (self.width // self.heads) % 2:
            what = f"rotary positions turn pairs of numbers, and a head has {self.width // self.heads}"
            raise UserError(what, fix="choose heads and width so that width / heads is even", code="conflict")
        if self.target_vocab and not self.decoder_depth:
            raise UserError("a target vocabulary without a decoder", fix="give --decoder-depth too", code="missing")

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


def model_fields(given: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Fields of a model that were given, each checked, though a start or an objective may decide it; None is none."""
    known, fields = fields_of(ModelConfig), {}
    for key, value in given.items():
        name = key.replace("-", "_")
        if name not in known:
            raise UserError(f"no model field {key!r}", where=where, fix=nearest(key, known), code="unknown-name")
        if value is not None:
            fields[name] = known[name].checked(value, where)
    return fields


def _check_divides(what: str, part: int, of_what: str, whole: int, flag: str) -> None:
    if whole % part:
        divisors = [str(n) for n in range(1, min(whole, 64) + 1) if whole % n == 0]
        fix = f"give {flag} one of {', '.join(divisors)}"
        raise UserError(f"{what} do not divide {of_what}", fix=fix, code="conflict")


HeadKind = Literal[
    "lm", "masked", "next-sentence", "masked-nsp", "translation", "classification", "multilabel", "regression", "none"
]
Pooling = Literal["last", "mean", "first"]


class PoolingChoice(Settings):
    """How a sequence becomes one vector."""

    pooling: Pooling | None = None
    """How a text becomes one vector (default: last if causal, first with BERT's pooler, else mean)."""


class HeadConfig(PoolingChoice):
    """What stands on the base: the kind of head, and for a sentence head its outputs and its pooling."""

    kind: HeadKind = "lm"
    """What the head predicts."""

    classes: Annotated[int, Bound(1, MOST_CLASSES)] = 2
    """Outputs of a classification or multilabel head (C); values of a regression head."""

    def pooling_for(self, config: ModelConfig) -> Pooling:
        """The pooling that was recorded, or what it is where none was."""
        return self.pooling or ("last" if config.direction == "causal" else "first")


def usual_pooling(config: ModelConfig) -> Pooling | None:
    """What suits a base where nothing was asked for; None is what a head does by itself."""
    # The first token stands for a text only where a pooler was trained on it, as BERT's is by pairs of sentences.
    return "mean" if config.direction == "bidirectional" and not config.pooler else None


def check_head(config: ModelConfig, head: HeadConfig) -> None:
    """Refuse a head that cannot stand on this base."""
    if (head.kind == "translation") != (config.shape == "encoder-decoder"):
        fix = "translation needs an encoder-decoder (--preset transformer-tiny), other heads a single stack"
        raise UserError(f"a {head.kind} head on a base of shape {config.shape}", fix=fix, code="conflict")
    if config.vocab < 1:
        raise UserError("the vocabulary is not known", fix="give --vocab, the tokenizer's size", code="missing")
