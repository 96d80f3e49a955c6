"""Data that a study is given besides its settings: frames, datasets, splits; written where its trials can read it.

Trials run in processes of their own, so a table becomes a file in the study's directory, with its own columns. The
settings keep its name, and what was in it is compared when the study goes on.
"""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headstart.config.study import PretrainPart, StudyConfig
from headstart.data.in_memory import Given, sources_by_role, split_for
from headstart.data.labelled import LabelledSet
from headstart.data.readers.rows import Columns
from headstart.data.readers.sources import Source, SplitName, Table, is_stdin, splits_in, weighted_path
from headstart.errors import UserError
from headstart.study.data import write_changed
from headstart.training.tasks.pretrain import PretrainTexts


@dataclass(frozen=True)
class GivenData:
    """The settings with the names of all data, and the tables that some of the names stand for."""

    config: StudyConfig
    corpus: list[Table | None]
    """For each file of the first phase's corpus: the table that it is to be written from."""

    sets: dict[SplitName, Table]

    def as_files(self, config: StudyConfig, directory: Path) -> StudyConfig:
        """The same settings with the paths of the corpus tables that are written into the directory."""
        given, phases = directory / "given", list(config.pretrain)
        if any(self.corpus) and phases:
            files, texts = list(phases[0].corpus), Columns(config.reading.text_column)
            for number, table in enumerate(self.corpus):
                if table is not None:
                    path = _written(given / f"corpus-{number + 1}.jsonl", table, texts)
                    _, sign, weight = files[number].rpartition("=")
                    files[number] = f"{path}={weight}" if sign else path
            phases[0] = dataclasses.replace(phases[0], corpus=files)
        return dataclasses.replace(config, pretrain=phases)


def _refuse_pipes(config: StudyConfig) -> None:
    """What can be read once: a study reads it again and again, in processes of their own."""
    files = config.finetune
    paths = [weighted_path(path)[0] for phase in config.pretrain for path in (*phase.corpus, phase.valid)]
    for path in filter(None, [*paths, files.train, files.valid, files.test]):
        if is_stdin(path) or Path(path).is_fifo():
            what = "is standard input or a pipe, which can be read only once"
            raise UserError(what, where=path, fix="save it as a file first, and give that", code="unsupported")


def given_data(
    config: StudyConfig, corpus: Given | Sequence[Given] | None, train: Given | None, valid: Given | None,
    test: Given | None,
) -> GivenData:  # fmt: skip
    """The settings with what is given beside them; a folder or dict of splits is taken apart by their names."""
    phases, tables = [_with_train_splits(phase) for phase in config.pretrain], list[Table | None]()
    if corpus is not None:
        if len(phases) > 1:
            fix = "name each in its own [[pretrain]]"
            raise UserError("a corpus for several phases of pretraining", fix=fix, code="conflict")
        texts = PretrainTexts.given(corpus, None, config.reading.text_column)
        names = [_weighed(*pair) for pair in zip(texts.sources, texts.weights, strict=True)]
        phases = [dataclasses.replace(phases[0] if phases else PretrainPart(), corpus=names)]
        tables = [source if isinstance(source, Table) else None for source in texts.sources]
    files, sets = config.finetune, dict[SplitName, Table]()
    if train is not None or files.train:
        given = ((train, files.train), (valid, files.valid), (test, files.test))
        found = sources_by_role(*(named if direct is None else direct for direct, named in given))
        for role, source in found.items():
            if isinstance(source, LabelledSet):
                fix = "give a file, a frame or a dataset"
                raise UserError("a study reads its rows itself", where=source.path, fix=fix, code="unsupported")
            files = dataclasses.replace(files, **{role: str(source)})  # type: ignore[arg-type]
            if isinstance(source, Table):
                sets[role] = source
    asked = dataclasses.replace(config, pretrain=phases, finetune=files)
    _refuse_pipes(asked)
    return GivenData(asked, tables, sets)


def _with_train_splits(phase: PretrainPart) -> PretrainPart:
    """Of a folder of several splits, its train."""
    corpus = list(phase.corpus)
    for index, (path, weight) in enumerate(map(weighted_path, corpus)):
        if splits_in(path):
            corpus[index] = _weighed(split_for(path, "train"), weight)
    return dataclasses.replace(phase, corpus=corpus)


def _weighed(source: Source, weight: float) -> str:
    return str(source) if weight == 1 else f"{source}={weight:g}"


def _written(path: Path, table: Table, columns: Columns) -> str:
    narrow = table.narrowed(columns.choose)
    lines = [
        json.dumps(dict(zip(narrow.columns, values, strict=True)), default=str)
        for values in narrow.read(narrow.columns)
    ]
    write_changed(path, ("\n".join(lines) + "\n").encode("ascii"))  # so, however the user's files are encoded
    return str(path)
