"""From trials on disk to the record: scores with intervals, differences, savings, verdict. No clock, no chance.

A failed trial is shown and counted, never dropped silently. Test data chooses nothing here.
"""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from headstart.config.study import Metric
from headstart.data.labelled import read_labelled
from headstart.data.labels import LabelMap
from headstart.runs.base_status import BaseStatus, base_status
from headstart.runs.directory import RunDirectory
from headstart.study import record as r
from headstart.study import savings, statistics
from headstart.study.data import StudyData, pretraining_operations
from headstart.study.design import Arm, Pretraining, Trial, arms_of, pairs_of, trials_of
from headstart.study.execution.scheduler import TaskResult
from headstart.study.verdict import verdict

ITEMS = 20
TEXT_CHARACTERS = 600
Ended = dict[str, TaskResult]


def summarise(
    data: StudyData, pretrainings: list[Pretraining], ended: Ended, command: list[str], settings: dict[str, Any]
) -> r.StudyRecord:
    """The whole record."""
    study, arms = data.config.study, arms_of(data.config.study)
    test = read_labelled(data.labelled("test"))
    answers = _Answers(LabelMap(data.labels).ids(test), len(data.labels), data.metric)
    trials = [_trial(data, trial, ended, answers) for trial in trials_of(study)]
    order = [arm.name for arm in arms]
    largest, clean = max(study.budgets), np.setdiff1d(np.arange(len(test)), data.facts["leaked_rows"])
    differences, items = _differences(answers, arms, study.budgets), len(test)
    detectable = statistics.detectable(answers.equivalent_items, study.seeds)
    sentence = statistics.detectable_sentence(items, study.seeds, detectable, answers.rarest)
    record = r.StudyRecord(
        format=r.FORMAT,
        name=_name(settings),
        command=command,
        config=settings,
        verdict=[],
        data=r.parse(r.DataRecord, data.facts["data"], "data"),
        model=r.parse(r.ModelRecord, data.facts["model"], "model"),
        learning_rates=data.learning_rates,
        power=r.Power(items=items, seeds=study.seeds, points=detectable, sentence=sentence),
        metric=data.metric,
        arms=[r.ArmRecord(**arm._asdict()) for arm in arms],
        budgets=study.budgets,
        seeds=list(range(study.seeds)),
        pretraining=[_pretraining(data, task, ended, answers) for task in pretrainings],
        start=base_status(study.start) if study.start else None,
        trials=sorted(trials, key=lambda trial: (trial.budget, order.index(trial.arm), trial.seed)),
        scores=[
            _score(answers, arm, budget, study.seeds, clean)
            for budget in study.budgets
            for arm in arms
            if arm.kind != "scratch-long" or budget == largest
        ],
        differences=differences,
        savings=_savings(answers, arms, study.budgets, trials),
        break_even=_break_even(data, trials, differences) if pretrainings else None,
        confusion=[
            r.Confusion(arm=arm.name, budget=largest, matrix=answers.confusion(arm.name, largest))
            for arm in arms
            if answers.seeds(arm.name, largest)
        ],
        items=_items(answers, arms, largest, test.whole_texts, data.labels),
    )
    return dataclasses.replace(record, verdict=verdict(record))


def _name(settings: dict[str, Any]) -> str:
    """The demo, or the file of the labelled rows, or its folder where the file is called train."""
    path = Path(settings["finetune"]["train"])
    stem = path.name.split(".")[0]
    return settings["study"]["demo"] or (path.parent.name if stem == "train" and path.parent.name else stem)


class _Answers:
    """Predicted classes on test, by arm, budget and seed, beside the true ones."""

    def __init__(self, truth: np.ndarray, classes: int, metric: Metric) -> None:
        self.truth, self.classes, self.metric = truth, classes, metric
        counts = np.unique(truth, return_counts=True)[1].tolist()
        is_accuracy = metric == "accuracy"
        self.rarest = None if is_accuracy else min(counts)
        self.equivalent_items = len(truth) if is_accuracy else statistics.equivalent_items(counts)
        self._by_seed: dict[tuple[str, int], dict[int, np.ndarray]] = {}

    def add(self, trial: Trial, predictions: np.ndarray) -> None:
        self._by_seed.setdefault((trial.arm.name, trial.budget), {})[trial.seed] = predictions

    def seeds(self, arm: str, budget: int) -> list[int]:
        return sorted(self._by_seed.get((arm, budget), {}))

    def table(self, arm: str, budget: int, seeds: list[int] | None = None) -> np.ndarray:
        """Predictions (seeds, items)."""
        return np.stack([self._by_seed[arm, budget][seed] for seed in seeds or self.seeds(arm, budget)])

    def right(self, arm: str, budget: int, seeds: list[int] | None = None) -> np.ndarray:
        """1 for a right answer, 0 for a wrong one (seeds, items)."""
        return (self.table(arm, budget, seeds) == self.truth).astype(float)

    def parts(self, arm: str, budget: int, seeds: list[int] | None = None) -> np.ndarray:
        """Each item's part in the metric (seeds, items): a row's mean is what that seed reaches."""
        if self.metric == "accuracy":
            return self.right(arm, budget, seeds)
        return statistics.macro_f1_table(self.table(arm, budget, seeds), self.truth, self.classes)

    def confusion(self, arm: str, budget: int) -> list[list[int]]:
        matrix = np.zeros((self.classes, self.classes), np.int64)
        for predictions in self.table(arm, budget):
            np.add.at(matrix, (self.truth, predictions), 1)
        return matrix.tolist()


# ---- what is on disk ------------------------------------------------------------------------------------------


def _failed(ended: Ended, name: str) -> dict[str, Any]:
    result = ended.get(name)
    return {"status": "failed", "error": (result.error if result else None) or "it was not run"}


def _trial(data: StudyData, trial: Trial, ended: Ended, answers: _Answers) -> r.TrialRecord:
    file = data.trial_file(trial)
    if not file.exists():
        about: dict[str, Any] = {"arm": trial.arm.name, "budget": trial.budget, "seed": trial.seed}
        return r.TrialRecord(**about, **_failed(ended, trial.name))
    content = data.read_trial(trial)
    predictions = np.array(content["predictions"])
    answers.add(trial, predictions)
    return dataclasses.replace(
        r.parse(r.TrialRecord, content, str(file)),
        accuracy=float((predictions == answers.truth).mean()),
        macro_f1=statistics.macro_f1(predictions[None], answers.truth, answers.classes).value,
    )


def _pretraining(data: StudyData, task: Pretraining, ended: Ended, answers: _Answers) -> r.PretrainingRecord:
    run, about = data.base(task), {"name": task.name, **task._asdict()}
    result = RunDirectory(run).read_result()
    if result is None:
        return r.PretrainingRecord(**about, **_failed(ended, task.name))
    valid = result["valid"] or {}
    bits, loss = valid.get("bits_per_byte"), valid.get("loss")
    # The same text, so bits per byte are proportional to the loss.
    ratio = bits / loss if bits and loss else None
    curve = [
        r.PretrainingPoint(step=point["step"], loss=at, bits_per_byte=at * ratio if ratio else None)
        for point in result["evaluations"]
        if (at := point["loss"]) is not None  # None: it was not finite
    ]
    steps = data.steps[task.objective]
    phases = zip(steps, data.config.pretrain, strict=True)
    return r.PretrainingRecord(
        **about, status="done", steps=sum(steps),
        tokens=sum(n * max(1, phase.batch_tokens // phase.length) * phase.length for n, phase in phases),
        operations=pretraining_operations(data, task.objective), loss=loss, bits_per_byte=bits, curve=curve,
        base=_base(data, task, answers),
    )  # fmt: skip


def _base(data: StudyData, task: Pretraining, answers: _Answers) -> BaseStatus | None:
    """Whether it has learned, and what its frozen features are worth at the largest budget."""
    run, budget = data.base(task), max(data.config.study.budgets)
    # A phase has a run of its own, and a study's phases are few.
    status = base_status(run, sorted(run.parent.glob(f"{run.name}-phase-*")))
    arms = [arm for arm in arms_of(data.config.study) if arm.kind == "frozen" and arm.objective == task.objective]
    names = [arm.name for arm in arms] + ["majority"]
    if status is None or len(names) < 2 or not all(answers.seeds(name, budget) for name in names):
        return status
    frozen, chance = (float(answers.parts(name, budget).mean()) for name in names)
    return dataclasses.replace(status, frozen_above_chance=frozen - chance)


# ---- scores -----------------------------------------------------------------------------------------------------


def _interval(estimate: statistics.Estimate) -> r.Interval:
    return r.Interval(value=estimate.value, low=estimate.low, high=estimate.high)


def _score(answers: _Answers, arm: Arm, budget: int, seeds: int, clean: np.ndarray) -> r.Score:
    done = len(answers.seeds(arm.name, budget))
    score = r.Score(arm=arm.name, budget=budget, seeds=done, failed=seeds - done)
    if not done:
        return score
    right, table = answers.right(arm.name, budget), answers.table(arm.name, budget)
    has_leaks = 0 < len(clean) < right.shape[1]
    for suffix, items in (("", slice(None)), ("_without_leaks", clean)):
        if not suffix or has_leaks:
            macro_f1 = statistics.macro_f1(table[:, items], answers.truth[items], answers.classes)
            both = {"accuracy": statistics.mean(right[:, items]), "macro_f1": macro_f1}
            found: dict[str, Any] = {name + suffix: _interval(estimate) for name, estimate in both.items()}
            score = dataclasses.replace(score, **found)
    return score


def _differences(answers: _Answers, arms: list[Arm], budgets: list[int]) -> list[r.DifferenceRecord]:
    """Of the pairs of interest, on the seeds that both arms have."""
    records = []
    for arm, against in pairs_of(arms):
        by_budget = {}
        for budget in budgets:
            own = set(answers.seeds(arm.name, budget))
            if seeds := sorted(own & set(answers.seeds(against.name, budget))):
                first, second = (answers.parts(one.name, budget, seeds) for one in (against, arm))
                by_budget[budget] = statistics.difference(first, second, answers.rarest)
        adjusted = statistics.holm([difference.p for difference in by_budget.values()])
        records += [
            r.DifferenceRecord(
                arm=arm.name, against=against.name, budget=budget,
                reading="equal compute" if against.kind == "scratch-long" else "equal labels",
                value=difference.value, low=difference.low, high=difference.high, p=difference.p, p_holm=p_holm,
            )
            for (budget, difference), p_holm in zip(by_budget.items(), adjusted, strict=True)
        ]  # fmt: skip
    return records


def _savings(answers: _Answers, arms: list[Arm], budgets: list[int], trials: list[r.TrialRecord]) -> list[r.Savings]:
    records = []
    for arm, against in pairs_of(arms):
        if against.kind != "scratch" or arm.kind not in ("finetuned", "imported"):
            continue
        names = (arm.name, against.name)
        there = [budget for budget in budgets if answers.seeds(against.name, budget)]
        common = [set(answers.seeds(against.name, budget)) for budget in there]
        for budget in budgets:
            seeds = sorted(set(answers.seeds(arm.name, budget)).intersection(*common)) if there else []
            if not seeds:
                continue
            scratch = [answers.parts(against.name, b, seeds) for b in there]
            labels = savings.labels_to_match(there, scratch, answers.parts(arm.name, budget, seeds))
            sentence = savings.labels_sentence(labels, there, budget, *names)
            curves = [
                [
                    [(point.epoch, getattr(point, answers.metric) or 0.0) for point in trial.curve]
                    for trial in trials
                    if (trial.arm, trial.budget, trial.status) == (name, budget, "done")
                ]
                for name in names
            ]
            epochs = savings.epochs_to_match(*curves)
            epochs = dataclasses.replace(epochs, sentence=savings.epochs_sentence(epochs, *names))
            labels = dataclasses.replace(labels, sentence=sentence)
            records.append(r.Savings(arm=names[0], against=names[1], budget=budget, labels=labels, epochs=epochs))
    return records


def _break_even(
    data: StudyData, trials: list[r.TrialRecord], differences: list[r.DifferenceRecord]
) -> r.BreakEven | None:
    study, done = data.config.study, [trial for trial in trials if trial.status == "done"]
    tuned = [trial for trial in done if trial.arm.startswith("finetuned")]
    operations = [trial.operations for trial in tuned if trial.budget == max(study.budgets)]
    if not operations:
        return None
    equal_compute = next((row for row in differences if row.reading == "equal compute"), None)
    objective: Any = study.objectives[0]
    return savings.break_even(pretraining_operations(data, objective), float(np.mean(operations)), equal_compute)


def _items(answers: _Answers, arms: list[Arm], budget: int, texts: list[str], labels: tuple[str, ...]) -> list[r.Item]:
    """The texts with the largest standard deviation, over arms, of the share of seeds that are right."""
    shares = {
        arm.name: answers.right(arm.name, budget).mean(axis=0)
        for arm in arms
        if arm.kind not in ("majority", "scratch-long") and answers.seeds(arm.name, budget)
    }
    if len(shares) < 2:
        return []
    deviation = np.stack(list(shares.values())).std(axis=0)
    return [
        r.Item(
            row=int(row),
            text=texts[row][:TEXT_CHARACTERS],
            label=labels[answers.truth[row]],
            right={name: float(share[row]) for name, share in shares.items()},
        )
        for row in np.argsort(-deviation, kind="stable")[:ITEMS]
        if deviation[row] > 0
    ]
