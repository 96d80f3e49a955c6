"""Which option of a run keeps a family from expressing it."""

import random_runs

from headstart.config.presets import preset
from headstart.interop.families.encoders import Bert
from headstart.interop.families.family import model_obstacle, unmet


def test_every_field_that_does_not_fit_is_named_with_what_is_needed():
    model = preset("bert-base", vocab=9)
    wanted = {"direction": ("causal",), "norm_place": ("post",), "activation": ("relu", "silu")}
    assert unmet(model, wanted) == ["direction", "activation"]
    assert model_obstacle(model, wanted) == (
        "direction is 'bidirectional' (it needs 'causal'), activation is 'gelu' (it needs 'relu' or 'silu')"
    )
    assert model_obstacle(model, {"norm_place": ("post",)}) is None


def test_a_head_or_pooling_that_a_family_lacks_is_named(tmp_path):
    assert Bert().head_obstacle("classification") is None
    assert Bert().head_obstacle("lm").startswith("head.kind is 'lm', and it has 'none', 'masked', ")
    first = random_runs.write(tmp_path / "first", "bert-base", "classification", pooling="first")
    assert Bert().obstacle(first, {}) is None
    mean = random_runs.write(tmp_path / "mean", "bert-base", "classification", pooling="mean")
    assert Bert().obstacle(mean, {}) == "head.pooling is 'mean', and its classifier reads the first token"
