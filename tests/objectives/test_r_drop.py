"""Each text read twice with different dropout: what is added to the loss, and when."""

import math

import numpy as np
import pytest
import small
import tiny_runs
import torch
import translators
from expected_errors import refused

from headstart.config.presets import preset
from headstart.interop.model_card import call_of
from headstart.model.heads import IGNORED
from headstart.model.model import build
from headstart.objectives import objective as objectives
from headstart.objectives.batches import with_target_positions
from headstart.objectives.classification import predict
from headstart.objectives.objective import symmetric_kl, token_symmetric_kl
from headstart.objectives.translation import Translation, framed_side
from headstart.runs.load import load
from headstart.tokenizers.templates import target_template_of, template_of
from headstart.training.tasks.finetune import finetune


def tensors(batch):
    return {key: torch.from_numpy(np.ascontiguousarray(value)) for key, value in batch.items()}


def read_twice(weight, **fields):
    objective = small.objective("classification")
    objective.r_drop = weight
    config = preset("tiny", vocab=small.tokenizer().size, width=16, ffn=24, **fields)
    return objective, build(config, objective.head).train(), tensors(objective.batch_at(0, 0))


def test_symmetric_kl_by_hand():
    # (3/4, 1/4) and (1/2, 1/2): the mean of KL(p|q) and KL(q|p) is 1/2 · (1/4 ln 3/2 − 1/4 ln 1/2) = ln 3 / 8.
    first, second = torch.tensor([[math.log(3.0), 0.0]]), torch.tensor([[1.0, 1.0]])
    assert symmetric_kl(first, second).item() == pytest.approx(math.log(3) / 8)
    assert symmetric_kl(first, first).item() == 0


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
    found, filled = (objective.loss(model, tensors(one)) for one in (given, objective.pad_to_static_shape(given)))
    assert (tensors(objective.pad_to_static_shape(given))["targets"] == IGNORED).sum() == 3
    assert filled.sum.item() == pytest.approx(found.sum.item(), rel=1e-5)
    assert int(filled.count) == int(found.count)


def test_nothing_is_read_twice_where_a_run_is_measured():
    objective, model, batch = read_twice(0.7, dropout=0.3)
    model.eval()
    assert objective.loss(model, batch).sum == model.head.loss(predict(model, batch), batch["targets"])[0]


def test_a_run_has_it_and_is_not_continued_without(tmp_path):
    files = tiny_runs.files()
    common = {
        "out": tmp_path / "run", "model": {**tiny_runs.SHAPE, "context": 64, "dropout": 0.2}, "length": 16,
        "tokenizer": small.tokenizer(), "steps": 3, "machine": tiny_runs.MACHINE,
    }  # fmt: skip
    finetune(files["classification", "train"], r_drop=0.5, **common)
    run = load(tmp_path / "run")
    assert run.config.r_drop == 0.5
    assert "r_drop=0.5," in call_of(run, {})
    with refused("changed", "r_drop was 0.5, is 0.0"):
        finetune(files["classification", "train"], **common)


# ---- translation ------------------------------------------------------------------------------------------------


def translation_read_twice(weight, **fields):
    tokenizer = small.tokenizer()
    sides = [small.sentences(6, seed=seed) for seed in (5, 6)]
    frames = template_of(tokenizer, "causal"), target_template_of(tokenizer, "causal")
    framed = [framed_side(texts, tokenizer, frame, 32) for texts, frame in zip(sides, frames, strict=True)]
    objective = Translation(*framed, 300, tokenizer.id_of("pad"), tokenizer.id_of("pad"), smoothing=0.1, r_drop=weight)
    config = preset(
        "transformer-tiny", vocab=small.tokenizer().size, width=16, heads=2, ffn=24, depth=1, decoder_depth=1,
        attention_dropout=0.0, ffn_dropout=0.0, **fields,
    )  # fmt: skip
    return (
        objective,
        build(config, objective.head).train(),
        tensors(with_target_positions(objective.batch_at(0, 0))),
    )


def test_a_translation_is_charged_for_what_its_two_readings_differ_in_at_every_token():
    objective, model, batch = translation_read_twice(0.7, dropout=0.3)
    torch.manual_seed(3)
    found = objective.loss(model, batch)
    torch.manual_seed(3)
    pairs = {key: torch.cat([batch[key]] * 2) for key in ("tokens", "written", "present", "targets")}
    hidden = model.base(pairs["tokens"], pairs["written"], source_present=pairs["present"])
    logits = model.head(hidden)
    smoothed = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), pairs["targets"].flatten(), ignore_index=IGNORED, reduction="sum",
        label_smoothing=objective.smoothing,
    )  # fmt: skip
    p, q = (half.softmax(-1) for half in logits.chunk(2))
    apart = (p * (p / q).log() + q * (q / p).log()).sum(-1) / 2
    apart = apart[batch["targets"] != IGNORED].sum()
    assert apart > 0.01
    assert found.sum.item() == pytest.approx((smoothed / 2 + 0.7 * apart).item(), rel=1e-4)
    assert int(found.count) == int((batch["targets"] != IGNORED).sum())


def test_a_translation_without_dropout_has_the_usual_loss_and_grads():
    objective, model, batch = translation_read_twice(5.0, dropout=0.0)
    grads = []
    for weight in (5.0, 0.0):
        objective.r_drop = weight
        model.zero_grad()
        objective.loss(model, batch).sum.backward()
        grads.append([p.grad.clone() for p in model.parameters()])
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_tokens_in_chunks_differ_by_as_much_and_have_the_same_grads(monkeypatch):
    torch.manual_seed(0)
    matrix = torch.randn(7, 4)
    first, second = (torch.randn(10, 4, requires_grad=True) for _ in range(2))
    counts = torch.arange(10) != 8
    found = []
    for size in (1 << 20, 3 * 7):
        monkeypatch.setitem(objectives.CHUNK_LOGITS, "cpu", size)
        total = token_symmetric_kl(lambda x: x @ matrix.T, first, second, counts, 7)
        found.append([total.detach(), *torch.autograd.grad(total, (first, second))])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)
    assert found[0][1][8].abs().sum() == 0


def test_a_translator_has_it_in_its_configuration_and_its_card(tmp_path):
    translators.train(tmp_path / "run", r_drop=0.5)
    run = load(tmp_path / "run")
    assert run.config.r_drop == 0.5
    assert "r_drop=0.5," in call_of(run, {})
    with refused("bad-value", "--r-drop"):
        translators.train(tmp_path / "other", r_drop=-1.0)


@pytest.mark.parametrize(
    ("task", "weight", "code"), [("regression", 1.0, "conflict"), ("classification", -1.0, "bad-value")]
)
def test_what_it_cannot_be_is_refused(task, weight, code, tmp_path):
    with refused(code, "--r-drop"):
        finetune(tiny_runs.files()[task, "train"], out=tmp_path / "run", task=task, r_drop=weight)


def test_class_weights_count_for_both_readings_and_for_what_they_disagree_in():
    objective, model, batch = read_twice(0.7, dropout=0.3)
    alone = []
    for row in range(len(batch["targets"])):
        torch.manual_seed(3)
        kept = torch.zeros(len(batch["targets"]))
        kept[row] = 1.0
        alone.append(objective.loss(model, {**batch, "weights": kept}).sum.item())
    weights = torch.arange(1.0, len(alone) + 1)
    torch.manual_seed(3)
    found = objective.loss(model, {**batch, "weights": weights})
    assert found.sum.item() == pytest.approx(float(weights @ torch.tensor(alone)), rel=1e-4)
    assert found.count == weights.sum()
    torch.manual_seed(3)
    plain = objective.loss(model, batch)
    assert plain.sum.item() == pytest.approx(sum(alone), rel=1e-4)
