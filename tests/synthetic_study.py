"""A study.json without a study: believable numbers in every field, for tests of what is made from it."""

import checksummed
import numpy as np

LABELS = ["neg", "pos"]
# Where each arm ends up with many labels, and how fast it gets there.
CEILINGS = {
    "majority": (0.5, 0), "tfidf": (0.86, 1.1), "scratch": (0.83, 1.6), "frozen": (0.80, 0.5),
    "finetuned": (0.88, 0.6), "shuffled": (0.835, 1.5), "scratch-long": (0.84, 1.4), "lsa": (0.85, 0.8),
    "combined": (0.89, 0.55),
}  # fmt: skip
TITLES = {
    "majority": "always the majority class", "tfidf": "TF-IDF and logistic regression",
    "scratch": "trained from scratch", "frozen": "pretrained, only the head learns",
    "finetuned": "pretrained, then fine-tuned", "shuffled": "pretrained on shuffled tokens, then fine-tuned",
    "scratch-long": "from scratch, with the pretraining's compute too", "lsa": "TF-IDF, SVD and logistic regression",
    "combined": "fine-tuned and TF-IDF, mixed",
}  # fmt: skip
TEXTS = [
    "Un roman magnifique, d'une finesse rare : je l'ai lu d'une traite et je le relirai.",
    "Je m'attendais à mieux. Les personnages sont creux et l'intrigue, hélas, se devine dès la page dix.",
    "On m'avait dit le plus grand bien de ce livre ; on m'avait menti, ou alors on ne l'avait pas ouvert. " * 5,
    "Pas mal du tout, contrairement à ce que le titre laisse craindre.",
    "Rien à redire, sinon qu'il n'y a rien.",
]


def study(*, budgets=(50, 200, 1600), seeds=3, objectives=("causal",), extra=(), failed=(), labels=LABELS):
    """A whole study; `extra` arms are those of TITLES that are not always there, `failed` are (arm, budget, seed)."""
    arms = _arms(objectives, extra)
    seeds = list(range(seeds))
    trials = [
        _trial(arm, budget, seed, (arm["name"], budget, seed) in failed)
        for arm in arms
        for budget in budgets
        for seed in seeds
        if arm["kind"] != "scratch-long" or budget == max(budgets)
    ]
    scores = _scores(trials)
    return {
        "format": 1,
        "name": "cls-books",
        "command": ["headstart", "study", "--corpus", "fr reviews.txt", "--train", "train.jsonl", "--seeds", "3"],
        "config": {
            "study": {"budgets": list(budgets), "seeds": len(seeds), "jobs": 1},
            "tokenizer": {"kind": "bpe", "vocab": 2000},
            "pretrain": [{"objective": objective, "steps": 3000, "preset": "tiny"} for objective in objectives],
            "finetune": {"epochs": 10, "batch": 16, "learning_rates": [0.0001, 0.0003, 0.001], "schedule": "linear"},
        },
        "verdict": [
            "Pretraining pays here: with 50 labels it is worth 12.4 points of accuracy.",
            "To match it with 50 labels, training from scratch needs about 412.",
            "With 1,600 labels TF-IDF is within 2 points of the fine-tuned model, at a thousandth of the cost.",
        ],
        "data": _data(labels),
        "model": {"preset": "tiny", "parameters": 652800, "vocab": 2000,
                  "description": "2 layers, 128 wide, 4 heads, feed-forward 512, context 128"},
        "learning_rates": [0.0001, 0.0003, 0.001],
        "power": {"items": 2000, "seeds": len(seeds), "points": 1.4,
                  "sentence": "With 2,000 test items and 3 seeds, a difference of 1.4 points can be detected."},
        "arms": arms,
        "budgets": list(budgets),
        "seeds": seeds,
        "pretraining": [_pretraining(objective, seed) for objective in objectives for seed in seeds],
        "trials": trials,
        "scores": scores,
        "differences": _differences(arms, scores, max(budgets)),
        "savings": _savings(arms, budgets),
        "break_even": {"finetunings": 3.0, "sentence": "The pretraining has paid for itself after 3 fine-tunings."},
        "confusion": [_confusion(arm["name"], max(budgets), len(labels)) for arm in arms],
        "items": [
            {"row": 17 * i + 3, "text": text, "label": labels[i % len(labels)],
             "right": {arm["name"]: round(((i + j) % 4) / 3, 2) for j, arm in enumerate(arms)}}
            for i, text in enumerate(TEXTS)
        ],
    }  # fmt: skip


def timing(found):
    """Seconds for the trials of a study."""
    return {
        "jobs": 2, "threads": 1, "seconds": 251.3,
        "pretraining": {run["name"]: 43.2 + run["seed"] for run in found["pretraining"]},
        "trials": {f"{t['arm']}-b{t['budget']}-s{t['seed']}": 1.5 + t["budget"] / 200 for t in found["trials"]},
        "machine": {"device": "cpu", "precision": "fp32", "torch": "2.13.0"},
    }  # fmt: skip


def write(directory, found, clock=None):
    """Put a study where `headstart report` finds it."""
    directory.mkdir(parents=True, exist_ok=True)
    checksummed.write(directory / "study.json", found)
    if clock is not None:
        checksummed.write(directory / "timing.json", clock)
    return directory


def _arms(objectives, extra):
    arms = [
        {"name": name, "kind": name, "objective": None, "title": TITLES[name]}
        for name in ("majority", "tfidf", *(["lsa"] if "lsa" in extra else []))
    ]
    arms.append({"name": "scratch", "kind": "scratch", "title": TITLES["scratch"]})
    for kind in ("frozen", "finetuned", "combined", "shuffled"):
        for objective in objectives if kind in ("finetuned", "combined") else objectives[:1]:
            if kind == "finetuned" or kind in extra:
                is_many = kind in ("finetuned", "combined") and len(objectives) > 1
                name = f"{kind}-{objective}" if is_many else kind
                title = TITLES[kind] + (f" ({objective})" if is_many else "")
                arms.append({"name": name, "kind": kind, "objective": objective, "title": title})
    if "scratch-long" in extra:
        arms.append({"name": "scratch-long", "kind": "scratch-long", "title": TITLES["scratch-long"]})
    return arms


def _level(arm, budget):
    ceiling, speed = CEILINGS[arm["kind"]]
    ceiling -= {"masked": 0.012, "masked-nsp": 0.02}.get(arm.get("objective"), 0)
    return 0.5 + (ceiling - 0.5) * (1 - np.exp(-((budget / 60) ** 0.7) / (speed or 1))) * (speed > 0)


def _trial(arm, budget, seed, is_failed):
    wobble = 0.012 * np.sin(37 * seed + 5 * len(arm["name"]) + budget) * (arm["name"] != "majority")
    accuracy = float(np.clip(_level(arm, budget) + wobble, 0, 1))
    trial = {
        "arm": arm["name"], "budget": budget, "seed": seed, "status": "done", "error": None, "chosen": None,
        "tries": [], "steps": None, "epochs": None, "operations": None, "accuracy": accuracy,
        "macro_f1": accuracy - 0.004, "curve": [],
    }  # fmt: skip
    if is_failed:
        return trial | {"status": "failed", "error": "the loss is not finite at step 12", "accuracy": None,
                        "macro_f1": None}  # fmt: skip
    if arm["kind"] in ("majority", "tfidf", "lsa", "tfidf-lsa", "combined"):
        if arm["name"] != "majority":
            tries = [{"value": value, "accuracy": accuracy - 0.01 * i, "loss": None} for i, value in enumerate((1, 10))]
            trial |= {"chosen": 1, "tries": tries}
        return trial
    epochs = 10 * (5 if arm["kind"] == "scratch-long" else 1)
    slowness = 3.0 if arm["kind"] in ("scratch", "scratch-long", "shuffled") else 1.2
    curve = [
        {"epoch": float(e), "loss": round(0.69 * np.exp(-e / 9), 4),
         "accuracy": float(0.5 + (accuracy - 0.5) * (1 - np.exp(-e / slowness)) + 0.006 * np.sin(3 * e + seed))}
        for e in range(1, epochs + 1)
    ]  # fmt: skip
    tries = [{"value": r, "accuracy": accuracy - 0.02 * abs(i - 1), "loss": 0.5} for i, r in enumerate((1e-4, 3e-4, 1e-3))]  # fmt: skip # noqa: E501
    return trial | {"chosen": 3e-4, "tries": tries, "steps": epochs * -(-budget // 16), "epochs": float(epochs),
                    "operations": 3.0 * 6 * 652800 * 60 * budget * epochs, "curve": curve}  # fmt: skip


def _estimate(values, width=0.018):
    if not values:
        return None
    return {"value": float(np.mean(values)), "low": float(np.mean(values)) - width, "high": float(np.mean(values)) + width}  # fmt: skip # noqa: E501


def _scores(trials):
    scores = []
    for arm, budget in dict.fromkeys((t["arm"], t["budget"]) for t in trials):
        mine = [t for t in trials if (t["arm"], t["budget"]) == (arm, budget)]
        done = [t for t in mine if t["status"] == "done"]
        accuracies = [t["accuracy"] for t in done]
        scores.append(
            {"arm": arm, "budget": budget, "seeds": len(done), "failed": len(mine) - len(done),
             "accuracy": _estimate(accuracies), "macro_f1": _estimate([t["macro_f1"] for t in done]),
             "accuracy_without_leaks": _estimate([a - 0.003 for a in accuracies])}
        )  # fmt: skip
    return scores


def _differences(arms, scores, largest):
    value = {(s["arm"], s["budget"]): s["accuracy"] and s["accuracy"]["value"] for s in scores}
    names = [arm["name"] for arm in arms]
    pairs = [(name, other) for name in names if name.startswith("finetuned") for other in ("scratch", "tfidf")]
    pairs += [("finetuned", "shuffled")] if "shuffled" in names and "finetuned" in names else []
    found = []
    for arm, against in pairs:
        for budget in dict.fromkeys(s["budget"] for s in scores):
            if None not in (value[arm, budget], value[against, budget]):
                found.append(_difference(arm, against, budget, "equal labels", value[arm, budget] - value[against, budget]))  # fmt: skip # noqa: E501
    if "scratch-long" in names:
        arm = pairs[0][0]
        gap = value[arm, largest] - value["scratch-long", largest]
        found.append(_difference(arm, "scratch-long", largest, "equal compute", gap))
    return found


def _difference(arm, against, budget, reading, value):
    p = float(np.exp(-abs(value) * 150))
    return {"arm": arm, "against": against, "budget": budget, "reading": reading, "value": value,
            "low": value - 0.021, "high": value + 0.021, "p": p, "p_holm": min(1.0, 3 * p)}  # fmt: skip


def _savings(arms, budgets):
    found = []
    for name in (arm["name"] for arm in arms if arm["kind"] == "finetuned"):
        for budget in budgets:
            is_beyond = budget == max(budgets)
            needed = None if is_beyond else 4.1 * budget
            said = f"more than the {max(budgets):,} that we have" if is_beyond else f"about {needed:,.0f} labels"
            found.append(
                {"arm": name, "against": "scratch", "budget": budget,
                 "labels": {"value": needed, "low": None if is_beyond else 3.0 * budget, "high": None,
                            "beyond": is_beyond, "below": False,
                            "sentence": f"scratch needs {said} to match {name} with {budget:,}"},
                 "epochs": {"value": 3.0, "of": 10.0, "scratch": 9.0, "accuracy": 0.8,
                            "sentence": f"{name} needs 3 of 10 epochs to match the best of scratch"}}
            )  # fmt: skip
    return found


def _data(labels):
    def labelled(name, rows):
        return {"file": f"{name}.jsonl", "rows": rows, "sha256": f"{rows:064x}",
                "classes": dict.fromkeys(labels, rows // len(labels))}  # fmt: skip

    return {
        "corpus": [{"file": "fr-reviews.txt", "documents": 12000, "tokens": 400000, "text_bytes": 1500000,
                    "sha256": "ab" * 32},
                   {"file": "fr-novels.txt", "documents": None, "tokens": None, "text_bytes": None,
                    "sha256": "cd" * 32}],
        "train": labelled("train", 1600), "valid": labelled("valid", 400), "test": labelled("test", 2000),
        "labels": list(labels),
        "leaks": {"test_in_train": 43, "test_in_valid": 12, "valid_in_train": 13, "test_in_corpus": 0,
                  "near_test_in_train": 7},
        "leaked_test_rows": 55,
        "corpus_total": {"documents": 15000, "tokens": 700000, "text_bytes": 2600000},
    }  # fmt: skip


def _pretraining(objective, seed):
    is_causal = objective == "causal"
    steps = range(100, 3001, 100)
    curve = [
        {"step": step, "loss": round(2.2 + 4 * np.exp(-step / 700) + 0.01 * seed, 4),
         "bits_per_byte": round(0.8 + 1.4 * np.exp(-step / 700) + 0.006 * seed, 4) if is_causal else None}
        for step in steps
    ]  # fmt: skip
    return {"name": f"{objective}-s{seed}", "objective": objective, "seed": seed, "shuffled": False,
            "status": "done", "error": None, "steps": 3000, "tokens": 3072000, "operations": 1.2e13,
            "loss": curve[-1]["loss"], "bits_per_byte": curve[-1]["bits_per_byte"], "curve": curve,
            "base": {"status": "learned", "sentence": "The base has learned: loss 2.26 where frequencies give 6.5.",
                     "steps": 3000, "epochs": 4.4, "tokens": 700000, "loss": curve[-1]["loss"], "train_loss": 2.1,
                     "unigram_entropy": 6.5, "bigram_entropy": 4.9, "slope": -0.1,
                     "frozen_above_chance": 0.301}}  # fmt: skip


def _confusion(arm, budget, classes):
    matrix = np.full((classes, classes), 90 + 3 * len(arm)) + np.arange(classes)[:, None] * 7
    matrix[np.diag_indices(classes)] = 850 - 3 * len(arm)
    return {"arm": arm, "budget": budget, "matrix": matrix.tolist()}
