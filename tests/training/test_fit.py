"""Fitting a task in its directory: begun, resumed, extended, finished."""

import dataclasses
import os
import signal

import checksummed
import pytest
import small
from expected_errors import refused

from headstart.config.run import DataConfig, RunConfig
from headstart.config.training import LoopConfig, Masking, OptimizerConfig
from headstart.errors import TryAgain, UserError
from headstart.runs.checkpoint import weights_digest
from headstart.runs.load import load
from headstart.training import fit as module
from headstart.training.fit import Console, TrainingTask, fit, run_session
from headstart.training.signals import Stopped


def task_of(tmp_path, steps=3, **loop):
    made = small.training(tmp_path / "made")
    config = RunConfig(
        objective="causal", frame="causal", length=24, batch=4, data=DataConfig(),
        model=dataclasses.replace(made.model.config, tokenizer=small.tokenizer().fingerprint),
        head=made.objective.head, optimizer=OptimizerConfig(learning_rate=1e-2),
        loop=LoopConfig(steps=steps, **loop), masking=Masking(),
    )  # fmt: skip
    return made, TrainingTask(
        config, small.tokenizer(), made.model, made.objective, None, lambda model, scores: {"more": 1}
    )


def fitted(tmp_path, task, machine, log=lambda line: None, **options):
    with run_session(tmp_path / "run", machine, Console(log)) as session:
        return fit(task, session, **options)


def test_the_result_is_of_the_weights_that_are_written(tmp_path):
    made, task = task_of(tmp_path)
    result = fitted(tmp_path, task, made.machine)
    assert (result["step"], result["steps"], result["more"]) == (3, 3, 1)
    assert checksummed.read(tmp_path / "run/result.json") == result
    weights = {name: p.detach() for name, p in load(tmp_path / "run").model.named_parameters()}
    assert weights_digest(weights) == result["weights_sha256"]


def test_a_finished_run_is_read_and_more_steps_extend_it(tmp_path):
    made, task = task_of(tmp_path)
    first, said = fitted(tmp_path, task, made.machine), []
    assert fitted(tmp_path, task_of(tmp_path)[1], made.machine, said.append) == first
    assert any("nothing to do" in line for line in said)
    assert fitted(tmp_path, task_of(tmp_path, steps=5)[1], made.machine)["step"] == 5


def test_a_finished_run_may_keep_no_checkpoint_and_a_stopped_one_keeps_its_last(tmp_path):
    made, task = task_of(tmp_path, steps=6, keep=0)

    def stop(progress):
        if progress.step == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Stopped), run_session(tmp_path / "run", made.machine, Console(on_step=stop)) as session:
        fit(task, session)
    assert len(list((tmp_path / "run/checkpoints").glob("step-*"))) == 1
    result = fitted(tmp_path, task_of(tmp_path, steps=6, keep=0)[1], made.machine)
    assert not (tmp_path / "run/checkpoints").exists()
    whole = task_of(tmp_path / "whole", steps=6)[1]
    assert result["weights_sha256"] == fitted(tmp_path / "whole", whole, made.machine)["weights_sha256"]


def test_other_settings_are_refused_unless_overridden(tmp_path):
    made, task = task_of(tmp_path)
    fitted(tmp_path, task, made.machine)
    other = dataclasses.replace(task, config=dataclasses.replace(task.config, r_drop=0.5))
    with refused("changed", "r_drop was 0.0, is 0.5"):
        fitted(tmp_path, other, made.machine)
    assert fitted(tmp_path, other, made.machine, override_resume=True)["step"] == 3


def test_a_session_holds_the_run_and_says_what_it_computes_on(tmp_path):
    made, _ = task_of(tmp_path)
    machine, places = dataclasses.replace(made.machine, reasons=("cpu, as asked",)), []
    said = []
    with run_session(tmp_path / "run", machine, Console(said.append, on_start=places.append)):
        assert (said, places) == (["cpu, as asked"], [tmp_path / "run"])
        with pytest.raises(UserError), run_session(tmp_path / "run", machine, Console()):
            pass


def test_a_disk_that_is_too_small_is_known_before_the_first_step(tmp_path, monkeypatch):
    made, task = task_of(tmp_path)
    usage = module.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: usage._replace(free=1_000))
    with refused("disk-full", "1,000 are free", "--keep", by=TryAgain):
        fitted(tmp_path, task, made.machine)
