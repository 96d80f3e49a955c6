"""Where a translator's weights come from: the shape that follows from a start, and what became of each part of it."""

import dataclasses
from typing import Any, Literal

from headstart.errors import UserError
from headstart.model.model import Audit
from headstart.model.presets import ModelConfig, preset
from headstart.training.loading import LoadedRun

StartInto = Literal["encoder", "decoder", "both"]


def start_into_of(begun: LoadedRun | None, asked: StartInto | None) -> StartInto | None:
    """Which stack a single one becomes; another encoder-decoder is taken as it is."""
    is_single = begun is not None and not begun.config.model.decoder_depth
    if asked is not None and not is_single:
        what = "a translation run" if begun is not None else "scratch"
        raise UserError(
            f"--start-into {asked} with a start from {what}",
            fix="leave it out: it says which stack the single one of a pretrained base becomes",
        )
    return (asked or "encoder") if is_single else None


def shape_of(
    preset_name: str, overrides: dict[str, Any], begun: LoadedRun | None, into: StartInto | None
) -> ModelConfig:
    """The preset's encoder-decoder, or the start's; a single stack gets a decoder, or an encoder, of its own shape."""
    given = {key: value for key, value in overrides.items() if value is not None}
    if begun is None:
        config = preset(preset_name, **given)
    else:
        base = begun.config.model
        own = {"decoder_depth": base.depth, "direction": "bidirectional"} if into else {}
        config = dataclasses.replace(base, **{**own, **given})
    if not config.decoder_depth:
        raise UserError(
            f"the preset {preset_name} is a single stack, and translation needs an encoder and a decoder",
            fix="--preset transformer-tiny, or --decoder-depth N",
        )
    return config


def audit_by_part(audit: Audit) -> str:
    """What of each part came from the start and what stayed new, a line each."""
    parts = {
        "embedding": "base.embedding.",
        "target embedding": "base.target_embedding.",
        "encoder": "base.encoder.",
        "decoder": "base.decoder.",
        "head": "head.",
    }
    lines = []
    for part, prefix in parts.items():
        fates = {
            fate: [name for name in audit.tensors(fate) if name.startswith(prefix)]
            for fate in ("carried", "new")
        }
        if any(fates.values()):
            lines.append(
                f"  {part:<18} {len(fates['carried'])} tensors from the start, {len(fates['new'])} new"
            )
    return "\n".join(lines)
