"""Batches: padded to static shapes they have the same loss; target positions select what a boolean mask would."""

from contextlib import nullcontext

import numpy as np
import pytest
import small
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.config.training import Masking
from headstart.data.packing import PackedBlocks
from headstart.data.sentence_pairs import SentencePairs
from headstart.model.heads import IGNORED
from headstart.model.model import build
from headstart.objectives.batches import select_positions, to_device, with_target_positions
from headstart.objectives.classification import Classification
from headstart.objectives.pretraining import Causal, Corruptor, Masked, MaskedNextSentence
from headstart.objectives.translation import Translation, framed_side
from headstart.tokenizers.templates import template_of

WORDS = small.tokenizer()
PAD = WORDS.id_of("pad")


def causal():
    return Causal(PackedBlocks(small.store(), 16, template_of(WORDS, "causal")), 4)


def masked():
    return Masked(PackedBlocks(small.store(), 16, template_of(WORDS, "masked")), 4, Corruptor(WORDS, Masking()))


def sentence_pairs():
    found = SentencePairs(small.store(), 40, template_of(WORDS, "masked"))
    return MaskedNextSentence(found, 6, Corruptor(WORDS, Masking()), PAD)


def classification():
    examples = framed_side(small.sentences(20, seed=4), WORDS, template_of(WORDS, "causal"), 12)
    return Classification(examples, np.arange(20) % 3, HeadConfig(kind="classification", classes=3), 6, PAD)


def translation():
    sides = [framed_side(small.sentences(40, seed), WORDS, template_of(WORDS, "causal"), 64) for seed in (1, 2)]
    return Translation(*sides, 200, PAD, PAD, smoothing=0.1, multiple=4)


OBJECTIVES = [causal, masked, sentence_pairs, classification, translation]


def model_for(objective):
    if objective.head.kind == "translation":
        name, fields = "transformer-tiny", {"decoder_depth": 1}
    else:
        direction = "causal" if objective.head.kind in ("lm", "classification") else "bidirectional"
        name, fields = "tiny", {"segments": 2, "direction": direction}
    config = preset(name, vocab=WORDS.size, width=16, ffn=24, heads=2, depth=1, **fields)
    return build(config, objective.head).eval()


CPU = torch.device("cpu")


def tensors(batch):
    return {key: torch.from_numpy(np.ascontiguousarray(array)) for key, array in batch.items()}


def assert_same_loss(objective, model, batch):
    plain = objective.loss(model, to_device(batch, CPU))
    filled = objective.loss(model, tensors(objective.static_batch(batch)))
    assert filled.count == plain.count
    torch.testing.assert_close(filled.sum, plain.sum, rtol=1e-4, atol=1e-4)
    for key, (total, count) in plain.log.items():
        torch.testing.assert_close(filled.log[key][0], total, rtol=1e-4, atol=1e-4)
        assert filled.log[key][1] == count


@pytest.mark.parametrize("make", OBJECTIVES)
def test_a_filled_batch_has_the_same_loss(make):
    objective = make()
    for step in range(3):
        assert_same_loss(objective, model_for(objective), objective.batch_at(3, step))


def test_pairs_of_languages_are_filled_up_within_the_tokens_of_a_batch():
    objective = translation()
    for step in range(6):
        filled = objective.static_batch(objective.batch_at(0, step))
        rows, source = filled["tokens"].shape
        target = filled["written"].shape[1]
        assert source % 4 == target % 4 == 0
        assert rows == 200 // (source + target)


def test_the_last_batch_of_labelled_texts_is_filled_up_with_labels_that_do_not_count():
    objective = classification()
    rows = np.arange(2)
    filled = objective.static_batch(objective.collate(rows))
    assert len(filled["tokens"]) == objective.batch
    assert set(filled["targets"][2:].tolist()) == {IGNORED}
    assert "rows" not in filled


def test_offsets_are_where_documents_and_blocks_begin():
    objective = causal()
    batch = objective.batch_at(0, 0)
    offsets = objective.static_batch(batch)["cu_seqlens"]
    documents, length = batch["documents"].ravel(), batch["documents"].shape[1]
    expected = [
        position for position in range(len(documents))
        if position % length == 0 or documents[position] != documents[position - 1]
    ]  # fmt: skip
    assert offsets[: len(expected)].tolist() == expected
    assert set(offsets[len(expected) :].tolist()) == {len(documents)}
    assert len(offsets) % 256 == 0


@pytest.mark.parametrize("make", OBJECTIVES)
def test_a_device_is_never_asked_for_a_number(make, monkeypatch):
    """On torch's device without numbers whoever asks for one fails, as in a recording on a GPU."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)  # which knows no such device
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    objective = make()
    model = model_for(objective).to("meta").train()
    batch = objective.static_batch(objective.batch_at(0, 0))
    batch.pop("cu_seqlens", None)  # attention by them has kernels for a GPU alone
    objective.loss(model, {key: tensor.to("meta") for key, tensor in tensors(batch).items()}).sum.backward()
    assert all(parameter.grad is not None for parameter in model.head.parameters())


# ---- target positions ---------------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 5), st.integers(1, 9), st.integers(0, 99), st.sampled_from([1, 4, 16]))
def test_selected_are_the_vectors_that_a_boolean_mask_would_select(examples, length, seed, multiple):
    draws = np.random.default_rng(seed)
    targets = np.where(draws.random((examples, length)) < 0.4, draws.integers(50, size=(examples, length)), IGNORED)
    batch = {
        key: torch.from_numpy(value) for key, value in with_target_positions({"targets": targets}, multiple).items()
    }
    hidden = torch.randn(examples, length, 3, dtype=torch.float64, requires_grad=True)
    counted = batch["position_targets"] != IGNORED
    found, expected = select_positions(hidden, batch)[counted], hidden[torch.from_numpy(targets != IGNORED)]
    assert torch.equal(found, expected)
    assert batch["position_targets"][counted].tolist() == targets[targets != IGNORED].tolist()
    grads = torch.randn_like(expected)
    ours, theirs = (torch.autograd.grad((one * grads).sum(), hidden)[0] for one in (found, expected))
    assert torch.equal(ours, theirs)


def test_the_list_is_filled_up_to_a_multiple_and_is_never_empty():
    nothing = with_target_positions({"targets": np.full((2, 3), IGNORED)}, 8)
    assert len(nothing["positions"]) == 8
    assert set(nothing["position_targets"]) == {IGNORED}
    assert len(with_target_positions({"targets": np.arange(9).reshape(3, 3)}, 8)["positions"]) == 16


def test_labels_of_whole_texts_are_no_places():
    batch = {"targets": np.array([0, 1])}
    assert with_target_positions(batch) == batch
