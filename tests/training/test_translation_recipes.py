"""The recipes of the benchmarks: every line is a flag, and the benchmark trains what the command line trains."""

import importlib.util
from pathlib import Path

import pytest
import tiny_runs
import translators
from commands import ask

from headstart.training.run_directory import RunDirectory
from headstart.training.translation import train_translator

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SMALLER = {
    "width": 16, "ffn": 24, "heads": 2, "depth": 1, "decoder-depth": 1, "vocab": 320, "length": 32, "batch-tokens": 300,
    "steps": 2, "beam": 2,
}  # fmt: skip


def benchmark():
    spec = importlib.util.spec_from_file_location("multi30k", BENCHMARKS / "multi30k.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("pair", "recipe"), [("de", "multi30k.toml"), ("tatoeba", "tatoeba.toml")])
def test_the_benchmark_and_the_command_line_train_the_same(capsys, tmp_path, pair, recipe):
    files = translators.files()
    flags = [word for key, value in SMALLER.items() for word in (f"--{key}", str(value))]
    answer = ask(
        capsys,
        ["finetune", "--config", str(BENCHMARKS / recipe), "--train", str(files["train"]), "--valid",
         str(files["valid"]), "--out", str(tmp_path / "one"), "--device", "cpu", "--precision", "fp32",
         "--threads", "1", *flags],
    )  # fmt: skip
    assert answer.code == 0, answer.err
    made = benchmark()
    changed = made.recipe_of(pair, [f"{key}={value}" for key, value in SMALLER.items()], None)
    train_translator(
        files["train"], valid=files["valid"], out=tmp_path / "other", machine=tiny_runs.MACHINE,
        **made.arguments_of(changed, seed=0),
    )  # fmt: skip
    assert RunDirectory(tmp_path / "one").read_config() == RunDirectory(tmp_path / "other").read_config()
    weights = [(tmp_path / name / "weights.safetensors").read_bytes() for name in ("one", "other")]
    assert weights[0] == weights[1]
