"""Sentences made from numbers: each test gives the numbers and reads the claim."""

import dataclasses

import pytest

from headstart.runs.base_status import judged
from headstart.study.record import (
    ArmRecord,
    DataRecord,
    DifferenceRecord,
    EpochsToMatch,
    Interval,
    LabelsToMatch,
    ModelRecord,
    Power,
    PretrainingRecord,
    Savings,
    Score,
    StudyRecord,
    TrialRecord,
    Try,
    parse,
)
from headstart.study.verdict import verdict

SETS = ("train", "valid", "test")

KINDS = {"tfidf": "tfidf", "scratch": "scratch", "finetuned": "finetuned", "shuffled": "shuffled"}


def row(arm, against, budget, value, p_holm, reading="equal labels"):
    return DifferenceRecord(
        arm=arm, against=against, budget=budget, reading=reading, value=value,
        low=value - 0.02, high=value + 0.02, p=p_holm, p_holm=p_holm,
    )  # fmt: skip


def score(arm, budget, value):
    accuracy = Interval(value=value, low=value - 0.02, high=value + 0.02)
    return Score(arm=arm, budget=budget, seeds=5, failed=0, accuracy=accuracy)


def arm(name, kind=None):
    return ArmRecord(name=name, kind=kind or KINDS.get(name, name.split("-")[0]), title=name)


def run(number=0, status="done", objective="causal", **facts):
    return PretrainingRecord(name=f"{objective}-s{number}", objective=objective, seed=number, status=status, **facts)


def base(status="undertrained"):
    """A base with the losses that make it so."""
    loss, train_loss = {"learned": (3.9, 3.8), "undertrained": (6.34, 6.33), "too_little_text": (7.8, 2.9)}[status]
    entropies = {"unigram_entropy": 7.01, "bigram_entropy": 5.23}
    found = judged(steps=133, epochs=3.0, tokens=2_894_792, loss=loss, train_loss=train_loss, **entropies)
    assert found.status == status
    return found


def trial(status, arm="scratch", budget=50, valid=0.5, **facts):
    tries = [Try(value=1e-3, accuracy=valid), Try(value=1e-2, accuracy=0.0)]
    return TrialRecord(arm=arm, budget=budget, seed=0, status=status, chosen=1e-3, tries=tries, **facts)


def data(**changes):
    """The data of a study without leaks, in which every label has rows."""
    sets = {name: {"file": name, "rows": 2, "classes": {"bad": 1, "good": 1}, "sha256": ""} for name in SETS}
    corpus = [{"file": "news.txt", "sha256": ""}]
    plain = {"corpus": corpus, **sets, "labels": ["bad", "good"], "leaks": {}, "leaked_test_rows": 0}
    return parse(DataRecord, plain | changes, "data")


def settings(seeds=5, start=""):
    return {"study": {"seeds": seeds, "start": start}}


def found(differences, scores=(), arms=("tfidf", "scratch", "finetuned"), **changes):
    record = StudyRecord(
        format=1, name="", command=[], verdict=[], learning_rates=[], seeds=[], confusion=[], items=[],
        model=ModelRecord(preset="", parameters=0, vocab=0, description=""), config=settings(), data=data(),
        power=Power(items=0, seeds=0, points=3.1, sentence="3.1 points can be detected"), savings=[],
        arms=[one if isinstance(one, ArmRecord) else arm(one) for one in arms], pretraining=[run()],
        trials=[trial("done", one.arm, one.budget, one.accuracy.value) for one in scores],
        budgets=sorted({one.budget for one in (*differences, *scores)}), differences=list(differences),
        scores=list(scores),
    )  # fmt: skip
    return dataclasses.replace(record, **changes)


def test_a_clear_gain_is_claimed_with_its_interval_and_only_where_it_is_clear():
    sentences = verdict(found([
        row("finetuned", "scratch", 50, 0.1, 0.001), row("finetuned", "scratch", 1600, 0.01, 0.4),
    ]))  # fmt: skip
    assert "Pretraining pays, compared with scratch: +10.0 points (+8.0 to +12.0) with 50 labels." in sentences
    assert "With 1,600 labels there is no clear difference." in sentences


def test_no_gain_is_no_claim_and_says_what_could_have_been_seen():
    (sentence, power, *_) = verdict(found([row("finetuned", "scratch", 50, 0.01, 0.3)]))
    assert sentence.startswith("Pretraining makes no clear difference, compared with scratch")
    assert power == "3.1 points can be detected."


def test_harm_is_said():
    sentences = verdict(found([row("finetuned", "scratch", 50, -0.1, 0.001)]))
    assert any(s.startswith("Pretraining hurts") for s in sentences)
    assert not any("pays" in s for s in sentences)


@pytest.mark.parametrize(
    ("value", "p", "beginning", "position"),
    [
        (
            -0.05,
            0.001,
            "TF-IDF with logistic regression beats pretraining: with 200 labels it reaches 85.0 % (83.0 to 87.0)",
            0,
        ),
        (
            -0.01,
            0.5,
            "TF-IDF with logistic regression, which trains in seconds, is not clearly worse than pretraining",
            0,
        ),
        (0.05, 0.001, "TF-IDF with logistic regression is behind", 1),
    ],
)
def test_what_tfidf_would_do_is_said_and_first_where_it_is_enough(value, p, beginning, position):
    differences = [row("finetuned", "scratch", 200, 0.1, 0.001), row("finetuned", "tfidf", 200, value, p)]
    scores = [score("tfidf", 200, 0.85), score("finetuned", 200, 0.85 + value)]
    sentences = verdict(found(differences, scores))
    assert [sentence.startswith(beginning) for sentence in sentences].index(True) == position


def test_what_pretraining_adds_on_top_of_tfidf_and_beyond_lsa_is_said():
    arms = ("tfidf", "lsa", "scratch", "finetuned", "combined")
    scores = [score(name, 200, 0.8) for name in arms]
    gain = [row("combined", "tfidf", 50, 0.1, 0.001), row("combined", "tfidf", 200, 0.01, 0.4)]
    cheap = [row("finetuned", "lsa", 50, 0.05, 0.001), row("finetuned", "lsa", 200, -0.05, 0.001)]
    sentences = verdict(found([*gain, *cheap], scores, arms))
    on_top = "On top of TF-IDF (combined), pretraining adds +10.0 points (+8.0 to +12.0) with 50 labels."
    assert on_top in sentences
    assert (
        "Fine-tuning is clearly better with 50 labels and clearly worse with 200 labels than LSA, the cheap use of "
        "the same text."
    ) in sentences
    mixed = [row("combined", "tfidf-lsa", 50, 0.04, 0.001), row("combined", "tfidf-lsa", 200, 0.0, 0.9)]
    both = verdict(found([*gain, *cheap, *mixed], scores, (*arms, arm("tfidf-lsa", "tfidf-lsa"))))
    on_both = "On top of TF-IDF and LSA (combined), pretraining adds +4.0 points (+2.0 to +6.0) with 50 labels."
    assert on_both in both
    level = [row("combined", "tfidf", 200, 0.0, 0.9), row("finetuned", "lsa", 200, 0.0, 0.9)]
    text = " ".join(verdict(found(level, scores, arms)))
    assert "pretraining adds nothing clear. Fine-tuning is not clearly better or worse than LSA" in text


def test_the_mix_is_a_pretrained_arm_beside_tfidf():
    arms = ("tfidf", "scratch", "finetuned", "combined")
    scores = [score("tfidf", 200, 0.85), score("finetuned", 200, 0.8), score("combined", 200, 0.9)]
    differences = [row("finetuned", "tfidf", 200, -0.05, 0.001), row("combined", "tfidf", 200, 0.05, 0.001)]
    text = " ".join(verdict(found(differences, scores, arms)))
    assert "is behind pretraining" in text
    assert "the best of 2 pretrained arms (combined) 90.0 %" in text


def test_language_is_claimed_only_where_the_shuffled_base_is_beaten_too():
    arms = ("scratch", "finetuned", "shuffled")
    gain = row("finetuned", "scratch", 50, 0.1, 0.001)
    beaten = verdict(found([gain, row("finetuned", "shuffled", 50, 0.08, 0.001)], arms=arms))
    level = verdict(found([gain, row("finetuned", "shuffled", 50, 0.01, 0.6)], arms=arms))
    assert any(s.startswith("The gain comes from language") for s in beaten)
    assert any(s.startswith("The gain may not come from language") for s in level)
    assert not any(s.startswith("The gain comes from language") for s in level)


def test_a_gain_at_one_budget_and_a_beaten_control_at_another_is_no_language():
    arms = ("scratch", "finetuned", "shuffled")
    differences = [
        row("finetuned", "scratch", 50, 0.1, 0.001), row("finetuned", "scratch", 200, 0.0, 0.9),
        row("finetuned", "shuffled", 50, 0.0, 0.9), row("finetuned", "shuffled", 200, 0.1, 0.001),
    ]  # fmt: skip
    assert not any(s.startswith("The gain comes from language") for s in verdict(found(differences, arms=arms)))


def test_labels_saved_are_told_where_the_gain_is_clear():
    savings = [
        Savings(
            arm="finetuned", against="scratch", budget=budget, epochs=EpochsToMatch(),
            labels=LabelsToMatch(sentence=f"worth {budget}"),
        )
        for budget in (50, 200)
    ]  # fmt: skip
    differences = [row("finetuned", "scratch", 50, 0.0, 0.9), row("finetuned", "scratch", 200, 0.1, 0.01)]
    sentences = verdict(found(differences, savings=savings))
    assert "Worth 200." in sentences
    assert "Worth 50." not in sentences


def test_equal_compute_is_read_apart():
    differences = [row("finetuned", "scratch-long", 200, 0.03, 0.01, "equal compute")]
    sentences = verdict(found(differences, arms=("scratch", "scratch-long", "finetuned")))
    assert any(s.startswith("At equal total compute finetuned stays ahead") for s in sentences)


def test_the_best_objective_is_named_only_where_it_is_clear():
    arms = ("finetuned-causal", "finetuned-masked")
    scores = [score("finetuned-causal", 200, 0.8), score("finetuned-masked", 200, 0.85)]
    clear = [row("finetuned-masked", "finetuned-causal", 200, 0.05, 0.01)]
    level = [row("finetuned-masked", "finetuned-causal", 200, 0.05, 0.2)]
    said, unsaid = (verdict(found(rows, scores, arms)) for rows in (clear, level))
    assert any(s.startswith("The best objective is finetuned-masked, ahead of the others") for s in said)
    assert any(s.startswith("No objective is clearly best") for s in unsaid)


def test_what_limits_the_claim_is_said():
    sentences = verdict(found(
        [row("finetuned", "scratch", 50, 0.1, 0.001)], config=settings(seeds=1), data=data(leaked_test_rows=43),
        trials=[trial("failed"), trial("done")],
    ))  # fmt: skip
    text = " ".join(sentences)
    assert "for one pretraining run" in text
    assert "With one seed" in text
    assert "43 test rows" in text
    assert "1 of 3 trials and pretrainings failed" in text


def test_what_was_searched_for_leaks_is_told():
    gain = [row("finetuned", "scratch", 50, 0.1, 0.001)]
    text = " ".join(verdict(found(gain, data=data(leaked_test_rows=2))))
    assert "2 test rows also occur in train, valid or the corpus" in text
    assert "imported" not in text
    changes = {"data": data(leaked_test_rows=2, corpus=[]), "config": settings(start="runs/base")}
    text = " ".join(verdict(found([row("imported", "scratch", 50, 0.1, 0.001)], **changes)))
    assert "2 test rows also occur in train or valid:" in text
    assert "The text that the imported base has read was not searched for test rows." in text


def test_near_copies_and_labels_that_no_row_has_are_told():
    changes = {
        "leaks": {"near_test_in_train": 3, "near_test_in_corpus": 0, "test_in_train": 0},
        "labels": ["bad", "fair", "good"],
        "valid": {"file": "", "rows": 6, "classes": {"bad": 1, "fair": 2, "good": 3}, "sha256": ""},
    }
    text = " ".join(verdict(found([row("finetuned", "scratch", 50, 0.1, 0.001)], data=data(**changes))))
    assert "near-duplicate elsewhere: 3 in train; all scores include them" in text
    assert "corpus" not in text
    assert "No row of test has the label fair: the scores do not cover it." in text
    assert "No row of valid" not in text


@pytest.mark.parametrize(
    ("seeds", "runs", "said"),
    [(3, 3, ""), (5, 1, "for one pretraining run"), (5, 2, "5 seeds share 2 pretraining runs")],
)
def test_how_many_pretraining_runs_there_were_is_said(seeds, runs, said):
    pretraining = [*map(run, range(runs)), run(9, "failed")]
    gain = [row("finetuned", "scratch", 50, 0.1, 0.001)]
    sentences = verdict(found(gain, config=settings(seeds), pretraining=pretraining))
    text = " ".join(sentences)
    assert said in text
    assert ("pretraining run" in text) == bool(said)


def test_without_a_control_of_its_own_nothing_is_said_of_language():
    arms = ("scratch", "shuffled", "finetuned-masked")
    sentences = verdict(found([row("finetuned-masked", "scratch", 50, 0.2, 0.001)], arms=arms))
    assert any("has no shuffled control" in s for s in sentences)
    assert not any(s.startswith("The gain comes from language") for s in sentences)


def test_the_best_mean_is_not_called_ahead_of_one_that_it_does_not_beat():
    names = ["finetuned-causal", "finetuned-masked", "finetuned-masked-nsp"]
    scores = [score(name, 200, value) for name, value in zip(names, (0.85, 0.80, 0.852), strict=True)]
    differences = [
        row(names[1], names[0], 200, -0.05, 0.001), row(names[2], names[0], 200, 0.002, 0.9),
        row(names[2], names[1], 200, 0.052, 0.001),
    ]  # fmt: skip
    sentences = verdict(found(differences, scores, names))
    assert any(
        s.startswith("The best objective is finetuned-masked-nsp, ahead of finetuned-masked with") for s in sentences
    )


def test_without_the_trials_that_would_tell_nothing_is_claimed():
    (sentence, *_) = verdict(found([], budgets=[50]))
    assert sentence.startswith("Whether pretraining pays is unknown")


# ---- a base that has not learned --------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["undertrained", "too_little_text"])
def test_a_base_that_has_not_learned_comes_first_and_nothing_is_said_of_pretraining(status):
    weak = base(status)
    harm, level = (
        verdict(found(
            [row("finetuned", "scratch", 50, value, p), row("finetuned", "tfidf", 50, -0.2, 0.001)],
            [score("tfidf", 50, 0.7), score("finetuned", 50, 0.5)], pretraining=[run(base=weak)],
        ))
        for value, p in ((-0.1, 0.001), (0.0, 0.9))
    )  # fmt: skip
    for sentences, said in ((harm, "This base hurts"), (level, "This base makes no clear difference")):
        assert sentences[0] == weak.sentence
        assert any(s.startswith(said) for s in sentences)
        assert any(s.startswith("TF-IDF with logistic regression beats this base") for s in sentences)
        assert not any("retraining hurts" in s or "retraining makes" in s or "beats pre" in s for s in sentences)
        assert any(s.endswith("Use it for this task until a base has learned.") for s in sentences)


def test_where_tfidf_is_level_with_such_a_base_that_is_no_claim_either():
    scores = [score("tfidf", 50, 0.7), score("finetuned", 50, 0.7)]
    (_, sentence, *_) = verdict(
        found([row("finetuned", "tfidf", 50, 0.0, 0.9)], scores, pretraining=[run(base=base())])
    )
    assert "is not clearly worse than this base" in sentence
    assert "this base minus TF-IDF" in sentence


def test_a_gain_is_a_gain_of_pretraining_even_so():
    sentences = verdict(found([row("finetuned", "scratch", 50, 0.1, 0.001)], pretraining=[run(base=base())]))
    assert sentences[0].startswith("The base is undertrained: 133 steps")
    assert sentences[1].startswith("Pretraining pays")


def test_a_base_that_has_learned_may_do_harm():
    learned = [run(base=base("learned"))]
    sentences = verdict(found([row("finetuned", "scratch", 50, -0.1, 0.001)], pretraining=learned))
    assert sentences[0].startswith("Pretraining hurts")
    assert not any("The base" in s for s in sentences)


def test_of_several_bases_the_weak_one_is_named_and_the_others_keep_their_claims():
    arms = [
        arm("scratch"),
        *(ArmRecord(name=f"finetuned-{o}", kind="finetuned", objective=o, title=o) for o in ("causal", "masked")),
    ]
    rows = [row(f"finetuned-{objective}", "scratch", 50, -0.1, 0.001) for objective in ("causal", "masked")]
    runs = [run(base=base("learned")), run(objective="masked", base=base())]
    sentences = verdict(found(rows, arms=arms, pretraining=runs))
    assert sentences[0].startswith("masked-s0: The base is undertrained")
    assert any(s.startswith("Pretraining (finetuned-causal) hurts") for s in sentences)
    assert any(s.startswith("This base (finetuned-masked) hurts") for s in sentences)


def test_a_given_start_may_not_have_learned_either():
    rows = [row("imported", "scratch", 50, -0.1, 0.001)]
    changes = {"config": settings(start="runs/base"), "pretraining": [], "arms": ("scratch", "imported")}
    sentences = verdict(found(rows, start=base(), **changes))
    assert sentences[0] == base().sentence
    assert any(s.startswith("This base hurts") for s in sentences)
    assert verdict(found(rows, **changes))[0].startswith("Pretraining hurts")  # nothing is known of it


@pytest.mark.parametrize(
    ("frozen", "status", "said"),
    [(0.51, "learned", True), (0.55, "learned", False), (0.51, "undertrained", False)],
)
def test_frozen_features_at_chance_are_said_of_a_base_that_has_learned(frozen, status, said):
    scores = [score("majority", 50, 0.5), score("frozen", 50, frozen)]
    sentences = verdict(found([], scores, ("majority", "frozen"), pretraining=[run(base=base(status))]))
    assert any(s.startswith("Frozen, the base is not clearly above the majority class") for s in sentences) == said


# ---- the best arm -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("best", "is_said"), [(0.953, True), (0.969, True), (0.971, False)])
def test_that_nothing_beats_the_majority_class_comes_first(best, is_said):
    scores = [score("majority", 200, 0.95), score("tfidf", 200, 0.95), score("finetuned", 200, best)]
    classes = {"other": 190, "fraud": 10}
    train = {"file": "train", "rows": 200, "classes": classes, "sha256": ""}
    record = found(
        [row("finetuned", "tfidf", 200, best - 0.95, 0.001)], scores, ("majority", "tfidf", "scratch", "finetuned"),
        data=data(train=train),
    )  # fmt: skip
    sentences = verdict(record)
    assert any("always answering" in sentence for sentence in sentences) == is_said
    if is_said:
        assert sentences[0] == (
            "No arm is clearly better than always answering 'other': with 200 labels that reaches 95.0 %, "
            f"the best arm (finetuned) {100 * best:.1f} % ({100 * best - 2:.1f} to {100 * best + 2:.1f})."
        )


@pytest.mark.parametrize(("low", "is_said"), [(-0.001, True), (0.001, False)])
def test_the_majority_class_is_compared_with_by_pairs_where_they_are_known(low, is_said):
    scores = [score("majority", 200, 0.95), score("finetuned", 200, 0.99 if is_said else 0.96)]
    above = Interval(value=0.01, low=low, high=0.02)
    scores[1] = dataclasses.replace(scores[1], above_majority=above)
    record = found([], scores, ("majority", "finetuned"))
    assert any("always answering" in sentence for sentence in verdict(record)) == is_said


@pytest.mark.parametrize("weights", ["none", "balanced"])
def test_by_macro_f1_the_majority_class_comes_first_too_and_the_metric_is_named(weights):
    def of_macro_f1(arm, value):
        found = score(arm, 200, 0.95)  # of accuracy all have as much
        return dataclasses.replace(found, macro_f1=Interval(value=value, low=value - 0.02, high=value + 0.02))

    scores = [of_macro_f1("majority", 0.487), of_macro_f1("tfidf", 0.5), of_macro_f1("finetuned", 0.495)]
    train = {"file": "train", "rows": 200, "classes": {"other": 190, "fraud": 10}, "sha256": ""}
    record = found(
        [row("finetuned", "tfidf", 200, -0.005, 0.9)], scores, ("majority", "tfidf", "scratch", "finetuned"),
        data=data(train=train), metric="macro_f1", config={**settings(), "finetune": {"class_weights": weights}},
        trials=[],
    )  # fmt: skip
    sentences = verdict(record)
    assert sentences[0] == (
        "No arm is clearly better than always answering 'other': with 200 labels that reaches 48.7 % macro-F1, "
        "the best arm (tfidf) 50.0 % macro-F1 (48.0 to 52.0)."
    )
    assert ("--class-weights balanced" in sentences[1]) == (weights == "none")
    assert any("'fraud' has 5.0 % of the rows of train" in sentence for sentence in sentences)


def test_the_best_arm_is_chosen_on_valid_and_has_its_price():
    names = ("tfidf", "scratch", "frozen", "finetuned")
    scores = [score(name, 200, value) for name, value in zip(names, (0.80, 0.95, 0.84, 0.82), strict=True)]
    trials = [
        trial("done", name, 200, valid, operations=operations)
        for name, valid, operations in (
            ("scratch", 0.99, 1.0), ("frozen", 0.81, 2e11), ("finetuned", 0.83, 1e12), ("finetuned", 0.85, 3e12),
        )
    ]  # fmt: skip
    differences = [row("frozen", "tfidf", 200, 0.04, 0.3), row("finetuned", "tfidf", 200, 0.02, 0.5)]
    pretraining = [run(base=base("learned"), operations=1.6e15)]
    text = " ".join(verdict(found(differences, scores, names, trials=trials, pretraining=pretraining)))
    assert (
        "The best arm with a pretrained base, chosen on valid, is finetuned: 82.0 % (80.0 to 84.0) with 200 labels, "
        "for 1.6e15 operations of pretraining and 2.0e12 for each seed."
    ) in text
    assert "the best of 2 pretrained arms (finetuned) 82.0 %" in text


def test_what_trains_nothing_costs_its_pretraining_alone():
    names = ("tfidf", "frozen")
    scores = [score("tfidf", 200, 0.80), score("frozen", 200, 0.84)]
    differences = [row("frozen", "tfidf", 200, 0.04, 0.3)]
    pretraining = [run(base=base("learned"), operations=1.6e15)]
    trials = [trial("done", "frozen", 200, 0.83, operations=0.0)]
    text = " ".join(verdict(found(differences, scores, names, trials=trials, pretraining=pretraining)))
    assert "84.0 % (82.0 to 86.0) with 200 labels, for 1.6e15 operations of pretraining." in text


@pytest.mark.parametrize(
    ("time", "epochs", "says"),
    [("", 1.0, []), ("30m", 1.0, ["2 hours", "0.0 to 1.5 points"]), ("30m", 7.5, ["more time would not"])],
)
def test_what_more_time_may_bring_is_said_unless_the_text_is_read_as_often_as_pays(time, epochs, says):
    record = found([row("finetuned", "scratch", 50, 0.1, 0.001)])
    config = {**record.config, "study": {**record.config["study"], "time": time}, "model": {"dropout": 0.0}}
    learned = dataclasses.replace(base("learned"), epochs=epochs)
    record = dataclasses.replace(record, config=config, pretraining=[run(base=learned)])
    sentences = [s for s in verdict(record) if "points more" in s or "as often as pays" in s]
    assert len(sentences) == bool(says)
    assert all(word in sentences[0] for word in says)
