"""One table of presets."""

from typing import Any

from headstart.config.model import ModelConfig, model_fields
from headstart.config.schema import fields_of, takes
from headstart.errors import UserError, nearest

_MODERN: dict[str, Any] = {"positions": "rotary", "norm": "rms", "activation": "swiglu", "bias": False, "context": 1024}

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


@takes(fields_of(ModelConfig).values())
def preset(name: str, **overrides: Any) -> ModelConfig:
    """The configuration of a preset, with fields overridden; None leaves a field as the preset has it."""
    if name not in PRESETS:
        raise UserError(f"no preset {name!r}", fix=nearest(name, PRESETS), code="unknown-name")
    return ModelConfig(**{**PRESETS[name], **model_fields(overrides)})
