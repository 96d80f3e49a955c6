"""The translation objective: what goes in, what comes out, and the loss by hand."""

import numpy as np
import pytest
import small
import torch
from expected_errors import refused

from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.config.training import TranslationOptions
from headstart.model.heads import IGNORED
from headstart.model.model import build
from headstart.objectives.batches import micro_batches, to_device
from headstart.objectives.translation import Ragged, Translation, framed_side
from headstart.tokenizers.templates import template_of

WORDS = small.tokenizer()
FRAME = template_of(WORDS, "causal")
SOURCES, TARGETS = small.sentences(40, seed=1), small.sentences(40, seed=2)


def objective(smoothing=0.0, batch_tokens=200, count=40, length=64):
    sources = framed_side(SOURCES[:count], WORDS, FRAME, length)
    targets = framed_side(TARGETS[:count], WORDS, FRAME, length)
    return Translation(sources, targets, batch_tokens, WORDS.id_of("pad"), WORDS.id_of("pad"), smoothing)


def model(is_training=False):
    fields = {"width": 16, "ffn": 24, "heads": 2, "depth": 1, "decoder_depth": 2, "dropout": 0.0}
    config = preset("transformer-tiny", vocab=WORDS.size, attention_dropout=0.0, ffn_dropout=0.0, **fields)
    return build(config, HeadConfig(kind="translation"), seed=3).double().train(is_training)


def tensors(batch):
    return to_device(batch, torch.device("cpu"))


def test_the_target_goes_in_after_begin_and_comes_out_before_end():
    batch = objective().collate(np.array([3, 5]))
    for row, number in enumerate((3, 5)):
        source, target = WORDS.encode(SOURCES[number]).tolist(), WORDS.encode(TARGETS[number]).tolist()
        begin, end = WORDS.id_of("begin"), WORDS.id_of("end")
        assert batch["tokens"][row][batch["present"][row]].tolist() == [begin, *source, end]
        assert batch["written"][row][: len(target) + 1].tolist() == [begin, *target]
        counted = batch["targets"][row] != IGNORED
        assert batch["targets"][row][counted].tolist() == [*target, end]
        assert counted.tolist() == [position <= len(target) for position in range(len(counted))]
    assert batch["written"].shape == batch["targets"].shape


def test_the_smoothed_loss_by_hand():
    """Nine tenths of each target are the token, one tenth is spread over all tokens."""
    net, goal, plain = model(), objective(smoothing=0.1), objective()
    batch = tensors(goal.collate(np.arange(4)))
    logs = net(batch["tokens"], batch["written"], source_present=batch["present"]).log_softmax(-1)
    counted = batch["targets"] != IGNORED
    nll = -logs[counted].gather(-1, batch["targets"][counted][:, None]).sum()
    spread = -logs[counted].mean(-1).sum()
    found = goal.loss(net, batch)
    assert found.sum.item() == pytest.approx((0.9 * nll + 0.1 * spread).item())
    assert found.count.item() == counted.sum().item()
    assert found.log["cross_entropy"][0].item() == pytest.approx(nll.item())
    assert plain.loss(net, batch).sum.item() == pytest.approx(nll.item())
    right = (logs.argmax(-1) == batch["targets"])[counted].sum()
    assert found.log["accuracy"] == (right, found.count)


def test_where_it_is_trained_only_what_it_is_trained_by_is_computed():
    goal = objective(smoothing=0.1)
    batch = tensors(goal.collate(np.arange(4)))
    assert goal.loss(model(is_training=True), batch).log == {}
    assert goal.loss(model(is_training=True), batch).sum.item() == pytest.approx(goal.loss(model(), batch).sum.item())


def test_padding_and_company_change_nothing():
    net, goal = model(), objective(smoothing=0.1)
    together = goal.loss(net, tensors(goal.collate(np.arange(6))))
    alone = [goal.loss(net, tensors(goal.collate(np.array([row])))) for row in range(6)]
    assert together.sum.item() == pytest.approx(sum(one.sum.item() for one in alone))
    assert together.count.item() == sum(one.count.item() for one in alone)
    parts = micro_batches(goal.collate(np.arange(6)), 4)
    assert together.sum.item() == pytest.approx(sum(goal.loss(net, tensors(p)).sum.item() for p in parts))


def test_batches_keep_to_their_tokens_and_hold_every_pair_once_an_epoch():
    goal = objective(batch_tokens=150)
    rows = [goal.buckets.examples_at(7, step) for step in range(goal.steps_in(1, 7))]
    assert sorted(np.concatenate(rows).tolist()) == list(range(40))
    for step in range(len(rows)):
        batch = goal.batch_at(7, step)
        assert batch["tokens"].size + batch["written"].size <= 150
        assert batch["rows"].tolist() == rows[step].tolist()
        again = objective(batch_tokens=150).batch_at(7, step)
        assert all(np.array_equal(batch[key], again[key]) for key in batch)
    measured = [row for batch in goal.evaluation() for row in batch["rows"].tolist()]
    assert sorted(measured) == list(range(40))


def test_a_pair_is_cut_on_both_sides_and_counted():
    goal = objective(length=8)
    assert goal.batch_at(0, 0)["tokens"].shape[1] <= 8
    assert goal.batch_at(0, 0)["written"].shape[1] <= 7
    longer = [
        len(WORDS.encode(source)) > 6 or len(WORDS.encode(target)) > 6
        for source, target in zip(SOURCES, TARGETS, strict=True)
    ]
    assert goal.truncated_share == pytest.approx(np.mean(longer))


def test_ragged_pads_as_a_loop_would():
    sequences = [np.array([4, 5]), np.array([6]), np.array([7, 8, 9])]
    tokens, present = Ragged(sequences).padded(np.array([2, 0, 0]), padding=1)
    assert tokens.tolist() == [[7, 8, 9], [4, 5, 1], [4, 5, 1]]
    assert present.tolist() == [[True, True, True], [True, True, False], [True, True, False]]
    assert Ragged(sequences).padded(np.array([1]), padding=1)[0].tolist() == [[6]]


@pytest.mark.parametrize("smoothing", [-0.1, 1.0, float("nan")])
def test_a_smoothing_that_means_nothing_is_refused(smoothing):
    with refused("bad-value", "label_smoothing"):
        TranslationOptions(label_smoothing=smoothing)
