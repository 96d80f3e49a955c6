"""Heads: pooling by hand and by effect, losses against torch's own."""

import math

import pytest
import torch
import torch.nn.functional as F
from expected_errors import refused

from headstart.config.model import HeadConfig, usual_pooling
from headstart.config.presets import preset
from headstart.model.heads import IGNORED, pool, token_loss
from headstart.model.model import build


def test_pooling_by_hand():
    hidden = torch.tensor([[[1.0], [2.0], [4.0], [8.0]]]).expand(4, 4, 1)
    present = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 0, 0]]).bool()
    assert pool(hidden, present, "last").flatten().tolist() == [8, 2, 8, 0]
    assert pool(hidden, present, "first").flatten().tolist() == [1, 1, 4, 0]
    assert pool(hidden, present, "mean").flatten().tolist() == [3.75, 1.5, 6, 0]
    for pooling, value in (("last", 8), ("first", 1), ("mean", 3.75)):
        assert pool(hidden, None, pooling)[0].item() == value


@pytest.mark.parametrize("pooling", ["last", "mean", "first"])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", ["lab", "bert-base", "modern-small"])
def test_a_text_is_classified_the_same_in_any_company(name, pooling, side):
    config = preset(name, vocab=19, width=32, heads=2, ffn=32, depth=2)
    model = build(config, HeadConfig(kind="classification", classes=3, pooling=pooling)).double().eval()
    generator = torch.Generator().manual_seed(0)
    texts = [torch.randint(19, (length,), generator=generator) for length in (1, 4, 9)]
    tokens = torch.randint(19, (3, 9), generator=generator)  # what stands on padding must not matter
    present = torch.zeros(3, 9, dtype=torch.bool)
    for row, text in enumerate(texts):
        place = slice(9 - len(text), 9) if side == "left" else slice(0, len(text))
        tokens[row, place], present[row, place] = text, True
    together = model(tokens, present=present)
    alone = torch.cat([model(text[None]) for text in texts])
    torch.testing.assert_close(together, alone)


def test_default_pooling_suits_the_direction():
    assert HeadConfig(kind="classification").pooling_for(preset("lab")) == "last"
    assert HeadConfig(kind="classification").pooling_for(preset("bert-base")) == "first"
    assert HeadConfig(kind="classification", pooling="mean").pooling_for(preset("lab")) == "mean"


def test_uniform_logits_cost_the_log_of_the_vocabulary():
    loss_sum, count = token_loss(torch.zeros(2, 3, 50), torch.tensor([[1, 2, IGNORED], [4, 5, 6]]))
    assert count == 5
    assert (loss_sum / count).item() == pytest.approx(math.log(50))


def losses(kind, outputs, targets):
    head = build(preset("tiny", vocab=9), HeadConfig(kind=kind, classes=outputs.shape[-1])).head
    loss_sum, count = head.loss(outputs, targets)
    return loss_sum / count


def test_losses_are_torchs_own():
    outputs = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 2, 2, 1, 0])
    torch.testing.assert_close(losses("classification", outputs, labels), F.cross_entropy(outputs, labels))
    many = torch.tensor([[1, 0, 1]] * 6)
    expected = F.binary_cross_entropy_with_logits(outputs, many.float())
    torch.testing.assert_close(losses("multilabel", outputs, many), expected)
    numbers = torch.randn(6, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(losses("regression", outputs[:, :1], numbers), F.mse_loss(outputs[:, 0], numbers))


@pytest.mark.parametrize("kind", ["tokens", "classification", "multilabel", "regression"])
def test_sums_and_counts_over_parts_make_the_whole(kind):
    """Accumulation over micro-batches divides once, so parts must add up."""
    generator = torch.Generator().manual_seed(0)
    loss = token_loss
    if kind != "tokens":
        loss = build(preset("tiny", vocab=4), HeadConfig(kind=kind, classes=4)).head.loss
    outputs = torch.randn(6, 4, generator=generator)
    targets = torch.randint(4, (6,), generator=generator)
    if kind in ("multilabel", "regression"):
        targets = torch.rand(6, 4, generator=generator)
    whole = loss(outputs, targets)
    parts = [loss(outputs[a:b], targets[a:b]) for a, b in ((0, 1), (1, 4), (4, 6))]
    torch.testing.assert_close(sum(p[0] for p in parts), whole[0])
    assert sum(p[1] for p in parts) == whole[1]


def test_a_head_that_cannot_stand_on_the_base_is_refused():
    with refused("conflict", "a translation head", "causal"):
        build(preset("lab", vocab=9), HeadConfig(kind="translation"))
    with refused("conflict", "a lm head", "encoder-decoder"):
        build(preset("transformer-tiny", vocab=9), HeadConfig(kind="lm"))
    with refused("missing", "--vocab"):
        build(preset("lab"), HeadConfig(kind="lm"))


@pytest.mark.parametrize(
    ("name", "fields", "pooling"),
    [("tiny", {}, "last"), ("tiny", {"direction": "bidirectional"}, "mean"), ("bert-base", {}, "first")],
)
def test_a_text_is_pooled_where_its_base_has_learned_something(name, fields, pooling):
    config = preset(name, vocab=50, **fields)
    assert HeadConfig(kind="classification", pooling=usual_pooling(config)).pooling_for(config) == pooling
