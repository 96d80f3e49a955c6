"""CUDA graphs without a GPU: batches made ahead, what is captured, and what a failed capture leaves behind."""

from contextlib import closing, contextmanager
from types import SimpleNamespace

import pytest
import small
import torch

from headstart.objectives.objective import LossModule
from headstart.training.cuda_graphs import AHEAD, CaptureFailed, GraphedStep, Prefetcher
from headstart.training.loop import Step
from headstart.training.optimizers.optimizer import build_optimizers, set_learning_rate

CPU = torch.device("cpu")


@pytest.fixture
def pretended_cuda(monkeypatch):
    """A pretended CUDA: what happened, in order."""
    happened = []
    generator = SimpleNamespace(
        clone_state=lambda: "before", graphsafe_set_state=lambda state: happened.append(("restored", state))
    )

    @contextmanager
    def capture(graph, pool, capture_error_mode):
        happened.append(("capture", pool, capture_error_mode))
        yield

    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "pool")
    monkeypatch.setattr(torch.cuda, "default_generators", [generator])
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    replay = SimpleNamespace(replay=lambda: happened.append(("replay",)))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: replay)
    return happened


def test_batches_are_those_of_the_objective_and_made_ahead(pretended_cuda):
    objective = small.objective("classification")
    with closing(Prefetcher(objective, 3, 10)) as prefetcher:
        for number in range(10):
            batch, static = prefetcher(number)
            assert (batch["tokens"] == objective.batch_at(3, number)["tokens"]).all()
            assert static.keys() == objective.static_batch(batch).keys()
            assert sorted(prefetcher._batches) == list(range(number + 1, min(number + AHEAD, 10)))
        assert prefetcher(25)  # beyond the end: made when it is asked for


def test_the_first_step_of_a_shape_runs_and_later_ones_are_replayed(pretended_cuda):
    seen = []

    def compute(parts, number):
        seen.append((parts[0]["tokens"].shape, number))
        return parts[0]["tokens"].float()

    graphed = GraphedStep(compute, 0, CPU)
    batches = [{"tokens": torch.full((2, 3), value)} for value in range(3)]
    assert graphed(batches[0], 0).eq(0).all()
    graphed(batches[1], 1)
    graphed(batches[2], 2)
    graphed({"tokens": torch.zeros(4, 3)}, 3)
    # Without its number in a capture: the generator cannot be set there.
    assert seen == [((2, 3), 0), ((2, 3), None), ((4, 3), 3)]
    assert pretended_cuda == [("capture", "pool", "thread_local"), ("replay",), ("replay",)]
    ((_, inputs, _),) = graphed._graphs.values()
    assert inputs["tokens"].eq(2).all()


def test_a_failed_capture_restores_the_generator(pretended_cuda):
    def compute(parts, number):
        if number is None:
            raise RuntimeError("asked for a number\nand much about it")
        return parts[0]["tokens"]

    graphed, batch = GraphedStep(compute, 0, CPU), {"tokens": torch.zeros(2, 3)}
    graphed(batch, 0)
    with pytest.raises(CaptureFailed, match=r"^asked for a number$"):
        graphed(batch, 1)
    assert pretended_cuda[-1] == ("restored", "before")


@pytest.mark.parametrize("error", [CaptureFailed("why"), torch.OutOfMemoryError("fake")])
def test_training_continues_without_graphs_and_with_the_same_numbers(pretended_cuda, error):
    weights = []
    for fails in (False, True):
        training, logged = small.training(None, "classification"), []
        training.log = logged.append
        optimizers = build_optimizers(training.model, training.model.config, training.optimizer)
        set_learning_rate(optimizers, 1.0)
        step = Step(training, LossModule(training.model), optimizers)
        if fails:

            def failing(batch, number, weight=training.model.head.classifier.weight):
                weight.grad = torch.ones_like(weight)  # as an interrupted step leaves it
                raise error

            step.graphs = failing
            step._prefetcher = Prefetcher(training.objective, training.loop.seed, 4)
        with closing(step):
            for number in range(2):
                step(number, 1)
        assert step.graphs is None
        assert bool(logged) == (fails and isinstance(error, CaptureFailed))
        weights.append(small.digest(training))
    assert weights[0] == weights[1]
