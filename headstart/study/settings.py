"""The settings of a study: the demo's, a file's, a start's; as they are resolved and kept in study.toml."""

import dataclasses
import tomllib
from pathlib import Path
from typing import Any, Literal

from headstart.config import study as c
from headstart.config.model import model_fields
from headstart.config.schema import build
from headstart.config.study import StudyConfig
from headstart.config.toml import read_sealed, read_toml, sealed_toml, to_toml
from headstart.data.readers.sources import weighted_path
from headstart.demo.corpus import write_demo
from headstart.errors import IntegrityError, UserError
from headstart.runs.directory import RunDirectory
from headstart.storage.atomic import atomic_write
from headstart.study.data import StudyData, sha256_of
from headstart.tokenizers.tokenizer import Tokenizer

# What may differ between two commands on one directory: more arms, budgets and seeds are more trials, no other ones.
_MAY_GROW = {"arms", "budgets", "seeds"}
_FILES = {"corpus", "train", "valid", "test"}


def demo_config(null: bool = False) -> StudyConfig:
    """The study of the embedded corpus: minutes on two cores."""
    return StudyConfig(
        study=c.StudyPart(demo="null" if null else "plain", seeds=3, budgets=[25, 100]),
        tokenizer=c.TokenizerPart(vocab=2_000),
        pretrain=[c.PretrainPart(epochs=2.0, length=128, optimizer="muon", weight_decay=0.1, evaluations=4)],
        finetune=c.FinetunePart(length=128, pooling="mean", epochs=5.0, least_steps=100, batch=8, evaluations=5),
    )


def read_study(path: str | Path) -> tuple[StudyConfig, dict[str, Any]]:
    """A STUDY.toml: its settings, and the fields of the model that it overrides."""
    data = read_toml(path)
    given = data.pop("model", {})
    if not isinstance(given, dict):
        raise UserError("model is no table", where=path, fix="write [model], and its fields below")
    model = model_fields(given, str(path))
    data.pop("content", None)
    return build(StudyConfig, data, str(path)), model


def with_demo(config: StudyConfig, directory: Path) -> StudyConfig:
    """The embedded corpus as files in the study's directory."""
    if not config.study.demo:
        return config
    if config.finetune.train or any(phase.corpus for phase in config.pretrain):
        raise UserError("--demo and files at once", fix="give --demo, or --corpus and --train", code="conflict")
    demo = directory / "demo"
    write_demo(demo, seed=0, null=config.study.demo == "null")
    files = {name: str(demo / f"{name}.jsonl") for name in ("train", "valid", "test")}
    corpus = [str(demo / "unlabelled.txt")]
    return dataclasses.replace(
        config,
        pretrain=[dataclasses.replace(phase, corpus=corpus) for phase in config.pretrain],
        finetune=dataclasses.replace(config.finetune, **files),  # type: ignore[arg-type]
    )


def with_start(config: StudyConfig) -> StudyConfig:
    """A given base is an arm of its own; without a corpus it is the only pretrained one.

    Whoever it is compared with has to read as it does, from left to right or both ways.
    """
    study = dataclasses.replace(config.study, objectives=list(dict.fromkeys(config.study.objectives)))
    if not study.start:
        return dataclasses.replace(config, study=study)
    has_corpus = any(phase.corpus for phase in config.pretrain)
    kinds = [kind for kind in study.arms if has_corpus or kind not in (*c.PRETRAINED, "scratch-long")]
    is_causal = RunDirectory(study.start).read_config().model.direction == "causal"
    reads: Literal["causal", "masked"] = "causal" if is_causal else "masked"
    objectives: list[str] = study.objectives if has_corpus else [reads]
    if all((objective == "causal") != is_causal for objective in objectives):
        what = f"the start reads as a {reads} base does, and --objective={','.join(objectives)}"
        raise UserError(what, where=study.start, fix=f"give --objective={reads}", code="conflict")
    study = dataclasses.replace(
        study, arms=list(dict.fromkeys([*kinds, "imported"])), objectives=objectives, start_reads=reads
    )
    return dataclasses.replace(config, study=study, pretrain=config.pretrain if has_corpus else [])


def settings_of(data: StudyData, given: StudyConfig, model: dict[str, Any]) -> dict[str, Any]:
    """All settings as resolved, files under the names that they were given by, and what was in them."""
    config, facts = dataclasses.asdict(data.config), data.facts["data"]
    if not config["study"]["fast"]:
        del config["study"]["fast"]  # an exact study has the bytes that it had before there was another kind
    for phase, asked in zip(config["pretrain"], given.pretrain, strict=True):
        phase |= {"corpus": asked.corpus, "valid": asked.valid}
    config["finetune"] |= {name: getattr(given.finetune, name) for name in ("train", "valid", "test")}
    config["model"] = {key: value for key, value in model.items() if value is not None}
    config["content"] = {name: facts[name]["sha256"] for name in ("train", "valid", "test")}
    config["content"]["tokenizer"] = Tokenizer.load(data.tokenizer).fingerprint
    config["content"]["corpus"] = [entry["sha256"] for entry in facts["corpus"]]
    phases = zip(given.pretrain, data.config.pretrain, strict=True)
    config["content"]["phases"] = [
        f"{weighted_path(asked)[1]:g} {sha256_of(weighted_path(path)[0])}"
        for asked_phase, phase in phases
        for asked, path in zip(asked_phase.corpus or phase.corpus, phase.corpus, strict=True)
    ]
    if data.config.study.start:
        result = RunDirectory(data.config.study.start).read_result() or {}
        config["content"]["start"] = result.get("weights_sha256", "")
    return config


def check_same(directory: Path, settings: dict[str, Any], *, has_final_steps: bool = True) -> None:
    """Refuse a command that differs from the one that began this directory in what its trials hang on.

    Until the time that the first trials take has made them final, the steps of pretraining may differ.
    """
    file = directory / "study.toml"
    if file.exists():
        fix = f"delete {file}, and run the same command again: it writes it anew"
        kept, asked = read_sealed(file, fix), tomllib.loads(to_toml(settings))
        if not kept:
            raise IntegrityError("is empty", where=file, fix=fix)
        now_tokenizer = asked["content"].pop("tokenizer")
        tokenizer = kept.get("content", {}).pop("tokenizer", now_tokenizer)
        before, now = (_compared(_with_defaults(one, str(file)), has_final_steps) for one in (kept, asked))
        differing = [
            f"{key} was {before.get(key)!r}, is {now.get(key)!r}"
            for key in sorted({*before, *now}, key=lambda key: (key.startswith("content."), key))
            if before.get(key) != now.get(key)
        ]
        if differing:
            what = "\n  ".join(["the study was started with other settings:", *differing])
            fix = "give the same settings, or another --out"
            raise UserError(what, where=str(directory), fix=fix, code="changed")
        if tokenizer != now_tokenizer:
            folder, what = directory / "tokenizer", "is not the one that the study began with"
            fix = f"delete {folder}: the same command makes it again"
            raise IntegrityError(what, where=folder / "tokenizer.json", fix=fix, code="mismatch")
    atomic_write(file, sealed_toml(settings))


def _with_defaults(settings: dict[str, Any], file: str) -> dict[str, Any]:
    """What they say; a setting that they do not name was as is usual, and the metric once always accuracy."""
    settings.setdefault("study", {}).setdefault("metric", "accuracy")
    apart: dict[str, Any] = {name: settings.pop(name) for name in ("model", "content") if name in settings}
    full = dataclasses.asdict(build(StudyConfig, settings, file))
    return tomllib.loads(to_toml({**full, **apart}))


def _compared(settings: dict[str, Any], has_final_steps: bool) -> dict[str, Any]:
    """By name what may not change; files are compared by their content, wherever they are."""
    phases = settings.pop("pretrain", [])
    contents = {f"{name} file": digest for name, digest in settings.pop("content", {}).items()}
    numbered = {f"pretrain {number}": phase for number, phase in enumerate(phases, 1)}
    sections = {"content": contents, **settings, **numbered}
    return {
        f"{section}.{key}": value
        for section, values in sections.items()
        for key, value in values.items()
        if key not in _FILES
        and not (section == "study" and key in _MAY_GROW)
        and not (section.startswith("pretrain ") and key == "steps" and not has_final_steps)
    }
