"""The report of a study: one HTML file that needs nothing else, and the table beside it."""

import csv
import io
import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from headstart import __version__
from headstart.data.written_tables import is_formula
from headstart.errors import IntegrityError
from headstart.report import study_charts, wording
from headstart.report.chart_parts import arm_marks
from headstart.storage.atomic import atomic_write
from headstart.study.record import Run, Savings, StudyRecord, Timing

Cost = tuple[str, int, int | None, float, float | None]
MOST_CLASSES = 8  # of a confusion matrix that is shown whole
MOST_TRIALS = 1_500  # rows of the table of trials; results.csv has them all


def write_report(directory: Path) -> Path:
    """Write report.html and results.csv from the study.json of a directory, and return the report's path."""
    directory = Path(directory)
    study, path = StudyRecord.load(directory), directory / "report.html"
    page = report_page(study, *_timing(directory))
    for target, text in ((directory / "results.csv", results_csv(study)), (path, page)):
        atomic_write(target, text.encode())
    return path


def directory_page(directory: Path) -> str:
    """The page of the study in a directory; nothing is written."""
    return report_page(StudyRecord.load(directory), *_timing(directory))


def _timing(directory: Path) -> tuple[Timing | None, str]:
    """The measured times, or why they cannot be read, which the page says."""
    try:
        return Timing.load(directory), ""
    except IntegrityError as error:
        return None, error.what


def report_page(study: StudyRecord, timing: Timing | None = None, timing_error: str = "") -> str:
    """The page as text; the same results give the same text."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, finalize=_finalized,
    )  # fmt: skip
    functions = {name: function for name, function in vars(wording).items() if callable(function)}
    environment.filters |= {**functions, "cut": wording.shown, "plain": plain, "command_line": shlex.join}
    environment.filters["class_shares"] = class_shares
    return environment.get_template("template.html").render(
        study=study, timing=timing, timing_error=timing_error, version=__version__, most_trials=MOST_TRIALS,
        savings=savings_by_pair(study), matrices=confusion_tables(study), costs=costs(study, timing),
        settings=settings(study.config), **_charts(study),
    )  # fmt: skip


def _finalized(value: Any) -> Any:
    """Makes every text of the template harmless before it is escaped."""
    return wording.shown(value, 20_000) if isinstance(value, str) and not isinstance(value, Markup) else value


def _charts(study: StudyRecord) -> dict[str, Any]:
    marks = arm_marks(study.arms)
    largest, shared = max(study.budgets), study_charts.epochs_limits(study, *study.budgets)
    smaller = [budget for budget in study.budgets if budget != largest]
    others = {budget: study_charts.epochs_chart(study, marks, budget, shared) for budget in smaller}
    curves = [study_charts.pretraining_chart(study, marks, measure) for measure in ("bits_per_byte", "loss")]
    readings = dict.fromkeys(difference.reading for difference in study.differences)
    return {
        "marks": marks,
        "largest": largest,
        "over_epochs": study_charts.epochs_chart(study, marks, largest),
        "over_epochs_elsewhere": {budget: chart for budget, chart in others.items() if chart},
        "over_labels": study_charts.labels_chart(study, marks),
        "forests": {reading: study_charts.forest_chart(study, marks, reading) for reading in readings},
        "pretraining_charts": [chart for chart in curves if chart],
    }


# ---- tables: the record in, rows for the template out --------------------------------------------------------


def savings_by_pair(study: StudyRecord) -> list[tuple[str, str, list[Savings]]]:
    """What each arm saves against another, budget by budget."""
    pairs = dict.fromkeys((row.arm, row.against) for row in study.savings)
    rows = sorted(study.savings, key=lambda row: row.budget)
    return [(*pair, [row for row in rows if (row.arm, row.against) == pair]) for pair in pairs]


def confusion_tables(study: StudyRecord) -> list[tuple[str, list[Any], list[Any]]]:
    """Each arm with its matrix at the largest budget, unless that is too large, and its most frequent mistakes.

    Beside each count stands its share of the row.
    """
    labels, tables = study.data.labels, []
    for confusion in study.confusion:
        if [len(row) for row in confusion.matrix] != [len(labels)] * len(labels):
            continue
        rows = [
            (label, [(number, number / (sum(row) or 1)) for number in row])
            for label, row in zip(labels, confusion.matrix, strict=True)
        ]
        mistakes = [
            (true, labels[column], number, share)
            for row, (true, cells) in enumerate(rows)
            for column, (number, share) in enumerate(cells)
            if column != row and number
        ]
        mistakes = sorted(mistakes, key=lambda mistake: -mistake[2])[:10]
        tables.append((confusion.arm, rows if len(labels) <= MOST_CLASSES else [], mistakes))
    return tables


def costs(study: StudyRecord, timing: Timing | None) -> list[Cost]:
    """What the pretraining and each arm took: runs, tokens, operations counted, seconds measured."""
    rows, timing = [], timing or Timing()
    for family in dict.fromkeys(run.family for run in study.pretraining):
        runs = [run for run in study.pretraining if run.family == family]
        rows.append(_cost(f"pretraining, {family}", runs, sum(run.tokens for run in runs), timing.pretraining))
    for arm in study.arms:
        trials = [trial for trial in study.trials if trial.arm == arm.name]
        if trials:
            rows.append(_cost(arm.name, trials, None, timing.trials))
    return rows


def _cost(what: str, runs: Sequence[Run], tokens: int | None, times: dict[str, float | None]) -> Cost:
    measured = [seconds for run in runs if (seconds := times.get(run.name)) is not None]
    return what, len(runs), tokens, sum(run.operations for run in runs), sum(measured) if measured else None


def class_shares(classes: dict[str, int], most: int = 12) -> list[tuple[str, int]]:
    """The most frequent classes, and one entry for the rest."""
    ranked = sorted(classes.items(), key=lambda entry: -entry[1])
    if len(ranked) <= most:
        return list(classes.items())
    rest = ranked[most - 1 :]
    return [*ranked[: most - 1], (f"{len(rest)} others", sum(number for _, number in rest))]


def settings(config: dict[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """The configuration as titled lists of plain keys and values."""
    groups = []
    for title, group in config.items():
        parts = group if isinstance(group, list) else [group]
        for number, part in enumerate(parts, start=1):
            name = f"{title} {number}" if len(parts) > 1 else title
            rows = part.items() if isinstance(part, dict) else [("", part)]
            if rows:
                groups.append((name, [(key, plain(value)) for key, value in rows]))
    return groups


def plain(value: Any) -> str:
    """A setting for a reader: lists with commas, a dash for nothing."""
    if isinstance(value, list) and value:
        return ", ".join(plain(part) for part in value)
    if value in (None, "", []):
        return wording.NOTHING
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# ---- results.csv: one number a row, safe to open in a spreadsheet --------------------------------------------

COLUMNS = [
    "record", "arm", "against", "reading", "budget", "seed", "seeds", "failed", "status", "measure", "value", "low",
    "high", "p", "p_holm", "chosen", "steps", "epochs", "operations", "error",
]  # fmt: skip


def results_csv(study: StudyRecord) -> str:
    """The table of a study: `record` is trial, score or difference, `measure` says what `value` is a share of.

    Shares are fractions, a failed trial has a row without a value, text that could be a formula begins with '.
    """
    buffer = io.StringIO()
    table = csv.DictWriter(buffer, COLUMNS, lineterminator="\n", extrasaction="ignore")
    table.writeheader()
    for row in _rows(study):
        table.writerow({name: _cell(value) for name, value in row.items()})
    return buffer.getvalue()


def _rows(study: StudyRecord) -> Iterator[dict[str, Any]]:
    for trial in study.trials:
        for measure in ("accuracy", "macro_f1"):
            yield {"record": "trial", **vars(trial), "measure": measure, "value": getattr(trial, measure)}
    for score in study.scores:
        for measure in ("accuracy", "macro_f1", f"{study.metric}_without_leaks"):
            if share := getattr(score, measure):
                yield {"record": "score", **vars(score), "measure": measure, **vars(share)}
    for difference in study.differences:
        yield {"record": "difference", "measure": study.metric, **vars(difference)}


def _cell(value: Any) -> Any:
    """Numbers stay numbers; text is harmless to the eye and to a spreadsheet."""
    if not isinstance(value, str):
        return value
    return ("'" if is_formula(value) else "") + wording.shown(value)
