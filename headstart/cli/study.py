"""`headstart study`: does pretraining pay, and how much? `headstart report` writes its page again."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from headstart.cli import options
from headstart.cli.consoles import table_console
from headstart.cli.options import Common, CommonFlags, Switch, flags
from headstart.config.study import SETTINGS
from headstart.config.training import CorpusFiles
from headstart.errors import RunFailed, visible
from headstart.progress import log as log_line
from headstart.progress import long_task

if TYPE_CHECKING:
    from headstart.study.arguments import Asked
    from headstart.study.record import StudyRecord

StudyFlags: Any
StudyFlags, STUDY = flags(SETTINGS.values())


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
    plan: Switch = False,
    reading: options.ReadingFlags = options.READING,
    overrides: options.ModelFlags = options.MODEL,
    common: CommonFlags = Common(),
) -> None:
    """Compare pretraining with scratch, TF-IDF and more, over label budgets and seeds; end with a verdict.

    Without files it works on the embedded corpus, in minutes. Run the same command again to resume.

    For example:

        headstart study
        headstart study --demo null --out studies/null
        headstart study --corpus reviews.txt --train train.jsonl --valid valid.jsonl --test test.jsonl
        headstart study --corpus news.txt --train labelled.csv --objective causal,masked --budgets 50,200,1600 --jobs 4
        headstart study --corpus reviews.txt --train train.csv --time 2h --plan
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
        plan: Say what would be done and how long it takes, and stop there: nothing is trained or written.
    """
    from headstart.full_study import progress_of
    from headstart.report.page import write_report
    from headstart.study.arguments import asked_for
    from headstart.study.study import study as run

    given = {**own.given(), **reading.given(), **overrides.given(), **common.given}
    given.pop("device", None)
    more = (["shuffled"] if shuffled else []) + (["scratch-long"] if equal_compute else [])
    asked = asked_for(file, given, corpus=corpus, more_arms=more)
    if plan:
        _print_plan(asked, common)
        return
    out = out or asked.out
    with long_task("study") as (log, update):
        record = run(
            asked.config, out=out, model=asked.model, jobs=jobs, engine=engine, ray_address=ray_address,
            device=common.device, command=_command(), given=asked.given, log=log, on_progress=progress_of(update),
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


def _print_plan(asked: "Asked", common: Common) -> None:
    """The sentences of the recipe, and a line for each kind of task."""
    from headstart.cli.plan_tables import forecast_table
    from headstart.planning.figures import format_duration
    from headstart.study.given_data import given_data
    from headstart.study.recipes.plan import plan_of

    planned = plan_of(asked, given_data(asked.config, None, None, None, None), common.device, log_line)
    if common.json:
        print(json.dumps(dataclasses.asdict(planned), ensure_ascii=False))
        return
    for sentence in planned.sentences:
        print(visible(sentence))
    # A recipe has measured this machine: its sentences have the time, and not a second one from a table.
    table_console().print(forecast_table(dataclasses.asdict(planned.forecast), has_times=not planned.has_recipe))
    if not planned.has_recipe:
        print(f"\nIn all about {format_duration(planned.forecast.seconds)}; reading and tokenising besides.")
    print("Nothing was trained. Without --plan the study runs.")


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
