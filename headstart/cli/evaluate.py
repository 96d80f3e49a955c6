"""`headstart evaluate` and `headstart compare`: the scores of one run, or of two, on other data."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Column
from rich.text import Text

from headstart.cli.consoles import (
    form_of_picture,
    log,
    open_model,
    open_run,
    plain_table,
    spinner,
    table_console,
    write_picture,
)
from headstart.cli.options import (
    BEAM,
    RUN_READING,
    BeamFlags,
    Common,
    CommonFlags,
    Length,
    RunPath,
    RunReadingFlags,
    conflict,
)
from headstart.config.generation import BEAM_OF_FIVE
from headstart.errors import visible
from headstart.progress import progress_bar

if TYPE_CHECKING:
    from headstart.inference.class_scores import ClassScore
    from headstart.inference.compare import Comparison
    from headstart.inference.evaluate import Evaluation
    from headstart.inference.mistakes import Mistake

LABELLED = ("classification", "multilabel", "regression")
MOST_CLASSES = 12  # of a confusion matrix that is printed
SHOWN = 5  # of the mistakes


def evaluate(
    run: RunPath,
    *,
    data: str,
    length: Length = None,
    mistakes: Path | None = None,
    picture: Path | None = None,
    generation: BeamFlags = BEAM,
    reading: RunReadingFlags = RUN_READING,
    common: CommonFlags = Common(),
) -> None:
    """The scores of a run on data that it has not seen.

    A causal run gives loss, perplexity and bits per byte; a masked one the loss and accuracy at masked tokens, and
    of sentence pairs where it was trained on them; a fine-tuned one the metrics of its task; a translation run the
    loss, and BLEU and chrF by sacreBLEU, from 0 to 100, with their signatures. Shares are fractions.

    Labelled rows give besides: 95 % intervals (Wilson's for shares, the bootstrap over rows for the rest), the scores
    of each class, the confusion matrix, and the wrong answers that the run was surest of.

    For example:

        headstart evaluate runs/base --data other.txt
        headstart evaluate runs/tuned --data test.jsonl --json
        headstart evaluate runs/tuned --data test.jsonl --picture confusion.svg --mistakes mistakes.csv
        headstart evaluate runs/base --data novel.txt --documents file --length 1024
        headstart evaluate runs/english-french --data test.tsv --beam 5

    Args:
        data: A corpus for a language model, labelled rows for a fine-tuned run, pairs for a translation
            run; - for standard input.
        length: Tokens to read at once (default: as trained). A causal run then gives the loss by position
            too; beyond the trained length that shows how far its positions carry.
        mistakes: A .jsonl, .csv or .tsv to write all wrong answers to, with text, label and probabilities, those
            that the run was surest of first. In .csv and .tsv text that could be a formula begins with '.
        picture: An .svg or .png to draw the confusion matrix in, for a run with classes.
    """
    from headstart.data.written_tables import check_form, table_writer
    from headstart.inference.evaluate import evaluate_run

    form = form_of_picture(picture, ".svg", ".png") if picture else ""
    if mistakes:
        check_form(mistakes)
    loaded, machine = open_model(run, "evaluate", common)
    objective = loaded.config.objective
    if (picture and objective != "classification") or (mistakes and objective not in LABELLED):
        what = f"--{'picture' if picture and objective != 'classification' else 'mistakes'} of a {objective} run"
        raise conflict(what, "leave it out: it is for runs that are fine-tuned on labels")
    with progress_bar(f"evaluating {run} on {data}") as on_share:
        evaluation = evaluate_run(
            loaded, data, machine, length=length, log=log, on_share=on_share,
            generation=dataclasses.replace(BEAM_OF_FIVE, **generation.given()),
            reading=dataclasses.replace(loaded.config.data, **reading.given()),
        )  # fmt: skip
    if picture:
        from headstart.report.confusion import confusion_picture

        write_picture(picture, confusion_picture(evaluation.labels, evaluation.report.confusion, form), "--picture")
    if mistakes:
        with table_writer(mistakes) as write:
            for one in evaluation.mistakes:
                write(one.as_row())
    if common.json:
        print(json.dumps({"run": str(run), "objective": objective, **evaluation.as_json()}))
        return
    is_text = objective in ("causal", "masked", "masked-nsp")
    scores = {**evaluation.metrics, "predicted tokens" if is_text else "rows": evaluation.count}
    for key, value in scores.items():
        low, high = evaluation.report.intervals.get(key, (None, None))
        interval = "" if low is None else f"   {low:.4f} to {high:.4f}"
        print(f"{key:<20}{value:,}" if isinstance(value, int) else f"{key:<20}{value:.4f}{interval}")
    _print_classes(evaluation)
    for name, signature in evaluation.details.get("signatures", {}).items():
        print(f"{name:<20}{signature}")
    if "buckets" not in evaluation.details:
        return
    rows = []
    for bucket in evaluation.details["buckets"]:
        loss = "–" if bucket["loss"] is None else f"{bucket['loss']:.4f}"
        beyond = "beyond the trained length" if bucket["first"] > evaluation.details["trained_length"] else ""
        rows.append((f"{bucket['first']:,}–{bucket['last']:,}", loss, f"{bucket['count']:,}", beyond))
    print()
    right = [Column(title, justify="right") for title in ("loss", "tokens")]
    table_console().print(plain_table("tokens read", *right, "", rows=rows))


def _print_classes(evaluation: "Evaluation") -> None:
    """The scores of each class with their intervals, the confusion matrix, and the worst mistakes."""
    console, report = table_console(), evaluation.report
    if report.classes:
        print()
        rows = [[_cell(one.label), _cell(f"{one.rows:,}"), *map(_cell, _with_intervals(one))] for one in report.classes]
        console.print(plain_table("", numbers=["rows", "precision", "recall", "F1"], rows=rows))
    if report.confusion and len(report.confusion) <= MOST_CLASSES:
        labels = [_cell(label) for label in evaluation.labels]
        columns = [Column(label, justify="right") for label in labels]
        print()
        cells = [[label, *(_cell(str(n)) for n in row)] for label, row in zip(labels, report.confusion, strict=True)]
        console.print(plain_table("true, predicted", *columns, rows=cells))
    if evaluation.mistakes:
        what = "largest errors" if not evaluation.labels else "wrong answers that it was surest of"
        print(f"\n{min(SHOWN, len(evaluation.mistakes))} of {len(evaluation.mistakes):,} mistakes: the {what}")
        sure = "probability" if evaluation.labels else "error"
        worst = [map(_cell, _row(one)) for one in evaluation.mistakes[:SHOWN]]
        console.print(plain_table("row", sure, "label", "predicted", "text", rows=worst))


def _with_intervals(one: "ClassScore") -> list[str]:
    shares = (one.precision, one.precision_interval), (one.recall, one.recall_interval), (one.f1, one.f1_interval)
    return [f"{value:.3f} ({low:.3f} to {high:.3f})" for value, (low, high) in shares]


def _row(one: "Mistake") -> list[str]:
    text = one.text if one.text_b is None else f"{one.text} | {one.text_b}"
    return [one.where, f"{one.confidence:.3f}", _label(one.label), _label(one.predicted), _short(text)]


def _cell(text: str) -> Text:
    return Text(visible(text))


def _label(label: object) -> str:
    return f"{label:.4g}" if isinstance(label, float) else ", ".join(label) if isinstance(label, tuple) else str(label)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 80 else text[:79] + "…"


def compare(
    first: RunPath,
    second: RunPath,
    *,
    data: str,
    length: Length = None,
    generation: BeamFlags = BEAM,
    reading: RunReadingFlags = RUN_READING,
    common: CommonFlags = Common(),
) -> None:
    """Two runs on the same data: the scores of each, and the difference with its 95 % interval.

    Fine-tuned runs of one task are compared text by text (with McNemar's exact test where texts are right or
    wrong), causal runs by bits per byte, document by document, or block by block where there are few documents;
    translators by BLEU and chrF, from 0 to 100, with sacreBLEU's paired bootstrap. The difference is the second
    score minus the first. It is that of all the settings in which the runs differ: they are listed.

    For example:

        headstart compare runs/scratch runs/tuned --data test.jsonl
        headstart compare runs/base runs/second --data other.txt --json
        headstart compare runs/french runs/french-2 --data test.tsv --beam 1

    Args:
        data: Labelled rows, a corpus for causal runs, or pairs for translators.
        length: Tokens to read at once (default: each as trained).
    """
    from headstart.inference.compare import compare as compared
    from headstart.inference.metrics import CONFIDENCE

    (one, machine), (other, _) = (open_run(path, "compare", common) for path in (first, second))
    with spinner(f"comparing on {data}"):
        how = dataclasses.replace(one.config.data, **reading.given())
        beams = dataclasses.replace(BEAM_OF_FIVE, **generation.given())
        comparison = compared(one, other, data, machine, length=length, generation=beams, reading=how, log=log)
    names = (str(first), str(second))
    if not common.json:
        _print(names, comparison)
        return
    of = {"confidence": CONFIDENCE, "unit": comparison.unit}
    differences = [
        {"measure": measure, **of, **difference._asdict(), "better": comparison.better(measure)}
        for measure, difference in comparison.differences.items()
    ]
    answer = {
        "runs": [{"run": name, "metrics": m} for name, m in zip(names, comparison.metrics, strict=True)],
        "difference": differences[0],
        "differences": differences,
        "verdict": comparison.verdict,
        "count": comparison.unit_count,
        "agreement": comparison.agreement or None,
        "bootstrap": comparison.bootstrap or None,
        "settings": {key: list(values) for key, values in comparison.settings.items()},
    }
    print(json.dumps(answer))


def _print(names: tuple[str, str], comparison: "Comparison") -> None:
    console = Console(highlight=False, soft_wrap=True)
    headers = [Column(Text(visible(name))) for name in names]
    first, second = comparison.metrics
    rows = [(measure, f"{first[measure]:.4f}", f"{second[measure]:.4f}") for measure in first]
    console.print(plain_table("", *headers, rows=rows))
    console.print("\n" + "\n".join(map(visible, comparison.verdict)))
    if comparison.agreement:
        counts = comparison.agreement
        console.print(
            f"Of {comparison.unit_count:,} texts both have {counts['both_right']:,} right, the first alone "
            f"{counts['only_first_right']:,}, the second alone {counts['only_second_right']:,}, neither "
            f"{counts['neither_right']:,}; McNemar's exact p = {counts['mcnemar_p']:.4g}."
        )
    for name, signature in comparison.bootstrap.get("signatures", {}).items():
        console.print(f"{name}  {signature}")
    if comparison.settings:
        console.print("\nSettings that differ")
        settings = [
            [Text(visible(text if len(text) <= 60 else text[:57] + "…")) for text in (key, *map(str, values))]
            for key, values in comparison.settings.items()
        ]
        console.print(plain_table("", "first", "second", rows=settings))
