"""`headstart study`: does pretraining pay, and how much?"""

import dataclasses
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from headstart.cli.options import (
    Common,
    CommonFlags,
    ModelFlags,
    ModelOverrides,
    Numbers,
    PresetName,
    Rates,
    ReadingFlags,
    ReadingOptions,
    Switch,
    Words,
)
from headstart.errors import RunFailed, UserError, visible

if TYPE_CHECKING:
    from headstart.study.design import StudyConfig
    from headstart.study.study import StudyProgress


def study(
    file: Path | None = None,
    *,
    corpus: Annotated[list[str] | None, Parameter(negative="")] = None,
    train: str | None = None,
    valid: str | None = None,
    test: str | None = None,
    demo: Literal["plain", "null"] | None = None,
    budgets: Numbers | None = None,
    seeds: int | None = None,
    objective: Words | None = None,
    arms: Words | None = None,
    shuffled: Switch = False,
    equal_compute: Switch = False,
    start: Path | None = None,
    preset: PresetName | None = None,
    tokenizer: Path | None = None,
    pretrain_epochs: float | None = None,
    pretrain_steps: int | None = None,
    pretrain_seeds: int | None = None,
    batch_tokens: int | None = None,
    length: int | None = None,
    epochs: float | None = None,
    batch: int | None = None,
    rates: Rates | None = None,
    jobs: int | None = None,
    engine: Literal["processes", "ray"] = "processes",
    ray_address: str | None = None,
    fast: Switch = False,
    out: Path | None = None,
    reading: ReadingFlags = ReadingOptions(),
    overrides: ModelFlags = ModelOverrides(),
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

    Parameters
    ----------
    file
        A STUDY.toml with [study], [tokenizer], [[pretrain]], [finetune] and [model]; flags win over it.
    corpus
        Unlabelled text to pretrain on.
    train
        Labelled rows to learn from; budgets are taken out of them.
    valid
        Labelled rows to choose learning rates by (default: a tenth of train).
    test
        Labelled rows to score on, once (default: a fifth of train).
    demo
        The embedded corpus, or its null variant, in which pretraining cannot help.
    budgets
        Numbers of labels, such as 50,200,1600 (default: 50, 200, 800 and all).
    seeds
        How often each is tried (default: 5; 3 in the demo).
    objective
        What to pretrain by: causal, masked, masked-nsp; several with commas, at equal compute.
    arms
        What to compare: majority, tfidf, scratch, frozen, finetuned, shuffled, scratch-long (default: the first five).
    shuffled
        Add the control: a base pretrained on the same tokens in random order.
    equal_compute
        Add scratch with the pretraining's compute on top, at the largest budget.
    start
        A run to take as a base too: its tokenizer and shape are then everyone's.
    preset
        The shape of the base.
    tokenizer
        A tokenizer's directory (default: one is trained on the corpus).
    pretrain_epochs
        Passes over the corpus (default: 3).
    pretrain_steps
        Updates of the pretraining, instead of epochs.
    pretrain_seeds
        Pretraining runs for each objective (default: 1, which all seeds share).
    batch_tokens
        Tokens in a step of pretraining (default: by the device).
    length
        Tokens of the longest text, and of a block of pretraining (default: the context).
    epochs
        Passes over the labelled rows (default: 10, and at least 160 steps).
    batch
        Texts in a step of fine-tuning (default: 16).
    rates
        The learning rates that every neural arm may choose from (default: three, by the width).
    jobs
        Trials side by side (default: the cores over --threads; 4 on a GPU; with --ray-address, what the cluster has
        room for). The results do not depend on it.
    engine
        What runs them: processes of this machine, or the workers of a Ray cluster (extra `ray`). Nor on this.
    ray_address
        HOST:PORT of a running Ray cluster, or auto on one of its nodes; all nodes have to see the same files (default:
        RAY_ADDRESS, or a Ray of its own on this machine).
    fast
        Give up exact repetition on a GPU for quicker kernels; on a CPU there is nothing to give up. A study
        that was begun with it says so, and goes on only with it.
    out
        The study's directory (default: studies/ and the name of the data).
    """
    from headstart.report.page import write_report
    from headstart.study.study import study as run

    if (valid or test) and not (train or file):
        raise UserError("--valid or --test without --train", fix="give --train too")
    config, model = _config(file, corpus, train, demo)
    given = {key: value for key, value in reading.given().items() if key != "documents"}
    config = dataclasses.replace(config, reading=_changed(config.reading, **given))
    more = (["shuffled"] if shuffled else []) + (["scratch-long"] if equal_compute else [])
    config = dataclasses.replace(
        config,
        study=_changed(
            config.study, preset=preset, objectives=objective and list(objective), seeds=seeds,
            pretrain_seeds=pretrain_seeds, budgets=budgets and list(budgets),
            arms=list(dict.fromkeys([*(arms or config.study.arms), *more])), start=start and str(start),
            seed=common.seed or None, threads=common.threads,
            precision=None if common.precision == "auto" else common.precision,
        ),
        tokenizer=_changed(config.tokenizer, path=tokenizer and str(tokenizer), vocab=overrides.vocab),
        pretrain=[
            _changed(
                phase, epochs=pretrain_epochs, batch_tokens=batch_tokens, length=length,
                steps=0 if pretrain_epochs and pretrain_steps is None else pretrain_steps,
                documents=reading.documents,
            )
            for phase in config.pretrain
        ],
        finetune=_changed(
            config.finetune, train=train, valid=valid, test=test, epochs=epochs, batch=batch, length=length,
            rates=rates and list(rates),
        ),
    )  # fmt: skip
    fields = {key: value for key, value in dataclasses.asdict(overrides).items() if value is not None}
    fields.pop("vocab", None)
    out = out or Path("studies") / (config.study.demo or Path(config.finetune.train).name.split(".")[0])
    with _progress() as (tell, on_progress):
        found = run(
            config, out=out, model={**model, **fields}, jobs=jobs, engine=engine, ray_address=ray_address,
            device=common.device, fast=fast, command=_command(), tell=tell, on_progress=on_progress,
        )  # fmt: skip
    report = write_report(out)
    if common.json:
        print(json.dumps({"out": str(out), "report": str(report), **found}, ensure_ascii=False))
    else:
        _print(found, report)
    failed = sum(trial["status"] == "failed" for trial in (*found["trials"], *found["pretraining"]))
    if failed:
        raise RunFailed(
            f"{failed} of {len(found['trials']) + len(found['pretraining'])} trials and pretrainings failed; "
            f"the first: {_first_error(found)}",
            fix="run the same command again: what is finished is not done again",
        )


def _config(
    file: Path | None, corpus: list[str] | None, train: str | None, demo: str | None
) -> tuple["StudyConfig", dict[str, Any]]:
    """The settings to begin with: a file's, the demo's where nothing is given, or the defaults over the corpus."""
    from headstart.study.design import PretrainPart, StudyConfig
    from headstart.study.settings import demo_config, read_study

    if demo and (file or corpus or train):
        raise UserError(
            "--demo and files at once", fix="give --demo, or a STUDY.toml, or --corpus and --train"
        )
    if file is not None:
        config, model = read_study(file)
        phases = (
            [dataclasses.replace(phase, corpus=corpus) for phase in config.pretrain]
            if corpus
            else config.pretrain
        )
        return dataclasses.replace(config, pretrain=phases), model
    if demo or not (corpus or train):
        return demo_config(null=demo == "null"), {}
    return StudyConfig(pretrain=[PretrainPart(corpus=corpus)] if corpus else []), {}


def _changed(part: Any, **values: Any) -> Any:
    """The part with what was given."""
    return dataclasses.replace(part, **{key: value for key, value in values.items() if value is not None})


_NO_MATTER = ("--out", "--jobs", "--engine", "--ray-address")


def _command() -> list[str]:
    """The command for the record, without what does not bear on the results."""
    words, kept = ["headstart", *sys.argv[1:]], []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in _NO_MATTER:
            skip = True
        elif word != "--json" and not word.startswith(tuple(f"{flag}=" for flag in _NO_MATTER)):
            kept.append(word)
    return kept


@contextmanager
def _progress() -> Iterator[tuple[Any, Any]]:
    """Lines, and a bar over the whole study, on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, highlight=False)
    with Progress(
        TextColumn("study"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[about]}"),
        TimeRemainingColumn(elapsed_when_finished=True), console=console, transient=True,
        disable=not console.is_terminal,
    ) as bar:  # fmt: skip
        task = bar.add_task("study", total=1.0, about="", visible=False)

        def tell(line: str) -> None:
            console.print(visible(line), markup=False, soft_wrap=True)

        def on_progress(progress: "StudyProgress") -> None:
            running = ", ".join(f"{name} {share:.0%}" for name, share in list(progress.running.items())[:3])
            about = f"{progress.finished}/{progress.tasks} done  {running}"
            bar.update(task, completed=progress.done / progress.total, about=about, visible=True)

        yield tell, on_progress


def _print(found: dict[str, Any], report: Path) -> None:
    """The verdict and a table: accuracy by arm and budget."""
    for sentence in found["verdict"]:
        print(visible(sentence))
    scores = {(score["arm"], score["budget"]): score for score in found["scores"]}
    names = [arm["name"] for arm in found["arms"]]
    width = max(map(len, names))
    print(
        f"\n{'accuracy, %':<{width}}" + "".join(f"{f'{budget:,} labels':>24}" for budget in found["budgets"])
    )
    for name in names:
        cells = []
        for budget in found["budgets"]:
            accuracy = scores.get((name, budget), {}).get("accuracy")
            cells.append(
                f"{100 * accuracy['value']:.1f} ({100 * accuracy['low']:.1f} to {100 * accuracy['high']:.1f})"
                if accuracy
                else "–"
            )
        print(f"{name:<{width}}" + "".join(f"{cell:>24}" for cell in cells))
    print(f"\n{report}")


def _first_error(found: dict[str, Any]) -> str:
    failed = [t for t in (*found["pretraining"], *found["trials"]) if t["status"] == "failed"]
    lines = str(failed[0]["error"]).splitlines()
    return lines[-1] if lines[0].startswith("Traceback") else lines[0]
