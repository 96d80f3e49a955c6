"""The report of a study: one HTML file that needs nothing else, and the table beside it."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from headstart import __version__
from headstart.errors import IntegrityError
from headstart.report import page_parts, wording
from headstart.report.arm_marks import arm_marks
from headstart.report.epochs_chart import epochs_chart, epochs_limits
from headstart.report.forest_chart import forest_chart
from headstart.report.study_charts import labels_chart, pretraining_chart
from headstart.report.study_file import Study, Timing, read_study, read_timing
from headstart.report.tables import results_csv
from headstart.text.aside import written_aside

_FILTERS = (
    "count", "decimals", "duration", "interval", "operations", "percent", "plural", "points",
    "points_interval", "probability", "sentence", "short_number", "size", "whole_percent",
)  # fmt: skip


def write_report(directory: Path) -> Path:
    """Write report.html and results.csv from the study.json of a directory, and return the report's path."""
    directory = Path(directory)
    study = read_study(directory)
    try:
        timing, clock_error = read_timing(directory), ""
    except IntegrityError as error:  # only the measured seconds are lost: the page says so
        timing, clock_error = None, error.what
    page, path = report_page(study, timing, clock_error), directory / "report.html"
    for target, text in ((directory / "results.csv", results_csv(study)), (path, page)):
        with written_aside(target) as file:
            file.write(text.encode())
    return path


def report_page(study: Study, timing: Timing | None = None, clock_error: str = "") -> str:
    """The page as text; the same results give the same text."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalized,
    )
    environment.filters |= {name: getattr(wording, name) for name in _FILTERS}
    environment.filters["cut"] = wording.shown
    environment.globals |= {"parts": page_parts, "version": __version__}
    template = environment.get_template("template.html")
    return template.render(study=study, timing=timing, clock_error=clock_error, **_charts(study))


def _finalized(value: Any) -> Any:
    """What every expression of the template goes through before it is escaped."""
    return wording.shown(value, 20_000) if isinstance(value, str) and not isinstance(value, Markup) else value


def _charts(study: Study) -> dict[str, Any]:
    marks = arm_marks(study.arms)
    largest, shared = max(study.budgets), epochs_limits(study)
    others = {
        budget: epochs_chart(study, marks, budget, shared) for budget in study.budgets if budget != largest
    }
    readings = dict.fromkeys(difference.reading for difference in study.differences)
    return {
        "marks": marks,
        "largest": largest,
        "over_epochs": epochs_chart(study, marks, largest),
        "over_epochs_elsewhere": {budget: chart for budget, chart in others.items() if chart},
        "over_labels": labels_chart(study, marks),
        "forests": {reading: forest_chart(study, marks, reading) for reading in readings},
        "pretraining_charts": [
            chart for key in ("bits_per_byte", "loss") if (chart := pretraining_chart(study, marks, key))
        ],
    }
