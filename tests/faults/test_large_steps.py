"""A run whose steps do not fit into 32 bits is resumed like any other."""

import pytest
import small

from headstart.runs import checkpoint
from headstart.training.loop import train

BEGIN = 2**33


def training_of(directory):
    return small.training(directory, steps=BEGIN + 4, save_every=1, schedule="constant", cooldown=0)


def test_a_run_beyond_32_bits_of_steps_resumes_with_the_same_bytes(tmp_path):
    def stop(progress):
        if progress.step == BEGIN + 3:
            raise KeyboardInterrupt

    train(small.training(tmp_path / "short", steps=3))
    last, _ = checkpoint.latest(tmp_path / "short/checkpoints")
    for name in ("whole", "cut"):
        state = last.state | {"step": BEGIN, "evaluated_step": BEGIN}
        facts = {"machine": last.manifest["machine"]}
        checkpoint.save(tmp_path / name / "checkpoints", BEGIN, last.model, last.optimizer, state, facts)
    whole, cut, again = training_of(tmp_path / "whole"), training_of(tmp_path / "cut"), training_of(tmp_path / "cut")
    assert train(whole)[0].step == BEGIN + 4
    cut.on_step = stop
    with pytest.raises(KeyboardInterrupt):
        train(cut)
    assert checkpoint.latest(tmp_path / "cut/checkpoints")[0].step == BEGIN + 2
    assert train(again)[0].step == BEGIN + 4
    assert small.digest(again) == small.digest(whole) != checkpoint.weights_digest(last.model)


def test_a_step_beyond_32_bits_has_a_batch_of_its_own():
    objective = small.objective("causal")
    batches = [objective.batch_at(0, step)["tokens"] for step in (1, 2**32 + 1, 2**33 + 1)]
    assert len({batch.tobytes() for batch in batches}) == 3
