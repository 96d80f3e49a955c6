"""What the page shows of a study beside its charts: results in, rows for the template out."""

import json
import shlex
from dataclasses import dataclass
from typing import Any

from headstart.report.study_file import Confusion, Data, HeadStart, Pretraining, Score, Study, Timing, Trial
from headstart.report.wording import NOTHING, count, duration, plural, short_number

MOST_CLASSES = 8  # of a confusion matrix that is shown whole
MOST_TRIALS = 1_500  # rows of the table of trials; results.csv has them all


@dataclass(frozen=True)
class Failure:
    what: str
    error: str


def failures(study: Study) -> list[Failure]:
    """Whatever did not end well, with its error."""
    runs = [
        Failure(f"pretraining {run.name}", run.error or f"it is {run.status}")
        for run in study.pretraining
        if run.status != "done"
    ]
    return runs + [
        Failure(f"{t.arm}, {plural(t.budget, 'label')}, seed {t.seed}", t.error or f"it is {t.status}")
        for t in study.trials
        if t.status != "done"
    ]


def is_said(sentence: str, sentences: list[str]) -> bool:
    """Whether other sentences hold this one, but for its first letter and its full stop."""
    return any(sentence[1:].rstrip(".") in other for other in sentences)


def scores_by_budget(study: Study) -> list[tuple[int, list[Score]]]:
    """The scores of each budget, in the order of the arms."""
    order = {arm.name: place for place, arm in enumerate(study.arms)}
    budgets = sorted({score.budget for score in study.scores})
    return [
        (
            budget,
            sorted(
                (score for score in study.scores if score.budget == budget),
                key=lambda score: order.get(score.arm, len(order)),
            ),
        )
        for budget in budgets
    ]


def head_starts(study: Study) -> list[tuple[str, str, list[HeadStart]]]:
    """What each arm saves against another, budget by budget."""
    pairs = dict.fromkeys((found.arm, found.against) for found in study.head_start)
    return [
        (
            arm,
            against,
            sorted(
                (found for found in study.head_start if (found.arm, found.against) == (arm, against)),
                key=lambda found: found.budget,
            ),
        )
        for arm, against in pairs
    ]


def labels_needed(found: HeadStart, budgets: list[int]) -> str:
    """The labels that the other arm would need, with an interval that may be open at either end."""
    labels, fewest, most = found.labels, count(min(budgets)), count(max(budgets))
    if labels is None or (labels.value is None and not labels.beyond):
        return NOTHING
    if labels.value is None:
        return f"more than {most}"
    low = f"fewer than {fewest}" if labels.low is None else count(labels.low)
    high = f"more than {most}" if labels.high is None else count(labels.high)
    if labels.below:
        return f"at most {fewest}"
    return f"{count(labels.value)} ({low} to {high})"


def epochs_needed(found: HeadStart) -> str:
    """After how many epochs the arm is where the other is at its best, and after how many that one is."""
    epochs = found.epochs
    if epochs is None or epochs.value is None:
        return NOTHING
    other = f" ({found.against}: {short_number(epochs.scratch)})" if epochs.scratch is not None else ""
    return f"{short_number(epochs.value)}{other}"


@dataclass(frozen=True)
class ConfusionTable:
    """A matrix with the share of its row beside each count, or the commonest mistakes where it is too large."""

    arm: str
    rows: list[tuple[str, list[tuple[int, float]]]]
    mistakes: list[tuple[str, str, int, float]]


def confusion_tables(study: Study) -> list[ConfusionTable]:
    """The confusions of each arm, at the largest budget."""
    labels = study.data.labels
    return [_confusion_table(found, labels) for found in study.confusion if _fits(found, len(labels))]


def _fits(found: Confusion, classes: int) -> bool:
    return len(found.matrix) == classes and all(len(row) == classes for row in found.matrix)


def _confusion_table(found: Confusion, labels: list[str]) -> ConfusionTable:
    rows = [
        (label, [(number, number / sum(row) if sum(row) else 0.0) for number in row])
        for label, row in zip(labels, found.matrix, strict=True)
    ]
    if len(labels) <= MOST_CLASSES:
        return ConfusionTable(found.arm, rows, [])
    mistakes = [
        (true, labels[column], number, share)
        for place, (true, cells) in enumerate(rows)
        for column, (number, share) in enumerate(cells)
        if column != place and number
    ]
    return ConfusionTable(found.arm, [], sorted(mistakes, key=lambda mistake: -mistake[2])[:10])


@dataclass(frozen=True)
class Cost:
    what: str
    runs: int
    tokens: float | None
    operations: float | None
    seconds: float | None


def costs(study: Study, timing: Timing | None) -> list[Cost]:
    """What the pretraining and each arm took: operations counted, seconds measured."""
    rows = []
    clock = timing or Timing()
    for family in dict.fromkeys(run.family for run in study.pretraining):
        runs = [run for run in study.pretraining if run.family == family]
        seconds = [clock.pretraining.get(run.name) for run in runs]
        rows.append(_cost(f"pretraining, {family}", runs, [run.tokens for run in runs], seconds))
    for arm in study.arms:
        trials = [trial for trial in study.trials if trial.arm == arm.name]
        if trials:
            rows.append(_cost(arm.name, trials, [], [clock.trials.get(trial.name) for trial in trials]))
    return rows


def _cost(
    what: str,
    runs: "list[Pretraining] | list[Trial]",
    tokens: "list[int | None]",
    seconds: "list[float | None]",
) -> Cost:
    return Cost(what, len(runs), _sum(tokens), _sum([run.operations for run in runs]), _sum(seconds))


def _sum(numbers: Any) -> float | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def time_sentence(timing: Timing | None) -> str:
    """How long the study took and where, as far as that is known."""
    if timing is None:
        return ""
    machine = ", ".join(f"{key} {plain(value)}" for key, value in timing.machine.items())
    jobs = f", {plural(timing.jobs, 'job')} side by side" if timing.jobs else ""
    threads = f", {plural(timing.threads, 'thread')} each" if timing.threads else ""
    took = f"The whole study took {duration(timing.seconds)}" if timing.seconds is not None else "Measured"
    return f"{took}{jobs}{threads}{f' ({machine})' if machine else ''}."


def leak_rows(data: Data) -> list[tuple[str, int | None]]:
    """Each kind of leak in words, and how many rows of the first are in the second."""
    return [
        (
            " also in ".join(key.removeprefix("near_").split("_in_", 1))
            + (", nearly the same" if key.startswith("near_") else ""),
            number,
        )
        for key, number in data.leaks.items()
    ]


def class_shares(classes: dict[str, int], most: int = 12) -> list[tuple[str, int]]:
    """The commonest classes, and one entry for the rest."""
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
        for place, part in enumerate(parts, start=1):
            name = f"{title} {place}" if len(parts) > 1 else title
            rows = part.items() if isinstance(part, dict) else [("", part)]
            if not rows:
                continue  # a table of changes where nothing was changed
            groups.append((name, [(key, plain(value)) for key, value in rows]))
    return groups


def plain(value: Any) -> str:
    """A setting as one reads it: lists with commas, nothing for null."""
    if isinstance(value, list) and value:
        return ", ".join(plain(part) for part in value)
    if value in (None, "", []):
        return NOTHING
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def command_line(command: list[str]) -> str:
    """The command as it can be typed again."""
    return shlex.join(command)
