"""From trials on disk to study.json: scores with intervals, differences, head start, verdict. No clock, no chance.

A failed trial is shown and counted, never dropped silently; nothing here chooses by test.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from headstart.study import statistics
from headstart.study.agenda import Outcome
from headstart.study.cost import pretraining_operations
from headstart.study.design import Arm, Pretraining, Trial, arms_of, pairs_of, trials_of
from headstart.study.head_start import (
    break_even,
    epochs_sentence,
    epochs_to_match,
    labels_sentence,
    labels_to_match,
)
from headstart.study.material import Material
from headstart.study.trial import pretraining_facts, trial_file
from headstart.study.verdict import verdict
from headstart.text.labelled import read_labelled
from headstart.text.labels import LabelMap

ITEMS = 20
TEXT_CHARACTERS = 600


@dataclasses.dataclass
class Answers:
    """What an arm said at a budget: predictions by seed, over the rows of test."""

    predictions: dict[int, np.ndarray]

    def table(self, seeds: list[int]) -> np.ndarray:
        return np.stack([self.predictions[seed] for seed in seeds])


def summarise(
    material: Material,
    pretrainings: list[Pretraining],
    outcomes: dict[str, Outcome],
    command: list[str],
    settings: dict[str, Any],
) -> dict[str, Any]:
    """All of study.json."""
    study = material.config.study
    test = read_labelled(material.labelled("test"))
    truth = LabelMap(material.labels).ids(test)
    arms = arms_of(study)
    trials = [_trial(material, trial, outcomes, truth) for trial in trials_of(study)]
    answers = _answers(trials)
    for trial in trials:
        trial.pop("predictions", None)
    kept = np.setdiff1d(np.arange(len(truth)), material.facts["leaked_rows"])
    largest = max(study.budgets)
    found: dict[str, Any] = {
        "format": 1,
        "name": _name(settings),
        "command": command,
        "config": settings,
        "verdict": [],
        "data": material.facts["data"],
        "model": material.facts["model"],
        "rates": material.rates,
        "power": _power(len(truth), study.seeds),
        "arms": [arm._asdict() for arm in arms],
        "budgets": study.budgets,
        "seeds": list(range(study.seeds)),
        "pretraining": [_pretraining(material, task, outcomes) for task in pretrainings],
        "trials": sorted(
            trials, key=lambda t: (t["budget"], [a.name for a in arms].index(t["arm"]), t["seed"])
        ),
        "scores": [
            _score(answers, arm, budget, study.seeds, truth, len(material.labels), kept)
            for budget in study.budgets
            for arm in arms
            if arm.kind != "scratch-long" or budget == largest
        ],
        "differences": _differences(answers, arms, study.budgets, truth),
    }
    found["head_start"] = _head_start(answers, arms, study.budgets, truth, trials)
    found["break_even"] = _break_even(material, found) if pretrainings else None
    found["confusion"] = [
        {
            "arm": arm.name,
            "budget": largest,
            "matrix": _confusion(answers[arm.name, largest], truth, material),
        }
        for arm in arms
        if (arm.name, largest) in answers
    ]
    found["items"] = _items(answers, arms, largest, truth, test.whole_texts, material.labels)
    found["verdict"] = verdict(found)
    return found


def _name(settings: dict[str, Any]) -> str:
    """What the study is of: the demo, or the file of the labelled rows, or its folder where it is called train."""
    path = Path(settings["finetune"]["train"])
    stem = path.name.split(".")[0]
    return settings["study"]["demo"] or (path.parent.name if stem == "train" and path.parent.name else stem)


# ---- what is on disk ------------------------------------------------------------------------------------------


def _trial(
    material: Material, trial: Trial, outcomes: dict[str, Outcome], truth: np.ndarray
) -> dict[str, Any]:
    file = trial_file(material, trial)
    if not file.exists():
        outcome = outcomes.get(trial.name)
        error = (outcome.error if outcome else None) or "it was not carried out"
        return {
            "arm": trial.arm.name, "budget": trial.budget, "seed": trial.seed, "status": "failed", "error": error,
            "rate": None, "tries": [], "steps": 0, "epochs": 0.0, "operations": 0.0, "accuracy": None,
            "macro_f1": None, "curve": [],
        }  # fmt: skip
    found = dict(json.loads(file.read_bytes()))
    predictions = np.array(found["predictions"])
    found["accuracy"] = float((predictions == truth).mean())
    found["macro_f1"] = statistics.macro_f1(predictions[None], truth, len(material.labels)).value
    return found


def _pretraining(material: Material, task: Pretraining, outcomes: dict[str, Outcome]) -> dict[str, Any]:
    if (material.base(task) / "result.json").exists():
        return pretraining_facts(material, task)
    outcome = outcomes.get(task.name)
    return {
        "name": task.name, "objective": task.objective, "seed": task.seed, "shuffled": task.shuffled,
        "status": "failed", "error": (outcome.error if outcome else None) or "it was not carried out",
        "steps": 0, "tokens": 0, "operations": 0.0, "loss": None, "bits_per_byte": None, "curve": [],
    }  # fmt: skip


def _answers(trials: list[dict[str, Any]]) -> dict[tuple[str, int], Answers]:
    answers: dict[tuple[str, int], Answers] = {}
    for trial in trials:
        if trial["status"] == "done":
            of = answers.setdefault((trial["arm"], trial["budget"]), Answers({}))
            of.predictions[trial["seed"]] = np.array(trial["predictions"])
    return answers


# ---- scores -----------------------------------------------------------------------------------------------------


def _power(items: int, seeds: int) -> dict[str, Any]:
    points = statistics.detectable(items, seeds)
    sentence = statistics.detectable_sentence(items, seeds, points)
    return {"items": items, "seeds": seeds, "points": points, "sentence": sentence}


def _interval(estimate: statistics.Estimate) -> dict[str, float]:
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}


def _score(
    answers: dict[tuple[str, int], Answers],
    arm: Arm,
    budget: int,
    seeds: int,
    truth: np.ndarray,
    classes: int,
    kept: np.ndarray,
) -> dict[str, Any]:
    of = answers.get((arm.name, budget), Answers({}))
    done = sorted(of.predictions)
    score: dict[str, Any] = {
        "arm": arm.name,
        "budget": budget,
        "seeds": len(done),
        "failed": seeds - len(done),
    }
    if not done:
        return {**score, "accuracy": None, "macro_f1": None, "accuracy_without_leaks": None}
    table = of.table(done)
    right = (table == truth).astype(float)
    clean = right[:, kept]
    has_leaks = 0 < len(kept) < len(truth)
    return {
        **score,
        "accuracy": _interval(statistics.mean(right)),
        "macro_f1": _interval(statistics.macro_f1(table, truth, classes)),
        "accuracy_without_leaks": _interval(statistics.mean(clean)) if has_leaks else None,
    }


def _paired(
    first: Answers | None, second: Answers | None, truth: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """The right answers of two arms on the seeds that both have."""
    seeds = sorted(set(first.predictions) & set(second.predictions)) if first and second else []
    if not first or not second or not seeds:
        return None
    one, other = ((answers.table(seeds) == truth).astype(float) for answers in (first, second))
    return one, other


def _differences(
    answers: dict[tuple[str, int], Answers], arms: list[Arm], budgets: list[int], truth: np.ndarray
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for arm, against in pairs_of(arms):
        of_pair: list[dict[str, Any]] = []
        for budget in budgets:
            tables = _paired(answers.get((against.name, budget)), answers.get((arm.name, budget)), truth)
            if tables is None:
                continue
            d = statistics.difference(*tables)
            reading = "equal compute" if against.kind == "scratch-long" else "equal labels"
            of_pair.append(
                {"arm": arm.name, "against": against.name, "budget": budget, "reading": reading,
                 "value": d.value, "low": d.low, "high": d.high, "p": d.p}
            )  # fmt: skip
        for row, p in zip(of_pair, statistics.holm([row["p"] for row in of_pair]), strict=True):
            rows.append({**row, "p_holm": p})
    return rows


# ---- units that people feel ---------------------------------------------------------------------------------------


def _head_start(
    answers: dict[tuple[str, int], Answers],
    arms: list[Arm],
    budgets: list[int],
    truth: np.ndarray,
    trials: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    found = []
    for arm, against in pairs_of(arms):
        if against.kind != "scratch" or arm.kind not in ("finetuned", "imported"):
            continue
        for budget in budgets:
            there = [b for b in budgets if (against.name, b) in answers]
            seeds = [set(answers[against.name, b].predictions) for b in there]
            own = answers.get((arm.name, budget))
            shared = sorted(set.intersection(set(own.predictions), *seeds)) if own and there else []
            if not own or not shared:
                continue
            scratch = [(answers[against.name, b].table(shared) == truth).astype(float) for b in there]
            labels = labels_to_match(there, scratch, (own.table(shared) == truth).astype(float))
            epochs = epochs_to_match(_curves(trials, arm, budget), _curves(trials, against, budget))
            found.append({
                "arm": arm.name, "against": against.name, "budget": budget,
                "labels": {
                    **labels._asdict(), "sentence": labels_sentence(labels, there, budget, arm.name, against.name)
                },
                "epochs": {
                    **(epochs._asdict() if epochs else {"value": None}),
                    "sentence": epochs_sentence(epochs, arm.name, against.name),
                },
            })  # fmt: skip
    return found


def _curves(trials: list[dict[str, Any]], arm: Arm, budget: int) -> list[list[tuple[float, float]]]:
    return [
        [(point["epoch"], point["accuracy"]) for point in trial["curve"]]
        for trial in trials
        if trial["arm"] == arm.name and trial["budget"] == budget and trial["status"] == "done"
    ]


def _break_even(material: Material, found: dict[str, Any]) -> dict[str, Any] | None:
    study = material.config.study
    largest = max(study.budgets)
    tuned = [
        t["operations"]
        for t in found["trials"]
        if t["arm"].startswith("finetuned") and t["budget"] == largest and t["status"] == "done"
    ]
    if not tuned:
        return None
    compute = [d for d in found["differences"] if d["reading"] == "equal compute"]
    read = None
    if compute:
        row = compute[0]
        read = statistics.Difference(row["value"], row["low"], row["high"], row["p"], error=0.0, freedom=0.0)
    objective: Any = study.objectives[0]
    even = break_even(pretraining_operations(material, objective), float(np.mean(tuned)), read)
    return even._asdict()


def _confusion(answers: Answers, truth: np.ndarray, material: Material) -> list[list[int]]:
    size = len(material.labels)
    matrix = np.zeros((size, size), np.int64)
    for predictions in answers.predictions.values():
        np.add.at(matrix, (truth, predictions), 1)
    return matrix.tolist()


def _items(
    answers: dict[tuple[str, int], Answers],
    arms: list[Arm],
    budget: int,
    truth: np.ndarray,
    texts: list[str],
    labels: tuple[str, ...],
) -> list[dict[str, Any]]:
    """The texts on which the arms differ most: the spread, over arms, of the share of seeds that have it right."""
    shares = {
        arm.name: (answers[arm.name, budget].table(sorted(answers[arm.name, budget].predictions)) == truth).mean(axis=0)
        for arm in arms
        if arm.kind not in ("majority", "scratch-long") and (arm.name, budget) in answers
    }  # fmt: skip
    if len(shares) < 2:
        return []
    spread = np.stack(list(shares.values())).std(axis=0)
    chosen = np.argsort(-spread, kind="stable")[:ITEMS]
    return [
        {
            "row": int(row), "text": texts[row][:TEXT_CHARACTERS], "label": labels[truth[row]],
            "right": {name: float(share[row]) for name, share in shares.items()},
        }
        for row in chosen
        if spread[row] > 0
    ]  # fmt: skip
