"""How large the weights of a base have become, and how far fine-tuning can still move them.

    python benchmarks/stiff_base.py [--pretrain adamw muon:0.02:0.01 muon:0.02:0.1] [--steps 2000] [--labels 400]

Masked bases of preset tiny on the embedded corpus, half of the steps at a constant rate and half falling, by AdamW or
by Muon (`muon:RATE:DECAY`). Prints the root mean square of the blocks' matrices, the loss on valid, and the accuracy
on test of fine-tunings (mean pooling, 8 epochs of batches of 32): of the head alone, of everything by AdamW at several
rates, of everything with Muon on the matrices. One seed each. Needs no data but the package's own.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from headstart.config.training import LoopConfig, OptimizerConfig
from headstart.data.readers.documents import pieces
from headstart.demo.corpus import write_demo
from headstart.machine import Machine, choose
from headstart.runs.load import load
from headstart.tokenizers.tokenizer import Tokenizer
from headstart.tokenizers.training import train as train_tokenizer
from headstart.training.tasks.finetune import finetune
from headstart.training.tasks.pretrain import pretrain

ADAMW_RATES, MUON_RATES = (1e-4, 3e-4, 1e-3, 3e-3), (2e-3, 5e-3, 2e-2)
LENGTH = 128


def optimizer_of(text: str) -> OptimizerConfig:
    """adamw, or muon:RATE:DECAY."""
    name, *numbers = text.split(":")
    if name == "adamw":
        return OptimizerConfig()
    rate, decay = map(float, numbers)
    return OptimizerConfig(optimizer="muon", muon_lr=rate, weight_decay=decay)


def base_by(text: str, place: Path, words: Tokenizer, steps: int, machine: Machine) -> dict[str, Any]:
    """A base in two phases; how large its matrices are, and its loss."""
    common: dict[str, Any] = {
        "objective": "masked", "length": LENGTH, "batch_tokens": 2048, "optimizer": optimizer_of(text),
        "learning_rate": 1e-3, "mask_prob": 0.3, "machine": machine,
    }  # fmt: skip
    corpus = [place / "unlabelled.txt"]
    first, second = place / f"{text}-first", place / text
    pretrain(
        corpus, out=first, tokenizer=words, model={"direction": "bidirectional"},
        steps=steps // 2, loop=LoopConfig(schedule="constant", warmup=0.02), **common,
    )  # fmt: skip
    result = pretrain(
        corpus, out=second, start=first, steps=steps - steps // 2,
        loop=LoopConfig(schedule="linear", warmup=0.01), **common,
    )  # fmt: skip
    parameters = load(second).model.named_parameters()
    matrices = [p.detach() for name, p in parameters if ".blocks." in name and p.dim() == 2]
    mean_square = sum(float(p.square().sum()) for p in matrices) / sum(p.numel() for p in matrices)
    return {"size": mean_square**0.5, **result["valid"]}


def accuracies(text: str, place: Path, labels: int, machine: Machine) -> dict[str, float]:
    """Of fine-tunings from the base."""
    ways: dict[str, dict[str, Any]] = {"head alone": {"freeze": "base", "learning_rate": 3e-3}}
    ways |= {f"adamw {rate:g}": {"learning_rate": rate} for rate in ADAMW_RATES}
    ways |= {
        f"muon {rate:g}": {"learning_rate": 1e-3, "optimizer": OptimizerConfig(optimizer="muon", muon_lr=rate)}
        for rate in MUON_RATES
    }  # fmt: skip
    found = {}
    for name, way in ways.items():
        result = finetune(
            place / "train.jsonl", valid=place / "valid.jsonl", test=place / "test.jsonl", labels=labels,
            out=place / f"{text}-{name}", start=place / text, pooling="mean", batch=32, length=LENGTH,
            epochs=8, loop=LoopConfig(schedule="linear", warmup=0.1), machine=machine, **way,
        )  # fmt: skip
        found[name] = result["test"]["accuracy"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pretrain", nargs="+", default=["adamw", "muon:0.02:0.01", "muon:0.02:0.1"])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--labels", type=int, default=400)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    machine = choose("cpu", threads=options.threads)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        write_demo(place, seed=0)
        texts = [place / "unlabelled.txt"]
        words = train_tokenizer(lambda: (piece.text for piece in pieces(texts)), vocab=2000).tokenizer
        words, _ = words.with_role("mask")
        for text in options.pretrain:
            base = base_by(text, place, words, options.steps, machine)
            print(
                f"{text}: matrices {base['size']:.3f}, loss {base['loss']:.3f}, {base['masked_accuracy']:.1%} right",
                flush=True,
            )
            scores = accuracies(text, place, options.labels, machine)
            for way, accuracy in scores.items():
                print(f"  {way:<12} {accuracy:.3f}", flush=True)
            print(json.dumps({"base": text, **base, "accuracy": scores}), flush=True)


if __name__ == "__main__":
    main()
