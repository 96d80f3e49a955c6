"""A training comes back from its checkpoint as it was."""

import small
import torch
from expected_errors import refused

from headstart.errors import IntegrityError
from headstart.runs import checkpoint
from headstart.training.checkpoints import changed_facts
from headstart.training.loop import train


def test_what_differs_between_two_machines_is_told():
    before = {"machine": {"threads": "1", "device": "cpu"}}
    assert changed_facts(before, {"machine": {"threads": "1", "device": "cpu", "world": "1"}}) == []
    now = {"machine": {"threads": "2", "device": "cpu", "compiled": "yes"}}
    assert changed_facts(before, now) == ["compiled was no, is yes", "threads was 1, is 2"]


def test_weights_optimizer_and_steps_come_back(tmp_path):
    first = small.training(tmp_path / "a", steps=6)
    train(first)
    again = small.training(tmp_path / "a", steps=6)
    train(again)
    for one, other in zip(first.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_state_with_other_fields_is_refused(tmp_path):
    train(small.training(tmp_path, steps=4))
    saved, _ = checkpoint.latest(tmp_path / "checkpoints")
    state = {**saved.state, "unknown": 1}
    facts = {"machine": saved.manifest["machine"]}
    checkpoint.save(tmp_path / "checkpoints", saved.step, saved.model, saved.optimizer, state, facts)
    with refused("mismatch", "unknown", "step-", by=IntegrityError):
        train(small.training(tmp_path, steps=6))


def test_a_run_that_stopped_early_goes_on_when_it_is_extended(tmp_path):
    options = {"evaluate_every": 1, "patience": 1, "optimizer": {"learning_rate": 0.5}}
    state, _ = train(small.training(tmp_path, "classification", steps=50, **options))
    assert state.stopped_early
    longer, _ = train(small.training(tmp_path, "classification", steps=60, **options))
    assert longer.step > state.step
