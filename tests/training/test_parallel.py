"""One model in one process; several ranks are in tests/test_distributed.py."""

from contextlib import nullcontext

import small
import torch

from headstart.objectives.objective import LossModule
from headstart.training.parallel import distribute, gradient_sync


def test_one_process_has_the_model_itself_and_its_loss():
    training = small.training(None)
    losses = distribute(training.model, training.machine, is_sharded=False)
    assert isinstance(losses, LossModule)
    assert losses.model is training.model
    batch = training.objective.batch_at(0, 0)
    loss, sums = losses(training.objective, {key: torch.from_numpy(array) for key, array in batch.items()})
    assert sums["loss"][0] == loss
    assert not sums["loss"][0].requires_grad


def test_one_process_has_nothing_to_synchronise():
    losses = LossModule(small.training(None).model)
    assert isinstance(gradient_sync(losses, is_last=False), nullcontext)
    assert isinstance(gradient_sync(losses, is_last=True), nullcontext)
