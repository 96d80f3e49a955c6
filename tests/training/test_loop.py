"""The loop: it learns, it goes on to the same bytes, it never lets a bad gradient through."""

import dataclasses
import json
import math
import os
from types import SimpleNamespace

import numpy as np
import pytest
import small
import torch
from expected_errors import refused

from headstart.errors import RunFailed, TryAgain
from headstart.runs import checkpoint
from headstart.runs import directory as run_directory
from headstart.training import loop, step_log
from headstart.training.loop import train


def trained(directory, kind="causal", **options):
    found = small.training(directory, kind, **options)
    state, scores = train(found)
    return found, state, scores


def records(directory, event=None):
    lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line.get("event") == event]


@pytest.mark.parametrize("kind", small.KINDS)
def test_it_learns(tmp_path, kind):
    no_dropout = {"dropout": 0.0, "attention_dropout": 0.0}
    _, state, scores = trained(
        tmp_path, kind, steps=100, model=no_dropout, optimizer={"learning_rate": 1e-2}, evaluate_every=50
    )
    losses = [line["loss"] for line in records(tmp_path)]
    assert state.step == len(losses) == 100
    assert np.mean(losses[-10:]) < 0.75 * np.mean(losses[:5])
    assert [line["step"] for line in records(tmp_path, "valid")] == [50, 100]
    assert scores.values["loss"] == records(tmp_path, "valid")[-1]["loss"]


@pytest.mark.parametrize("kind", small.KINDS)
def test_stopping_anywhere_and_going_on_gives_the_same_bytes(tmp_path, kind):
    options = {"evaluate_every": 4, "average": "ema"}
    whole, *_ = trained(tmp_path / "whole", kind, **options)

    class Cut(Exception):
        pass

    for cut in (2, 3, 7, 8, 11):
        directory = tmp_path / f"cut-{cut}"

        def stop(progress, cut=cut):
            if progress.step == cut:
                raise Cut

        first = small.training(directory, kind, **options)
        first.on_step = stop
        with pytest.raises(Cut):
            train(first)
        again, state, _ = trained(directory, kind, **options)
        assert small.digest(again) == small.digest(whole)
        assert (directory / "metrics.jsonl").read_bytes() == (tmp_path / "whole/metrics.jsonl").read_bytes()
        assert state.step == 12


def test_going_on_with_more_steps_extends_the_run(tmp_path):
    _, before, _ = trained(tmp_path, steps=6)
    _, after, _ = trained(tmp_path, steps=10)
    assert (before.step, after.step) == (6, 10)
    assert [line["step"] for line in records(tmp_path)] == list(range(1, 11))


def test_a_finished_run_does_nothing_more(tmp_path):
    first, *_ = trained(tmp_path)
    steps = []
    second = small.training(tmp_path)
    second.on_step = steps.append
    train(second)
    assert steps == []
    assert small.digest(first) == small.digest(second)


@pytest.mark.parametrize("kind", small.KINDS)
def test_micro_batches_change_nothing_but_rounding(tmp_path, kind):
    no_dropout = {"dropout": 0.0, "attention_dropout": 0.0}
    found = []
    for parts in (1, 2, 4):
        one = small.training(tmp_path / str(parts), kind, accumulate=parts, model=no_dropout)
        one.model = one.model.double()
        train(one)
        found.append(dict(one.model.named_parameters()))
    for other in found[1:]:
        for name, tensor in found[0].items():
            torch.testing.assert_close(other[name], tensor, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("accumulate", [1, 3])
def test_class_weights_below_one_leave_a_mean(tmp_path, accumulate):
    """Three texts of one class have the same weight, so the weighted mean of their losses is the plain one."""
    numbers = {}
    for weight in (1.0, 0.01):
        made = small.training(
            tmp_path / str(weight), "classification", steps=1, accumulate=accumulate,
            model={"dropout": 0.0, "attention_dropout": 0.0},
        )  # fmt: skip
        made.objective.weights = np.full(len(made.objective.targets), weight, np.float32)
        train(made)
        numbers[weight] = records(tmp_path / str(weight))[0], small.digest(made)
    (plain, _), (weighted, _) = numbers.values()
    assert weighted["loss"] == pytest.approx(plain["loss"], rel=1e-5)
    assert weighted["gradient_norm"] == pytest.approx(plain["gradient_norm"], rel=1e-4)


def test_seeds_differ(tmp_path):
    digests = {small.digest(trained(tmp_path / str(seed), seed=seed)[0]) for seed in range(3)}
    assert len(digests) == 3


class Poisoned:
    """An objective whose loss is not a number at some steps."""

    def __init__(self, inner, steps, value=float("nan")):
        self.inner, self.steps, self.value, self.step = inner, steps, value, None

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def batch_at(self, seed, step):
        self.step = step
        return self.inner.batch_at(seed, step)

    def loss(self, model, batch):
        loss = self.inner.loss(model, batch)
        if self.step in self.steps:
            return dataclasses.replace(loss, sum=loss.sum * self.value)
        return loss


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_bad_gradient_never_reaches_the_weights(tmp_path, value):
    found = small.training(tmp_path, "classification", save_every=1, keep=20)
    found.objective = Poisoned(found.objective, {4}, value)
    state, _ = train(found)
    assert (state.step, state.skipped, state.skipped_in_row) == (12, 1, 0)
    saved = [checkpoint.load(tmp_path / "checkpoints" / f"step-{step:08d}").model for step in (4, 5, 6)]
    assert checkpoint.weights_digest(saved[0]) == checkpoint.weights_digest(saved[1])
    assert checkpoint.weights_digest(saved[1]) != checkpoint.weights_digest(saved[2])
    (skip,) = records(tmp_path, "skipped")
    assert skip["step"] == 5
    assert skip["reason"] == "not finite"
    assert len(skip["rows"]) == 4
    assert all(p.isfinite().all() for p in found.model.parameters())


def test_too_many_bad_ones_in_a_row_fail_and_keep_the_last_good(tmp_path):
    found = small.training(tmp_path, skip_limit=3)
    found.objective = Poisoned(found.objective, {6, 7, 8})
    with refused("not-finite", "3 updates", "step 9", by=RunFailed):
        train(found)
    last, _ = checkpoint.latest(tmp_path / "checkpoints")
    assert last.step == 6
    assert all(tensor.isfinite().all() for tensor in last.model.values())


def test_a_spike_is_skipped_and_its_window_survives_a_stop(tmp_path):
    options = {"steps": 40, "spike_factor": 3.0}

    def poisoned(directory):
        found = small.training(directory, **options)
        found.objective = Poisoned(found.objective, {36}, 100.0)
        return found

    whole = poisoned(tmp_path / "whole")
    state, _ = train(whole)
    assert state.skipped == 1
    first = poisoned(tmp_path / "cut")

    def stop(progress):
        if progress.step == 38:
            raise KeyboardInterrupt

    first.on_step = stop
    with pytest.raises(KeyboardInterrupt):
        train(first)
    again = poisoned(tmp_path / "cut")
    state, _ = train(again)
    assert state.skipped == 1
    assert small.digest(again) == small.digest(whole)


class Hungry:
    """An objective that a small memory cannot hold: at most `most` examples at once."""

    def __init__(self, inner, most):
        self.inner, self.most = inner, most

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def loss(self, model, batch):
        if model.training and len(batch["tokens"]) > self.most:
            raise torch.OutOfMemoryError("fake")
        return self.inner.loss(model, batch)


def test_out_of_memory_halves_the_micro_batch_and_is_remembered(tmp_path):
    no_dropout = {"dropout": 0.0, "attention_dropout": 0.0}
    trained(tmp_path / "plain", accumulate=1, model=no_dropout)
    told = []
    hungry = small.training(tmp_path / "hungry", accumulate=1, model=no_dropout)
    hungry.objective, hungry.log = Hungry(hungry.objective, 1), told.append
    state, _ = train(hungry)
    assert state.accumulate == 4
    assert len([line for line in told if "out of GPU memory" in line]) == 2
    losses = [[line["loss"] for line in records(tmp_path / name)] for name in ("plain", "hungry")]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    saved, _ = checkpoint.latest(tmp_path / "hungry/checkpoints")
    assert saved.state["accumulate"] == 4
    hopeless = small.training(tmp_path / "hopeless")
    hopeless.objective = Hungry(hopeless.objective, 0)
    with refused("memory-full", "--length", by=TryAgain):
        train(hopeless)


def test_patience_ends_the_run_and_goes_back_to_the_best(tmp_path):
    found, state, _ = trained(
        tmp_path, "classification", steps=200, evaluate_every=5, patience=2, optimizer={"learning_rate": 0.5}
    )
    assert state.stopped_early
    assert state.step < 200
    valid = records(tmp_path, "valid")
    best = min(valid, key=lambda line: line["loss"])
    assert state.best_step == best["step"]
    assert state.step == best["step"] + 10
    kept, _ = checkpoint.latest(tmp_path / "best")
    assert small.digest(found) == checkpoint.weights_digest(kept.model)


@pytest.mark.parametrize(("save_every", "evaluate_every"), [(4, 4), (3, 6), (0, 4), (1, 1)])
def test_a_step_is_saved_once_before_it_is_evaluated_and_the_end_once_more(
    tmp_path, monkeypatch, save_every, evaluate_every
):
    happened = []
    save, evaluate = checkpoint.save, loop.evaluate

    def noted_save(directory, step, *rest, **options):
        happened.append(("save", step))
        return save(directory, step, *rest, **options)

    def noted_evaluate(*arguments, **options):
        happened.append(("evaluate", checkpoint.latest(tmp_path / "checkpoints")[0].step))
        return evaluate(*arguments, **options)

    monkeypatch.setattr(checkpoint, "save", noted_save)
    monkeypatch.setattr(loop, "evaluate", noted_evaluate)
    monkeypatch.setattr(loop, "EVALUATION_SAVE_SECONDS", 0.0)
    trained(tmp_path, save_every=save_every, evaluate_every=evaluate_every)
    wanted = []
    for step in range(1, 13):
        is_evaluated = step % evaluate_every == 0 or step == 12
        if is_evaluated or (save_every and step % save_every == 0):
            wanted.append(("save", step))
        if is_evaluated:
            wanted.append(("evaluate", step))
    assert happened == [*wanted, ("save", 12)]  # with the last scores


def test_right_after_a_save_an_evaluation_needs_no_other(tmp_path, monkeypatch):
    steps, save = [], checkpoint.save

    def noted_save(directory, step, *rest, **options):
        steps.append(step)
        return save(directory, step, *rest, **options)

    monkeypatch.setattr(checkpoint, "save", noted_save)
    monkeypatch.setattr(loop, "EVALUATION_SAVE_SECONDS", 3600.0)
    trained(tmp_path, save_every=0, evaluate_every=4)
    assert steps == [12]


def test_patience_goes_by_the_measure_that_was_chosen(tmp_path):
    _, state, _ = trained(
        tmp_path, "classification", steps=200, evaluate_every=5, patience=2, best_metric="accuracy",
        optimizer={"learning_rate": 0.5},
    )  # fmt: skip
    assert state.stopped_early
    valid = records(tmp_path, "valid")
    best = max(valid, key=lambda line: line["accuracy"])  # the first of the highest
    assert state.best_step == best["step"]
    assert state.best_score == -best["accuracy"]
    assert state.step == best["step"] + 10
    assert checkpoint.latest(tmp_path / "best")[0].step == best["step"]


def test_the_tail_average_is_the_mean_of_the_last_weights(tmp_path):
    steps = 10
    found, *_ = trained(tmp_path, steps=steps, save_every=1, keep=99, average="tail")
    saved = [checkpoint.load(tmp_path / "checkpoints" / f"step-{s:08d}").model for s in (9, 10)]
    for name, parameter in found.model.named_parameters():
        torch.testing.assert_close(parameter.detach(), (saved[0][name] + saved[1][name]) / 2)


def test_gradual_unfreezing_goes_from_the_top_down(tmp_path):
    found = small.training(tmp_path, "classification", steps=8, unfreeze_every=2, save_every=1, keep=99)
    before = {name: p.detach().clone() for name, p in found.model.named_parameters()}
    train(found)

    def moved_by(step):
        now = checkpoint.load(tmp_path / "checkpoints" / f"step-{step:08d}").model
        return {name for name in now if not torch.equal(now[name], before[name])}

    assert all(name.startswith("head.") for name in moved_by(2))
    assert any("blocks.1." in name for name in moved_by(4))
    assert not any("blocks.0." in name for name in moved_by(4))
    assert any("blocks.0." in name for name in moved_by(6))
    assert "base.embedding.tokens.weight" not in moved_by(6)
    assert "base.embedding.tokens.weight" in moved_by(8)


def test_gradients_are_clipped(tmp_path):
    trained(tmp_path, clip=0.01)
    assert all(line["gradient_norm"] > 0.01 for line in records(tmp_path))  # what it was, before
    assert all(math.isfinite(line["loss"]) for line in records(tmp_path))


def test_another_machine_goes_on_and_says_so(tmp_path):
    trained(tmp_path, steps=6)
    told = []
    again = small.training(tmp_path, steps=9)
    again.facts, again.log = {"machine": {"threads": "2"}}, told.append
    train(again)
    assert "not bit-exact from here on: threads was 1, is 2" in told


def test_a_full_disk_for_the_log_does_not_stop_the_training(tmp_path, monkeypatch):
    monkeypatch.setattr(run_directory, "_open_no_link", lambda path, flags: os.open("/dev/full", flags))
    lines = []
    training = small.training(tmp_path)
    training.log = lines.append
    state, _ = train(training)
    assert state.step == 12
    assert len([line for line in lines if "metrics.jsonl: cannot be written" in line]) == 1


def test_a_clock_that_jumps_changes_nothing(tmp_path, monkeypatch):
    whole, *_ = trained(tmp_path / "whole")
    ticks = iter(np.random.default_rng(0).normal(size=10_000) * 1e6)
    # The loop's own clock: other threads, such as a server's, go by the true one.
    clock = SimpleNamespace(monotonic=lambda: next(ticks), time=lambda: -1.0)
    monkeypatch.setattr(loop, "time", clock)
    monkeypatch.setattr(step_log, "time", clock)
    jumpy, *_ = trained(tmp_path / "jumpy", save_every_seconds=1.0)
    assert small.digest(jumpy) == small.digest(whole)
