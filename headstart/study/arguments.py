"""From flags or keywords to the settings of a study: each has one name, and belongs to one part of STUDY.toml."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headstart.config import study as parts
from headstart.config.generation import Seed
from headstart.config.model import ModelConfig
from headstart.config.reading import Reading
from headstart.config.schema import Setting, Settings, fields_of
from headstart.config.study import PARTS, SETTINGS, StudyConfig
from headstart.config.toml import read_toml
from headstart.config.training import Computing
from headstart.errors import UserError, nearest
from headstart.study.settings import demo_config, read_study

COMMON = ("seed", "threads", "precision")  # of every verb
_READING, _MODEL = fields_of(Reading), {n: s for n, s in fields_of(ModelConfig).items() if n != "tokenizer"}
EVERY: dict[str, Setting] = {
    **SETTINGS, **{name: fields_of(Seed, Computing)[name] for name in COMMON}, **_READING, **_MODEL,
}  # fmt: skip


class Asked(NamedTuple):
    """What a study is asked for."""

    config: StudyConfig
    model: dict[str, Any]
    """Fields of the model that are given."""

    given: frozenset[str]
    """The settings, by part and name, that no recipe decides."""

    @property
    def out(self) -> Path:
        """Where it is kept unless a directory is given."""
        name = self.config.study.demo or Path(self.config.finetune.train).name.split(".")[0]
        if not name:
            raise UserError("the study has no directory", fix="give --out", code="missing")
        return Path("studies") / name


def asked_for(
    start: StudyConfig | str | Path | None, given: Mapping[str, Any], *, corpus: Sequence[str] | None = None,
    more_arms: Sequence[str] = (), has_data: bool = False,
) -> Asked:  # fmt: skip
    """Settings from a configuration, a STUDY.toml or nothing, and what was given by name, which wins.

    `has_data` is whether tables in memory come besides.
    """
    known = {name: value for name, value in given.items() if value is not None}
    for name, value in known.items():
        if name not in EVERY:
            raise UserError(f"unknown setting {name!r}", fix=nearest(name, EVERY), code="unknown-name")
        known[name] = EVERY[name].checked(value)
    if (known.get("valid") or known.get("test")) and not (known.get("train") or start or has_data):
        raise UserError("--valid or --test without --train", fix="give --train too", code="missing")
    config, model = _starting_config(start, corpus, known, has_data)
    names = {f"{part}.{own[flag]}" for part, own in PARTS.items() for flag in own.keys() & known.keys()}
    names |= {f"study.{name}" for name in COMMON if name in known}
    if isinstance(start, str | Path):
        for part, values in read_toml(start).items():
            tables = values if isinstance(values, list) else [values]
            names |= {f"{part}.{key}" for table in tables for key in table}
    config = _with_given(config, known, more_arms)
    model |= {name: known[name] for name in _MODEL if name in known and name != "vocab"}
    return Asked(config, model, frozenset(names))


def _starting_config(
    start: StudyConfig | str | Path | None, corpus: Sequence[str] | None, given: Mapping[str, Any], has_data: bool
) -> tuple[StudyConfig, dict[str, Any]]:
    """The settings to begin with: a file's, the demo's where nothing is given, or the defaults over the corpus."""
    demo, has_data = given.get("demo"), bool(corpus or given.get("train") or has_data)
    if demo and (start or has_data):
        fix = "give --demo, or a STUDY.toml, or --corpus and --train"
        raise UserError("--demo and files at once", fix=fix, code="conflict")
    if start is not None:
        config, model = (start, {}) if isinstance(start, StudyConfig) else read_study(start)
        phases = [dataclasses.replace(phase, corpus=list(corpus or phase.corpus)) for phase in config.pretrain]
        return dataclasses.replace(config, pretrain=phases), model
    if demo or not has_data:
        return demo_config(null=demo == "null"), {}
    phases = [parts.PretrainPart(corpus=list(corpus))] if corpus else []
    return StudyConfig(study=parts.StudyPart(time=parts.STUDY_TIME), pretrain=phases), {}


def _with_given(config: StudyConfig, given: Mapping[str, Any], more_arms: Sequence[str]) -> StudyConfig:
    """The settings with what was given."""
    of_study, of_tokenizer, of_pretraining, of_finetuning = (
        {name: given[flag] for flag, name in names.items() if flag in given} for names in PARTS.values()
    )
    of_study |= {name: given[name] for name in COMMON if name in given}
    if more_arms:
        of_study["arms"] = list(dict.fromkeys([*of_study.get("arms", config.study.arms), *more_arms]))
    if of_pretraining.get("epochs") and not of_pretraining.get("steps"):
        of_pretraining["steps"] = 0  # instead of those that the file has
    if "documents" in given:
        of_pretraining["documents"] = given["documents"]
    if "vocab" in given:
        of_tokenizer["vocab"] = given["vocab"]
    reading = _chosen(given, fields_of(type(config.reading)))
    return StudyConfig(
        reading=_changed(config.reading, reading),
        study=_changed(config.study, of_study),
        tokenizer=_changed(config.tokenizer, of_tokenizer),
        pretrain=[_changed(phase, of_pretraining) for phase in config.pretrain],
        finetune=_changed(config.finetune, of_finetuning),
    )


def _chosen(given: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: given[name] for name in names if name in given}


def _changed(part: Any, values: dict[str, Any]) -> Any:
    changed: Settings = dataclasses.replace(part, **values)
    return changed
