"""A study from its keywords to its report: `headstart.study(...)`, as `headstart study` does it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headstart.config.schema import takes
from headstart.config.study import StudyConfig
from headstart.data.in_memory import Given, is_one
from headstart.errors import Log, in_python
from headstart.machine import Device
from headstart.progress import Update, long_task
from headstart.report.page import write_report
from headstart.study.arguments import EVERY, Asked, asked_for
from headstart.study.record import StudyRecord
from headstart.study.study import Engine, OnProgress, StudyProgress
from headstart.study.study import study as run_study


@takes(EVERY.values())
def study(
    config: StudyConfig | str | Path | None = None,
    *,
    corpus: Given | Sequence[Given] | None = None,
    train: Given | None = None,
    valid: Given | None = None,
    test: Given | None = None,
    out: str | Path | None = None,
    shuffled: bool = False,
    equal_compute: bool = False,
    jobs: int | None = None,
    engine: Engine = "processes",
    ray_address: str | None = None,
    device: Device = "auto",
    model: Mapping[str, object] | None = None,
    command: list[str] | None = None,
    log: Log | None = None,
    on_progress: OnProgress | None = None,
    **given: Any,
) -> StudyRecord:
    """Compare pretraining with scratch, TF-IDF and more, over label budgets and seeds, and write the report.

    Without data it works on the embedded corpus. `config` is a STUDY.toml or its settings. Data are paths, frames or
    datasets. Every flag of `headstart study` is a keyword, and wins over `config`: `time="30m"`,
    `text_column="review"`, `budgets=[50, 200]`. The same call again resumes. Progress goes to standard error, unless
    `log` and `on_progress` take it. Returns the results, which are in OUT/study.json too; OUT/report.html shows them,
    OUT/model is the model to use: `headstart.load(OUT)`.
    """
    more = (["shuffled"] if shuffled else []) + (["scratch-long"] if equal_compute else [])
    asked, tables = _asked(config, {"corpus": corpus, "train": train, "valid": valid, "test": test}, given, more)
    directory = Path(out or asked.out)

    def run(log: Log, on_progress: OnProgress) -> StudyRecord:
        return run_study(
            asked.config, out=directory, **tables, model={**asked.model, **(model or {})}, jobs=jobs, engine=engine,
            ray_address=ray_address, device=device, command=command, given=asked.given, log=log,
            on_progress=on_progress,
        )  # fmt: skip

    if log is None and on_progress is None:
        with long_task("study") as (say, update):
            record = run(lambda line: say(in_python(line)), progress_of(update))
    else:
        record = run(log or (lambda line: None), on_progress or (lambda progress: None))
    write_report(directory)
    return record


def progress_of(update: Update) -> OnProgress:
    """How far a study is, for a bar or a line."""

    def on_progress(now: StudyProgress) -> None:
        running = ", ".join(f"{name} {share:.0%}" for name, share in list(now.running.items())[:3])
        update(now.share, f"{now.finished} of {now.tasks} tasks done  {running}".rstrip())

    return on_progress


def _asked(
    config: StudyConfig | str | Path | None, data: dict[str, Any], given: Mapping[str, Any], more: Sequence[str]
) -> tuple[Asked, dict[str, Any]]:
    """The settings, with what is named by a path; and the tables in memory, which are given beside them."""
    tables = {role: one for role, one in data.items() if one is not None}
    corpus = tables.get("corpus")
    several: list[Any] = [] if corpus is None else [corpus] if is_one(corpus) else list(corpus)
    names = [str(one) for one in several if isinstance(one, str | Path)]
    has_names = len(names) == len(several) and bool(names)
    if has_names:
        del tables["corpus"]
    files = {role: str(tables.pop(role)) for role in ("train", "valid", "test") if _is_path(tables.get(role))}
    asked = asked_for(
        config, {**given, **files}, corpus=names if has_names else None, more_arms=more, has_data=bool(tables)
    )
    return asked, tables


def _is_path(one: object) -> bool:
    return isinstance(one, str | Path)
