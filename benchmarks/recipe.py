"""A study from a file: its data prefixed, its settings changed, and its test left alone.

`changed` takes settings as they are given on a command line, such as finetune.r_drop=0 or pretrain.2.steps=500.
`in_folds` makes studies of train and valid alone: each fold is once what is scored. The folds share one pretraining,
which reads no labels; it may have read the texts of all folds, so that what they say is good for choosing between
settings, and a little high for what test will say. `unread` makes one study whose pretraining reads no text that is
scored, as it reads none of test.
"""

import dataclasses
import json
import os
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from headstart.config.reading import Reading
from headstart.config.schema import build
from headstart.config.study import StudyConfig
from headstart.data.labelled import Label, read_labelled
from headstart.data.readers.sources import weighted_path
from headstart.data.splits import split_by_hash
from headstart.errors import UserError
from headstart.study.settings import read_study

FOLDS, VALID_SHARE, UNREAD_VALID_SHARE = 5, 0.1, 1 / 6
Settings = tuple[StudyConfig, dict[str, Any]]  # and the fields of the model


def read_recipe(file: Path, data: Path) -> Settings:
    """The settings of a STUDY.toml whose files lie under `data`."""
    config, model = read_study(file)
    files = {name: getattr(config.finetune, name) for name in ("train", "valid", "test")}
    phases = [
        dataclasses.replace(phase, corpus=[str(data / path) for path in phase.corpus], valid=_under(data, phase.valid))
        for phase in config.pretrain
    ]
    placed = {name: _under(data, path) for name, path in files.items()}
    finetune = dataclasses.replace(config.finetune, **placed)
    return dataclasses.replace(config, pretrain=phases, finetune=finetune), model


def _under(data: Path, path: str) -> str:
    return str(data / path) if path else ""


def changed(settings: Settings, changes: Sequence[str]) -> Settings:
    """With PART.KEY=VALUE put in its place; `pretrain.KEY` is of every phase, `pretrain.1.KEY` of the first."""
    config, model = settings
    parts = {**dataclasses.asdict(config), "model": dict(model)}
    for change in changes:
        name, sign, value = change.partition("=")
        part, *number, key = name.split(".")
        is_numbered = len(number) == 1 and number[0].isdecimal() and part == "pretrain"
        if not sign or part not in parts or (number and not is_numbered):
            raise UserError(f"--set {change}", fix="give PART.KEY=VALUE, such as finetune.r_drop=0")
        found = parts[part] if isinstance(parts[part], list) else [parts[part]]
        for one in found[int(number[0]) - 1 : int(number[0])] if number else found:
            one[key] = _value(value)
    fields = parts.pop("model")
    return build(StudyConfig, parts, "--set"), fields


def _value(text: str) -> Any:
    """As TOML has it; what TOML does not know is a word."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


# ---- folds ------------------------------------------------------------------------------------------------------


def folds_of(texts: Sequence[str], labels: Sequence[Label], count: int, seed: int = 0) -> list[list[int]]:
    """The rows of each fold: of every class alike, and texts that are the same after folding in one fold."""
    folds: list[list[int]] = []
    rest = list(range(len(texts)))
    for left in range(count, 1, -1):
        split = split_by_hash([texts[row] for row in rest], [labels[row] for row in rest], 1 / left, seed)
        folds.append([rest[place] for place in split.held_out])
        rest = [rest[place] for place in split.kept]
    return [*folds, rest]


def in_folds(
    config: StudyConfig, place: Path, pretrained: Path | None = None, count: int = FOLDS
) -> Iterator[tuple[Path, StudyConfig]]:
    """The directory and the settings of a study for each fold of train and valid; test is not opened.

    The first does the pretraining, unless another study has. The next find it done: each is to be carried out before
    the next one is asked for.
    """
    texts, labels = _train_and_valid(config)
    folds = folds_of(texts, labels, count)
    for number, fold in enumerate(folds):
        directory = place / f"fold-{number + 1}"
        others = sorted(row for other in folds if other is not fold for row in other)
        own = _scoring(config, directory, texts, labels, fold, others, VALID_SHARE, number)
        base = place / "fold-1" if number else pretrained
        yield directory, with_pretraining(own, base, directory) if base else own


def unread(config: StudyConfig, directory: Path) -> StudyConfig:
    """The settings of a study that scores two of five folds, whose texts its pretraining does not read either."""
    texts, labels = _train_and_valid(config)
    *read, fourth, fifth = folds_of(texts, labels, FOLDS)
    others = sorted(row for fold in read for row in fold)
    own = _scoring(config, directory, texts, labels, sorted(fourth + fifth), others, UNREAD_VALID_SHARE, 0)
    instead = {getattr(config.finetune, name): getattr(own.finetune, name) for name in ("train", "valid")}
    phases = []
    for phase in config.pretrain:
        weighted = [weighted_path(path) for path in phase.corpus]
        corpus = [f"{instead.get(path, path)}={weight:g}" for path, weight in weighted]
        phases.append(dataclasses.replace(phase, corpus=corpus))
    return dataclasses.replace(own, pretrain=phases)


def _train_and_valid(config: StudyConfig) -> tuple[list[str], list[Label]]:
    sets = [
        read_labelled(path, config.reading.part(Reading)) for path in (config.finetune.train, config.finetune.valid)
    ]
    return [text for one in sets for text in one.texts], [label for one in sets for label in one.labels]


def _scoring(
    config: StudyConfig,
    directory: Path,
    texts: Sequence[str],
    labels: Sequence[Label],
    scored: Sequence[int],
    others: Sequence[int],
    valid_share: float,
    seed: int,
) -> StudyConfig:
    """The settings of a study in `directory` that learns from the other rows, some of them to choose by."""
    split = split_by_hash([texts[r] for r in others], [labels[r] for r in others], valid_share, seed)
    rows = {
        "train": [others[r] for r in split.kept], "valid": [others[r] for r in split.held_out], "test": scored,
    }  # fmt: skip
    how, files = config.reading, {}
    for name, chosen in rows.items():
        lines = [{how.text_column: texts[row], how.label_column: labels[row]} for row in chosen]
        files[name] = _written(directory / "rows" / f"{name}.jsonl", lines)
    study = dataclasses.replace(config.study, budgets=[min(b, len(rows["train"])) for b in config.study.budgets])
    return dataclasses.replace(config, study=study, finetune=dataclasses.replace(config.finetune, **files))


def _written(path: Path, rows: Sequence[dict[str, Any]]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    path.write_text("".join(lines), encoding="utf-8")
    return str(path)


# ---- one pretraining for several studies ------------------------------------------------------------------------


def with_pretraining(config: StudyConfig, study: Path, directory: Path) -> StudyConfig:
    """The settings of a study that has the tokenizer and the pretrainings of another one, which were made alike."""
    before, now = (_of_pretraining(one) for one in (read_study(study / "study.toml")[0], config))
    differing = [key for key in now if before.get(key) != now[key]]
    if differing:
        raise UserError(
            f"was pretrained with other settings: {', '.join(differing)}", where=str(study),
            fix="pretrain anew: leave --pretrained out",
        )  # fmt: skip
    directory.mkdir(parents=True, exist_ok=True)
    if not (directory / "pretrain").exists():
        os.symlink((study / "pretrain").resolve(), directory / "pretrain", target_is_directory=True)
    tokenizer = dataclasses.replace(config.tokenizer, tokenizer=str(study / "tokenizer"))
    return dataclasses.replace(config, tokenizer=tokenizer)


def _of_pretraining(config: StudyConfig) -> dict[str, Any]:
    found = {name: getattr(config.study, name) for name in ("preset", "objectives", "seed", "pretrain_seeds")}
    found |= {name: getattr(config.tokenizer, name) for name in ("kind", "vocab", "normalise")}
    for number, phase in enumerate(config.pretrain, 1):
        fields = dataclasses.asdict(phase)
        fields["corpus"] = [Path(path).name for path in phase.corpus]  # wherever they are now
        fields["valid"] = Path(phase.valid).name
        found |= {f"pretrain {number} {key}": value for key, value in fields.items()}
    return found
