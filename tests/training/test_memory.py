"""Models too big for the memory, and configurations that tell of any size: refused before they are built."""

import dataclasses
import os
import re
import shutil

import checksummed
import commands
import pytest
import tiny_runs
import torch
from commands import Workspace
from expected_errors import refused

from headstart import hardware
from headstart.cli.main import run as headstart
from headstart.config.model import HeadConfig, ModelConfig
from headstart.config.presets import PRESETS, preset
from headstart.config.run import DataConfig, RunConfig
from headstart.config.schema import fields_of
from headstart.config.training import LoopConfig, Masking, OptimizerConfig
from headstart.errors import TryAgain
from headstart.model import positions
from headstart.model.model import build
from headstart.planning.parameters import total
from headstart.training import memory

on_linux = pytest.mark.skipif(
    not os.path.exists("/proc/self/statm"), reason="only Linux tells how much memory is mapped"
)
LIMITED = """
import pathlib, resource, sys
import sklearn.metrics
from headstart.training.tasks import finetune, pretrain, translation
from headstart.cli.main import run
used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**30, used + 2**30))
%s
sys.exit(run(sys.argv[1:]))
"""
UNCHECKED = "from headstart.training import memory; memory.check_memory = lambda config, machine: None"
NUMBERS = r"([\d,]+) parameters with gradients and optimizer state take ([\d,]+) bytes, .*, ([\d,]+) are free"


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    workspace = Workspace(tmp_path).fill()
    monkeypatch.setenv("HEADSTART_CACHE", str(workspace.cache))
    return workspace


def numbers_said(workspace):
    said = workspace.log.read_text()
    assert "Traceback" not in said
    found = re.search(NUMBERS, said.replace("\n", " "))
    assert found, said
    return [int(number.replace(",", "")) for number in found.groups()]


@on_linux
@pytest.mark.parametrize("verb", ["pretrain", "finetune", "translation"])
def test_a_model_too_big_is_refused_before_it_is_built(workspace, verb):
    more = ("--width", 2048, "--ffn", 8192, "--heads", 2)
    assert workspace.run_to_the_end(*more, verb=verb, program=LIMITED % "") == 75, workspace.log.read_text()
    parameters, needed, free = numbers_said(workspace)
    assert needed == 16 * parameters  # fp32: weights, gradients, two memories
    assert free <= 2**30 < needed
    assert not workspace.run.exists()


@on_linux
def test_memory_that_ends_while_it_is_built_is_said_with_the_same_numbers(workspace):
    more = ("--width", 8192, "--ffn", 8192, "--heads", 2)
    assert workspace.run_to_the_end(*more, program=LIMITED % UNCHECKED) == 75, workspace.log.read_text()
    parameters, needed, _ = numbers_said(workspace)
    assert needed == 16 * parameters
    assert "headstart [memory-full]: " in workspace.log.read_text()
    assert "the last checkpoint is kept" not in workspace.log.read_text(), "there is none yet"


@pytest.mark.parametrize(
    "size", [("--width", 10**6), ("--width", 10**5, "--depth", 1_000), ("--width", 10**5, "--ffn", 4 * 10**6)]
)
def test_a_size_beyond_any_machine_is_refused_at_once(workspace, capsys, size):
    answer = commands.invoke(capsys, workspace.command(*size))
    assert answer.code == 75
    assert "headstart [memory-full]: " in answer.err


# ---- what is counted ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("depth", [1, 3])
def test_the_total_is_that_of_the_built_model(name, depth):
    config = preset(name, vocab=50, width=16, heads=2, ffn=24, depth=depth)
    if config.decoder_depth:
        config = dataclasses.replace(config, decoder_depth=depth + 1)
    head = HeadConfig(kind="translation" if config.decoder_depth else "classification", classes=3)
    built = build(config, head)
    assert total(config, head) == sum(parameter.numel() for parameter in built.parameters())


def settings(**changes):
    known = {
        "objective": "classification", "frame": "causal", "length": 8, "batch": 2, "data": DataConfig(),
        "model": preset("tiny", vocab=50), "head": HeadConfig(kind="classification"),
        "optimizer": OptimizerConfig(), "loop": LoopConfig(), "masking": Masking(),
    }  # fmt: skip
    return RunConfig(**{**known, **changes})


def test_what_does_not_learn_needs_no_gradient_and_an_average_is_one_more_copy():
    everything = total(settings().model, settings().head)
    head = 2 * 128 + 2
    assert memory.bytes_needed(settings()) == 4 * 4 * everything
    assert memory.bytes_needed(settings(freeze="base")) == 4 * (everything + 3 * head)
    assert memory.bytes_needed(settings(loop=LoopConfig(average="ema"))) == 4 * 5 * everything
    muon = settings(optimizer=OptimizerConfig(optimizer="muon"))
    assert memory.bytes_needed(muon) == 4 * 3 * everything


# ---- what is free -------------------------------------------------------------------------------------------


def groups(tmp_path, membership, files):
    (tmp_path / "membership").write_text(membership)
    for name, text in files.items():
        path = tmp_path / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return list(hardware._group_free_bytes(tmp_path / "membership", tmp_path / "groups"))


def test_a_control_group_leaves_its_limit_less_what_is_used_and_cannot_be_freed(tmp_path):
    files = {
        "memory.stat": "inactive_file 1\n", "a/memory.max": "1000\n", "a/memory.current": "300\n",
        "a/memory.stat": "anon 200\ninactive_file 50\n", "a/b/memory.max": "max\n", "a/b/memory.current": "100\n",
        "a/b/memory.stat": "anon 100\ninactive_file 0\n",
    }  # fmt: skip
    assert groups(tmp_path, "0::/a/b\n", files) == [750]


def test_groups_of_the_first_kind_count_too_and_those_that_are_not_there_do_not(tmp_path):
    files = {
        "memory/memory.limit_in_bytes": "2000\n", "memory/memory.usage_in_bytes": "600\n",
        "memory/memory.stat": "inactive_file 7\ntotal_inactive_file 100\n",
    }  # fmt: skip
    assert groups(tmp_path, "5:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n0::/docker/x\n", files) == [1500]
    assert groups(tmp_path, "", {}) == []
    assert list(hardware._group_free_bytes(tmp_path / "nowhere", tmp_path)) == []


def test_the_tightest_bound_is_what_is_free(monkeypatch):
    monkeypatch.setattr(hardware, "_group_free_bytes", lambda: iter([10**15, 12_345]))
    assert hardware.free_bytes() == 12_345
    monkeypatch.setattr(hardware, "_group_free_bytes", lambda: iter([-5]))
    assert hardware.free_bytes() == 0


def test_a_full_gpu_is_told_with_what_is_free_on_it(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (4_321, 10**9))
    names = ("the GPU's memory", " 4,321 are free")
    with refused("memory-full", *names, by=TryAgain), memory.memory_full_is_try_again(settings()):
        raise torch.OutOfMemoryError("CUDA out of memory")


# ---- configurations from elsewhere --------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path):
    """A function: a copy of a run whose config.toml tells of another size."""

    def tampered(kind, field, value):
        source, path = tiny_runs.path_of(kind), tmp_path / "run"
        shutil.copytree(source, path)
        checksummed.change_config(path, lambda text: re.sub(rf"(?m)^{field} = \d+$", f"{field} = {value}", text))
        return path

    return tampered


@pytest.mark.parametrize("field", ["width", "depth", "ffn", "vocab", "segments"])
def test_a_size_that_is_not_that_of_the_weights_is_refused_before_it_is_built(run, capsys, field):
    path = run("causal", field, fields_of(ModelConfig)[field].bound.high)
    assert headstart(["embed", str(path), str(tiny_runs.files()["valid"])]) == 3
    said = capsys.readouterr().err
    assert "the weights do not fit config.toml" in said
    assert said.count("\n") < 20


@pytest.mark.parametrize("field", ["width", "depth", "ffn", "vocab", "segments", "context"])
def test_a_size_that_no_model_has_is_refused_with_the_file(run, capsys, field):
    path = run("causal", field, 2**62)
    assert headstart(["embed", str(path), str(tiny_runs.files()["valid"])]) == 3
    said = capsys.readouterr().err
    assert f"config.toml: model: {field} is {2**62}" in said


def test_classes_that_the_weights_do_not_have_are_refused(run, capsys):
    path = run("classification", "classes", 10**6)
    assert headstart(["predict", str(path), str(tiny_runs.files()["valid"])]) == 3
    assert "head.classifier.weight is (2, 16), not (1000000, 16)" in capsys.readouterr().err


@pytest.mark.parametrize("field", ["context", "length", "batch"])
@pytest.mark.parametrize("verb", ["embed", "evaluate"])
def test_a_size_that_no_weight_shows_takes_no_memory(run, capsys, field, verb):
    path, data = run("causal", field, 10**6), str(tiny_runs.files()["valid"])
    rest = [data] if verb == "embed" else ["--data", data]
    assert headstart([verb, str(path), *rest, "--device", "cpu", "--precision", "fp32"]) == 0, capsys.readouterr().err


def test_learned_positions_are_as_many_as_the_weights_have(run, capsys):
    path = run("learned", "context", 10**6)
    assert headstart(["embed", str(path), str(tiny_runs.files()["valid"])]) == 3
    assert "base.embedding.positions.weight" in capsys.readouterr().err


def test_sinusoids_beyond_the_table_are_those_of_a_longer_table(monkeypatch):
    config = preset("tiny", vocab=50, context=40)
    whole = positions.Sinusoidal(config)
    monkeypatch.setattr(positions, "LONGEST_TABLE", 10)
    short = positions.Sinusoidal(config)
    assert (len(whole.table), len(short.table)) == (40, 10)
    x, places = torch.zeros(1, 30, config.width), torch.arange(30)[None]
    assert torch.equal(short(x, places, 30), whole(x, places, 30))
