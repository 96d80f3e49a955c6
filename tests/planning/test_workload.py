"""What a workload says of itself: its matrices, and how its batches are read."""

from collections import Counter

import pytest

from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.config.training import OptimizerConfig
from headstart.model.model import build
from headstart.planning.workload import Lengths, Workload
from headstart.training.optimizers.optimizer import build_optimizers


@pytest.mark.parametrize("optimizer", ["muon", "muon-split"])
@pytest.mark.parametrize("name", ["lab", "modern-small", "transformer-tiny"])
def test_muons_matrices_are_those_of_the_model(name, optimizer):
    rest = {"decoder_depth": 3} if name == "transformer-tiny" else {"kv_heads": 2, "heads": 4}
    config = preset(name, vocab=50, width=32, ffn=48, depth=2, **rest)
    head = HeadConfig(kind="translation" if config.decoder_depth else "lm")
    model = build(config, head)
    muon = build_optimizers(model, config, OptimizerConfig(optimizer=optimizer, learning_rate=1e-3))[1]
    expected = {
        group["rows"]: Counter(
            part.shape for weight in group["params"] for part in weight.split(list(group["rows"] or weight.shape[:1]))
        )
        for group in muon.param_groups
    }
    work = Workload(
        config=config,
        head=head,
        batch=1,
        lengths=Lengths(1, 1 if config.decoder_depth else 0),
        optimizer=optimizer,
    )
    found = work.orthogonal_matrices
    assert len(found) == len(expected)
    assert all(group in found for group in expected.values())


@pytest.mark.parametrize(
    ("batch", "accumulate", "micro_batch", "predicted"), [(8, 1, 8, 80), (8, 3, 3, 30), (5, 2, 3, 30)]
)
def test_a_micro_batch_is_a_part_of_the_batch(batch, accumulate, micro_batch, predicted):
    config = preset("tiny", vocab=50)
    work = Workload(config=config, head=HeadConfig(kind="lm"), batch=batch, lengths=Lengths(10), accumulate=accumulate)
    assert (work.micro_batch, work.predicted) == (micro_batch, predicted)
