"""Tiny Shakespeare by characters, at the two sizes for which nanoGPT's README gives a valid loss.

    HEADSTART_DATA=… python benchmarks/shakespeare.py --size cpu     # 4 layers, 128 wide, context 64: 1.88
    HEADSTART_DATA=… python benchmarks/shakespeare.py --size gpu     # 6 layers, 384 wide, context 256: 1.4697

Prints the best valid loss in nats a character, over the whole valid file in blocks of the context, and a JSON line.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from headstart.config.reading import Reading
from headstart.config.training import LoopConfig, OptimizerConfig
from headstart.data.readers.documents import pieces
from headstart.machine import choose
from headstart.tokenizers.training import train as train_tokenizer
from headstart.training.fit import Console
from headstart.training.tasks.pretrain import pretrain

SHAPE = {"positions": "learned", "bias": False, "output_bias": False}
SIZES = {
    "cpu": {
        "model": {"depth": 4, "width": 128, "heads": 4, "ffn": 512, "context": 64},
        "batch": 12, "steps": 2000, "learning_rate": 3e-3, "anchor": 1.88,
    },
    "gpu": {
        "model": {
            "depth": 6, "width": 384, "heads": 6, "ffn": 1536, "context": 256,
            "dropout": 0.2, "attention_dropout": 0.2,
        },
        "batch": 64, "steps": 5000, "learning_rate": 1e-3, "anchor": 1.4697,
    },
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--optimizer", choices=["adamw", "muon"], default="adamw")
    parser.add_argument("--learning-rate", type=float, help="of AdamW (default: that of the size)")
    parser.add_argument("--average", choices=["none", "ema", "tail"], default="none")
    parser.add_argument("--average-decay", type=float, default=0.998)
    parser.add_argument("--positions", choices=["learned", "rotary"], default="learned")
    parser.add_argument("--dropout", type=float, help="instead of the size's own")
    options = parser.parse_args()
    if "HEADSTART_DATA" not in os.environ:
        sys.exit("skipped: HEADSTART_DATA is not set")
    data = Path(os.environ["HEADSTART_DATA"]) / "tinyshakespeare"
    size = SIZES[options.size]
    shape = {"dropout": 0.0, "attention_dropout": 0.0, **size["model"]}
    if options.dropout is not None:
        shape |= {"dropout": options.dropout, "attention_dropout": options.dropout}
    steps, context = options.steps or size["steps"], size["model"]["context"]
    corpus = [data / "train.txt.gz"]
    words = train_tokenizer(
        lambda: (p.text for p in pieces(corpus, Reading(documents="file"))), kind="char", vocab=200
    ).tokenizer
    machine = choose(device="auto" if options.size == "gpu" else "cpu")
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        os.environ["HEADSTART_CACHE"] = place
        result = pretrain(
            corpus, valid=data / "valid.txt.gz", out=Path(place) / "run", documents="file", tokenizer=words,
            preset="gpt2", model={**SHAPE, "positions": options.positions, **shape},
            steps=steps, length=context, batch_tokens=size["batch"] * context,
            optimizer=OptimizerConfig(
                optimizer=options.optimizer, betas=(0.9, 0.99), weight_decay=0.1
            ),
            learning_rate=options.learning_rate or size["learning_rate"],
            loop=LoopConfig(
                seed=options.seed, schedule="cosine", warmup=min(1.0, 100 / steps),
                evaluate_every=max(1, steps // 20), patience=99,
                average=options.average, average_decay=options.average_decay,
            ),
            machine=machine, console=Console(log=lambda line: print(line, file=sys.stderr)),
        )  # fmt: skip
        log = [json.loads(line) for line in (Path(place) / "run/metrics.jsonl").read_text().splitlines()]
    valid = [(line["step"], line["loss"]) for line in log if line.get("event") == "valid"]
    step, loss = min(valid, key=lambda pair: pair[1])
    seconds = time.monotonic() - started
    print(
        f"{options.size}, {result['parameters']:,} parameters, {machine.device} {machine.precision}: "
        f"valid loss {loss:.4f} at step {step} of {steps} in {seconds:.0f} s (nanoGPT: {size['anchor']})"
    )
    print(json.dumps({"size": options.size, "loss": loss, "step": step, "seconds": seconds, "curve": valid}))


if __name__ == "__main__":
    main()
