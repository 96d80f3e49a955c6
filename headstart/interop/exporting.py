"""Out to elsewhere: a run as config.json, model.safetensors and tokenizer files that `transformers` loads alone."""

import copy
import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor

from headstart.config import nearest
from headstart.errors import UserError
from headstart.interop.expressing import unmet
from headstart.interop.families import Family
from headstart.interop.model_card import write_card
from headstart.interop.new_directory import new_directory, refuse_taken
from headstart.interop.sentence_heads import SENTENCE_KINDS
from headstart.interop.table import FAMILIES, NAMES
from headstart.interop.tokenizers_out import tokenizer_obstacle, write_json
from headstart.training.loading import LoadedRun, load
from headstart.training.run_directory import RunDirectory


class HuggingFaceExport(NamedTuple):
    """What was written."""

    directory: Path
    family: str
    architecture: str
    files: tuple[str, ...]


def export_huggingface(
    run: LoadedRun | str | Path,
    directory: str | Path,
    *,
    family: str | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> HuggingFaceExport:
    """Write a run into a new directory as the family that expresses it; where none does, an error says why not.

    `family` is one of `NAMES` (default: the one that it was imported from, else the first that can).
    """
    run, directory = run if isinstance(run, LoadedRun) else load(run), Path(directory)
    refuse_taken(directory)
    run = _with_own_padding(run, tell)
    weights = {name: parameter.detach().cpu().float() for name, parameter in run.model.named_parameters()}
    chosen = _chosen(run, weights, family)
    exported = chosen.exported(run.config, run.tokenizer, weights, **_target(run, chosen))
    config = {**exported.config, "dtype": "float32"}
    needed = sum(tensor.numel() * 4 for tensor in exported.tensors.values())
    with new_directory(directory, needed) as aside:
        write_json(aside / "config.json", config)
        if generation := chosen.generation_out(run, run.tokenizer):
            write_json(aside / "generation_config.json", generation)
        save_file(exported.tensors, aside / "model.safetensors", {"format": "pt"})
        chosen.write_vocabularies(run, aside)
        write_card(run, aside, kind="huggingface")
        files = tuple(sorted(path.name for path in aside.iterdir()))
    return HuggingFaceExport(directory, chosen.name, config["architectures"][0], files)


def _chosen(run: LoadedRun, weights: Mapping[str, Tensor], wanted: str | None) -> Family:
    """The family that was asked for, that the run came from, or the first that expresses it."""
    by_name = dict(zip(NAMES, FAMILIES, strict=True))
    if wanted is not None and wanted not in by_name:
        raise UserError(f"no family {wanted!r}", fix=nearest(wanted, NAMES))
    result = RunDirectory(run.path).read_result() or {}
    origin = (result.get("imported") or {}).get("model_type")
    names = [wanted] if wanted else [*([origin] if origin in by_name else []), *NAMES]
    obstacles: dict[str, str] = {}
    for name in names:
        obstacle = _obstacle(run, by_name[name], weights)
        if obstacle is None:
            return by_name[name]
        obstacles[name] = obstacle
    nearest_name = min(obstacles, key=lambda name: _distance(run, by_name[name]))
    what = (
        f"cannot be written as {wanted}: "
        if wanted
        else f"is written as no family; the nearest is {nearest_name}, but "
    )
    raise UserError(
        what + obstacles[nearest_name],
        where=str(run.path),
        fix="headstart export RUN --to onnx DIR takes any run; or train with the presets bert-base, gpt2, "
        "modern-small, modern-base, or tiny with the causal objective",
    )


def _obstacle(run: LoadedRun, family: Family, weights: Mapping[str, Tensor]) -> str | None:
    found = family.obstacle(run.config, run.tokenizer, weights, **_target(run, family))
    if found is None and not family.is_translator:
        found = tokenizer_obstacle(run.tokenizer)
    return found


def _target(run: LoadedRun, family: Family) -> dict[str, Any]:
    """The target's own tokenizer, for a family that writes in one."""
    return {"target": run.target_tokenizer} if family.is_translator else {}


def _distance(run: LoadedRun, family: Family) -> int:
    """How many options of the run a family has not; how a text is read weighs most."""
    missing = unmet(run.config.model, family.wanted(run.config.model))
    is_other = family.is_translator != bool(run.config.model.decoder_depth)
    return len(missing) + 10 * is_other + 5 * ("direction" in missing)


def _with_own_padding(run: LoadedRun, tell: Callable[[str], None]) -> LoadedRun:
    """A causal classifier with a padding token of its own: elsewhere the last token is found by what is no padding."""
    roles, model = run.tokenizer.roles, run.config.model
    others = {roles[role] for role in roles if role != "pad"}
    if (
        model.direction != "causal"
        or run.config.head.kind not in SENTENCE_KINDS
        or roles["pad"] not in others
    ):
        return run
    given = run.tokenizer.spec.get("roles") or {}
    named = {role: spelling for role, spelling in given.items() if role != "pad"}
    words, said = type(run.tokenizer)({**run.tokenizer.spec, "roles": named}).with_role("pad")
    tell(said)
    wider = copy.deepcopy(run.model)  # the caller's stays as it is
    table = wider.base.embedding.tokens
    rows = words.size - table.num_embeddings
    table.weight = torch.nn.Parameter(torch.cat([table.weight.detach(), torch.zeros(rows, model.width)]))
    config = dataclasses.replace(
        run.config, model=dataclasses.replace(model, vocab=words.size, tokenizer=words.fingerprint)
    )
    return dataclasses.replace(run, config=config, tokenizer=words, model=wider)
