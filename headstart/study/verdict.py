"""The verdict: a few plain sentences, made from the numbers of study.json and from nothing else.

What is claimed is what the intervals and Holm's p carry. Where TF-IDF does as well, that comes first. "Language was
transferred" is claimed only where the pretrained arm beats scratch and, where that arm was run, `shuffled` too.
"""

from typing import Any

LEVEL = 0.05
_UNSURE = "makes no difference that this study can be sure of"
Found = dict[str, Any]


def verdict(found: Found) -> list[str]:
    """The sentences, the most important first."""
    kinds = {arm["name"]: arm["kind"] for arm in found["arms"]}
    tuned = [name for name, kind in kinds.items() if kind in ("finetuned", "imported")]
    simple, is_enough = _tfidf(found, tuned)
    sentences = [*(simple if is_enough else []), *_objectives(found)]
    for name in tuned:
        against = next(
            (
                d["against"]
                for d in found["differences"]
                if d["arm"] == name and kinds[d["against"]] == "scratch"
            ),
            None,
        )
        if against:
            sentences += _pays(found, name, against, len(tuned) > 1)
            sentences += _worth(found, name)
    if not any(d["arm"] in tuned for d in found["differences"]):
        sentences.append("Whether pretraining pays cannot be said: no trials here would tell.")
    sentences += [*([] if is_enough else simple), *_compute(found)]
    if any(_UNSURE in sentence for sentence in sentences):
        sentences.append(_sentence(found["power"]["sentence"]))
    return [*sentences, *_caveats(found, tuned)]


# ---- the sentences ----------------------------------------------------------------------------------------------


def _tfidf(found: Found, tuned: list[str]) -> tuple[list[str], bool]:
    """Whether something simple would do, at the largest budget, and whether it is enough: then it is said first."""
    largest = max(found["budgets"])
    best = _best(found, tuned, largest)
    row = _difference(found, best, "tfidf", largest)
    if row is None or best is None:
        return [], False
    simple, neural = _score(found, "tfidf", largest), _score(found, best, largest)
    whom = (
        f"the best of {len(tuned)} pretrained arms ({best})"
        if len(tuned) > 1
        else f"the pretrained arm ({best})"
    )
    figures = f"with {largest:,} labels it reaches {simple}, {whom} {neural}"
    if _is_clear(row) and row["value"] < 0:
        return [f"TF-IDF with logistic regression is better: {figures}. For this task, use that."], True
    if _is_clear(row):
        rows = {
            b: _difference(found, _best(found, tuned, b), "tfidf", b)
            for b in found["budgets"]
            if b != largest
        }
        better = [b for b, r in rows.items() if r and _is_clear(r) and r["value"] < 0]
        level = [b for b, r in rows.items() if r and not _is_clear(r)]
        where = f"; with {_listed(better)} labels it is better" if better else ""
        where += f"; with {_listed(level)} labels the two cannot be told apart" if level else ""
        return [f"TF-IDF with logistic regression is behind: {figures}{where}."], False
    return [
        f"TF-IDF with logistic regression, which costs seconds, cannot be told from pretraining: {figures}; "
        f"the difference is {_points(row)}."
    ], True


def _pays(found: Found, name: str, against: str, several: bool) -> list[str]:
    """Whether the pretrained arm beats scratch, budget by budget."""
    rows = [d for d in found["differences"] if d["arm"] == name and d["against"] == against]
    if not rows:
        return []
    better = [row for row in rows if _is_clear(row) and row["value"] > 0]
    worse = [row for row in rows if _is_clear(row) and row["value"] < 0]
    who = f"Pretraining ({name})" if several else "Pretraining"
    if not better and not worse:
        corrected = f" once {len(rows)} budgets are allowed for (Holm)" if len(rows) > 1 else ""
        return [f"{who} {_UNSURE}{corrected}, against {against}: {_over(rows)}."]
    sentences = []
    if better:
        sentences.append(f"{who} pays here, against {against}: {_over(better)}.")
        sentences += _language(found, name, better)
    if worse:
        sentences.append(f"{who} does harm here, against {against}: {_over(worse)}.")
    quiet = [row["budget"] for row in rows if not _is_clear(row)]
    if quiet and better:
        sentences.append(f"With {_listed(quiet)} labels no difference can be seen.")
    return sentences


def _language(found: Found, name: str, better: list[Found]) -> list[str]:
    """Whether the gain is shown to be one of language, and not only that of weights of a good scale."""
    if not any(arm["kind"] == "shuffled" for arm in found["arms"]):
        return []
    control = {
        d["budget"]: d for d in found["differences"] if d["arm"] == name and d["against"] == "shuffled"
    }
    rows = [control[row["budget"]] for row in better if row["budget"] in control]
    held = [row for row in rows if _is_clear(row) and row["value"] > 0]
    if held:
        return [
            f"It is language that was transferred: against a base of shuffled tokens it is {_over(held)}."
        ]
    if not rows:
        return [f"Whether that is language cannot be said: {name} has no shuffled control here."]
    return [f"That it is language is not shown: against a base of shuffled tokens it is {_over(rows)}."]


def _worth(found: Found, name: str) -> list[str]:
    """What the gain is worth in labels, at the smallest budget where there is one."""
    clear = {
        d["budget"] for d in found["differences"]
        if d["arm"] == name and d["against"].startswith("scratch") and d["reading"] == "equal labels"
        and _is_clear(d) and d["value"] > 0
    }  # fmt: skip
    rows = [row for row in found["head_start"] if row["arm"] == name and row["budget"] in clear]
    return [_sentence(row["labels"]["sentence"]) for row in rows[:1]]


def _objectives(found: Found) -> list[str]:
    """Which objective, where there are several."""
    names = [arm["name"] for arm in found["arms"] if arm["kind"] == "finetuned"]
    largest = max(found["budgets"])
    best = _best(found, names, largest)
    if len(names) < 2 or best is None:
        return []
    scores = ", ".join(f"{name} {_score(found, name, largest)}" for name in names)
    behind = [name for name in names if (r := _between(found, best, name, largest)) and _is_clear(r)]
    if behind:
        whom = "the others" if len(behind) == len(names) - 1 else _joined(behind)
        return [f"Of the objectives {best} is ahead of {whom} with {largest:,} labels: {scores}."]
    return [f"The objectives cannot be told apart with {largest:,} labels: {scores}."]


def _compute(found: Found) -> list[str]:
    """The reading at equal total compute."""
    sentences = []
    for row in found["differences"]:
        if row["reading"] == "equal compute":
            given = (
                f"scratch given the pretraining's compute too, over its tries, with {row['budget']:,} labels"
            )
            if not _is_clear(row):
                sentences.append(
                    f"At equal total compute no difference can be seen ({given}): {_points(row)}."
                )
            else:
                word = "stays ahead" if row["value"] > 0 else "is behind"
                sentences.append(f"At equal total compute {row['arm']} {word} ({given}): {_points(row)}.")
    return sentences


def _caveats(found: Found, tuned: list[str]) -> list[str]:
    sentences = []
    study = found["config"]["study"]
    bases = [p for p in found["pretraining"] if not p.get("shuffled")]
    runs = len({p["seed"] for p in bases if p["status"] == "done"})
    if tuned and (bases or study["start"]) and (runs <= 1 or study["start"]):
        sentences.append(
            "All this is for this pretraining run: another one was not tried"
            + (" (--pretrain-seeds would)." if bases else ".")
        )
    elif tuned and runs < study["seeds"]:
        sentences.append(
            f"{study['seeds']} seeds share {runs} pretraining runs: for other runs the intervals are too narrow "
            "(as many --pretrain-seeds as --seeds would be right)."
        )
    if study["seeds"] == 1:
        sentences.append("One seed only: the intervals say nothing about other seeds.")
    leaked = found["data"]["leaked_test_rows"]
    searched = "train, valid or the corpus" if found["data"].get("corpus") else "train or valid"
    if leaked:
        sentences.append(
            f"{leaked:,} rows of test stand in {searched} too: the report has the scores without them."
        )
    if found["config"]["study"]["start"]:
        sentences.append("Whether rows of test stand in what the imported base has read was not searched.")
    sentences += _data_caveats(found["data"])
    failed = [t for t in (*found["trials"], *found["pretraining"]) if t["status"] == "failed"]
    if failed:
        total = len(found["trials"]) + len(found["pretraining"])
        sentences.append(f"{len(failed)} of {total} trials and pretrainings failed, and are shown as such.")
    return sentences


def _data_caveats(data: Found) -> list[str]:
    """What the labelled rows make the scores say less than they seem to."""
    sentences = []
    near = {name: count for name, count in data.get("leaks", {}).items() if name.startswith("near_test_in_")}
    if any(near.values()):
        places = {name: name.rpartition("_")[2].replace("corpus", "the corpus") for name in near}
        where = _joined([f"{count:,} in {places[name]}" for name, count in near.items() if count])
        sentences.append(f"Rows of test that stand elsewhere nearly alike: {where}; all scores count them.")
    for name in ("valid", "test"):
        seen = data.get(name, {}).get("classes", {})
        missing = [label for label in data.get("labels", []) if not seen.get(label)] if seen else []
        if missing:
            what = "chosen by" if name == "valid" else "scored"
            sentences.append(f"No row of {name} is {_joined(missing)}: {what} without.")
    return sentences


# ---- numbers in words -------------------------------------------------------------------------------------------


def _is_clear(row: Found) -> bool:
    """A difference that can be claimed: both by Holm's p and by its interval."""
    return bool(row["p_holm"] < LEVEL and not row["low"] <= 0 <= row["high"])


def _best(found: Found, names: list[str], budget: int) -> str | None:
    """The pretrained arm with the highest score at a budget: it is the one that TF-IDF has to be measured with."""
    scores = {
        s["arm"]: s["accuracy"]["value"]
        for s in found["scores"]
        if s["arm"] in names and s["budget"] == budget and s["accuracy"]
    }
    return max(scores, key=lambda name: scores[name]) if scores else None


def _difference(found: Found, arm: str | None, against: str, budget: int) -> Found | None:
    rows = [
        d for d in found["differences"]
        if d["arm"] == arm and d["against"] == against and d["budget"] == budget
    ]  # fmt: skip
    return rows[0] if rows else None


def _between(found: Found, one: str, other: str, budget: int) -> Found | None:
    """The difference of two arms, whichever way it was taken."""
    return _difference(found, one, other, budget) or _difference(found, other, one, budget)


def _score(found: Found, arm: str, budget: int) -> str:
    for score in found["scores"]:
        if score["arm"] == arm and score["budget"] == budget and score["accuracy"]:
            a = score["accuracy"]
            return f"{100 * a['value']:.1f} % ({100 * a['low']:.1f} to {100 * a['high']:.1f})"
    return "no score"


def _points(row: Found) -> str:
    return (
        f"{100 * row['value']:+.1f} points ({100 * row['low']:+.1f} to {100 * row['high']:+.1f})"
    ).replace("-", "−")


def _over(rows: list[Found]) -> str:
    """Differences, budget by budget."""
    return "; ".join(f"{_points(row)} with {row['budget']:,} labels" for row in rows)


def _listed(numbers: list[int]) -> str:
    return _joined([f"{number:,}" for number in numbers])


def _joined(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _sentence(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
