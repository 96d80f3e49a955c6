"""The settings of trainings."""

import pytest
from expected_errors import refused

from headstart.config.training import (
    FinetuneSettings,
    LoopConfig,
    Masking,
    OptimizerConfig,
    PretrainSettings,
    seconds_in,
)


def test_pretraining_has_its_own_schedule():
    assert (PretrainSettings().schedule, PretrainSettings().warmup) == ("cosine", 0.05)
    assert (FinetuneSettings().schedule, FinetuneSettings().warmup) == ("linear", 0.1)


def test_the_rest_of_what_is_hidden_becomes_the_mask_token():
    assert Masking().mask_token_share == 0.8
    assert Masking(mask_random=0.0, mask_kept=0.0).mask_token_share == 1.0


@pytest.mark.parametrize(
    ("cls", "given"),
    [
        (Masking, {"mask_prob": 1.0}), (Masking, {"mask_random": 0.7, "mask_kept": 0.4}),
        (OptimizerConfig, {"learning_rate": float("nan")}), (OptimizerConfig, {"weight_decay": float("inf")}),
        (OptimizerConfig, {"layer_decay": -3.0}), (OptimizerConfig, {"muon_lr": float("nan")}),
        (LoopConfig, {"clip": float("inf")}), (LoopConfig, {"clip": -1.0}), (LoopConfig, {"warmup": 7.0}),
        (LoopConfig, {"cooldown": 9.0}), (LoopConfig, {"keep": -1}),
        (LoopConfig, {"seed": 2**64}), (LoopConfig, {"steps": 10**20}), (LoopConfig, {"spike_factor": float("inf")}),
        (PretrainSettings, {"batch_tokens": -1}), (PretrainSettings, {"learning_rate": -1.0}),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else value.__name__,
)  # fmt: skip
def test_numbers_that_mean_nothing_are_refused(cls, given):
    with refused("bad-value", next(iter(given))):
        cls(**given)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2h", 7200), ("90m", 5400), ("1h30m", 5400), ("3d", 259_200), ("45 s", 45)],
)
def test_times_as_people_write_them(text, seconds):
    assert seconds_in(text) == seconds


@pytest.mark.parametrize("text", ["", "2", "h", "2 weeks", "-1h", "0s", "1h and more", "1.2.3h"])
def test_other_times_are_refused(text):
    with refused("bad-value", repr(text)):
        seconds_in(text)


def test_a_time_is_checked_where_it_is_given():
    assert LoopConfig(time="1h30m").time == "1h30m"
    with refused("bad-value", "half an hour"):
        LoopConfig(time="half an hour")
