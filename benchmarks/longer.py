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
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from headstart.config.training import LoopConfig
from headstart.data.readers.documents import pieces
from headstart.errors import UserError
from headstart.inference.evaluate import evaluate_run
from headstart.machine import choose
from headstart.report.figures import BLUE, GREEN, GREY, ORANGE, PINK, RULE, new_figure, styled, svg
from headstart.runs.load import load
from headstart.tokenizers.training import train as train_tokenizer
from headstart.training.fit import Console
from headstart.training.tasks.pretrain import pretrain

KINDS = ("sinusoidal", "learned", "rotary")
TIMES = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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
            kind: [((b["first"] + b["last"]) / 2, b["loss"]) for b in run["buckets"]] for kind, run in found.items()
        }
        ends = {kind: "refused beyond" for kind, run in found.items() if run["refusal"]}
        options.out.write_text(longer_chart(lines, options.length, TIMES * options.length, ends), encoding="utf-8")
    print(json.dumps({"length": options.length, "steps": options.steps, "runs": found}))


def _runs(options: argparse.Namespace, place: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each kind with its buckets, and with its refusal where it has one."""
    novels = Path(os.environ["HEADSTART_DATA"]) / "fr-novels"
    corpus = _written(place / "train.txt", islice(_books(novels / "train.txt.gz"), options.books))
    data = _written(place / "other.txt", (book[: options.characters] for book in _books(novels / "valid.txt.gz")))
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
            model={**shape, "positions": kind},
            steps=options.steps, length=options.length, batch_tokens=options.batch_tokens,
            loop=LoopConfig(seed=options.seed, schedule="cosine", warmup=0.05), machine=machine,
            console=Console(log=lambda line: print(line, file=sys.stderr)),
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
        row = [run["buckets"][number]["loss"] if number < len(run["buckets"]) else None for run in found.values()]
        cells = "".join(f"{'–' if loss is None else format(loss, '.4f'):>12}" for loss in row)
        print(f"{bucket['first']:>6} –{bucket['last']:>6}{cells}{'  beyond' if bucket['first'] > trained else ''}")
    for kind, run in found.items():
        if run["refusal"]:
            print(f"{kind}: {run['refusal']}")


@styled
def longer_chart(
    lines: Mapping[str, Sequence[tuple[float, float]]],
    trained_length: int,
    length: int,
    ends: Mapping[str, str],
) -> str:
    """The loss by how much was read, for each kind of positions; beyond the trained length the ground is grey.

    `ends` has a word for each kind that stops there.
    """
    marks = zip([BLUE, ORANGE, GREEN, PINK], ["o", "s", "^", "D"], strict=True)
    figure = new_figure(8.5, 4.8, panels=1)
    axes = figure.axes[0]
    axes.axvspan(trained_length, length, color="#F1F1F1", zorder=0)
    axes.axvline(trained_length, color=GREY, linestyle=":", linewidth=1.2)
    top = axes.get_xaxis_transform()
    axes.text(trained_length, 1.0, f"trained with {trained_length:,} tokens ", transform=top, ha="right",
              va="top", color=GREY)  # fmt: skip
    axes.text(trained_length, 1.0, " longer than trained", transform=top, va="top", color=GREY)
    for (name, points), (colour, marker) in zip(lines.items(), marks, strict=False):
        places, losses = zip(*points, strict=True)
        label = f"{name} ({ends[name]})" if name in ends else name
        axes.plot(places, losses, marker=marker, markersize=5, color=colour, label=label)
        if name in ends:
            axes.plot(places[-1], losses[-1], "x", markersize=11, markeredgewidth=2, color=colour)
    axes.set_xlim(0, length)
    axes.set_xticks(range(0, length + 1, trained_length))
    axes.grid(axis="y", color=RULE)
    axes.set_axisbelow(True)
    axes.margins(y=0.12)
    axes.set_xlabel("tokens read before the one that is predicted")
    axes.set_ylabel("loss (nats a token)")
    axes.set_title("Positions beyond the trained length")
    axes.legend(frameon=False, loc="lower right")
    return svg(figure)


if __name__ == "__main__":
    main()
