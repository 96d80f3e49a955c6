"""Loading a run: the finished weights, or those of its last checkpoint; the verbs that it serves; and no trainer."""

import dataclasses
import shutil
import subprocess
import sys

import pytest
import tiny_runs
import torch
from expected_errors import refused
from safetensors.torch import load_file

from headstart.errors import IntegrityError
from headstart.runs.directory import RunDirectory
from headstart.runs.load import SERVES, load, open_run, require


@pytest.fixture
def run_copy(tmp_path):
    """A copy of a run that a test may break."""
    return shutil.copytree(tiny_runs.path_of("causal"), tmp_path / "run")


def test_the_weights_are_those_of_the_file(run_copy):
    run = load(run_copy)
    weights = load_file(run_copy / "weights.safetensors")
    parameters = dict(run.model.named_parameters())
    assert set(parameters) == set(weights)
    assert all(torch.equal(parameters[name], weights[name]) for name in weights)
    assert (run.finished, run.step, run.model.training) == (True, 4, False)
    assert run.vocabularies.source is run.vocabularies.target is run.tokenizer


def test_an_unfinished_run_has_the_weights_of_its_last_checkpoint(run_copy):
    digest = load(run_copy).digest
    (run_copy / "result.json").unlink()
    (run_copy / "weights.safetensors").unlink()
    run = load(run_copy)
    assert (run.finished, run.step, run.digest) == (False, 4, digest)


def test_a_run_without_weights_is_refused(run_copy):
    (run_copy / "result.json").unlink()
    (run_copy / "weights.safetensors").unlink()
    shutil.rmtree(run_copy / "checkpoints")
    with refused("missing", str(run_copy)):
        load(run_copy)


def test_a_flipped_bit_is_found(run_copy):
    raw = bytearray((run_copy / "weights.safetensors").read_bytes())
    raw[-5] ^= 1
    (run_copy / "weights.safetensors").write_bytes(raw)
    with refused("corrupt", "weights.safetensors", by=IntegrityError):
        load(run_copy)


def test_weights_of_another_shape_are_refused_with_their_names(run_copy):
    run = RunDirectory(run_copy)
    config = run.read_config()
    assert config.model.ffn == 24
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, ffn=25))
    run.write_config(config)
    run.write_result(run.read_result(), config)
    with refused("mismatch", "feed_forward.input.weight", "(24, 16)", "(25, 16)", by=IntegrityError):
        load(run_copy)


@pytest.mark.parametrize("name", ["model.pt", "model.bin", "notes.txt"])
def test_a_file_is_no_run(tmp_path, name):
    (tmp_path / name).write_text("x")
    with refused("not-a-run", name):
        load(tmp_path / name)


@pytest.mark.parametrize("kind", ["causal", "masked", "masked-nsp", "classification", "multilabel", "regression"])
@pytest.mark.parametrize("verb", ["generate", "predict", "evaluate", "embed", "compare"])
def test_a_verb_that_a_run_cannot_serve_is_refused_and_one_that_can_is_named(kind, verb, tmp_path):
    if verb in SERVES[kind]:
        require(kind, verb, "a run")
        return
    broken = tmp_path / "run"  # without weights: it is refused before they are looked for
    broken.mkdir()
    (broken / "config.toml").write_text((tiny_runs.path_of(kind) / "config.toml").read_text())
    with refused("wrong-run", f"a {kind} run", f"`headstart {verb}`") as caught:
        open_run(broken, verb, "cpu")
    assert f"`headstart {SERVES[kind][0]}`" in caught.value.fix
    assert caught.value.exit_code == 2


def test_what_is_no_run_is_refused(tmp_path):
    with refused("not-a-run", str(tmp_path), "config.toml"):
        open_run(tmp_path, "predict", "cpu")
    with refused("not-a-run", "model.pt"):
        open_run(tmp_path / "model.pt", "predict", "cpu")


@pytest.mark.parametrize("module", ["runs.load", "inference.predict", "inference.generate", "inference.translate"])
def test_using_a_run_imports_no_trainer(module):
    program = f"""
import importlib, sys
importlib.import_module("headstart.{module}")
ours = [name for name in sys.modules if name.startswith("headstart.")]
heavy = {{"sklearn", "scipy", "matplotlib", "sacrebleu", "pyarrow", "transformers"}} & set(sys.modules)
above = [name for name in ours if name.split(".")[1] in ("training", "study", "interop", "report", "serve", "cli")]
sys.exit(f"{{above}} {{heavy}} {{len(ours)}}" if above or heavy or len(ours) > 90 else 0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
