"""Data that a study is given besides its settings: frames, datasets, splits; written where its trials can read it.

Trials run in processes of their own, so a table becomes a file in the study's directory, with its own columns. The
settings keep its name, and what was in it is compared when the study goes on.
"""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headstart.errors import UserError
from headstart.study.design import PretrainPart, StudyConfig
from headstart.text.dataset_folders import Role, splits_in
from headstart.text.in_memory import Given, sources_by_role, split_for
from headstart.text.labelled import LabelledSet
from headstart.text.mixture import weighted_path
from headstart.text.rows import Columns
from headstart.text.sources import Source, Table
from headstart.training.pretrain import Texts
from headstart.training.run_directory import write_whole


@dataclass(frozen=True)
class GivenData:
    """The settings with the names of all data, and the tables that some of the names stand for."""

    config: StudyConfig
    corpus: list[Table | None]
    """For each file of the first phase's corpus: the table that it is to be written from."""

    sets: dict[Role, Table]

    def as_files(self, config: StudyConfig, directory: Path) -> StudyConfig:
        """The same settings with the paths of what is written into the directory."""
        how, place = config.reading, directory / "given"
        labelled = Columns(how.text_column, how.label_column)
        finetune = dataclasses.replace(
            config.finetune,
            **{role: _written(place / f"{role}.jsonl", table, labelled) for role, table in self.sets.items()},  # type: ignore[arg-type]
        )
        phases = list(config.pretrain)
        if any(self.corpus) and phases:
            files, texts = list(phases[0].corpus), Columns(how.text_column)
            for number, table in enumerate(self.corpus):
                if table is not None:
                    path = _written(place / f"corpus-{number + 1}.jsonl", table, texts)
                    files[number] = _replaced(files[number], path)
            phases[0] = dataclasses.replace(phases[0], corpus=files)
        return dataclasses.replace(config, finetune=finetune, pretrain=phases)


def given_data(
    config: StudyConfig,
    corpus: Given | Sequence[Given] | None,
    train: Given | None,
    valid: Given | None,
    test: Given | None,
) -> GivenData:
    """The settings with what is given beside them; a folder or dict of splits is taken apart by their names."""
    phases, tables = [_with_train_splits(phase) for phase in config.pretrain], list[Table | None]()
    if corpus is not None:
        if len(phases) > 1:
            raise UserError(
                "a corpus for several phases of pretraining", fix="name each in its own [[pretrain]]"
            )
        texts = Texts.given(corpus, None, config.reading.text_column)
        names = [
            _weighed(source, weight) for source, weight in zip(texts.sources, texts.weights, strict=True)
        ]
        phases = [dataclasses.replace(phases[0] if phases else PretrainPart(), corpus=names)]
        tables = [source if isinstance(source, Table) else None for source in texts.sources]
    files, sets = config.finetune, dict[Role, Table]()
    if train is not None or files.train:
        found = sources_by_role(
            files.train if train is None else train, files.valid if valid is None else valid,
            files.test if test is None else test,
        )  # fmt: skip
        for role, source in found.items():
            if isinstance(source, LabelledSet):
                raise UserError(
                    "a study reads its rows itself",
                    where=source.path,
                    fix="give a file, a frame or a dataset",
                )
            files = dataclasses.replace(files, **{role: str(source)})  # type: ignore[arg-type]
            if isinstance(source, Table):
                sets[role] = source
    return GivenData(dataclasses.replace(config, pretrain=phases, finetune=files), tables, sets)


def _with_train_splits(phase: PretrainPart) -> PretrainPart:
    """Of a folder of several splits, its train."""
    named = [(given, *weighted_path(given)) for given in phase.corpus]
    corpus = [
        _weighed(split_for(path, "train"), weight) if splits_in(path) else given
        for given, path, weight in named
    ]
    return dataclasses.replace(phase, corpus=corpus)


def _weighed(source: Source, weight: float) -> str:
    return str(source) if weight == 1 else f"{source}={weight:g}"


def _replaced(name: str, path: str) -> str:
    """The path with the weight that the name has."""
    _, sign, weight = name.rpartition("=")
    return f"{path}={weight}" if sign else path


def _written(path: Path, table: Table, columns: Columns) -> str:
    narrow = table.narrowed(columns)
    lines = [
        json.dumps(dict(zip(narrow.columns, values, strict=True)), ensure_ascii=False, default=str)
        for values in narrow.read(narrow.columns)
    ]
    data = ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")
    if not path.exists() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)
    return str(path)
