"""`headstart study`: does pretraining pay, and how much? `headstart report` writes its page again."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from rich.progress import TaskProgressColumn

from headstart.cli import options
from headstart.cli.consoles import long_task
from headstart.cli.options import Common, CommonFlags, Switch, flags
from headstart.config import study as parts
from headstart.config.schema import fields_of
from headstart.config.study import StudyConfig
from headstart.config.toml import read_toml
from headstart.config.training import CorpusFiles
from headstart.errors import RunFailed, UserError, visible

if TYPE_CHECKING:
    from headstart.study.record import StudyRecord
    from headstart.study.study import StudyProgress

# The settings of each part of a study, by the names of their flags.
_PARTS = {
    "study": {
        **{n: n for n in ("time", "demo", "arms", "budgets", "seeds", "pretrain_seeds", "start", "preset", "fast")},
        "objective": "objectives", "metric": "metric",
    },
    "tokenizer": {"tokenizer": "tokenizer"},
    "pretrain": {
        "pretrain_epochs": "epochs", "pretrain_steps": "steps", "batch_tokens": "batch_tokens", "length": "length",
    },
    "finetune": {
        n: n for n in ("train", "valid", "test", "epochs", "batch", "learning_rates", "length", "class_weights")
    },
}  # fmt: skip
_CLASSES = (parts.StudyPart, parts.TokenizerPart, parts.PretrainPart, parts.FinetunePart)
_SETTINGS = {
    flag: fields_of(cls)[name]._replace(name=flag)
    for cls, names in zip(_CLASSES, _PARTS.values(), strict=True)
    for flag, name in names.items()
}
StudyFlags: Any
StudyFlags, STUDY = flags(_SETTINGS.values())


def study(
    file: Path | None = None,
    *,
    corpus: Annotated[
        list[str] | None, Parameter(consume_multiple=True, negative="", help=CorpusFiles.sentence("corpus"))
    ] = None,
    own: StudyFlags = STUDY,
    shuffled: Switch = False,
    equal_compute: Switch = False,
    jobs: int | None = None,
    engine: Literal["processes", "ray"] = "processes",
    ray_address: str | None = None,
    out: options.OutPath | None = None,
    reading: options.ReadingFlags = options.READING,
    overrides: options.ModelFlags = options.MODEL,
    common: CommonFlags = Common(),
) -> None:
    """Compare pretraining with scratch, TF-IDF and more, over label budgets and seeds; end with a verdict.

    Without files it works on the embedded corpus, in minutes. The same command again goes on where it was.

    For example:

        headstart study
        headstart study --demo null --out studies/null
        headstart study --corpus reviews.txt --train train.jsonl --valid valid.jsonl --test test.jsonl
        headstart study --corpus news.txt --train labelled.csv --objective causal,masked --budgets 50,200,1600 --jobs 4
        headstart study STUDY.toml --engine ray --ray-address 10.0.0.1:6379 --out /shared/studies/news

    Args:
        file: A STUDY.toml with [study], [tokenizer], [[pretrain]], [finetune] and [model]; flags win over it.
        shuffled: Add the control: a base pretrained on the same tokens in random order.
        equal_compute: Add scratch with the pretraining's compute on top, at the largest budget.
        jobs: Trials in parallel (default: the cores over --threads; 4 on a GPU; with --ray-address, what the
            cluster has room for). The results do not depend on it.
        engine: What runs them: processes of this machine, or the workers of a Ray cluster (extra `ray`). The
            results do not depend on it.
        ray_address: HOST:PORT of a running Ray cluster, or auto on one of its nodes; all nodes have to see
            the same files (default: RAY_ADDRESS, or a Ray of its own on this machine).
        out: The study's directory (default: studies/ and the name of the data).
    """
    from headstart.report.page import write_report
    from headstart.study.study import study as run

    given = own.given()
    if (given.get("valid") or given.get("test")) and not (given.get("train") or file):
        raise UserError("--valid or --test without --train", fix="give --train too")
    config, model = starting_config(file, corpus, given)
    more = (["shuffled"] if shuffled else []) + (["scratch-long"] if equal_compute else [])
    config = with_flags(config, given, reading.given(), overrides.vocab, more, common)
    fields = {name: value for name, value in overrides.given().items() if name != "vocab"}
    out = out or Path("studies") / (config.study.demo or Path(config.finetune.train).name.split(".")[0])
    with long_task("study", TaskProgressColumn()) as (log, update):

        def on_progress(now: "StudyProgress") -> None:
            running = ", ".join(f"{name} {share:.0%}" for name, share in list(now.running.items())[:3])
            update(completed=now.done / now.total, about=f"{now.finished}/{now.tasks} done  {running}")

        record = run(
            config, out=out, model={**model, **fields}, jobs=jobs, engine=engine, ray_address=ray_address,
            device=common.device, command=_command(), given=given_names(given, common, file),
            log=log, on_progress=on_progress,
        )  # fmt: skip
    report = write_report(out)
    if common.json:
        content = {"out": str(out), "report": str(report), **dataclasses.asdict(record)}
        print(json.dumps(content, ensure_ascii=False))
    else:
        _print(record, report)
    if record.failed:
        lines = str(record.failed[0].error).splitlines()
        raise RunFailed(
            f"{len(record.failed)} of {len(record.trials) + len(record.pretraining)} trials and pretrainings failed; "
            f"the first: {lines[-1] if lines[0].startswith('Traceback') else lines[0]}",
            fix="run the same command again: finished work is not done again",
        )


_NO_MATTER = ("--out", "--jobs", "--engine", "--ray-address")


def _command() -> list[str]:
    """The command for the record, without what does not bear on the results."""
    words, kept = iter(sys.argv[1:]), ["headstart"]
    for word in words:
        if word in _NO_MATTER:
            next(words, None)  # its value
        elif word != "--json" and not word.startswith(tuple(f"{flag}=" for flag in _NO_MATTER)):
            kept.append(word)
    return kept


def _print(record: "StudyRecord", report: Path) -> None:
    """The verdict and a table: the metric by arm and budget."""
    for sentence in record.verdict:
        print(visible(sentence))
    scores = {(score.arm, score.budget): record.of_metric(score) for score in record.scores}
    title = f"{record.metric_title}, %"
    width = max(len(title), *(len(arm.name) for arm in record.arms))
    print(f"\n{title:<{width}}" + "".join(f"{f'{budget:,} labels':>24}" for budget in record.budgets))
    for arm in record.arms:
        cells = []
        for budget in record.budgets:
            a = scores.get((arm.name, budget))
            cells.append(f"{100 * a.value:.1f} ({100 * a.low:.1f} to {100 * a.high:.1f})" if a else "–")
        print(f"{arm.name:<{width}}" + "".join(f"{cell:>24}" for cell in cells))
    print(f"\n{report}")
    if (kept := record.kept_model) is not None:
        reached = record.of_metric(kept)
        unit = "%" if record.metric == "accuracy" else f"% {record.metric_title}"
        reach = f", about {100 * reached.value:.1f} {unit}" if reached else ""
        which = f"the best arm on valid, {kept.arm} with {kept.budget:,} labels{reach}"
        print(visible(f"To use {which}: headstart predict {report.parent} texts.txt"))


def report(directory: Path, *, common: CommonFlags = Common()) -> None:
    """Write a study's report.html and results.csv again from what is on disk. Nothing is computed anew.

    For example:

        headstart report studies/books
        headstart report studies/books --json

    Args:
        directory: The directory of a study: where `headstart study --out` wrote its study.json.
    """
    from headstart.report.page import write_report

    page = write_report(directory)
    table = page.with_name("results.csv")
    paths = {"report": str(page), "results": str(table)}
    print(json.dumps(paths) if common.json else visible(f"wrote {page} and {table}"))


# ---- the settings that the flags become ---------------------------------------------------------------------


def starting_config(
    file: Path | None, corpus: list[str] | None, given: dict[str, Any]
) -> tuple[StudyConfig, dict[str, Any]]:
    """The settings to begin with: a file's, the demo's where nothing is given, or the defaults over the corpus."""
    from headstart.study.settings import demo_config, read_study

    train, demo = given.get("train"), given.get("demo")
    if demo and (file or corpus or train):
        raise options.conflict("--demo and files at once", "give --demo, or a STUDY.toml, or --corpus and --train")
    if file is not None:
        config, model = read_study(file)
        phases = [dataclasses.replace(phase, corpus=corpus or phase.corpus) for phase in config.pretrain]
        return dataclasses.replace(config, pretrain=phases), model
    if demo or not (corpus or train):
        return demo_config(null=demo == "null"), {}
    phases = [parts.PretrainPart(corpus=corpus)] if corpus else []
    return StudyConfig(study=parts.StudyPart(time=parts.STUDY_TIME), pretrain=phases), {}


def given_names(given: dict[str, Any], common: Common, file: Path | None) -> set[str]:
    """The settings, by part and name, that flags or a STUDY.toml give: no recipe decides them."""
    names = {f"{part}.{own[flag]}" for part, own in _PARTS.items() for flag in own.keys() & given.keys()}
    names |= {f"study.{name}" for name in common.given}
    for part, values in (read_toml(file) if file else {}).items():
        tables = values if isinstance(values, list) else [values]
        names |= {f"{part}.{key}" for table in tables for key in table}
    return names


def with_flags(
    config: StudyConfig, given: dict[str, Any], reading: dict[str, Any], vocab: int | None,
    more_arms: list[str], common: Common,
) -> StudyConfig:  # fmt: skip
    """The settings with what was given on the command line."""
    of_study, of_tokenizer, of_pretraining, of_finetuning = (
        {name: given[flag] for flag, name in names.items() if flag in given} for names in _PARTS.values()
    )
    arms = dict.fromkeys([*of_study.get("arms", config.study.arms), *more_arms])
    of_study |= {"arms": list(arms), **{n: v for n, v in common.given.items() if n != "device"}}
    if of_pretraining.get("epochs") and not of_pretraining.get("steps"):
        of_pretraining["steps"] = 0  # instead of those that the file has
    of_pretraining["documents"] = reading.pop("documents", None)
    return StudyConfig(
        reading=_changed(config.reading, reading),
        study=_changed(config.study, of_study),
        tokenizer=_changed(config.tokenizer, {**of_tokenizer, "vocab": vocab}),
        pretrain=[_changed(phase, of_pretraining) for phase in config.pretrain],
        finetune=_changed(config.finetune, of_finetuning),
    )


def _changed(part: Any, values: dict[str, Any]) -> Any:
    """The part with what was given; what was written with commas is a list there."""
    given = {key: value for key, value in values.items() if value is not None}
    lists = {key: list(value) for key, value in given.items() if isinstance(value, tuple)}
    return dataclasses.replace(part, **{**given, **lists})
