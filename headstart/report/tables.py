"""results.csv: every trial, score and difference, one number a row, safe to open in a spreadsheet."""

import csv
import io
from collections.abc import Iterator
from typing import Any

from headstart.report.study_file import Estimate, Study
from headstart.report.wording import shown

COLUMNS = [
    "record", "arm", "against", "reading", "budget", "seed", "seeds", "failed", "status", "measure", "value", "low",
    "high", "p", "p_holm", "rate", "steps", "epochs", "operations", "error",
]  # fmt: skip
# A cell that begins so is a formula to a spreadsheet; the full-width forms count too.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def results_csv(study: Study) -> str:
    """The table of a study: `record` is trial, score or difference, `measure` says what `value` is a share of.

    Shares are fractions, a failed trial has a row without a value, text that could be a formula begins with '.
    """
    buffer = io.StringIO()
    table = csv.DictWriter(buffer, COLUMNS, lineterminator="\n")
    table.writeheader()
    for row in _rows(study):
        table.writerow({name: _cell(value) for name, value in row.items()})
    return buffer.getvalue()


def _rows(study: Study) -> Iterator[dict[str, Any]]:
    for trial in study.trials:
        about = {
            "record": "trial", "arm": trial.arm, "budget": trial.budget, "seed": trial.seed, "status": trial.status,
            "rate": trial.rate, "steps": trial.steps, "epochs": trial.epochs, "operations": trial.operations,
            "error": trial.error,
        }  # fmt: skip
        yield about | {"measure": "accuracy", "value": trial.accuracy}
        yield about | {"measure": "macro_f1", "value": trial.macro_f1}
    for score in study.scores:
        about = {
            "record": "score", "arm": score.arm, "budget": score.budget, "seeds": score.seeds, "failed": score.failed,
        }  # fmt: skip
        for measure in ("accuracy", "macro_f1", "accuracy_without_leaks"):
            found: Estimate | None = getattr(score, measure)
            if found:
                bounds = {"value": found.value, "low": found.low, "high": found.high}
                yield about | {"measure": measure, **bounds}
    for d in study.differences:
        yield {
            "record": "difference", "arm": d.arm, "against": d.against, "reading": d.reading, "budget": d.budget,
            "measure": "accuracy", "value": d.value, "low": d.low, "high": d.high, "p": d.p, "p_holm": d.p_holm,
        }  # fmt: skip


def _cell(value: Any) -> Any:
    """Numbers stay numbers; text is harmless to the eye and to a spreadsheet."""
    if not isinstance(value, str):
        return value
    return ("'" if value.lstrip(" ").startswith(_FORMULA) else "") + shown(value)
