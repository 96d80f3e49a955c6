"""From predictions on disk to the record: ten test rows, and every number counted by hand or by scikit-learn."""

import dataclasses
import json
import shutil

import checksummed
import numpy as np
import pytest
import tiny_runs
from sklearn.metrics import confusion_matrix, f1_score

from headstart.config.presets import preset
from headstart.config.study import FinetunePart, PretrainPart, StudyConfig, StudyPart
from headstart.study.data import StudyData, pretraining_operations
from headstart.study.design import Pretraining, trials_of
from headstart.study.execution.scheduler import TaskResult
from headstart.study.results import summarise

# n is the class neg, p the class pos; a text for each seed is what an arm says of the ten rows of test.
TRUTH = "nnnnnnpppp"
PREDICTIONS = {
    ("majority", 10): ["nnnnnnnnnn", "nnnnnnnnnn"],
    ("majority", 20): ["nnnnnnnnnn", "nnnnnnnnnn"],
    ("scratch", 10): ["nnnnnnnnnn", "nnnnnnpnnn"],  # 6 and 7 right
    ("scratch", 20): ["nnnnnnppnn", "nnnnnnpppn"],  # 8 and 9
    ("frozen", 10): ["nnnnnnpnnn", "nnnnnnpnnn"],  # 7 and 7
    ("frozen", 20): ["pnnnnnpppp", "pnnnnnpppp"],  # 9 and 9
    ("finetuned", 10): ["nnnnnnpppn", "nnnnnnppnn"],  # 9 and 8
    ("finetuned", 20): ["nnnnnnpppp", "nnnnnnpppn"],  # 10 and 9
}
ARMS = ["majority", "scratch", "frozen", "finetuned"]


def numbers(classes):
    return np.array(["np".index(one) for one in classes])


def share_right(predictions):
    return float((numbers(predictions) == numbers(TRUTH)).mean())


def data_of(directory, arms=ARMS, leaked_rows=(), train="train.jsonl", **study):
    """A study's data in this directory, of which the results read the texts and labels of test alone."""
    (directory / "data").mkdir(parents=True)
    rows = [{"text": f"row {n}", "label": {"n": "neg", "p": "pos"}[one]} for n, one in enumerate(TRUTH)]
    rows[9]["text"] = "long " * 200
    (directory / "data" / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    labelled = {"file": "rows.jsonl", "rows": 20, "classes": {"neg": 12, "pos": 8}, "sha256": "0" * 64}
    phases = [
        PretrainPart(corpus=["a.txt"], length=32, batch_tokens=128),
        PretrainPart(corpus=["a.txt"], length=32, batch_tokens=100),
    ]
    part = StudyPart(**{"arms": list(arms), "budgets": [10, 20], "seeds": 2, **study})
    return StudyData(
        directory=directory,
        config=StudyConfig(study=part, pretrain=phases, finetune=FinetunePart(train=train, batch=5)),
        model=preset("tiny", vocab=300, width=16, heads=2, depth=1, ffn=32, context=64),
        labels=("neg", "pos"),
        learning_rates=[1e-3],
        device="cpu",
        mean_tokens=12.0,
        steps={"causal": [12, 5]},
        facts={
            "data": {
                "corpus": [], **dict.fromkeys(("train", "valid", "test"), labelled), "labels": ["neg", "pos"],
                "leaks": {"test_in_train": len(leaked_rows)}, "leaked_test_rows": len(leaked_rows),
            },
            "model": {"preset": "tiny", "parameters": 1, "vocab": 300, "description": "small"},
            "leaked_rows": list(leaked_rows),
        },
    )  # fmt: skip


def write_trials(data, predictions=PREDICTIONS, without=(), curves=None, operations=None):
    """trial.json of each trial, as the trials themselves leave it, but for those that are to be missing.

    Curves are given by arm, and operations by the name of the trial (200 where there are none).
    """
    for trial in trials_of(data.config.study):
        if trial.name in without:
            continue
        said = numbers(predictions[trial.arm.name, trial.budget][trial.seed]).tolist()
        content = {
            "arm": trial.arm.name, "budget": trial.budget, "seed": trial.seed, "status": "done", "error": None,
            "operations": (operations or {}).get(trial.name, 200.0), "curve": (curves or {}).get(trial.arm.name, []),
            "predictions": said,
        }  # fmt: skip
        file = data.trial_file(trial)
        file.parent.mkdir(parents=True)
        checksummed.write(file, content)


def record_of(data, pretrainings=(), ended=None):
    return summarise(data, list(pretrainings), ended or {}, ["headstart", "study"], dataclasses.asdict(data.config))


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    """Of a study in which rows 0 and 9 of test stand in train too."""
    data = data_of(tmp_path_factory.mktemp("results"), leaked_rows=[0, 9])
    write_trials(data)
    return record_of(data)


def score_of(record, arm, budget):
    (found,) = [score for score in record.scores if (score.arm, score.budget) == (arm, budget)]
    return found


# ---- trials and scores --------------------------------------------------------------------------------------


def test_each_trial_has_its_share_of_right_answers_and_its_macro_f1(record):
    assert len(record.trials) == 16
    for trial in record.trials:
        said = PREDICTIONS[trial.arm, trial.budget][trial.seed]
        assert trial.accuracy == pytest.approx(share_right(said))
        assert trial.macro_f1 == pytest.approx(f1_score(numbers(TRUTH), numbers(said), average="macro"))


def test_trials_are_in_the_order_of_budgets_arms_and_seeds(record):
    expected = [(arm, budget, seed) for budget in (10, 20) for arm in ARMS for seed in (0, 1)]
    assert [(trial.arm, trial.budget, trial.seed) for trial in record.trials] == expected


def test_a_score_is_the_mean_over_seeds_inside_its_interval(record):
    means = {("majority", 10): 0.6, ("scratch", 10): 0.65, ("finetuned", 10): 0.85, ("finetuned", 20): 0.95}
    for (arm, budget), mean in means.items():
        score = score_of(record, arm, budget)
        assert (score.seeds, score.failed) == (2, 0)
        assert score.accuracy.value == pytest.approx(mean)
        assert 0 <= score.accuracy.low < mean < score.accuracy.high <= 1
    f1 = [f1_score(numbers(TRUTH), numbers(said), average="macro") for said in PREDICTIONS["frozen", 20]]
    assert score_of(record, "frozen", 20).macro_f1.value == pytest.approx(np.mean(f1))


def test_rows_that_leaked_are_left_out_of_the_other_accuracy(record):
    # Of rows 1 to 8 the first seed of scratch has row 8 wrong, the second none; frozen errs in row 0 alone.
    assert score_of(record, "scratch", 20).accuracy_without_leaks.value == pytest.approx(15 / 16)
    assert score_of(record, "frozen", 20).accuracy_without_leaks.value == pytest.approx(1)


@pytest.mark.parametrize("leaked_rows", [[], list(range(10))])
def test_with_no_clean_rows_or_with_clean_rows_alone_there_is_one_accuracy(tmp_path, leaked_rows):
    data = data_of(tmp_path / "study", ["majority"], leaked_rows)
    write_trials(data)
    assert [score.accuracy_without_leaks for score in record_of(data).scores] == [None, None]


def test_the_confusion_is_counted_over_all_seeds_at_the_largest_budget(record):
    assert [one.arm for one in record.confusion] == ARMS
    for one in record.confusion:
        both = [confusion_matrix(numbers(TRUTH), numbers(said)) for said in PREDICTIONS[one.arm, 20]]
        assert one.budget == 20
        assert one.matrix == sum(both).tolist()


# ---- what failed --------------------------------------------------------------------------------------------


def test_a_trial_without_a_result_has_failed_and_says_why(tmp_path):
    data = data_of(tmp_path / "study")
    write_trials(data, without=["scratch-b10-s1", "frozen-b20-s0"])
    record = record_of(data, ended={"scratch-b10-s1": TaskResult("scratch-b10-s1", "it diverged", 1.0)})
    failed = {f"{one.arm}-b{one.budget}-s{one.seed}": (one.status, one.error) for one in record.failed}
    assert failed == {
        "scratch-b10-s1": ("failed", "it diverged"), "frozen-b20-s0": ("failed", "it was not run"),
    }  # fmt: skip
    assert len(record.trials) == 16
    score = score_of(record, "scratch", 10)
    assert (score.seeds, score.failed, score.accuracy.value) == (1, 1, pytest.approx(0.6))
    # A pair is compared on the seeds that both have: fine-tuned 9 right, scratch 6.
    (row,) = [one for one in record.differences if (one.against, one.budget) == ("scratch", 10)]
    assert row.value == pytest.approx(0.3)


def test_an_arm_without_any_result_has_no_numbers(tmp_path):
    data = data_of(tmp_path / "study", ["majority", "scratch", "finetuned"])
    write_trials(data, without=[f"scratch-b{budget}-s{seed}" for budget in (10, 20) for seed in (0, 1)])
    record = record_of(data)
    score = score_of(record, "scratch", 20)
    assert (score.seeds, score.failed, score.accuracy, score.macro_f1) == (0, 2, None, None)
    assert (record.differences, record.savings) == ([], [])
    assert [one.arm for one in record.confusion] == ["majority", "finetuned"]


# ---- differences and savings --------------------------------------------------------------------------------


def test_differences_are_those_of_the_pairs_of_interest(record):
    found = {(row.arm, row.against, row.budget): row.value for row in record.differences}
    assert found == pytest.approx(
        {
            ("finetuned", "scratch", 10): 0.85 - 0.65, ("finetuned", "scratch", 20): 0.95 - 0.85,
            ("finetuned", "frozen", 10): 0.85 - 0.7, ("finetuned", "frozen", 20): 0.95 - 0.9,
        }
    )  # fmt: skip
    assert {row.reading for row in record.differences} == {"equal labels"}
    assert all(row.low <= row.value <= row.high for row in record.differences)


def test_p_values_are_corrected_over_the_budgets_of_a_pair(record):
    for against in ("scratch", "frozen"):
        rows = sorted((row for row in record.differences if row.against == against), key=lambda row: row.p)
        smaller, larger = rows
        assert smaller.p_holm == pytest.approx(min(1, 2 * smaller.p))
        assert larger.p_holm == pytest.approx(max(larger.p, smaller.p_holm))


def test_scratch_with_the_compute_of_the_pretraining_is_read_at_the_largest_budget_alone(tmp_path):
    data = data_of(tmp_path / "study", ["finetuned", "scratch-long"])
    write_trials(data, {**PREDICTIONS, ("scratch-long", 20): PREDICTIONS["scratch", 20]})
    record = record_of(data)
    assert [score.budget for score in record.scores if score.arm == "scratch-long"] == [20]
    (row,) = record.differences
    assert (row.against, row.budget, row.reading) == ("scratch-long", 20, "equal compute")
    assert row.value == pytest.approx(0.95 - 0.85)


def test_labels_are_read_off_the_curve_of_scratch(record):
    first, second = (saved.labels for saved in record.savings)
    assert [(saved.arm, saved.against, saved.budget) for saved in record.savings] == [
        ("finetuned", "scratch", 10), ("finetuned", "scratch", 20),
    ]  # fmt: skip
    assert first.value == pytest.approx(20)  # 0.85 with 10 labels is what scratch has with 20
    assert second.beyond  # and 0.95 is more than it ever has
    assert second.value is None


def test_epochs_are_read_off_the_mean_curves_on_valid(tmp_path):
    curves = {
        "scratch": [{"epoch": 1.0, "accuracy": 0.5, "loss": 1.0}, {"epoch": 2.0, "accuracy": 0.7, "loss": 0.9}],
        "finetuned": [{"epoch": 1.0, "accuracy": 0.8, "loss": 0.8}, {"epoch": 2.0, "accuracy": 0.9, "loss": 0.7}],
    }
    data = data_of(tmp_path / "study", ["scratch", "finetuned"])
    write_trials(data, curves=curves)
    for saved in record_of(data).savings:
        epochs = saved.epochs
        assert (epochs.value, epochs.of, epochs.scratch, epochs.accuracy) == (1.0, 2.0, 2.0, pytest.approx(0.7))


# ---- test rows that tell arms apart -------------------------------------------------------------------------


def test_the_items_are_the_rows_on_which_arms_differ_most(record):
    # At 20 labels: frozen alone misses row 0; of row 9 scratch is never right, frozen always, fine-tuned in one
    # of two seeds; row 8 is missed by one seed of scratch. The other rows tell nothing.
    assert [item.row for item in record.items] == [0, 9, 8]
    assert [item.right for item in record.items] == [
        {"scratch": 1.0, "frozen": 0.0, "finetuned": 1.0},
        {"scratch": 0.0, "frozen": 1.0, "finetuned": 0.5},
        {"scratch": 0.5, "frozen": 1.0, "finetuned": 1.0},
    ]
    assert [item.label for item in record.items] == ["neg", "pos", "pos"]
    assert record.items[0].text == "row 0"
    assert record.items[1].text == ("long " * 200)[:600]


def test_one_arm_has_nobody_to_differ_from(tmp_path):
    data = data_of(tmp_path / "study", ["majority", "scratch"])
    write_trials(data)
    assert record_of(data).items == []


# ---- pretraining --------------------------------------------------------------------------------------------


def test_a_pretraining_is_told_by_its_result(tmp_path):
    data, task = data_of(tmp_path / "study"), Pretraining("causal", 0)
    write_trials(data)
    run = data.base(task)
    run.mkdir(parents=True)
    evaluations = [{"step": 5, "loss": 4.0}, {"step": 10, "loss": None}, {"step": 17, "loss": 3.0}]
    result = {
        "step": 17, "steps": 17, "weights_sha256": "0" * 64, "valid": {"loss": 3.0, "bits_per_byte": 1.5},
        "evaluations": evaluations, "train_loss": None,
    }  # fmt: skip
    checksummed.write(run / "result.json", result)
    (found,) = record_of(data, [task]).pretraining
    assert (found.name, found.status, found.loss, found.bits_per_byte) == ("causal-s0", "done", 3.0, 1.5)
    # Bits per byte are half of the loss; where it was not finite there is no point.
    assert [(point.step, point.loss, point.bits_per_byte) for point in found.curve] == [(5, 4.0, 2.0), (17, 3.0, 1.5)]
    assert found.steps == 12 + 5
    assert found.tokens == 12 * 4 * 32 + 5 * 3 * 32  # blocks that fit into 128 and into 100 tokens
    assert found.operations == pretraining_operations(data, "causal")


def test_a_pretraining_without_a_result_has_failed(tmp_path):
    data = data_of(tmp_path / "study")
    write_trials(data)
    (found,) = record_of(data, [Pretraining("causal", 0)]).pretraining
    assert (found.status, found.error, found.loss, found.curve) == ("failed", "it was not run", None, [])


def test_what_a_frozen_base_is_worth_is_its_accuracy_above_the_majority_class(tmp_path):
    data, task = data_of(tmp_path / "study"), Pretraining("causal", 0)
    write_trials(data)
    shutil.copytree(tiny_runs.path_of("causal"), data.base(task))
    (found,) = record_of(data, [task]).pretraining
    assert found.base.frozen_above_chance == pytest.approx(0.9 - 0.6)
    (data.directory / "trials" / "frozen-b20-s0" / "trial.json").unlink()
    (data.directory / "trials" / "frozen-b20-s1" / "trial.json").unlink()
    (found,) = record_of(data, [task]).pretraining
    assert found.base.frozen_above_chance is None


def test_the_break_even_counts_fine_tunings_of_the_largest_budget(tmp_path):
    data = data_of(tmp_path / "study", ["scratch", "finetuned"])
    costs = {"scratch-b20-s0": 7.0, "finetuned-b10-s0": 9.0, "finetuned-b20-s0": 100.0, "finetuned-b20-s1": 300.0}
    write_trials(data, operations=costs)
    found = record_of(data, [Pretraining("causal", 0)]).break_even
    assert found.finetunings == pytest.approx(pretraining_operations(data, "causal") / 200)
    assert record_of(data).break_even is None


# ---- its name -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("demo", "train", "name"),
    [
        ("plain", "anything.csv", "plain"),
        ("", "data/reviews.csv.gz", "reviews"),
        ("", "data/books/train.jsonl", "books"),
        ("", "train.tsv", "train"),
    ],
)
def test_a_study_is_called_after_its_demo_its_file_or_the_folder(tmp_path, demo, train, name):
    data = data_of(tmp_path / "study", ["majority"], train=train, demo=demo)
    write_trials(data)
    assert record_of(data).name == name


# ---- macro-F1 as the metric ---------------------------------------------------------------------------------


def test_where_macro_f1_is_the_metric_everything_is_of_it(tmp_path):
    curves = {
        "scratch": [{"epoch": 1.0, "accuracy": 0.9, "macro_f1": 0.5, "loss": 1.0}],
        "finetuned": [{"epoch": 1.0, "accuracy": 0.8, "macro_f1": 0.6, "loss": 0.8}],
    }
    data = data_of(tmp_path / "study", leaked_rows=[0, 9], metric="macro_f1")
    write_trials(data, curves=curves)
    record = record_of(data)
    assert (record.metric, record.metric_title) == ("macro_f1", "macro-F1")

    def f1(arm, budget, rows=slice(None)):
        said = PREDICTIONS[arm, budget]
        return np.mean([f1_score(numbers(TRUTH)[rows], numbers(one)[rows], average="macro") for one in said])

    for row in record.differences:
        assert row.value == pytest.approx(f1(row.arm, row.budget) - f1(row.against, row.budget)), row
    score = score_of(record, "finetuned", 20)
    assert record.of_metric(score) == score.macro_f1
    assert record.of_metric(score, "_without_leaks").value == pytest.approx(f1("finetuned", 20, slice(1, 9)))
    assert record.savings[0].epochs.accuracy == 0.5
    assert "4 of the rarest class" in record.power.sentence
    assert any("macro-F1 (" in sentence or "macro-F1" in sentence for sentence in record.verdict)
