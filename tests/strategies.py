"""What hypothesis draws for several tests: small models of every kind."""

from hypothesis import strategies as st

from headstart.config.model import HeadConfig, ModelConfig

SENTENCE_HEADS = ["classification", "multilabel", "regression"]


@st.composite
def model_configs(draw, shapes=("causal", "bidirectional", "encoder-decoder")):
    """A small base of one of these shapes, every other field free."""
    shape = draw(st.sampled_from(shapes))
    heads = draw(st.integers(1, 3))
    positions = draw(st.sampled_from(["sinusoidal", "learned", "rotary"]))
    head_width = draw(st.integers(1, 4)) * (2 if positions == "rotary" else 1)
    share = draw(st.booleans())
    return ModelConfig(
        vocab=draw(st.integers(2, 20)),
        target_vocab=0 if share or shape != "encoder-decoder" else draw(st.integers(2, 20)),
        width=heads * head_width,
        depth=draw(st.integers(1, 3)),
        decoder_depth=draw(st.integers(1, 3)) if shape == "encoder-decoder" else 0,
        heads=heads,
        kv_heads=draw(st.sampled_from([0, *(count for count in range(1, heads + 1) if heads % count == 0)])),
        ffn=draw(st.integers(1, 9)),
        context=draw(st.integers(9, 16)),  # tests read up to nine tokens
        segments=draw(st.integers(0, 3)),
        direction="causal" if shape == "causal" else "bidirectional",
        positions=positions,
        rotary_base=draw(st.sampled_from([1e4, 5e5])),
        norm=draw(st.sampled_from(["layer", "rms"])),
        norm_place=draw(st.sampled_from(["pre", "post"])),
        embedding_norm=draw(st.booleans()),
        activation=draw(st.sampled_from(["relu", "gelu", "gelu-tanh", "silu", "swiglu"])),
        bias=draw(st.booleans()),
        scale_embedding=draw(st.booleans()),
        tied=draw(st.booleans()),
        output_bias=draw(st.booleans()),
        pooler=draw(st.booleans()),
        pooler_activation=draw(st.sampled_from(["tanh", "relu"])),
        init=draw(st.sampled_from(["lab", "xavier", "normal", "normal-residual"])),
    )


@st.composite
def heads_for(draw, config):
    """A head that can stand on this base."""
    if config.decoder_depth:
        return HeadConfig(kind="translation")
    kinds = ["lm", "masked", "next-sentence", "masked-nsp", "none", *SENTENCE_HEADS]
    return HeadConfig(
        kind=draw(st.sampled_from(kinds)),
        classes=draw(st.integers(1, 5)),
        pooling=draw(st.sampled_from([None, "last", "mean", "first"])),
    )
