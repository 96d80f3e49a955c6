"""Longer than trained: what positions are worth beyond the length that a model was trained with.

    HEADSTART_DATA=… python benchmarks/longer.py [--length 128] [--steps 2500] [--out longer.svg]

Three causal models that differ in their positions alone (sinusoidal, learned, rotary) are trained on French novels in
blocks of one length, on one thread, and read other novels in blocks of four times that length. Prints the loss by
how much was read, and for learned positions the refusal; `--out` draws it. Novels, because what is longer than
trained has to be one text: a document far longer than the blocks.
"""

import argparse
import gzip
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from headstart.errors import UserError
from headstart.report.charts import longer_chart
from headstart.text.documents import pieces
from headstart.text.tokenizer_training import train as train_tokenizer
from headstart.training.budget import Budget
from headstart.training.execute import Console
from headstart.training.loading import load
from headstart.training.loop import LoopConfig
from headstart.training.machine import choose
from headstart.training.pretrain import pretrain
from headstart.training.using import evaluate_run

KINDS = ("sinusoidal", "learned", "rotary")
TIMES = 4


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--length", type=int, default=128, help="tokens of a block in training")
    parser.add_argument("--steps", type=int, default=2500)
    parser.add_argument("--batch-tokens", type=int, default=1024)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--vocab", type=int, default=2000)
    parser.add_argument("--books", type=int, default=12, help="novels to train on, the first of the file")
    parser.add_argument("--characters", type=int, default=100_000, help="of each novel to read")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="an .svg")
    options = parser.parse_args()
    if "HEADSTART_DATA" not in os.environ:
        sys.exit("skipped: HEADSTART_DATA is not set")
    with tempfile.TemporaryDirectory() as name:
        os.environ["HEADSTART_CACHE"] = name
        found = dict(_runs(options, Path(name)))
    _print(found, options.length)
    if options.out:
        lines = {
            kind: [((b["first"] + b["last"]) / 2, b["loss"]) for b in run["buckets"]]
            for kind, run in found.items()
        }
        ends = {kind: "refused beyond" for kind, run in found.items() if run["refusal"]}
        options.out.write_text(
            longer_chart(lines, options.length, TIMES * options.length, ends), encoding="utf-8"
        )
    print(json.dumps({"length": options.length, "steps": options.steps, "runs": found}))


def _runs(options: argparse.Namespace, place: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each kind with its buckets, and with its refusal where it has one."""
    novels = Path(os.environ["HEADSTART_DATA"]) / "fr-novels"
    corpus = _written(place / "train.txt", islice(_books(novels / "train.txt.gz"), options.books))
    data = _written(
        place / "other.txt", (book[: options.characters] for book in _books(novels / "valid.txt.gz"))
    )
    machine = choose("cpu", "fp32", threads=1)
    machine.prepare()
    words = train_tokenizer(lambda: (piece.text for piece in pieces([corpus])), vocab=options.vocab).tokenizer
    shape = {
        "context": options.length, "width": options.width, "depth": options.depth, "ffn": 4 * options.width,
        "scale_embedding": True,  # or sinusoids, which are as large as the sine is, drown the tokens at first
    }  # fmt: skip
    for kind in KINDS:
        pretrain(
            [corpus], valid=data, out=place / kind, tokenizer=words, documents="blank",
            overrides={**shape, "positions": kind},
            budget=Budget(steps=options.steps), length=options.length, batch_tokens=options.batch_tokens,
            loop=LoopConfig(seed=options.seed, schedule="cosine", warmup=0.05), machine=machine,
            console=Console(tell=lambda line: print(line, file=sys.stderr)),
        )  # fmt: skip
        run, refusal = load(place / kind), ""
        try:
            scores = evaluate_run(run, data, machine, length=TIMES * options.length)
        except UserError as error:
            refusal = error.what
            scores = evaluate_run(run, data, machine, length=options.length)
        print(f"{kind}: trained", file=sys.stderr)
        yield kind, {"buckets": scores.details["buckets"], "refusal": refusal}


def _books(path: Path) -> Iterator[str]:
    """The novels of a file, between blank lines."""
    lines: list[str] = []
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            if line.strip():
                lines.append(line)
            elif lines:
                yield "".join(lines)
                lines = []
    if lines:
        yield "".join(lines)


def _written(path: Path, books: Iterator[str]) -> Path:
    path.write_text("\n".join(books), encoding="utf-8")
    return path


def _print(found: dict[str, dict[str, Any]], trained: int) -> None:
    print(f"loss by tokens read; trained with {trained}")
    print(f"{'tokens read':<14}" + "".join(f"{kind:>12}" for kind in found))
    longest = max((run["buckets"] for run in found.values()), key=len)
    for number, bucket in enumerate(longest):
        row = [
            run["buckets"][number]["loss"] if number < len(run["buckets"]) else None for run in found.values()
        ]
        cells = "".join(f"{'–' if loss is None else format(loss, '.4f'):>12}" for loss in row)
        print(
            f"{bucket['first']:>6} –{bucket['last']:>6}{cells}{'  beyond' if bucket['first'] > trained else ''}"
        )
    for kind, run in found.items():
        if run["refusal"]:
            print(f"{kind}: {run['refusal']}")


if __name__ == "__main__":
    main()
