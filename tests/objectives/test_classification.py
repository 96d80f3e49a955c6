"""Fine-tuning objectives: labels of every kind, pairs of texts, each example once an epoch."""

import numpy as np
import pytest
import small
import torch

from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.data.labelled import LabelledSet
from headstart.model.model import build
from headstart.objectives.classification import Classification, framed_texts
from headstart.tokenizers.templates import template_of

TARGETS = {
    "classification": np.arange(20) % 3,
    "multilabel": (np.arange(60).reshape(20, 3) % 2),
    "regression": np.linspace(-1, 1, 20, dtype=np.float32),
}


def labelled(texts_b=None):
    texts = small.sentences(20, seed=4)
    return LabelledSet("f", "classification", texts, ["x"] * 20, ["f:1"] * 20, texts_b)


def make(kind="classification", length=12, texts_b=None, batch=6):
    frame = template_of(small.tokenizer(), "masked") if texts_b else template_of(small.tokenizer(), "causal")
    examples = framed_texts(labelled(texts_b), small.tokenizer(), frame, length)
    classes = 1 if kind == "regression" else 3
    head = HeadConfig(kind=kind, classes=classes)
    return Classification(examples, TARGETS[kind], head, batch, small.tokenizer().id_of("pad"))


def model_for(objective, **fields):
    return build(preset("tiny", vocab=small.tokenizer().size, width=16, ffn=24, **fields), objective.head)


def tensors(batch, rows=slice(None)):
    return {key: torch.from_numpy(np.ascontiguousarray(value[rows])) for key, value in batch.items()}


def test_every_example_comes_once_an_epoch_with_its_own_target():
    objective = make()
    steps = objective.steps_in(1, seed=5)
    rows = np.concatenate([objective.batch_at(5, step)["rows"] for step in range(steps)])
    assert sorted(rows) == list(range(20))
    batch = objective.batch_at(5, 1)
    assert np.array_equal(batch["targets"], TARGETS["classification"][batch["rows"]])


def test_an_evaluation_has_every_example_once():
    rows = np.concatenate([batch["rows"] for batch in make().evaluation()])
    assert sorted(rows) == list(range(20))


@pytest.mark.parametrize("kind", TARGETS)
def test_parts_of_a_batch_add_up_to_the_whole(kind):
    objective = make(kind)
    model = model_for(objective).double()
    batch = objective.batch_at(0, 0)
    whole = objective.loss(model, tensors(batch))
    parts = [objective.loss(model, tensors(batch, slice(a, b))) for a, b in ((0, 1), (1, 4), (4, 6))]
    torch.testing.assert_close(sum(p.sum for p in parts), whole.sum)
    assert sum(p.count for p in parts) == whole.count == 6
    assert set(whole.log) == (set() if kind == "regression" else {"accuracy"})


def test_accuracy_is_that_of_the_predictions():
    objective = make()
    model = model_for(objective)
    batch = tensors(objective.batch_at(0, 0))
    right, count = objective.loss(model, batch).log["accuracy"]
    predicted = model(batch["tokens"], present=batch["present"]).argmax(-1)
    assert (right, count) == ((predicted == batch["targets"]).sum(), 6)


def test_pairs_of_texts_have_two_segments():
    objective = make(texts_b=small.sentences(20, seed=5), length=60)
    batch = objective.batch_at(0, 0)
    assert set(np.unique(batch["segments"])) == {0, 1}
    with_segments = model_for(objective, direction="bidirectional", segments=2)
    before = objective.loss(with_segments, tensors(batch)).sum
    other = {**batch, "segments": np.zeros_like(batch["segments"])}
    assert objective.loss(with_segments, tensors(other)).sum != before


def test_long_texts_are_cut_and_the_share_is_known():
    assert make(length=200).truncated_share == 0
    objective = make(length=6)
    assert 0 < objective.truncated_share <= 1
    assert max(len(example.tokens) for example in objective.examples) == 6


# ---- class weights ------------------------------------------------------------------------------------------


@pytest.fixture
def uneven():
    """Fifteen texts of a class, four of another and one of the third, each class with the same weight in all."""
    objective = make()
    objective.targets = np.array([0] * 15 + [1] * 4 + [2])
    objective.balance_classes()
    return objective


def test_balanced_weights_are_scikit_learns_and_the_loss_is_torchs(uneven):
    from sklearn.utils.class_weight import compute_class_weight

    weights = compute_class_weight("balanced", classes=np.arange(3), y=uneven.targets)
    model, batch = model_for(uneven).double(), tensors(uneven.collate(np.array([0, 1, 15, 19])))
    found = uneven.loss(model, batch)
    outputs = model(batch["tokens"], present=batch["present"])
    expected = torch.nn.functional.cross_entropy(outputs, batch["targets"], torch.tensor(weights))
    torch.testing.assert_close(found.sum / found.count, expected)


def test_parts_of_a_weighted_batch_and_its_padding_add_up_to_the_whole(uneven):
    model, batch = model_for(uneven).double(), uneven.collate(np.array([0, 15, 16, 19]))
    whole = uneven.loss(model, tensors(batch))
    parts = [uneven.loss(model, tensors(batch, slice(a, b))) for a, b in ((0, 1), (1, 4))]
    padded = uneven.loss(model, tensors(uneven.pad_to_static_shape(batch)))
    torch.testing.assert_close(sum(p.sum for p in parts), whole.sum)
    torch.testing.assert_close(sum(p.count for p in parts), whole.count)
    torch.testing.assert_close((padded.sum, padded.count), (whole.sum, whole.count))
