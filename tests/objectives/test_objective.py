"""The loss of a batch in one forward call."""

import numpy as np
import small
import torch
from torch import nn

from headstart.objectives.objective import Loss, LossModule, Objective


class Doubled(Objective):
    """Its loss is twice the sum of what the model gives."""

    def loss(self, model, batch):
        found = model(batch["x"])
        return Loss(2 * found.sum(), torch.tensor(found.numel()), {"largest": (found.max(), torch.tensor(1))})

    def pad_to_static_shape(self, batch):
        return {key: np.pad(array, (0, 4 - len(array))) for key, array in batch.items()}

    uses_target_positions = False


def test_the_sum_has_a_gradient_and_what_is_logged_has_none():
    model = nn.Linear(2, 1)
    total, sums = LossModule(model)(Doubled(), {"x": torch.tensor([[1.0, 2.0], [3.0, 4.0]])})
    total.backward()
    assert model.weight.grad.tolist() == [[8.0, 12.0]]
    assert set(sums) == {"loss", "largest"}
    assert sums["loss"][1] == 2
    assert not any(value.requires_grad for value, _ in sums.values())


def test_a_batch_for_a_graph_has_a_static_shape_and_no_row_numbers():
    found = Doubled().static_batch({"x": np.ones(3), "rows": np.arange(3)})
    assert {key: array.tolist() for key, array in found.items()} == {"x": [1, 1, 1, 0]}


def test_every_objective_is_one():
    for kind in small.KINDS:
        objective = small.objective(kind)
        assert isinstance(objective, Objective)
        one, other = objective.batch_at(1, 5), objective.batch_at(1, 5)
        assert all(np.array_equal(one[key], other[key]) for key in one), "a function of seed and step"
