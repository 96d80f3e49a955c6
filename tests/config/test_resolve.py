"""Defaults that depend on something else."""

import pytest
from expected_errors import refused

from headstart.config.presets import preset
from headstart.config.resolve import pretraining_learning_rate, resolved
from headstart.config.training import FinetuneSettings, PretrainSettings

TINY = preset("tiny", vocab=100)


def test_a_pretraining_learning_rate_falls_with_the_width_and_is_a_third_with_post_norm():
    assert pretraining_learning_rate(TINY) == pytest.approx(3e-3)
    assert pretraining_learning_rate(preset("gpt2", vocab=9)) == pytest.approx(3e-3 * (128 / 768) ** 0.75)
    assert pretraining_learning_rate(preset("tiny", vocab=9, norm_place="post")) == pytest.approx(1e-3)


def test_a_translation_learning_rate_falls_with_the_root_of_the_width():
    for name, rate in (("transformer-tiny", 1e-3), ("transformer-base", 1e-3 / 2**0.5)):
        base = preset(name, vocab=9)
        settings = resolved(FinetuneSettings(task="translation"), "translation", base, "cpu")
        assert settings.learning_rate == pytest.approx(rate)


@pytest.mark.parametrize(("device", "tokens"), [("cpu", 1_024), ("cuda", 65_536)])
def test_a_batch_is_by_the_device(device, tokens):
    assert resolved(PretrainSettings(), "pretraining", TINY, device).batch_tokens == tokens


def test_what_is_given_stays():
    given = FinetuneSettings(learning_rate=0.5, length=7, epochs=2.0, pooling="first", labels_seed=4, seed=9)
    found = resolved(given, "classification", TINY, "cpu")
    assert (found.learning_rate, found.length, found.epochs, found.pooling) == (0.5, 7, 2.0, "first")
    assert (found.labels_seed, found.initial_seed) == (4, 9)


@pytest.mark.parametrize("start", ["scratch", "runs/base"])
def test_two_runs_by_default_differ_in_their_start_and_not_in_their_learning_rate(start):
    def rate(width):
        model = preset("tiny", vocab=9, width=width)
        return resolved(FinetuneSettings(start=start), "classification", model, "cpu").learning_rate

    assert rate(128) == 1e-3
    assert rate(768) == pytest.approx(1e-4, rel=0.1)


def test_a_text_is_never_longer_than_the_context():
    assert resolved(PretrainSettings(length=10_000), "pretraining", TINY, "cpu").length == TINY.context


def test_two_lengths_of_training_at_once_are_refused():
    with refused("conflict", "--steps", "--epochs"):
        resolved(PretrainSettings(steps=3, epochs=1.0), "pretraining", TINY, "cpu")
