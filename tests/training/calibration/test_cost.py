"""cost.json: planned beside measured, apart from the result, and checked over all runs."""

import json
import os
import shutil
from pathlib import Path

import checksummed
import pytest
import small
import tiny_runs
from expected_errors import refused

from headstart.config.model import HeadConfig
from headstart.config.run import DataConfig, RunConfig
from headstart.config.training import LoopConfig, Masking, OptimizerConfig
from headstart.errors import IntegrityError
from headstart.training.calibration.cost import FILE, Meter, read_costs, workloads_of


@pytest.mark.parametrize("kind", ["causal", "masked-nsp", "classification"])
def test_a_run_says_what_it_cost(kind):
    cost = json.loads((tiny_runs.path_of(kind) / FILE).read_text())
    assert cost["planned"]["seconds_a_step"] > 0
    assert cost["planned"]["memory"] > 10**6
    assert cost["measured"]["steps"] == 4
    assert cost["measured"]["seconds_a_step"] > 0


def resident_bytes():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="the system counts the peak only once")
def test_memory_is_that_of_the_whole_process_from_here_on():
    block = bytearray(b"x") * (300 * 2**20)  # an earlier peak, which is over
    del block
    training = small.training("unused", "causal")
    config = run_config(training, objective="causal", head=HeadConfig(kind="lm"))
    before = resident_bytes()
    meter = Meter(config, training.objective, training.machine)
    block = bytearray(b"x") * (100 * 2**20)
    assert meter._memory() == pytest.approx(before + len(block), rel=0.05)


def test_the_clock_is_kept_out_of_the_result():
    result = (tiny_runs.path_of("causal") / "result.json").read_text()
    assert "seconds" not in result
    assert "cost" not in result


def test_the_workload_is_that_of_the_batches():
    training = small.training("unused", "classification")
    config = RunConfig(
        objective="classification", frame="causal", length=24, batch=4, data=DataConfig(), model=training.model.config,
        head=HeadConfig(kind="classification", pooling="mean"), optimizer=OptimizerConfig(optimizer="muon"),
        loop=LoopConfig(steps=2, accumulate=2, average="ema"), masking=Masking(),
    )  # fmt: skip
    works = workloads_of(config, training.objective, training.machine)
    assert len(works) == 2
    batch = training.objective.batch_at(0, 0)
    assert works[0].batch == len(batch["tokens"]) == 4
    assert works[0].lengths.source == round(batch["present"].sum() / 4)
    assert (works[0].reading, works[0].optimizer, works[0].accumulate) == ("padded", "muon", 2)
    assert works[0].average


def run_config(training, **settings):
    return RunConfig(
        frame="causal", length=24, batch=4, data=DataConfig(), model=training.model.config,
        optimizer=OptimizerConfig(), loop=LoopConfig(steps=1), masking=Masking(), **settings,
    )  # fmt: skip


def test_documents_of_a_block_and_their_lengths_are_counted():
    training = small.training("unused", "causal")
    config = run_config(training, objective="causal", head=HeadConfig(kind="lm"), embedding_init="cooccurrence")
    (work,) = workloads_of(config, training.objective, training.machine)
    batch = training.objective.batch_at(0, 0)
    texts = sum(len(set(row)) for row in batch["documents"].tolist())
    assert work.reading == "packed"
    assert work.document == batch["tokens"].size // texts
    lengths = {row.tolist().count(number) for row in batch["documents"] for number in set(row.tolist())}
    assert work.shapes == work.seen_shapes == len(lengths) > 1
    assert work.has_scikit_learn


def test_all_runs_under_a_folder_are_checked(tmp_path):
    for number, (planned, measured, memory) in enumerate([(1.0, 2.0, 100), (3.0, 2.0, None)]):
        directory = tmp_path / "deep" / f"run{number}"
        directory.mkdir(parents=True)
        data = {
            "planned": {"device": "cpu", "seconds_a_step": planned, "memory": 150, "by": "paper"},
            "measured": {"seconds_a_step": measured, "memory": memory, "steps": 9},
        }
        checksummed.write(directory / FILE, data)
    rows = read_costs([tmp_path])
    assert [row.seconds_error for row in rows] == [-0.5, 0.5]
    assert [row.memory_error for row in rows] == [0.5, None]


def test_what_is_no_run_or_cannot_be_read_is_refused_with_its_place(tmp_path):
    with refused("missing", "cost.json", str(tmp_path)):
        read_costs([tmp_path])
    with refused("no-file", "nowhere"):
        read_costs([tmp_path / "nowhere"])
    (tmp_path / "file").touch()
    with refused("not-a-run", str(tmp_path / "file")):
        read_costs([tmp_path / "file"])
    shutil.copytree(tiny_runs.path_of("causal"), tmp_path / "run")
    (tmp_path / "run" / FILE).write_text("{}")
    with refused("corrupt", str(tmp_path / "run" / FILE), by=IntegrityError):
        read_costs([tmp_path])
