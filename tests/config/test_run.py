"""config.toml: what makes a run, written and read back."""

import dataclasses

from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.config.run import DataConfig, RunConfig, TranslationConfig
from headstart.config.schema import build
from headstart.config.toml import read_toml, to_toml
from headstart.config.training import LoopConfig, Masking, OptimizerConfig


def config(**more):
    return RunConfig(
        objective="classification", frame="causal", length=16, batch=4, label_names=["non", "oui"],
        data=DataConfig(train="a.jsonl", labels=5, text_column="review"), model=preset("tiny", vocab=9),
        head=HeadConfig(kind="classification", pooling="mean"), masking=Masking(),
        optimizer=OptimizerConfig(learning_rate=1e-3, betas=(0.9, 0.95)), loop=LoopConfig(steps=3, epochs=2.0), **more,
    )  # fmt: skip


def test_what_is_written_is_read_back(tmp_path):
    for one in (
        config(),
        config(translation=TranslationConfig(batch_tokens=64, beam=2, label_smoothing=0.2)),
    ):
        (tmp_path / "config.toml").write_text(to_toml(dataclasses.asdict(one)))
        assert build(RunConfig, read_toml(tmp_path / "config.toml"), "config.toml") == one


def test_a_run_has_the_settings_of_its_parts():
    assert config().part(LoopConfig).steps == 0, "a run's loop is a part of its own"
    assert (config().length, config().batch, config().freeze, config().start) == (16, 4, "nothing", "scratch")
