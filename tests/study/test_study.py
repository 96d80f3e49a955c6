import dataclasses
import json
import shutil
import signal
import tomllib
from pathlib import Path

import numpy as np
import pytest
from expected_errors import refused
from small_study import MODEL, small_config, write_files

from headstart.data.labelled import read_labelled
from headstart.data.splits import label_subset
from headstart.runs.base_status import base_status
from headstart.runs.load import load
from headstart.study.design import Seeds, trials_of
from headstart.study.execution.workers import Interrupted
from headstart.study.recipes.costs import StudyDisk
from headstart.study.settings import read_study
from headstart.study.study import study as run_study

ARMS = [
    "majority", "tfidf", "lsa", "tfidf-lsa", "scratch", "frozen", "finetuned", "combined", "shuffled", "scratch-long",
]  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def finished(files, tmp_path_factory):
    """A study with every arm, in a directory that no test changes."""
    directory = tmp_path_factory.mktemp("studies") / "finished"
    found = run_study(small_config(files, arms=ARMS), out=directory, model=MODEL, jobs=2)
    return directory, found


def run_of(directory, trial, rate="0.001"):
    return read_study_run(directory / "trials" / trial / f"lr-{rate}" / "config.toml")


def read_study_run(path):
    return tomllib.loads(path.read_text())


def test_every_trial_is_there_and_done(finished):
    directory, found = finished
    config, model = read_study(directory / "study.toml")
    assert {(t.arm, t.budget, t.seed) for t in found.trials} == {
        (t.arm.name, t.budget, t.seed) for t in trials_of(config.study)
    }
    assert {t.status for t in found.trials} == {"done"}
    assert model == MODEL
    assert (directory / "study.json").read_bytes() == found.to_json()


def test_the_weights_that_stay_are_those_that_were_said_before(files, tmp_path):
    config = small_config(files, arms=["scratch", "frozen", "finetuned"])
    config = dataclasses.replace(
        config, finetune=dataclasses.replace(config.finetune, learning_rate=0.0, learning_rates=[1e-3, 3e-3])
    )
    said: list[str] = []
    run_study(config, out=tmp_path / "out", model=MODEL, jobs=2, log=said.append)
    found = list((tmp_path / "out").rglob("weights.safetensors"))
    # A run of each network, the model, and the bases; of each rate, seed and budget nothing else.
    assert len(list((tmp_path / "out").glob("trials/*/lr-*"))) == 2 * 2 * 2 * 2
    assert len(list((tmp_path / "out").glob("trials/*/*/weights.safetensors"))) == 3
    assert len(list((tmp_path / "out").glob("trials/*/*/tokenizer.json"))) == 3
    prepared = dataclasses.replace(config, study=dataclasses.replace(config.study, budgets=[10, 20]))
    model = load(next((tmp_path / "out").glob("pretrain/*"))).config.model
    bases = len(list((tmp_path / "out").glob("pretrain/*")))
    disk = StudyDisk.of(prepared, model, classes=2, bases=bases)
    assert sum(path.stat().st_size for path in found) == pytest.approx(disk.at_end, rel=0.15)
    assert any("on disk at the end" in line for line in said)


def test_arms_share_rows_order_and_first_weights_but_not_each_others_seeds(finished):
    directory, _ = finished
    seeds = []
    for arm in ("scratch", "finetuned", "shuffled"):
        run = run_of(directory, f"{arm}-b20-s1")
        assert run["loop"]["seed"] == Seeds.of(0, 1).order
        assert run["data"]["labels_seed"] == Seeds.of(0, 1).labels
        seeds.append((run["initial_seed"], run["data"]["fingerprint"], run["loop"]["steps"]))
    assert len(set(seeds)) == 1
    assert run_of(directory, "scratch-b20-s0")["loop"]["seed"] != run_of(directory, "scratch-b20-s1")["loop"]["seed"]


def test_budgets_are_nested_and_every_arm_starts_from_its_base(finished, files):
    directory, _ = finished
    train = read_labelled(files["train"])
    small, large = (
        set(label_subset(train.labels, train.whole_texts, budget, Seeds.of(0, 0).labels)) for budget in (10, 20)
    )
    assert small < large
    digests = {
        name: json.loads((directory / "pretrain" / name / "result.json").read_text())["weights_sha256"]
        for name in ("causal-s0", "shuffled-causal-s0")
    }
    assert run_of(directory, "finetuned-b10-s0")["start"] == digests["causal-s0"]
    assert run_of(directory, "shuffled-b10-s0")["start"] == digests["shuffled-causal-s0"]
    assert run_of(directory, "scratch-b10-s0")["start"] == "scratch"
    frozen = read_study_run(directory / "trials" / "frozen-b20-s0" / "run" / "config.toml")
    assert (frozen["start"], frozen["freeze"]) == (digests["causal-s0"], "base")


def test_the_rate_is_the_best_on_valid_and_every_neural_arm_has_as_many_tries(finished):
    _, found = finished
    for trial in found.trials:
        if trial.arm in ("majority", "tfidf", "lsa", "tfidf-lsa", "frozen", "combined"):
            continue
        assert [t.value for t in trial.tries] == [0.001, 0.01]
        best = max(trial.tries, key=lambda t: (t.accuracy, -t.loss))
        assert trial.chosen == best.value
        reached = [point.accuracy for point in trial.curve]
        assert best.accuracy == (max(reached) if trial.arm == "scratch-long" else reached[-1])


def test_scores_and_differences_are_those_of_the_predictions(finished, files):
    directory, found = finished
    labels = found.data.labels
    truth = np.array([labels.index(label) for label in read_labelled(files["test"]).labels])
    right = {}
    for trial in trials_of(read_study(directory / "study.toml")[0].study):
        file = directory / "trials" / trial.name / "trial.json"
        predictions = np.array(json.loads(file.read_text())["predictions"])
        right.setdefault((trial.arm.name, trial.budget), []).append((predictions == truth).mean())
    for score in found.scores:
        mean = np.mean(right[score.arm, score.budget])
        assert score.accuracy.value == pytest.approx(mean)
        assert score.accuracy.low <= mean <= score.accuracy.high
    for row in found.differences:
        expected = np.mean(right[row.arm, row.budget]) - np.mean(right[row.against, row.budget])
        assert row.value == pytest.approx(expected)
    matrix = next(c.matrix for c in found.confusion if c.arm == "finetuned")
    assert np.trace(matrix) == pytest.approx(np.sum(right["finetuned", 20]) * len(truth))


def test_a_mix_is_of_the_probabilities_that_its_arms_kept(finished):
    directory, found = finished
    mixes = {"tfidf-lsa": ("tfidf", "lsa"), "combined": ("tfidf", "lsa", "frozen", "finetuned")}
    for trial in (trial for trial in found.trials if trial.arm in mixes):
        tables = []
        for arm in mixes[trial.arm]:
            folder = directory / "trials" / f"{arm}-b{trial.budget}-s{trial.seed}"
            with np.load(folder / "probabilities.npz") as kept:
                tables.append(kept["test"].astype(float))
                assert kept["valid"].shape == (20, 2)
            said = json.loads((folder / "trial.json").read_text())["predictions"]
            assert tables[-1].argmax(axis=1).tolist() == said
        content = json.loads((directory / "trials" / trial.name / "trial.json").read_text())
        mixed = np.prod([table**e for table, e in zip(tables, content["exponents"], strict=True)], axis=0)
        assert content["predictions"] == mixed.argmax(axis=1).tolist()
        assert trial.operations == 0


def test_majority_says_one_class_and_scratch_long_gets_the_base_s_compute(finished):
    _, found = finished
    majority = [t for t in found.trials if t.arm == "majority"]
    assert all(t.accuracy == pytest.approx(0.5, abs=0.01) for t in majority)
    cost = {t.arm: t.operations for t in found.trials if t.budget == 20 and t.seed == 0}
    base = next(p.operations for p in found.pretraining if p.name == "causal-s0")
    assert cost["scratch-long"] == pytest.approx(cost["scratch"] + base, rel=0.02)
    assert cost["frozen"] == 0 < cost["finetuned"] == cost["scratch"]


def test_every_pretraining_says_whether_it_has_learned_but_for_the_shuffled_one(finished):
    directory, found = finished
    plain, shuffled = found.pretraining
    assert shuffled.base is None
    scores = {(score.arm, score.budget): score.accuracy.value for score in found.scores}
    frozen = scores["frozen", 20] - scores["majority", 20]
    assert plain.base.frozen_above_chance == pytest.approx(frozen)
    assert dataclasses.replace(plain.base, frozen_above_chance=None) == base_status(directory / "pretrain" / plain.name)
    assert plain.base.status == "undertrained"
    assert (plain.base.steps, plain.base.loss) == (plain.steps, plain.loss)
    assert found.verdict[0] == plain.base.sentence
    assert not any(s.startswith(("Pretraining hurts", "Pretraining makes")) for s in found.verdict)


def test_study_json_has_no_clock_and_timing_has(finished):
    directory, found = finished
    assert '"seconds"' not in found.to_json().decode()
    timing = json.loads((directory / "timing.json").read_text())
    assert set(timing["trials"]) == {f"{t.arm}-b{t.budget}-s{t.seed}" for t in found.trials}
    assert timing["seconds"] > 0


def test_a_finished_study_does_nothing_again(finished, files, monkeypatch):
    directory, _ = finished
    before = (directory / "study.json").read_bytes()
    monkeypatch.setattr("headstart.study.execution.workers._Worker", None)  # nobody may be put to work
    run_study(small_config(files, arms=ARMS), out=directory, model=MODEL, jobs=1)
    assert (directory / "study.json").read_bytes() == before


def test_results_do_not_depend_on_jobs_or_on_the_directory(finished, files, tmp_path):
    directory, _ = finished
    run_study(small_config(files, arms=ARMS), out=tmp_path / "other", model=MODEL, jobs=1)
    assert (tmp_path / "other" / "study.json").read_bytes() == (directory / "study.json").read_bytes()


def test_more_seeds_are_more_trials_and_the_old_ones_stay(finished, files, tmp_path):
    directory = tmp_path / "grown"
    shutil.copytree(finished[0], directory)
    before = (directory / "trials" / "finetuned-b10-s0" / "trial.json").read_bytes()
    found = run_study(
        small_config(files, arms=["scratch", "finetuned"], seeds=3, budgets=[10]),
        out=directory,
        model=MODEL,
        jobs=2,
    )
    assert [t.seed for t in found.trials if t.arm == "finetuned"] == [0, 1, 2]
    assert (directory / "trials" / "finetuned-b10-s0" / "trial.json").read_bytes() == before


def test_other_settings_or_other_data_in_one_directory_are_refused(finished, files, tmp_path):
    directory = tmp_path / "copy"
    shutil.copytree(finished[0], directory)
    with refused("changed", "model.width", "16", "32"):
        run_study(small_config(files), out=directory, model={**MODEL, "width": 32})
    changed = dict(files)
    changed["test"] = str(tmp_path / "test.jsonl")
    lines = Path(files["test"]).read_text().splitlines()[:-1]
    (tmp_path / "test.jsonl").write_text("\n".join(lines) + "\n")
    with refused("changed", "content.test"):
        run_study(small_config(changed), out=directory, model=MODEL)


def test_a_failed_trial_is_shown_and_the_study_goes_on(files, tmp_path):
    directory = tmp_path / "study"
    (directory / "trials" / "scratch-b10-s1").mkdir(parents=True)
    (directory / "trials" / "scratch-b10-s1" / "lr-0.001").write_text("a file where a directory has to be")
    found = run_study(
        small_config(files, arms=["scratch", "finetuned"], budgets=[10]), out=directory, model=MODEL, jobs=2
    )
    (failed,) = [t for t in found.trials if t.status == "failed"]
    assert (failed.arm, failed.seed) == ("scratch", 1)
    assert "lr-0.001" in failed.error
    score = next(s for s in found.scores if s.arm == "scratch")
    assert (score.seeds, score.failed) == (1, 1)
    assert any("1 of" in sentence and "failed" in sentence for sentence in found.verdict)


def test_a_given_base_is_an_arm_and_brings_its_tokenizer_and_shape(finished, files, tmp_path):
    base = finished[0] / "pretrain" / "causal-s0"
    config = small_config(files, arms=["scratch", "finetuned"], start=str(base), budgets=[10])
    found = run_study(
        type(config)(study=config.study, reading=config.reading, finetune=config.finetune),
        out=tmp_path / "study", jobs=2,
    )  # fmt: skip
    assert [arm.name for arm in found.arms] == ["scratch", "imported"]
    shape = run_of(tmp_path / "study", "scratch-b10-s0")["model"]
    assert (shape["width"], shape["depth"]) == (MODEL["width"], MODEL["depth"])
    assert found.differences[0].arm == "imported"
    assert found.start == base_status(base)
    assert found.verdict[0] == found.start.sentence


def test_several_objectives_have_equal_compute(files, tmp_path):
    found = run_study(
        small_config(files, arms=["finetuned"], objectives=["causal", "masked", "masked-nsp"], budgets=[10], seeds=1),
        out=tmp_path / "study", model=MODEL, jobs=2,
    )  # fmt: skip
    assert [p.name for p in found.pretraining] == ["causal-s0", "masked-s0", "masked-nsp-s0"]
    causal, *others = (p.operations for p in found.pretraining)
    assert others == pytest.approx([causal, causal], rel=0.05)
    assert found.pretraining[1].steps > found.pretraining[0].steps


def test_other_objectives_in_one_directory_are_refused(finished, files):
    with refused("changed", "study.objectives", "'causal'", "'masked'"):
        run_study(small_config(files, objectives=["masked"]), out=finished[0], model=MODEL)


def test_a_refused_command_leaves_the_tokenizer_alone(finished, files, tmp_path):
    before = (finished[0] / "tokenizer" / "tokenizer.json").read_bytes()
    config = small_config(files, arms=ARMS)
    other = dataclasses.replace(config, tokenizer=dataclasses.replace(config.tokenizer, vocab=280))
    with refused("changed", "tokenizer.vocab", "300", "280"):
        run_study(other, out=finished[0], model=MODEL)
    assert (finished[0] / "tokenizer" / "tokenizer.json").read_bytes() == before


def test_a_masked_start_is_compared_with_a_scratch_that_reads_both_ways(files, tmp_path):
    masked = small_config(files, arms=["finetuned"], objectives=["masked"], budgets=[10], seeds=1)
    run_study(masked, out=tmp_path / "masked", model=MODEL, jobs=2)
    base = tmp_path / "masked" / "pretrain" / "masked-s0"
    config = small_config(files, arms=["scratch"], start=str(base), budgets=[10], seeds=1)
    alone = dataclasses.replace(config, pretrain=[])
    run_study(alone, out=tmp_path / "started", jobs=2)
    scratch = run_of(tmp_path / "started", "scratch-b10-s0")
    assert scratch["model"]["direction"] == "bidirectional"
    assert scratch["frame"] == "masked"
    with refused("conflict", str(base), "--objective=masked"):
        run_study(config, out=tmp_path / "refused")


def test_several_pretraining_runs_are_each_the_base_of_their_seeds(files, tmp_path):
    config = small_config(files, arms=["finetuned"], budgets=[10], seeds=2, pretrain_seeds=2)
    found = run_study(config, out=tmp_path / "study", model=MODEL, jobs=2)
    starts = {run_of(tmp_path / "study", f"finetuned-b10-s{seed}")["start"] for seed in (0, 1)}
    assert len(starts) == 2
    assert [p.name for p in found.pretraining] == ["causal-s0", "causal-s1"]


def test_phases_of_pretraining_follow_each_other(files, tmp_path):
    config = small_config(files, arms=["finetuned"], budgets=[10], seeds=1)
    (phase,) = config.pretrain
    config = dataclasses.replace(config, pretrain=[phase, dataclasses.replace(phase, steps=5)])
    found = run_study(config, out=tmp_path / "study", model=MODEL, jobs=1)
    first, last = (tmp_path / "study" / "pretrain" / name for name in ("causal-s0-phase-1", "causal-s0"))
    result = json.loads((first / "result.json").read_text())
    assert read_study_run(last / "config.toml")["start"] == result["weights_sha256"]
    assert found.pretraining[0].steps == found.pretraining[0].base.steps == 17


def test_pairs_of_texts_have_segments_in_every_arm(files, tmp_path):
    pairs = dict(files)
    for name in ("train", "valid", "test"):
        rows = [json.loads(line) for line in Path(files[name]).read_text().splitlines()]
        pairs[name] = str(tmp_path / f"{name}.jsonl")
        lines = [json.dumps({"text_a": row["text"], "text_b": "Vraiment ?", "label": row["label"]}) for row in rows]
        Path(pairs[name]).write_text("\n".join(lines) + "\n")
    config = small_config(pairs, arms=["tfidf", "scratch", "finetuned"], budgets=[10], seeds=1)
    found = run_study(config, out=tmp_path / "study", model=MODEL, jobs=2)
    assert {t.status for t in found.trials} == {"done"}
    segments = {run_of(tmp_path / "study", f"{arm}-b10-s0")["model"]["segments"] for arm in ("scratch", "finetuned")}
    assert segments == {2}


@pytest.mark.parametrize(
    ("part", "changes"),
    [("study", {"seeds": 0}), ("study", {"pretrain_seeds": 0}), ("study", {"threads": 0}),
     ("finetune", {"batch": 0}), ("finetune", {"learning_rates": [0.0]})],
)  # fmt: skip
def test_numbers_that_no_study_can_have_are_refused(part, changes, files, tmp_path):
    config = small_config(files)
    with refused("bad-value", *(f"--{name.replace('_', '-')}" for name in changes)):
        dataclasses.replace(getattr(config, part), **changes)


def test_jobs_below_one_are_refused(files, tmp_path):
    with refused("bad-value", "--jobs -1"):
        run_study(small_config(files), out=tmp_path / "study", model=MODEL, jobs=-1)


def test_a_stop_counts_what_earlier_calls_finished(finished, files, tmp_path, monkeypatch):
    directory = tmp_path / "copy"
    shutil.copytree(finished[0], directory)
    files_of_trials = sorted(directory.glob("trials/*/trial.json"))
    for file in files_of_trials[:2]:
        file.unlink()
    tasks = len(files_of_trials) + len(finished[1].pretraining)

    def is_stopped(tasks, work, jobs, **callbacks):
        raise Interrupted(signal.SIGTERM)

    monkeypatch.setattr("headstart.study.study.run_in_processes", is_stopped)
    with refused("stopped", f"{tasks - 2} of {tasks} tasks", by=Interrupted) as caught:
        run_study(small_config(files, arms=ARMS), out=directory, model=MODEL, jobs=2)
    assert caught.value.exit_code == 143
