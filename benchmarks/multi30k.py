"""Translation from scratch: Multi30k English to German or French, or Tatoeba English to French, scored by sacreBLEU.

    HEADSTART_DATA=… python benchmarks/multi30k.py --pair de
    HEADSTART_DATA=… python benchmarks/multi30k.py --pair fr --seed 1 --valid-only --set dropout=0.2

The recipe is benchmarks/multi30k.toml (or tatoeba.toml), the same that `headstart finetune --config` takes; `--set`
changes one of its lines for a trial, and `--valid-only` leaves test unseen while something is chosen. Prints BLEU and
chrF on valid and test (test 2016 for Multi30k; cased, raw text), the signatures, the seconds of training and of
searching, and a JSON line.
"""

import argparse
import dataclasses
import json
import os
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

from headstart.decoding.beam import Beam
from headstart.model.presets import ModelConfig
from headstart.training.budget import Budget
from headstart.training.execute import Console
from headstart.training.loop import LoopConfig, Progress
from headstart.training.machine import choose
from headstart.training.optimizer import OptimizerConfig
from headstart.training.translating import Search
from headstart.training.translation import train_translator

HERE = Path(__file__).parent
PAIRS = {
    "de": ("multi30k-en-de", "multi30k.toml"),
    "fr": ("multi30k-en-fr", "multi30k.toml"),
    "tatoeba": ("tatoeba-en-fr", "tatoeba.toml"),
}


def recipe_of(pair: str, changes: list[str], steps: int | None) -> dict[str, Any]:
    """The lines of the recipe, with those that were given on the command line in their place."""
    lines = tomllib.loads((HERE / PAIRS[pair][1]).read_text())
    for change in changes:
        key, _, value = change.partition("=")
        try:
            lines[key] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            lines[key] = value
    if steps is not None:
        lines["steps"] = steps
    assert lines.pop("task") == "translation"
    return {key.replace("-", "_"): value for key, value in lines.items()}


def taken(recipe: dict[str, Any], cls: type) -> dict[str, Any]:
    """The lines that are fields of this class, which are taken out."""
    names = {field.name for field in dataclasses.fields(cls)} & recipe.keys()
    return {name: recipe.pop(name) for name in names}


def arguments_of(recipe: dict[str, Any], seed: int) -> dict[str, Any]:
    """The recipe as `train_translator` takes it."""
    left = dict(recipe)
    vocab, rate = left.pop("vocab"), left.pop("learning_rate", None)
    search = Search(beam=Beam(beams=left.pop("beam"), length_penalty=left.pop("length_penalty")))
    budget = Budget(steps=left.pop("steps"))
    found = {
        "vocab": vocab, "learning_rate": rate, "preset_name": left.pop("preset"), "search": search, "budget": budget,
        "overrides": taken(left, ModelConfig), "optimizer": OptimizerConfig(**taken(left, OptimizerConfig)),
        "loop": LoopConfig(seed=seed, **taken(left, LoopConfig)),
    }  # fmt: skip
    return {**found, **left}


class Clock:
    """When the first and the last step were made."""

    first: float | None = None
    last = 0.0

    def __call__(self, progress: Progress) -> None:
        self.last = time.monotonic()
        if self.first is None:
            self.first = self.last
        if sys.stderr.isatty() or progress.step % 500 == 0:
            rate = (progress.step - 1) / max(self.last - self.first, 1e-9)
            print(f"step {progress.step} loss {progress.loss:.3f} {rate:.0f} steps/s", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pair", choices=PAIRS, default="de")
    parser.add_argument("--steps", type=int, help="instead of the recipe's")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--precision", choices=["auto", "fp32", "bf16"], default="auto")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a line of the recipe"
    )
    parser.add_argument("--valid-only", action="store_true", help="do not look at test")
    parser.add_argument("--out", type=Path, help="keep the run here")
    options = parser.parse_args()
    if "HEADSTART_DATA" not in os.environ:
        sys.exit("skipped: HEADSTART_DATA is not set")
    data = Path(os.environ["HEADSTART_DATA"]) / PAIRS[options.pair][0]
    files = {name: next(data.glob(f"{name}.tsv*")) for name in ("train", "valid", "test")}
    recipe = recipe_of(options.pair, options.set, options.steps)
    clock, started = Clock(), time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        result = train_translator(
            files["train"], valid=files["valid"], test=None if options.valid_only else files["test"],
            out=options.out or Path(place) / "run", machine=choose(options.device, options.precision),
            console=Console(lambda line: print(line, file=sys.stderr), clock), **arguments_of(recipe, options.seed),
        )  # fmt: skip
    ended = time.monotonic()
    training = clock.last - (clock.first or clock.last)
    for name in ("valid", "test"):
        if scores := result.get(name):
            print(f"{options.pair} {name:<6} BLEU {scores['bleu']:.2f}  chrF {scores['chrf']:.2f}")
    print(f"{result['step']:,} steps in {training:.0f} s, {ended - started:.0f} s with all")
    print("\n".join(result["signatures"].values()))
    summary = {
        "pair": options.pair, "seed": options.seed, "recipe": recipe, "valid": result["valid"],
        "test": result.get("test"), "signatures": result["signatures"], "parameters": result["parameters"],
        "training_seconds": training, "whole_seconds": ended - started,
    }  # fmt: skip
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
