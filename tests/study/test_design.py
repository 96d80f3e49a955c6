import dataclasses

import pytest
from expected_errors import refused

from headstart.config.presets import preset
from headstart.config.study import FinetunePart, StudyPart
from headstart.study.design import (
    Seeds,
    arms_of,
    learning_rates_of,
    metric_of,
    pairs_of,
    steps_of,
    trials_of,
    with_budgets,
)


def names(study):
    return [arm.name for arm in arms_of(study)]


def test_arms_of_one_objective_have_plain_names():
    assert names(StudyPart()) == [
        "majority", "tfidf", "lsa", "tfidf-lsa", "scratch", "frozen", "finetuned", "combined",
    ]  # fmt: skip


def test_arms_of_several_objectives_carry_them_and_each_direction_has_its_scratch():
    study = StudyPart(objectives=["masked", "causal", "masked-nsp"])
    assert names(study) == [
        "majority", "tfidf", "lsa", "tfidf-lsa", "scratch-masked", "scratch-causal", "frozen-masked",
        "finetuned-masked", "finetuned-causal", "finetuned-masked-nsp",
        "combined-masked", "combined-causal", "combined-masked-nsp",
    ]  # fmt: skip


def test_two_objectives_of_one_direction_share_one_scratch():
    study = StudyPart(objectives=["masked", "masked-nsp"], arms=["scratch", "finetuned"])
    assert names(study) == ["scratch", "finetuned-masked", "finetuned-masked-nsp"]


def test_each_pretrained_arm_is_compared_with_the_scratch_that_reads_as_it_does():
    study = StudyPart(objectives=["causal", "masked"], arms=["tfidf", "scratch", "finetuned", "shuffled"])
    pairs = {(arm.name, other.name) for arm, other in pairs_of(arms_of(study))}
    assert pairs == {
        ("finetuned-causal", "scratch-causal"), ("finetuned-masked", "scratch-masked"),
        ("finetuned-causal", "tfidf"), ("finetuned-masked", "tfidf"),
        ("finetuned-causal", "shuffled"), ("finetuned-masked", "finetuned-causal"),
        ("scratch-causal", "tfidf"), ("scratch-masked", "tfidf"),
    }  # fmt: skip


def test_what_pretraining_adds_is_the_mix_less_that_of_the_others_and_fine_tuning_less_lsa():
    pairs = {(arm.name, other.name) for arm, other in pairs_of(arms_of(StudyPart()))}
    assert ("finetuned", "lsa") in pairs
    assert {pair for pair in pairs if "combined" in pair} == {("combined", "tfidf"), ("combined", "tfidf-lsa")}


@pytest.mark.parametrize(
    ("changes", "code", "names"),
    [
        ({"arms": ["scrach"]}, "unknown-name", ["'scrach'", "'scratch'"]),
        ({"objectives": ["maskd"]}, "unknown-name", ["'maskd'", "'masked'"]),
        ({"objectives": []}, "missing", ["causal", "masked", "masked-nsp"]),
        ({"arms": ["tfidf", "combined"]}, "missing", ["combined", "finetuned"]),
        ({"arms": ["tfidf", "tfidf-lsa"]}, "missing", ["tfidf-lsa", "lsa"]),
    ],
)
def test_unknown_arms_and_objectives_name_their_neighbour(changes, code, names):
    with refused(code, *names):
        arms_of(dataclasses.replace(StudyPart(), **changes))


def test_every_combination_is_one_trial_with_a_name_of_its_own():
    trials = list(trials_of(StudyPart(budgets=[50, 200], seeds=3)))
    assert len({trial.name for trial in trials}) == len(trials) == 8 * 2 * 3
    assert "finetuned-b50-s2" in {trial.name for trial in trials}


def test_equal_compute_is_read_at_the_largest_budget_only():
    study = StudyPart(budgets=[50, 200], seeds=2, arms=["scratch-long"])
    assert [trial.name for trial in trials_of(study)] == ["scratch-long-b200-s0", "scratch-long-b200-s1"]


def test_seeds_of_purposes_and_trials_are_all_different():
    seeds = [number for study in (0, 1) for seed in range(50) for number in Seeds.of(study, seed)]
    assert len(set(seeds)) == len(seeds)
    assert Seeds.of(0, 3) == Seeds.of(0, 3)


def test_rates_are_given_or_three_by_the_width():
    assert learning_rates_of(FinetunePart(learning_rates=[1e-3, 1e-4]), preset("tiny", vocab=100)) == [
        1e-4,
        1e-3,
    ]
    assert learning_rates_of(FinetunePart(), preset("tiny", vocab=100)) == [3e-4, 1e-3, 3e-3]


def test_small_budgets_get_enough_steps():
    finetune = FinetunePart(epochs=10, least_steps=160, batch=16)
    assert steps_of(finetune, 50) == (160, 4)
    assert steps_of(finetune, 1600) == (1000, 100)


def test_budgets_are_set_by_the_rows_and_checked():
    assert with_budgets(StudyPart(), 1600, 2).budgets == [50, 200, 800, 1600]
    assert with_budgets(StudyPart(), 30, 2).budgets == [30]
    assert with_budgets(StudyPart(budgets=[20, 10, 20]), 30, 2).budgets == [10, 20]
    with refused("bad-value", "--budgets", "2 labels", "3 classes", "30 rows"):
        with_budgets(StudyPart(budgets=[2]), 30, 3)
    with refused("bad-value", "--budgets", "31 labels", "2 classes", "30 rows"):
        with_budgets(StudyPart(budgets=[31]), 30, 2)


@pytest.mark.parametrize(
    ("counts", "asked", "metric"),
    [
        ([50, 50], "auto", "accuracy"), ([89, 11], "auto", "accuracy"), ([91, 9], "auto", "macro_f1"),
        ([91, 9], "accuracy", "accuracy"), ([50, 50], "macro_f1", "macro_f1"),
        ([5] * 20, "auto", "accuracy"), ([5] * 19 + [2], "auto", "macro_f1"), ([60, 35, 5], "auto", "macro_f1"),
    ],
)  # fmt: skip
def test_arms_are_compared_by_macro_f1_where_a_class_is_rare_and_not_only_one_of_many(counts, asked, metric):
    assert metric_of(StudyPart(metric=asked), {str(n): count for n, count in enumerate(counts)}) == metric
