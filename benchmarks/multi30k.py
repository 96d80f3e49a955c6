"""Translation: Multi30k English to German or French, or Tatoeba English to French, scored by sacreBLEU.

    HEADSTART_DATA=… python benchmarks/multi30k.py --pair start --fast --out START
    HEADSTART_DATA=… python benchmarks/multi30k.py --pair de --start START --fast
    HEADSTART_DATA=… python benchmarks/multi30k.py --pair fr --start START --seed 1 --valid-only --set dropout=0.2
    HEADSTART_DATA=… python benchmarks/multi30k.py --pair de --choose-penalty 0.6,1.0,1.4,1.8       # from scratch

The recipe is benchmarks/multi30k.toml, the same that `headstart finetune --config` takes. `--pair start` makes what it
starts from: a translator of Tatoeba (multi30k-start.toml) whose tokenizer has learned from the three languages.
`--pair tatoeba` is a recipe of its own (tatoeba.toml). `--set` changes a line of a recipe for a trial, and
`--valid-only` leaves test unseen while something is chosen. `--choose-penalty` translates valid with each of these
length penalties when the training is done, and test once, with the best of them. Prints BLEU and chrF on valid and
test (test 2016 for Multi30k; cased, raw text), the signatures, the seconds of training and of searching, and a JSON
line.
"""

import argparse
import dataclasses
import json
import os
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headstart.config.generation import GenerationConfig
from headstart.data.labelled import evenly_spread, read_pairs
from headstart.inference.evaluate import score_pairs
from headstart.inference.translate import Translator
from headstart.machine import choose
from headstart.runs.load import load
from headstart.tokenizers.tokenizer import Tokenizer
from headstart.tokenizers.training import train as train_tokenizer
from headstart.training.fit import Console
from headstart.training.step_log import Progress
from headstart.training.tasks.finetune import train_translator
from headstart.training.tasks.translation import SCORED_PAIRS

HERE = Path(__file__).parent
PAIRS = {
    "de": ("multi30k-en-de", "multi30k.toml"),
    "fr": ("multi30k-en-fr", "multi30k.toml"),
    "start": ("tatoeba-en-fr", "multi30k-start.toml"),
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


def arguments_of(recipe: dict[str, Any], seed: int) -> dict[str, Any]:
    """The recipe as `train_translator` takes it: its lines are settings."""
    return {**recipe, "seed": seed}


def shared_tokenizer(data: Path, vocab: int) -> Tokenizer:
    """Of all three languages: captions in English, German and French, and both sides of Tatoeba."""
    german, french, sentences = (read_pairs(data / PAIRS[pair][0] / "train.tsv.gz") for pair in ("de", "fr", "start"))
    texts = [
        *german.sources, *german.targets, *french.targets,  # the French captions have the same English ones
        *sentences.sources, *sentences.targets,
    ]  # fmt: skip
    return train_tokenizer(lambda: iter(texts), vocab=vocab).tokenizer


def numbers(text: str) -> list[float]:
    """Numbers with commas between them."""
    return [float(number) for number in text.split(",")]


def searches_of(search: GenerationConfig, penalties: Sequence[float]) -> dict[float, GenerationConfig]:
    """The search with each length penalty."""
    return {penalty: dataclasses.replace(search, length_penalty=penalty) for penalty in penalties}


def chosen_on_valid(
    translator: Translator, files: dict[str, Path], searches: dict[float, GenerationConfig]
) -> dict[str, Any]:
    """BLEU on valid by each penalty, the best of them (the first of several), and valid and test scored with it.

    Test is translated once, and not at all where `files` has none.
    """
    pairs = evenly_spread(read_pairs(files["valid"]), SCORED_PAIRS)
    tried = {penalty: score_pairs(translator, pairs, search).values for penalty, search in searches.items()}
    best = max(tried, key=lambda penalty: tried[penalty]["bleu"])
    found = {
        "penalties": {penalty: scores["bleu"] for penalty, scores in tried.items()},
        "length_penalty": best, "valid": tried[best],
    }  # fmt: skip
    if "test" in files:
        found["test"] = score_pairs(translator, read_pairs(files["test"]), searches[best]).values
    return found


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


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair", choices=PAIRS, default="de")
    parser.add_argument("--start", type=Path, help="the run to start from (default: from scratch)")
    parser.add_argument("--steps", type=int, help="instead of the recipe's")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--precision", choices=["auto", "fp32", "bf16"], default="auto")
    parser.add_argument("--fast", action="store_true", help="need not give the same bytes again")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a line of the recipe")
    parser.add_argument("--valid-only", action="store_true", help="do not look at test")
    parser.add_argument(
        "--choose-penalty",
        type=numbers,
        default=[],
        metavar="P,P…",
        help="translate with the one that is best on valid",
    )
    parser.add_argument("--out", type=Path, help="keep the run here")
    return parser.parse_args()


def main() -> None:
    options = parsed()
    if "HEADSTART_DATA" not in os.environ:
        sys.exit("skipped: HEADSTART_DATA is not set")
    data = Path(os.environ["HEADSTART_DATA"])
    is_tested = not options.valid_only and options.pair != "start"
    names = ("train", "valid", "test") if is_tested else ("train", "valid")
    files = {name: next((data / PAIRS[options.pair][0]).glob(f"{name}.tsv*")) for name in names}
    recipe = recipe_of(options.pair, options.set, options.steps)
    arguments = {"start": options.start, **arguments_of(recipe, options.seed)}
    if options.pair == "start" and "tokenizer" not in arguments:
        arguments["tokenizer"] = shared_tokenizer(data, recipe["vocab"])
    # Before the training: one of them may be refused.
    searches = searches_of(
        GenerationConfig(beam=recipe["beam"], length_penalty=recipe["length_penalty"]), options.choose_penalty
    )
    machine = choose(options.device, options.precision, fast=options.fast)
    print("\n".join(machine.reasons), file=sys.stderr)
    clock, started = Clock(), time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        out = options.out or Path(place) / "run"
        result = train_translator(
            files["train"], valid=files["valid"], test=None if searches else files.get("test"),
            out=out, machine=machine, console=Console(lambda line: print(line, file=sys.stderr), clock), **arguments,
        )  # fmt: skip
        chosen: dict[str, Any] = {"penalties": {}, "length_penalty": recipe["length_penalty"]}
        if searches:
            chosen = chosen_on_valid(Translator.of(load(out, machine.device), machine), files, searches)
    ended = time.monotonic()
    first = clock.first or started
    before, training = first - started, max(clock.last - first, 0.0)
    for penalty, bleu in chosen["penalties"].items():
        print(f"{options.pair} valid  BLEU {bleu:.2f}  with a length penalty of {penalty:g}")
    scores = {name: {**result.get(name, {}), **chosen.get(name, {})} for name in files if name != "train"}
    for name, of_set in scores.items():
        if of_set:  # a run that was finished without test has none
            print(f"{options.pair} {name:<6} BLEU {of_set['bleu']:.2f}  chrF {of_set['chrf']:.2f}")
    print(
        f"{result['step']:,} steps in {training:.0f} s, after {before:.0f} s of reading, compiling and the first step; "
        f"{ended - started:.0f} s with all"
    )
    print("\n".join(result["signatures"].values()))
    summary = {
        "pair": options.pair, "seed": options.seed, "recipe": recipe, "start": options.start and str(options.start),
        "valid": scores["valid"],
        "test": scores.get("test") or None, "penalties": chosen["penalties"],
        "length_penalty": chosen["length_penalty"],
        "signatures": result["signatures"], "parameters": result["parameters"], "machine": machine.facts(),
        "first_step_seconds": before, "training_seconds": training, "whole_seconds": ended - started,
    }  # fmt: skip
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
