"""The embedded corpus: does a pretrained base beat scratch at a small label budget?

    python benchmarks/demo_transfer.py [--null] [--labels 200] [--seeds 5] [--epochs 6] [--positions sinusoidal]

One pretraining (causal, preset tiny), then for each seed a fine-tuning from it and one from scratch on the same
labelled subset, scored on test. Prints accuracies, the mean difference with a 95 % interval over seeds (t), a sample
of what the base writes after "Bonjour les", and a JSON line. Needs no data but the package's own.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from scipy import stats

from headstart.config.generation import GenerationConfig
from headstart.config.training import LoopConfig
from headstart.data.readers.documents import pieces
from headstart.demo.corpus import write_demo
from headstart.inference.generate import generate
from headstart.machine import choose
from headstart.runs.load import load
from headstart.tokenizers.training import train as train_tokenizer
from headstart.training.fit import Console
from headstart.training.tasks.finetune import finetune
from headstart.training.tasks.pretrain import pretrain


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--null", action="store_true")
    parser.add_argument("--labels", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=float, default=6)
    parser.add_argument("--batch-tokens", type=int, default=1024)
    parser.add_argument("--learning-rate", type=float, help="of the pretraining (default: by the width)")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--positions", choices=["sinusoidal", "rotary"], default="rotary")
    options = parser.parse_args()
    machine = choose(precision="fp32", threads=options.threads)
    console = Console(log=lambda line: print(line, file=sys.stderr))
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        write_demo(place, seed=0, null=options.null)
        corpus = [place / "unlabelled.txt"]
        words = train_tokenizer(lambda: (piece.text for piece in pieces(corpus)), vocab=2000).tokenizer
        base = pretrain(
            corpus, out=place / "base", tokenizer=words, length=128, batch_tokens=options.batch_tokens,
            epochs=options.epochs, learning_rate=options.learning_rate,
            model={"positions": options.positions},
            machine=machine, console=console,
        )  # fmt: skip
        pretrained = time.monotonic() - started
        scores: dict[str, list[float]] = {"scratch": [], "finetuned": []}
        for seed in range(options.seeds):
            for arm in scores:
                from_base = arm == "finetuned"
                result = finetune(
                    place / "train.jsonl", valid=place / "valid.jsonl", test=place / "test.jsonl",
                    out=place / f"{arm}-{seed}", labels=options.labels, epochs=20, length=128,
                    start=place / "base" if from_base else None, tokenizer=None if from_base else words,
                    model={"positions": options.positions},
                    loop=LoopConfig(seed=seed), machine=machine,
                )  # fmt: skip
                scores[arm].append(result["test"]["accuracy"])
                print(f"seed {seed} {arm:<10} {scores[arm][-1]:.4f}", file=sys.stderr)
        run = load(place / "base")
        sample = generate(run, "Bonjour les", machine, GenerationConfig(temperature=0.8, top_p=0.95, max_tokens=40))
    differences = [b - a for a, b in zip(*scores.values(), strict=True)]
    mean = statistics.mean(differences)
    half = stats.t.ppf(0.975, len(differences) - 1) * statistics.stdev(differences) / len(differences) ** 0.5
    for arm, found in scores.items():
        print(f"{arm:<10} {statistics.mean(found):.3f} ± {statistics.stdev(found):.3f} (deviation over seeds)")
    print(f"difference {mean:+.3f}, 95 % interval {mean - half:+.3f} to {mean + half:+.3f}")
    print(f"valid bits per byte {base['valid']['bits_per_byte']:.3f}; pretraining {pretrained:.0f} s")
    print(f"Bonjour les{sample[0].text}")
    print(json.dumps({"null": options.null, "labels": options.labels, "scores": scores, "difference": mean}))


if __name__ == "__main__":
    main()
