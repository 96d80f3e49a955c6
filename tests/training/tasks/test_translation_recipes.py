"""The recipes of the benchmarks: every line is a flag, and the benchmark trains what the command line trains."""

import importlib.util
from pathlib import Path

import pytest
import tiny_runs
import translators
from commands import invoke

from headstart.data.labelled import read_pairs
from headstart.runs.directory import RunDirectory
from headstart.training.tasks.finetune import train_translator

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
SMALLER = {
    "width": 16, "ffn": 24, "heads": 2, "depth": 1, "decoder-depth": 1, "vocab": 320, "length": 32, "batch-tokens": 300,
    "steps": 2, "beam": 2,
}  # fmt: skip


def benchmark():
    spec = importlib.util.spec_from_file_location("multi30k", BENCHMARKS / "multi30k.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def trained_by_hand(capsys, recipe, out, changes, *more):
    files = translators.files()
    flags = [word for key, value in changes.items() for word in (f"--{key}", str(value))]
    answer = invoke(
        capsys,
        ["finetune", "--config", str(BENCHMARKS / recipe), "--train", str(files["train"]), "--valid",
         str(files["valid"]), "--out", str(out), "--device", "cpu", "--precision", "fp32", "--threads", "1",
         *flags, *more],
    )  # fmt: skip
    assert answer.code == 0, answer.err


def trained_by_the_benchmark(pair, out, changes, **more):
    files, made = translators.files(), benchmark()
    changed = made.recipe_of(pair, [f"{key}={value}" for key, value in changes.items()], None)
    train_translator(
        files["train"], valid=files["valid"], out=out, machine=tiny_runs.MACHINE,
        **{**made.arguments_of(changed, seed=0), **more},
    )  # fmt: skip


def same(one, other):
    weights = [(run / "weights.safetensors").read_bytes() for run in (one, other)]
    return weights[0] == weights[1] and RunDirectory(one).read_config() == RunDirectory(other).read_config()


@pytest.mark.parametrize(("pair", "recipe"), [("de", "multi30k.toml"), ("tatoeba", "tatoeba.toml")])
def test_the_benchmark_and_the_command_line_train_the_same(capsys, tmp_path, pair, recipe):
    trained_by_hand(capsys, recipe, tmp_path / "one", SMALLER)
    trained_by_the_benchmark(pair, tmp_path / "other", SMALLER)
    assert same(tmp_path / "one", tmp_path / "other")


def test_and_from_a_start(capsys, tmp_path):
    files = translators.files()
    words = tmp_path / "words"
    pairs = read_pairs(files["train"])
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join([*pairs.sources, *pairs.targets]))
    answer = invoke(capsys, ["tokenizer", str(lines), "--vocab", str(SMALLER["vocab"]), "--out", str(words)])
    assert answer.code == 0, answer.err
    by_hand, made = tmp_path / "start", tmp_path / "made"
    trained_by_hand(capsys, "multi30k-start.toml", by_hand, SMALLER, "--tokenizer", str(words))
    trained_by_the_benchmark("start", made, {**SMALLER, "tokenizer": words})
    assert same(by_hand, made)
    # The start has the shape and the tokenizer; the recipe's own words on them are no contradiction.
    small = {key: SMALLER[key] for key in ("length", "batch-tokens", "steps", "beam")}
    one, other = tmp_path / "one", tmp_path / "other"
    trained_by_hand(capsys, "multi30k.toml", one, small, "--start", str(by_hand))
    trained_by_the_benchmark("de", other, small, start=made)
    assert same(one, other)
    assert RunDirectory(one).read_config().model.width == SMALLER["width"]
