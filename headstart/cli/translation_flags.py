"""The flags of `headstart finetune --task translation`, and the call that they become."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from headstart.cli.options import Switch
from headstart.errors import UserError


@dataclasses.dataclass(frozen=True)
class TranslationOptions:
    """What a translation has that labels have not."""

    start_into: Literal["encoder", "decoder", "both"] | None = None
    """What the single stack of a pretrained start becomes (default: the encoder)."""

    vocabularies: Literal["joint", "separate"] = "joint"
    """One tokenizer for both sides, or one for each."""

    target_tokenizer: Path | None = None
    """The target's own tokenizer (--tokenizer is the source's then)."""

    batch_tokens: int | None = None
    """Tokens in a step: source, target and padding (default: 2,048 on a CPU, 16,384 on a GPU)."""

    smoothing: float = 0.1
    """Share of each target that all tokens have alike."""

    valid_bleu: Switch = False
    """Measure BLEU and chrF on valid at every evaluation, not at the end alone."""

    beam: int = 5
    """Ways that the search for a translation keeps open; 1 is greedy."""

    length_penalty: float = 1.0
    """How a translation's length counts: 0 favours short ones, 1 ranks by the mean over the tokens."""


AS_USUAL = TranslationOptions()
TranslationFlags = Annotated[TranslationOptions, Parameter(name="*", group=Group("Translation", sort_key=45))]


def refuse_given(flags: TranslationOptions, task: str) -> None:
    """Refuse what another task would not look at."""
    for field in dataclasses.fields(flags):
        if getattr(flags, field.name) != field.default:
            name = field.name.replace("_", "-")
            raise UserError(f"--{name} with --task {task}", fix="leave it out, or give --task translation")


def train_translator(
    flags: TranslationOptions, reading: dict[str, Any], for_labels: dict[str, Any], **shared: Any
) -> dict[str, Any]:
    """Train by the flags; `shared` are those that every fine-tuning has. What is for labels alone is refused."""
    from headstart.decoding.beam import Beam
    from headstart.training.translating import Search
    from headstart.training.translation import train_translator as train

    columns = {f"--{name.replace('_', '-')}": reading.get(name) for name in ("text_column", "label_column")}
    for name, value in {**for_labels, **columns}.items():
        if value not in (None, "nothing"):
            raise UserError(f"{name} with --task translation", fix="leave it out: it is for labelled texts")
    return train(
        **shared, **reading, start_into=flags.start_into, vocabularies=flags.vocabularies,
        target_tokenizer=flags.target_tokenizer, batch_tokens=flags.batch_tokens, smoothing=flags.smoothing,
        valid_bleu=flags.valid_bleu,
        search=Search(beam=Beam(beams=flags.beam, length_penalty=flags.length_penalty)),
    )  # fmt: skip


def defaults(task: str) -> tuple[str, float, str]:
    """The schedule, the warm-up and the preset of a task."""
    from headstart.training import finetune, translation
    from headstart.training.loop import LoopConfig

    loop = translation.DEFAULT_LOOP if task == "translation" else LoopConfig()
    preset = translation.DEFAULT_PRESET if task == "translation" else finetune.DEFAULT_PRESET
    return loop.schedule, loop.warmup, preset
