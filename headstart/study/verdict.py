"""The verdict: a few plain sentences, made only from the numbers of the record.

First comes that no arm beats the majority class. Then a base that has not learned: what it does says nothing of
pretraining, so no sentence does either. A claim needs both Holm's p and the interval. Where TF-IDF does as well, that
comes next. "The gain comes from language" is claimed only where the pretrained arm beats scratch and, where that arm
was run, `shuffled` too.
"""

from headstart.config.training import seconds_in
from headstart.planning.base import MOSTLY_READ, most_passes, worth
from headstart.planning.figures import format_duration
from headstart.runs.base_status import BaseStatus
from headstart.study.record import DifferenceRecord, Interval, StudyRecord

_UNCLEAR = "makes no clear difference"
_WITH_BASE = ("frozen", "finetuned", "imported", "combined")


def verdict(record: StudyRecord) -> list[str]:
    """The sentences, the most important first."""
    kinds = {arm.name: arm.kind for arm in record.arms}
    tuned = [name for name, kind in kinds.items() if kind in ("finetuned", "imported")]
    mixes = [name for name, kind in kinds.items() if kind == "combined"]
    tfidf, is_enough = _tfidf(record)
    sentences = [*_majority(record), *_weak_bases(record), *(tfidf if is_enough else [])]
    sentences += _objectives(record)
    for name in tuned:
        rows = [d for d in record.differences if d.arm == name and kinds[d.against] == "scratch"]
        if rows:
            rows = [row for row in rows if row.against == rows[0].against]
            sentences += [*_pays(record, rows, len(tuned) > 1), *_labels(record, name)]
    if not any(row.arm in tuned for row in record.differences):
        sentences.append("Whether pretraining pays is unknown: the trials that would show it are missing.")
    sentences += [*_at_chance(record), *([] if is_enough else tfidf), *_best_arm(record), *_outlook(record)]
    sentences += [*_on_top(record, mixes, tuned), *_equal_compute(record)]
    if any(_UNCLEAR in sentence for sentence in sentences):
        sentences.append(_sentence(record.power.sentence))
    return [*sentences, *_metric(record), *_caveats(record, tuned), *_data_caveats(record)]


def _bases(record: StudyRecord, arm: str) -> dict[str, BaseStatus]:
    """The bases that the trials of an arm start from, as far as it is known what they have learned."""
    kind, objective = next((one.kind, one.objective) for one in record.arms if one.name == arm)
    if kind == "imported":
        return {"start": record.start} if record.start else {}
    runs = [run for run in record.pretraining if objective in (None, run.objective)]
    return {run.name: run.base for run in runs if run.base} if kind in _WITH_BASE else {}


def _has_learned(record: StudyRecord, arm: str) -> bool:
    return all(base.has_learned for base in _bases(record, arm).values())


def _weak_bases(record: StudyRecord) -> list[str]:
    """What is known of the bases that have not learned."""
    bases = {name: base for arm in record.arms for name, base in _bases(record, arm.name).items()}
    weak = {name: base for name, base in bases.items() if not base.has_learned}
    return [f"{name}: {base.sentence}" if len(bases) > 1 else base.sentence for name, base in weak.items()]


def _majority(record: StudyRecord) -> list[str]:
    """Whether nothing beats the majority class, as may be where one class has nearly all rows."""
    largest, classes = max(record.budgets), record.data.train.classes
    chance = _reached(record, "majority", largest)
    best = _best(record, [arm.name for arm in record.arms if arm.kind != "majority"], largest)
    if not best or not chance or _is_above_majority(record, best, largest):
        return []
    answer = max(classes, key=lambda label: classes[label])
    sentences = [
        f"No arm is clearly better than always answering {answer!r}: with {largest:,} labels that reaches "
        f"{_percent(record, chance.value)}, the best arm ({best}) {_score(record, best, largest)}."
    ]
    if record.metric == "macro_f1" and record.config.get("finetune", {}).get("class_weights") != "balanced":
        sentences.append("In training the rare classes count for little: --class-weights balanced changes that.")
    return sentences


def _metric(record: StudyRecord) -> list[str]:
    """Why it is not accuracy."""
    if record.metric == "accuracy":
        return []
    classes = record.data.train.classes
    rarest = min(classes, key=lambda label: classes[label])
    return [
        "Scores and differences are of macro-F1, the mean of the classes' F1, in which a rare class counts as much as "
        f"any other: {rarest!r} has {100 * classes[rarest] / sum(classes.values()):.1f} % of the rows of train."
    ]


def _tfidf(record: StudyRecord) -> tuple[list[str], bool]:
    """Whether TF-IDF would do at the largest budget: the sentence, and whether it is enough."""
    largest = max(record.budgets)
    arms = [arm.name for arm in record.arms if arm.kind in _WITH_BASE]
    best = _best_on_valid(record, largest)
    row = _difference(record, best, "tfidf", largest)
    if row is None or best is None:
        return [], False
    which = f"best of {len(arms)} pretrained arms" if len(arms) > 1 else "pretrained arm"
    figures = (
        f"with {largest:,} labels it reaches {_score(record, 'tfidf', largest)}, "
        f"the {which} ({best}) {_score(record, best, largest)}"
    )
    name, has_learned = "TF-IDF with logistic regression", _has_learned(record, best)
    rival = "pretraining" if has_learned else "this base"
    if not row.is_clear:
        figures += f"; {rival} minus TF-IDF is {_points(row)}"
        return [f"{name}, which trains in seconds, is not clearly worse than {rival}: {figures}."], True
    if row.value < 0:
        until = "" if has_learned else " until a base has learned"
        return [f"{name} beats {rival}: {figures}. Use it for this task{until}."], True
    smaller = [b for b in record.budgets if b < largest]
    rows = [_difference(record, _best_on_valid(record, b), "tfidf", b) for b in smaller]
    ahead = [other.budget for other in rows if other and other.is_clear and other.value < 0]
    level = [other.budget for other in rows if other and not other.is_clear]
    where = f"; with {_numbers(ahead)} labels TF-IDF is ahead" if ahead else ""
    where += f"; with {_numbers(level)} labels there is no clear difference" if level else ""
    return [f"{name} is behind pretraining: {figures}{where}."], False


def _on_top(record: StudyRecord, mixes: list[str], tuned: list[str]) -> list[str]:
    """What pretraining adds to what is had cheaply: to TF-IDF and LSA in a mix, and beyond LSA of the same text."""
    has_both = any(arm.kind == "tfidf-lsa" for arm in record.arms)
    cheap, name = ("tfidf-lsa", "TF-IDF and LSA") if has_both else ("tfidf", "TF-IDF")
    best = [_best(record, names, max(record.budgets)) for names in (mixes, tuned)]
    of_mix, of_lsa = (
        _split([row for row in record.differences if (row.arm, row.against) == pair])
        for pair in zip(best, (cheap, "lsa"), strict=True)
    )
    sentences = []
    if best[0]:
        signed = (("adds", of_mix[0]), ("costs", of_mix[1]))
        found = [f"{verb} {_over(rows)}" for verb, rows in signed if rows] or ["adds nothing clear"]
        who = "pretraining" if _has_learned(record, best[0]) else "this base"
        sentences.append(f"On top of {name} ({best[0]}), {who} {_joined(found)}.")
    if best[1] and any(arm.kind == "lsa" for arm in record.arms):
        signed = (("better", of_lsa[0]), ("worse", of_lsa[1]))
        budgets = [(word, [row.budget for row in rows]) for word, rows in signed if rows]
        found = [f"clearly {word} with {_numbers(numbers)} labels" for word, numbers in budgets]
        than = "than LSA, the cheap use of the same text"
        sentences.append(f"Fine-tuning is {_joined(found or ['not clearly better or worse'])} {than}.")
    return sentences


def _best_arm(record: StudyRecord) -> list[str]:
    """The best arm with a pretrained base, what it reaches, and what it cost."""
    largest = max(record.budgets)
    best = _best_on_valid(record, largest)
    if best is None:
        return []
    trained = best.replace("combined", "finetuned")  # a mix costs what is mixed
    costs = [t.operations for t in record.trials if (t.arm, t.budget, t.status) == (trained, largest, "done")]
    runs = [run.operations for run in record.pretraining if run.name in _bases(record, best)]
    pretraining = [f"{_operations(max(runs))} operations of pretraining"] if runs else []
    own = [f"{_operations(sum(costs) / len(costs))} {'' if runs else 'operations '}for each seed"] if any(costs) else []
    return [
        f"The best arm with a pretrained base, chosen on valid, is {best}: {_score(record, best, largest)} with "
        f"{largest:,} labels, for {' and '.join([*pretraining, *own])}."
    ]


def _outlook(record: StudyRecord) -> list[str]:
    """What more time is likely to bring, where the recipe had one to spend."""
    time = record.config["study"].get("time")
    runs = [run for run in record.pretraining if run.base and not run.shuffled]
    if not time or not runs or runs[0].base is None or runs[0].base.status == "too_little_text":
        return []
    epochs, dropout = runs[0].base.epochs, record.config.get("model", {}).get("dropout", 0.0)
    if epochs >= MOSTLY_READ * most_passes(runs[0].objective, dropout):
        read = f"The base has read the text {epochs:.0f} times, as often as pays"
        return [f"{read}: more text would help, more time would not."]
    if record.metric != "accuracy":  # in which it was measured
        return []
    low, high = worth(4)
    now, then = (format_duration(factor * seconds_in(time)) for factor in (1, 4))
    what = f"With {then} instead of {now}, expect {low:.1f} to {high:.1f} points more with 200 labels"
    return [f"{what}: so it was on two other texts (docs/recipes.md)."]


def _pays(record: StudyRecord, rows: list[DifferenceRecord], several: bool) -> list[str]:
    """Whether a pretrained arm beats scratch, budget by budget."""
    arm, against = rows[0].arm, rows[0].against
    which = f" ({arm})" if several else ""
    who = f"Pretraining{which}"
    base = who if _has_learned(record, arm) else f"This base{which}"
    better, worse = _split(rows)
    if not better and not worse:
        corrected = f" after Holm's correction for {len(rows)} budgets" if len(rows) > 1 else ""
        return [f"{base} {_UNCLEAR}{corrected}, compared with {against}: {_over(rows)}."]
    sentences = []
    if better:
        sentences.append(f"{who} pays, compared with {against}: {_over(better)}.")
        sentences += _language(record, arm, better)
    if worse:
        sentences.append(f"{base} hurts, compared with {against}: {_over(worse)}.")
    unclear = [row.budget for row in rows if not row.is_clear]
    if unclear and better:
        sentences.append(f"With {_numbers(unclear)} labels there is no clear difference.")
    return sentences


def _language(record: StudyRecord, name: str, better: list[DifferenceRecord]) -> list[str]:
    """Whether the gain comes from language, and not only from weights of a good scale."""
    if not any(arm.kind == "shuffled" for arm in record.arms):
        return []
    control = {d.budget: d for d in record.differences if (d.arm, d.against) == (name, "shuffled")}
    rows = [control[row.budget] for row in better if row.budget in control]
    if not rows:
        return [f"Whether the gain comes from language is unknown: {name} has no shuffled control."]
    ahead, _ = _split(rows)
    if ahead:
        return [f"The gain comes from language: compared with a base of shuffled tokens, {_over(ahead)}."]
    return [f"The gain may not come from language: compared with a base of shuffled tokens, {_over(rows)}."]


def _at_chance(record: StudyRecord) -> list[str]:
    """Whether a base that has learned knows nothing of these labels before it is fine-tuned."""
    largest, sentences = max(record.budgets), []
    chance = _reached(record, "majority", largest)
    for arm in record.arms:
        is_at_chance = arm.kind == "frozen" and not _is_above_majority(record, arm.name, largest)
        if chance and is_at_chance and _has_learned(record, arm.name):
            sentences.append(
                f"Frozen, the base is not clearly above the majority class with {largest:,} labels: "
                f"{_score(record, arm.name, largest)}. What it has learned of the text does not show in these labels."
            )
    return sentences


def _labels(record: StudyRecord, name: str) -> list[str]:
    """What the gain is worth in labels, at the smallest budget where there is one."""
    clear = {
        d.budget for d in record.differences
        if d.arm == name and d.against.startswith("scratch") and d.reading == "equal labels"
        and d.is_clear and d.value > 0
    }  # fmt: skip
    rows = [row for row in record.savings if row.arm == name and row.budget in clear]
    return [_sentence(row.labels.sentence) for row in rows[:1]]


def _objectives(record: StudyRecord) -> list[str]:
    """Which objective is best, where there are several."""
    names = [arm.name for arm in record.arms if arm.kind == "finetuned"]
    largest = max(record.budgets)
    best = _best(record, names, largest)
    if len(names) < 2 or best is None:
        return []
    scores = ", ".join(f"{name} {_score(record, name, largest)}" for name in names)
    behind = [
        name for name in names
        if (row := _difference(record, best, name, largest) or _difference(record, name, best, largest))
        and row.is_clear
    ]  # fmt: skip
    if behind:
        whom = "the others" if len(behind) == len(names) - 1 else _joined(behind)
        return [f"The best objective is {best}, ahead of {whom} with {largest:,} labels: {scores}."]
    return [f"No objective is clearly best with {largest:,} labels: {scores}."]


def _equal_compute(record: StudyRecord) -> list[str]:
    sentences = []
    for row in record.differences:
        if row.reading == "equal compute":
            result = f"{row.arm} {'stays ahead' if row.value > 0 else 'is behind'}"
            sentences.append(
                f"At equal total compute {result if row.is_clear else 'there is no clear difference'} (scratch also "
                f"gets the pretraining's compute, over all its tries, with {row.budget:,} labels): {_points(row)}."
            )
    return sentences


def _caveats(record: StudyRecord, tuned: list[str]) -> list[str]:
    sentences = []
    study = record.config["study"]
    bases = [run for run in record.pretraining if not run.shuffled]
    runs = len({run.seed for run in bases if run.status == "done"})
    if tuned and (bases or study["start"]) and (runs <= 1 or study["start"]):
        more = "; --pretrain-seeds tries others" if bases else ""
        sentences.append(f"All results are for one pretraining run{more}.")
    elif tuned and runs < study["seeds"]:
        sentences.append(
            f"{study['seeds']} seeds share {runs} pretraining runs, so the intervals are too narrow for other runs: "
            "give as many --pretrain-seeds as --seeds."
        )
    if study["seeds"] == 1:
        sentences.append("With one seed, the intervals do not account for variation over seeds.")
    return sentences


def _data_caveats(record: StudyRecord) -> list[str]:
    sentences, data = [], record.data
    if data.leaked_test_rows:
        searched = "train, valid or the corpus" if data.corpus else "train or valid"
        sentences.append(
            f"{data.leaked_test_rows:,} test rows also occur in {searched}: the report has the scores without them."
        )
    if record.config["study"]["start"]:
        sentences.append("The text that the imported base has read was not searched for test rows.")
    near = {name: count for name, count in data.leaks.items() if name.startswith("near_test_in_") and count}
    if near:
        sets = {name: name.rpartition("_")[2].replace("corpus", "the corpus") for name in near}
        where = _joined([f"{count:,} in {sets[name]}" for name, count in near.items()])
        sentences.append(f"Test rows with a near-duplicate elsewhere: {where}; all scores include them.")
    for name, part, use in (
        ("valid", data.valid, "choice on valid ignores"),
        ("test", data.test, "scores do not cover"),
    ):
        if missing := [label for label in data.labels if not part.classes.get(label)]:
            sentences.append(f"No row of {name} has the label {_joined(missing)}: the {use} it.")
    if record.failed:
        total = len(record.trials) + len(record.pretraining)
        failed = f"{len(record.failed)} of {total} trials and pretrainings"
        sentences.append(f"{failed} failed; the report shows them.")
    return sentences


# ---- numbers in words -------------------------------------------------------------------------------------------


def _split(rows: list[DifferenceRecord]) -> tuple[list[DifferenceRecord], list[DifferenceRecord]]:
    """The rows that are clearly above zero, and clearly below."""
    clear = [row for row in rows if row.is_clear]
    return [row for row in clear if row.value > 0], [row for row in clear if row.value < 0]


def _best(record: StudyRecord, names: list[str], budget: int) -> str | None:
    """The arm with the highest score at a budget."""
    scores = [s for s in record.scores if s.arm in names and s.budget == budget]
    known = {score.arm: reached.value for score in scores if (reached := record.of_metric(score))}
    return max(known, key=lambda name: known[name]) if known else None


def _best_on_valid(record: StudyRecord, budget: int) -> str | None:
    """The arm with a pretrained base that has the highest mean on valid at a budget."""
    means = record.valid_scores(budget)
    names = [arm.name for arm in record.arms if arm.kind in _WITH_BASE and arm.name in means]
    return max(names, key=lambda name: means[name], default=None)


def _difference(record: StudyRecord, arm: str | None, against: str, budget: int) -> DifferenceRecord | None:
    wanted = (arm, against, budget)
    return next((d for d in record.differences if (d.arm, d.against, d.budget) == wanted), None)


def _reached(record: StudyRecord, arm: str, budget: int) -> Interval | None:
    return next((record.of_metric(s) for s in record.scores if (s.arm, s.budget) == (arm, budget)), None)


def _is_above_majority(record: StudyRecord, arm: str, budget: int) -> bool:
    """Whether an arm is clearly better than the majority class; one without a score is not said to be worse."""
    score = next((s for s in record.scores if (s.arm, s.budget) == (arm, budget)), None)
    reached, chance = score and record.of_metric(score), _reached(record, "majority", budget)
    if not score or not reached or not chance:
        return True
    return score.above_majority.low > 0 if score.above_majority else reached.low > chance.value


def _score(record: StudyRecord, arm: str, budget: int) -> str:
    a = _reached(record, arm, budget)
    return f"{_percent(record, a.value)} ({100 * a.low:.1f} to {100 * a.high:.1f})" if a else "no score"


def _percent(record: StudyRecord, share: float) -> str:
    return f"{100 * share:.1f} %" + ("" if record.metric == "accuracy" else f" {record.metric_title}")


def _points(row: DifferenceRecord) -> str:
    text = f"{100 * row.value:+.1f} points ({100 * row.low:+.1f} to {100 * row.high:+.1f})"
    return text.replace("-", "−")


def _operations(count: float) -> str:
    return f"{count:.1e}".replace("e+", "e")


def _over(rows: list[DifferenceRecord]) -> str:
    """Differences, budget by budget."""
    return "; ".join(f"{_points(row)} with {row.budget:,} labels" for row in rows)


def _numbers(numbers: list[int]) -> str:
    return _joined([f"{number:,}" for number in numbers])


def _joined(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
