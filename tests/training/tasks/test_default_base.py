"""A pretraining to which nobody gave a shape takes that of the recipe, and keeps it."""

import pytest

import headstart
from headstart.planning.base import SIZES, step_operations
from headstart.runs.directory import RunDirectory
from headstart.training.fit import Console
from headstart.training.tasks import default_base

SMALL, LARGER = SIZES[0], SIZES[2]


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "corpus.txt"
    file.write_text("".join(f"un livre numéro {number} est très long. La fin en est belle.\n" for number in range(400)))
    return file


@pytest.fixture
def speed(monkeypatch):
    """Machines of so many operations a second; what is measured counts."""
    measured = []

    def speed(operations):
        def stretches(work, machine):
            measured.append(work)
            return [step_operations(work) / operations]

        monkeypatch.setattr(default_base, "stretches", stretches)
        return measured

    return speed


def pretrained(corpus, name="run", **given):
    out = corpus.with_name(name)
    said = []
    console = Console(log=said.append)
    headstart.pretrain(corpus, out=out, vocab=300, device="cpu", threads=1, precision="fp32", console=console, **given)
    return RunDirectory(out).read_config(), said


def test_the_smallest_base_by_its_own_optimizer_where_the_steps_are_few(corpus):
    config, said = pretrained(corpus, steps=2)
    assert (config.model.width, config.model.depth, config.model.norm) == (SMALL.width, SMALL.depth, "rms")
    assert (config.optimizer.optimizer, config.loop.schedule) == ("muon-split", "linear")
    assert config.batch * config.length == SMALL.batch_tokens
    assert any("no --preset" in line for line in said)


def test_what_is_given_is_kept(corpus):
    config, _ = pretrained(corpus, steps=1, learning_rate=1e-4, length=32, batch_tokens=64, dropout=0.3)
    assert (config.optimizer.learning_rate, config.length, config.batch) == (1e-4, 32, 2)
    assert config.model.dropout == 0.3


@pytest.mark.parametrize("given", [{"preset": "tiny"}, {"width": 16, "heads": 2}])
def test_a_preset_or_a_shape_that_is_given_leaves_the_rest_as_it_was(corpus, given):
    config, said = pretrained(corpus, steps=1, length=32, **given)
    assert config.optimizer.optimizer == "adamw"
    assert config.model.norm == "layer"
    assert not any("no --preset" in line for line in said)


def test_without_a_duration_the_text_is_read_as_often_as_pays_at_most(corpus, speed):
    speed(1e18)
    corpus.write_text("".join(corpus.read_text().splitlines(keepends=True)[:100]))
    config, _ = pretrained(corpus, length=32, batch_tokens=512)
    tokens = config.loop.steps * config.batch * config.length
    text = RunDirectory(corpus.with_name("run")).read_result()["counts"]["train"]["tokens"]
    assert tokens == pytest.approx(default_base.most_passes("causal", 0.0) * text, rel=0.1)


def test_a_run_that_has_begun_keeps_its_shape_whatever_is_measured(corpus, speed):
    speed(1e18)
    first, _ = pretrained(corpus, steps=1, length=32, batch_tokens=64)
    measured = speed(1.0)
    again, said = pretrained(corpus, steps=1, length=32, batch_tokens=64)
    assert (again, measured) == (first, [])
    assert any("nothing to do" in line for line in said)


@pytest.mark.parametrize("objective", ["causal", "masked", "masked-nsp"])
def test_more_time_makes_a_larger_base_for_every_objective(corpus, speed, objective, monkeypatch):
    monkeypatch.setattr(default_base, "largest", lambda operations_on: LARGER if operations_on(LARGER) else SMALL)
    speed(1e18)
    config, _ = pretrained(corpus, objective=objective, steps=1, length=32, batch_tokens=64)
    assert config.model.width == LARGER.width
    assert config.model.direction == ("causal" if objective == "causal" else "bidirectional")
