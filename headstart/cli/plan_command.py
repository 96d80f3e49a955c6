"""The `headstart pretrain` that trains what `headstart plan --budget` has chosen."""

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from headstart.cli.options import Common
from headstart.errors import UserError
from headstart.model.presets import HeadKind, ModelConfig, preset
from headstart.plan.choice import Choice
from headstart.plan.machines import Target

UNKNOWN_CORPUS = "CORPUS"  # where the number of tokens was given alone
_OBJECTIVES: dict[HeadKind, Literal["causal", "masked", "masked-nsp"]] = {
    "lm": "causal",
    "masked": "masked",
    "masked-nsp": "masked-nsp",
}
_SHAPE = ("vocab", "width", "depth", "heads", "ffn")  # told even where they are the preset's
_OF_ITSELF = ("direction", "tokenizer")  # pretraining takes them from the objective and from the tokenizer


def fields_of_objective(head: HeadKind, asked: ModelConfig) -> dict[str, Any]:
    """What a pretraining under this head makes of the model, whatever its preset; refused where there is none."""
    if head not in _OBJECTIVES:
        raise UserError(
            f"--budget for the head {head}",
            fix=f"give --head one of {', '.join(_OBJECTIVES)}: those that are pretrained",
        )
    return {
        "direction": "causal" if head == "lm" else "bidirectional",
        "segments": max(2, asked.segments) if head == "masked-nsp" else asked.segments,
    }


def pretrain_command(
    preset_name: str, chosen: Choice, corpus: Sequence[Path], target: Target, common: Common
) -> str:
    """The command line, quoted for a shell."""
    work = chosen.work
    objective = _OBJECTIVES[work.head.kind]
    words = ["headstart", "pretrain", "--corpus", *(map(_as_word, corpus) if corpus else [UNKNOWN_CORPUS])]
    words += ["--objective", objective] if objective != "causal" else []
    words += ["--preset", preset_name, *_model_words(preset_name, chosen)]
    words += ["--length", str(work.lengths.source)]
    words += ["--batch-tokens", str(work.batch * work.lengths.source), "--steps", str(chosen.steps)]
    words += ["--accumulate", str(work.accumulate)] if work.accumulate > 1 else []
    words += [*_machine_words(chosen, target, common), *(["--seed", str(common.seed)] if common.seed else [])]
    return shlex.join([*words, "--out", "runs/base"])


def _as_word(path: Path) -> str:
    return f"./{path}" if str(path).startswith("-") else str(path)


def _model_words(preset_name: str, chosen: Choice) -> list[str]:
    """The shape, and whatever else is not as the preset has it."""
    config, usual = chosen.work.config, preset(preset_name)
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    others = [
        name
        for name, value in values.items()
        if name not in (*_SHAPE, *_OF_ITSELF) and value != getattr(usual, name)
    ]
    words = []
    for name in (*_SHAPE, *others):
        flag, value = name.replace("_", "-"), values[name]
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", str(value)]
    return words


def _machine_words(chosen: Choice, target: Target, common: Common) -> list[str]:
    """What was asked for of this machine; of one that was named, all that was planned with."""
    device, precision, threads = str(common.device), str(common.precision), common.threads
    if device not in ("auto", "cpu", "cuda"):
        device, precision, threads = target.kind, chosen.work.precision, target.cores or threads
    words = ["--device", device] if device != "auto" else []
    words += ["--precision", precision] if precision != "auto" else []
    return words + (["--threads", str(threads)] if threads else [])
