"""Each text read twice with different dropout: what is added to the loss, and when."""

import math

import numpy as np
import pytest
import small
import tiny_runs
import torch

from headstart.errors import UserError
from headstart.interop.make_again import call_of
from headstart.model.heads import IGNORED
from headstart.model.model import build
from headstart.model.presets import preset
from headstart.objectives.classification import disagreement, predict
from headstart.training.budget import Budget
from headstart.training.finetune import finetune
from headstart.training.loading import load


def tensors(batch):
    return {key: torch.from_numpy(np.ascontiguousarray(value)) for key, value in batch.items()}


def read_twice(weight, **fields):
    objective = small.objective("classification")
    objective.r_drop = weight
    config = preset("tiny", vocab=small.tokenizer().size, width=16, ffn=24, **fields)
    return objective, build(config, objective.head).train(), tensors(objective.batch_at(0, 0))


def test_disagreement_by_hand():
    # (3/4, 1/4) and (1/2, 1/2): the mean of KL(p|q) and KL(q|p) is 1/2 · (1/4 ln 3/2 − 1/4 ln 1/2) = ln 3 / 8.
    first, second = torch.tensor([[math.log(3.0), 0.0]]), torch.tensor([[1.0, 1.0]])
    assert disagreement(first, second).item() == pytest.approx(math.log(3) / 8)
    assert disagreement(first, first).item() == 0


def test_without_dropout_the_readings_agree_and_the_loss_is_the_usual_one():
    objective, model, batch = read_twice(5.0)
    found = objective.loss(model, batch)
    objective.r_drop = 0.0
    usual = objective.loss(model, batch)
    assert found.sum.item() == pytest.approx(usual.sum.item(), rel=1e-5)
    assert (found.count, found.log["accuracy"][1]) == (usual.count, usual.log["accuracy"][1])


def test_the_loss_is_the_mean_of_both_readings_and_what_they_disagree_in():
    objective, model, batch = read_twice(0.7, dropout=0.3)
    torch.manual_seed(3)
    found = objective.loss(model, batch)
    torch.manual_seed(3)
    twice = {key: torch.cat([value, value]) for key, value in batch.items()}
    first, second = predict(model, twice).chunk(2)
    assert not torch.equal(first, second)
    both = [torch.nn.functional.cross_entropy(o, batch["targets"], reduction="sum") for o in (first, second)]
    p, q = first.softmax(-1), second.softmax(-1)
    apart = (p * (p / q).log() + q * (q / p).log()).sum() / 2
    assert found.sum.item() == pytest.approx((sum(both) / 2 + 0.7 * apart).item(), rel=1e-4)
    assert int(found.count) == len(batch["targets"])


def test_rows_that_fill_a_batch_up_do_not_count():
    objective, model, _ = read_twice(0.7)
    given = {key: value for key, value in objective.batch_at(0, 0).items() if key != "rows"}
    objective.batch = len(given["tokens"]) + 3
    found, filled = (objective.loss(model, tensors(one)) for one in (given, objective.filled(given)))
    assert (tensors(objective.filled(given))["targets"] == IGNORED).sum() == 3
    assert filled.sum.item() == pytest.approx(found.sum.item(), rel=1e-5)
    assert int(filled.count) == int(found.count)


def test_nothing_is_read_twice_where_a_run_is_measured():
    objective, model, batch = read_twice(0.7, dropout=0.3)
    model.eval()
    assert objective.loss(model, batch).sum == model.head.loss(predict(model, batch), batch["targets"])[0]


def test_a_run_has_it_and_is_not_continued_without(tmp_path):
    files = tiny_runs.files()
    common = {
        "out": tmp_path / "run", "overrides": {**tiny_runs.SHAPE, "context": 64, "dropout": 0.2}, "length": 16,
        "tokenizer": small.tokenizer(), "budget": Budget(steps=3), "machine": tiny_runs.MACHINE,
    }  # fmt: skip
    finetune(files["classification", "train"], r_drop=0.5, **common)
    run = load(tmp_path / "run")
    assert run.config.r_drop == 0.5
    assert "r_drop=0.5," in call_of(run, {})
    with pytest.raises(UserError, match=r"r_drop was 0.5, is 0.0"):
        finetune(files["classification", "train"], **common)


@pytest.mark.parametrize(("task", "weight"), [("regression", 1.0), ("classification", -1.0)])
def test_what_it_cannot_be_is_refused(task, weight, tmp_path):
    with pytest.raises(UserError, match="--r-drop"):
        finetune(tiny_runs.files()[task, "train"], out=tmp_path / "run", task=task, r_drop=weight)
