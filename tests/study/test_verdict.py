"""Sentences made from numbers: each test gives the numbers and reads the claim."""

import pytest

from headstart.study.verdict import verdict

KINDS = {"tfidf": "tfidf", "scratch": "scratch", "finetuned": "finetuned", "shuffled": "shuffled"}


def row(arm, against, budget, value, p_holm, reading="equal labels"):
    return {
        "arm": arm, "against": against, "budget": budget, "reading": reading, "value": value,
        "low": value - 0.02, "high": value + 0.02, "p": p_holm, "p_holm": p_holm,
    }  # fmt: skip


def score(arm, budget, value):
    return {
        "arm": arm,
        "budget": budget,
        "accuracy": {"value": value, "low": value - 0.02, "high": value + 0.02},
    }


def found(differences, scores=(), arms=("tfidf", "scratch", "finetuned"), **changes):
    budgets = sorted({d["budget"] for d in differences} | {s["budget"] for s in scores})
    return {
        "arms": [{"name": name, "kind": KINDS.get(name, name.split("-")[0])} for name in arms],
        "budgets": budgets, "differences": list(differences), "scores": list(scores),
        "head_start": [], "pretraining": [{"name": "causal-s0", "status": "done", "seed": 0}], "trials": [],
        "config": {"study": {"seeds": 5, "pretrain_seeds": 1, "start": ""}},
        "data": {"leaked_test_rows": 0}, "power": {"sentence": "3.1 points can be detected"}, **changes,
    }  # fmt: skip


def test_a_clear_gain_is_claimed_with_its_interval_and_only_where_it_is_clear():
    sentences = verdict(found([
        row("finetuned", "scratch", 50, 0.1, 0.001), row("finetuned", "scratch", 1600, 0.01, 0.4),
    ]))  # fmt: skip
    assert "Pretraining pays here, against scratch: +10.0 points (+8.0 to +12.0) with 50 labels." in sentences
    assert "With 1,600 labels no difference can be seen." in sentences


def test_no_gain_is_no_claim_and_says_what_could_have_been_seen():
    (sentence, power, *_) = verdict(found([row("finetuned", "scratch", 50, 0.01, 0.3)]))
    assert sentence.startswith("Pretraining makes no difference that this study can be sure of")
    assert power == "3.1 points can be detected."


def test_harm_is_said():
    sentences = verdict(found([row("finetuned", "scratch", 50, -0.1, 0.001)]))
    assert any(s.startswith("Pretraining does harm here") for s in sentences)
    assert not any("pays" in s for s in sentences)


@pytest.mark.parametrize(
    ("value", "p", "beginning", "place"),
    [
        (
            -0.05,
            0.001,
            "TF-IDF with logistic regression is better: with 200 labels it reaches 85.0 % (83.0 to 87.0)",
            0,
        ),
        (
            -0.01,
            0.5,
            "TF-IDF with logistic regression, which costs seconds, cannot be told from pretraining",
            0,
        ),
        (0.05, 0.001, "TF-IDF with logistic regression is behind", 1),
    ],
)
def test_what_tfidf_would_do_is_said_and_first_where_it_is_enough(value, p, beginning, place):
    differences = [row("finetuned", "scratch", 200, 0.1, 0.001), row("finetuned", "tfidf", 200, value, p)]
    scores = [score("tfidf", 200, 0.85), score("finetuned", 200, 0.85 + value)]
    sentences = verdict(found(differences, scores))
    assert [sentence.startswith(beginning) for sentence in sentences].index(True) == place


def test_language_is_claimed_only_where_the_shuffled_base_is_beaten_too():
    arms = ("scratch", "finetuned", "shuffled")
    gain = row("finetuned", "scratch", 50, 0.1, 0.001)
    beaten = verdict(found([gain, row("finetuned", "shuffled", 50, 0.08, 0.001)], arms=arms))
    level = verdict(found([gain, row("finetuned", "shuffled", 50, 0.01, 0.6)], arms=arms))
    assert any(s.startswith("It is language that was transferred") for s in beaten)
    assert any(s.startswith("That it is language is not shown") for s in level)
    assert not any(s.startswith("It is language") for s in level)


def test_a_gain_at_one_budget_and_a_beaten_control_at_another_is_no_language():
    arms = ("scratch", "finetuned", "shuffled")
    differences = [
        row("finetuned", "scratch", 50, 0.1, 0.001), row("finetuned", "scratch", 200, 0.0, 0.9),
        row("finetuned", "shuffled", 50, 0.0, 0.9), row("finetuned", "shuffled", 200, 0.1, 0.001),
    ]  # fmt: skip
    assert not any(s.startswith("It is language") for s in verdict(found(differences, arms=arms)))


def test_labels_saved_are_told_where_the_gain_is_clear():
    head_start = [
        {
            "arm": "finetuned",
            "against": "scratch",
            "budget": budget,
            "labels": {"sentence": f"worth {budget}"},
        }
        for budget in (50, 200)
    ]
    differences = [row("finetuned", "scratch", 50, 0.0, 0.9), row("finetuned", "scratch", 200, 0.1, 0.01)]
    sentences = verdict(found(differences, head_start=head_start))
    assert "Worth 200." in sentences
    assert "Worth 50." not in sentences


def test_equal_compute_is_read_apart():
    differences = [row("finetuned", "scratch-long", 200, 0.03, 0.01, "equal compute")]
    sentences = verdict(found(differences, arms=("scratch", "scratch-long", "finetuned")))
    assert any(s.startswith("At equal total compute finetuned stays ahead") for s in sentences)


def test_the_best_objective_is_named_only_where_it_is_clear():
    arms = ("finetuned-causal", "finetuned-masked")
    scores = [score("finetuned-causal", 200, 0.8), score("finetuned-masked", 200, 0.85)]
    kinds = [{"name": name, "kind": "finetuned"} for name in arms]
    clear = [row("finetuned-masked", "finetuned-causal", 200, 0.05, 0.01)]
    level = [row("finetuned-masked", "finetuned-causal", 200, 0.05, 0.2)]
    said = verdict({**found(clear, scores), "arms": kinds})
    unsaid = verdict({**found(level, scores), "arms": kinds})
    assert any(s.startswith("Of the objectives finetuned-masked is ahead") for s in said)
    assert any(s.startswith("The objectives cannot be told apart") for s in unsaid)


def test_what_limits_the_claim_is_said():
    settings = {"study": {"seeds": 1, "pretrain_seeds": 1, "start": ""}}
    trials = [{"status": "failed"}, {"status": "done"}]
    sentences = verdict(found(
        [row("finetuned", "scratch", 50, 0.1, 0.001)], config=settings, data={"leaked_test_rows": 43}, trials=trials,
    ))  # fmt: skip
    text = " ".join(sentences)
    assert "for this pretraining run" in text
    assert "One seed only" in text
    assert "43 rows of test" in text
    assert "1 of 3 trials and pretrainings failed" in text


def test_what_was_searched_for_leaks_is_told():
    changes = {"data": {"leaked_test_rows": 2, "corpus": [{"file": "news.txt"}]}}
    text = " ".join(verdict(found([row("finetuned", "scratch", 50, 0.1, 0.001)], **changes)))
    assert "2 rows of test stand in train, valid or the corpus too" in text
    assert "imported" not in text
    settings = {"study": {"seeds": 5, "pretrain_seeds": 1, "start": "runs/base"}}
    changes = {"data": {"leaked_test_rows": 2, "corpus": []}, "config": settings}
    text = " ".join(verdict(found([row("imported", "scratch", 50, 0.1, 0.001)], **changes)))
    assert "2 rows of test stand in train or valid too" in text
    assert "Whether rows of test stand in what the imported base has read was not searched." in text


def test_near_copies_and_labels_that_no_row_has_are_told():
    data = {
        "leaked_test_rows": 0, "leaks": {"near_test_in_train": 3, "near_test_in_corpus": 0, "test_in_train": 0},
        "labels": ["bad", "fair", "good"], "valid": {"classes": {"bad": 1, "fair": 2, "good": 3}},
        "test": {"classes": {"bad": 4, "good": 5}},
    }  # fmt: skip
    text = " ".join(verdict(found([row("finetuned", "scratch", 50, 0.1, 0.001)], data=data)))
    assert "nearly alike: 3 in train; all scores count them" in text
    assert "corpus" not in text
    assert "No row of test is fair: scored without." in text
    assert "No row of valid" not in text


@pytest.mark.parametrize(
    ("seeds", "runs", "said"),
    [(3, 3, ""), (5, 1, "for this pretraining run"), (5, 2, "5 seeds share 2 pretraining runs")],
)
def test_how_many_pretraining_runs_there_were_is_said(seeds, runs, said):
    settings = {"study": {"seeds": seeds, "pretrain_seeds": 5, "start": ""}}
    done = [{"name": f"causal-s{n}", "status": "done", "seed": n} for n in range(runs)]
    failed = [{"name": "causal-s9", "status": "failed", "seed": 9}]
    sentences = verdict(
        found([row("finetuned", "scratch", 50, 0.1, 0.001)], config=settings, pretraining=done + failed)
    )
    text = " ".join(sentences)
    assert said in text
    assert ("pretraining run" in text) == bool(said)


def test_without_a_control_of_its_own_nothing_is_said_of_language():
    arms = [
        {"name": name, "kind": KINDS.get(name, "finetuned")}
        for name in ("scratch", "shuffled", "finetuned-masked")
    ]
    sentences = verdict({**found([row("finetuned-masked", "scratch", 50, 0.2, 0.001)]), "arms": arms})
    assert any("has no shuffled control here" in s for s in sentences)
    assert not any("is language that was transferred" in s for s in sentences)


def test_the_best_mean_is_not_called_ahead_of_one_that_it_does_not_beat():
    names = ["finetuned-causal", "finetuned-masked", "finetuned-masked-nsp"]
    scores = [score(name, 200, value) for name, value in zip(names, (0.85, 0.80, 0.852), strict=True)]
    differences = [
        row(names[1], names[0], 200, -0.05, 0.001), row(names[2], names[0], 200, 0.002, 0.9),
        row(names[2], names[1], 200, 0.052, 0.001),
    ]  # fmt: skip
    arms = [{"name": name, "kind": "finetuned"} for name in names]
    sentences = verdict({**found(differences, scores), "arms": arms})
    assert any(
        s.startswith("Of the objectives finetuned-masked-nsp is ahead of finetuned-masked with")
        for s in sentences
    )


def test_without_the_trials_that_would_tell_nothing_is_claimed():
    (sentence, *_) = verdict(found([]) | {"budgets": [50]})
    assert sentence.startswith("Whether pretraining pays cannot be said")
