"""The thread that makes batches ahead for a GPU: what fails in it ends the step that needs the batch."""

from contextlib import closing

import pytest
import small
import torch

from headstart.training.cuda_graphs import Prefetcher


class Broken:
    """An objective whose data cannot be read at one step."""

    def __init__(self, inner, step):
        self.inner, self.step = inner, step

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def batch_at(self, seed, step):
        if step == self.step:
            raise OSError(5, "Input/output error")
        return self.inner.batch_at(seed, step)


def test_an_error_while_a_batch_is_made_ahead_ends_the_step_that_needs_it(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    objective = small.objective("classification")
    with closing(Prefetcher(Broken(objective, 2), 0, 9)) as prefetcher:
        for number in range(2):
            assert (prefetcher(number)[0]["tokens"] == objective.batch_at(0, number)["tokens"]).all()
        with pytest.raises(OSError, match="Input/output error"):
            prefetcher(2)
