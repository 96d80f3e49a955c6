"""Causal, masked and masked-nsp: what is predicted, and the losses by hand."""

import itertools
import math

import numpy as np
import pytest
import small
import torch

from headstart.config.presets import preset
from headstart.config.training import Masking
from headstart.data.packing import PackedBlocks
from headstart.data.sentence_pairs import SentencePairs
from headstart.model.heads import IGNORED
from headstart.model.model import build
from headstart.objectives.batches import to_device
from headstart.objectives.pretraining import DOES_NOT, FOLLOWS, Causal, Corruptor, Masked, MaskedNextSentence
from headstart.tokenizers.templates import template_of


def causal(length=16, batch=4):
    return Causal(PackedBlocks(small.store(), length, template_of(small.tokenizer(), "causal")), batch)


def masked(length=16, batch=4, **shares):
    blocks = PackedBlocks(small.store(), length, template_of(small.tokenizer(), "masked"))
    return Masked(blocks, batch, Corruptor(small.tokenizer(), Masking(**shares)))


def pairs(length=40, batch=6):
    found = SentencePairs(small.store(), length, template_of(small.tokenizer(), "masked"))
    corruptor = Corruptor(small.tokenizer(), Masking())
    return MaskedNextSentence(found, batch, corruptor, small.tokenizer().id_of("pad"))


OBJECTIVES = {"causal": causal, "masked": masked, "masked-nsp": pairs}


def model_for(objective, **overrides):
    direction = "causal" if objective.head.kind == "lm" else "bidirectional"
    fields = {"width": 16, "ffn": 24, "heads": 2, "segments": 2, **overrides}
    return build(preset("tiny", vocab=small.tokenizer().size, direction=direction, **fields), objective.head)


def tensors(batch, rows=slice(None)):
    return to_device({key: value[rows] for key, value in batch.items()}, torch.device("cpu"))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_batch_is_a_function_of_seed_and_step(name):
    first, again = OBJECTIVES[name](), OBJECTIVES[name]()
    again.batch_at(9, 9)
    for key, value in first.batch_at(1, 5).items():
        assert np.array_equal(value, again.batch_at(1, 5)[key])
    assert not np.array_equal(first.batch_at(1, 5)["targets"], first.batch_at(2, 4)["targets"])


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("cuts", [[2], [1, 2, 3]])
def test_parts_of_a_batch_add_up_to_the_whole(name, cuts):
    """Micro-batches: the sum of the sums over the sum of the counts, gradients too."""
    objective = OBJECTIVES[name]()
    model = model_for(objective).double()
    batch = {k: v.astype(np.float64) if v.dtype == np.float32 else v for k, v in objective.batch_at(3, 2).items()}
    whole = objective.loss(model, tensors(batch))
    (whole.sum / whole.count).backward()
    expected = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    edges = [0, *cuts, len(batch["tokens"])]
    parts = [objective.loss(model, tensors(batch, slice(a, b))) for a, b in itertools.pairwise(edges)]
    count = sum(part.count for part in parts)
    assert count == whole.count
    torch.testing.assert_close(sum(part.sum for part in parts) / count, whole.sum / whole.count)
    for part in parts:
        (part.sum / count).backward()
    for name_, gradient in expected.items():
        torch.testing.assert_close(model.get_parameter(name_).grad, gradient)
    for key, (total, out_of) in whole.log.items():
        torch.testing.assert_close(sum(p.log[key][0] for p in parts), total)
        assert sum(p.log[key][1] for p in parts) == out_of


@pytest.mark.parametrize("name", OBJECTIVES)
def test_uniform_logits_cost_the_log_of_the_vocabulary(name):
    objective = OBJECTIVES[name]()
    model = model_for(objective, tied=False, output_bias=False)
    with torch.no_grad():
        model.head.output.weight.zero_()
        if name == "masked-nsp":
            model.head.next_sentence.weight.zero_()
    found = objective.loss(model, tensors(objective.batch_at(0, 0)))
    expected = math.log(small.tokenizer().size) + (math.log(2) if name == "masked-nsp" else 0)
    assert (found.sum / found.count).item() == pytest.approx(expected, rel=1e-5)


def test_causal_predicts_the_next_token_and_nothing_after_the_end():
    objective = causal()
    end, begin = small.tokenizer().id_of("end"), small.tokenizer().id_of("begin")
    seen_end = False
    for step in range(5):
        batch = objective.batch_at(0, step)
        tokens, targets = batch["tokens"], batch["targets"]
        inner = targets[:, :-1]
        assert ((inner == tokens[:, 1:]) | (tokens[:, :-1] == end)).all()
        assert (targets[tokens == end] == IGNORED).all()
        assert not (targets == begin).any()
        seen_end |= bool((tokens == end).any())
    assert seen_end


def test_a_causal_evaluation_counts_every_token_once():
    for length in (7, 16, 50):
        objective = causal(length, batch=3)
        counted = [b["targets"][b["targets"] != IGNORED] for b in objective.evaluation()]
        wanted = np.bincount(small.store().tokens, minlength=small.tokenizer().size)
        wanted[small.tokenizer().id_of("end")] += small.store().document_count
        assert np.array_equal(np.bincount(np.concatenate(counted), minlength=len(wanted)), wanted)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_evaluation_is_always_the_same(name):
    objective = OBJECTIVES[name]()
    first, again = list(objective.evaluation()), list(objective.evaluation())
    assert len(first) == len(again) > 1
    for one, other in zip(first, again, strict=True):
        assert all(np.array_equal(one[key], other[key]) for key in one)


def test_pairs_say_which_follow_and_both_losses_are_logged():
    objective = pairs()
    follows = np.concatenate([objective.batch_at(0, step)["follows"] for step in range(40)])
    assert set(follows) == {FOLLOWS, DOES_NOT}
    assert np.mean(follows == FOLLOWS) == pytest.approx(0.5, abs=0.15)
    found = objective.loss(model_for(objective), tensors(objective.batch_at(0, 0)))
    parts = {key: (total / count).item() for key, (total, count) in found.log.items()}
    assert (found.sum / found.count).item() == pytest.approx(parts["masked_loss"] + parts["pair_loss"], rel=1e-5)


def test_an_epoch_has_as_many_steps_as_the_blocks_need():
    objective = causal(16, batch=4)
    assert objective.steps_in(2, 0) == round(2 * objective.blocks.count / 4)
