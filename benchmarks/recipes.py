"""What a pretraining of so many operations is worth: loss and accuracy over shapes, objectives and corpora.

    HEADSTART_DATA=… python benchmarks/recipes.py --jobs 8 --seconds 260 > benchmarks/recipes.jsonl
    HEADSTART_DATA=… python benchmarks/recipes.py --tfidf >> benchmarks/recipes.jsonl
    python benchmarks/recipes.py --table benchmarks/recipes.jsonl --picture docs/pictures/recipes.svg

Each case pretrains a base on a set's unlabelled text and on its training texts without their labels, then fine-tunes it
on 200 labels (two subsets) and on all of them, and scores valid; test is not read. A case is a line of JSON when it is
finished. Cases run in forked processes; after `--seconds` no new one begins. `--tfidf` scores TF-IDF on the same rows.
planning/base.py holds the rules that were read off these lines, docs/recipes.md shows them.
"""

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch

import headstart
from headstart.config.model import HeadConfig, ModelConfig
from headstart.data.readers.documents import pieces
from headstart.planning.operations import per_text
from headstart.planning.workload import Lengths
from headstart.tokenizers.training import train as train_tokenizer

VOCAB, LENGTH, MASK_PROB = 8_000, 256, 0.3
FEW, SUBSETS, FEW_STEPS, EPOCHS = 200, 2, 160, 3
HEADS = {"causal": "lm", "masked": "masked"}


class Case(NamedTuple):
    """One pretraining and what is fine-tuned from it."""

    data: str
    operations: float
    objective: str
    width: int
    depth: int
    batch_tokens: int = 4_096

    @property
    def shape(self) -> dict[str, Any]:
        return {
            "width": self.width, "depth": self.depth, "heads": max(1, self.width // 64), "ffn": 3 * self.width,
            "positions": "rotary", "norm": "rms", "activation": "swiglu", "bias": False, "context": 512,
            "embedding_norm": True,
        }  # fmt: skip

    @property
    def steps(self) -> int:
        direction: Any = "causal" if self.objective == "causal" else "bidirectional"
        model = ModelConfig(**self.shape, vocab=VOCAB, direction=direction)
        head = HeadConfig(kind=HEADS[self.objective])  # type: ignore[arg-type]
        counted = per_text(model, head, Lengths(LENGTH), masked_share=MASK_PROB)
        each = (counted.forward + counted.backward) * (self.batch_tokens // LENGTH)
        return max(1, round(self.operations / each))


def grid() -> list[Case]:
    """What is tried, the most telling first."""
    imdb, news, both = "imdb-small", "ag-news-small", ("masked", "causal")
    cases = [Case(imdb, 1e14, objective, 192, 3) for objective in both]
    cases += [Case(imdb, 3e14, objective, 256, 4) for objective in both]
    cases += [Case(news, 1e14, objective, 192, 3) for objective in both]
    cases += [Case(imdb, 1e15, objective, 256, 4, 8_192) for objective in both]
    cases += [Case(imdb, 3e15, objective, 384, 6, 16_384) for objective in both]
    cases += [Case(news, 3e14, objective, 256, 4) for objective in both]
    cases += [Case(imdb, 1e14, objective, *shape) for shape in ((128, 2), (256, 4)) for objective in both]
    cases += [Case(news, 1e15, objective, 384, 6, 8_192) for objective in both]
    cases += [Case(imdb, 3e14, objective, *shape) for shape in ((192, 3), (384, 4)) for objective in both]
    return [*cases, Case(imdb, 1e14, "masked", 192, 3, 2_048), Case(imdb, 1e15, "masked", 384, 6, 8_192)]


def run(case: Case, folder: Path, device: str) -> dict[str, Any]:
    """Pretrain, fine-tune, score valid."""
    data = Path(os.environ["HEADSTART_DATA"]) / case.data
    base, started = folder / "-".join(map(str, case)), time.monotonic()
    result = headstart.pretrain(
        [data / "unlabelled.txt.gz", data / "train.jsonl.gz"], out=base, objective=case.objective, steps=case.steps,
        tokenizer=str(folder / case.data), length=LENGTH, batch_tokens=case.batch_tokens, optimizer="muon-split",
        learning_rate=2e-3, muon_lr=0.01, weight_decay=0.1, schedule="linear", mask_prob=MASK_PROB,
        mask_random=0.0, mask_kept=0.0, device=device, save_every_seconds=1e9, **case.shape,
    )  # fmt: skip
    scored = {"loss": result["valid"]["loss"], "pretraining_seconds": time.monotonic() - started}

    def accuracy(name: str, **settings: Any) -> float:
        done = headstart.finetune(
            data / "train.jsonl.gz", valid=data / "valid.jsonl.gz", out=base / name, start=base, pooling="mean",
            length=LENGTH, average="tail", dropout=0.1, device=device, save_every_seconds=1e9, **settings,
        )  # fmt: skip
        return float(done["valid"]["accuracy"])

    scored["few"] = {
        f"{rate:g}": [
            accuracy(f"few-{rate}-{seed}", labels=FEW, labels_seed=seed, steps=FEW_STEPS, learning_rate=rate)
            for seed in range(SUBSETS)
        ]
        for rate in (3e-4, 1e-3)
    }
    scored["all"] = accuracy("all", epochs=EPOCHS, learning_rate=3e-4)
    return {**case._asdict(), "steps": case.steps, **scored, "seconds": time.monotonic() - started}


def tokenize(name: str, folder: Path) -> None:
    """A tokenizer for a set, and its corpus in the cache."""
    data = Path(os.environ["HEADSTART_DATA"]) / name
    files = [str(data / "unlabelled.txt.gz"), str(data / "train.jsonl.gz")]
    trained = train_tokenizer(
        lambda: (piece.text for piece in pieces(files)), vocab=VOCAB, kind="bpe", normalise=["lower-case"]
    )
    trained.tokenizer.with_role("mask")[0].save(folder / name)
    for objective in HEADS:  # each builds its token store
        headstart.pretrain(
            files, out=folder / f"warm-{name}-{objective}", objective=objective, steps=1, length=LENGTH, width=16,
            depth=1, heads=1, ffn=16, tokenizer=str(folder / name), device="cpu", threads=1,
        )  # fmt: skip


def worker(cases: Any, lines: Any, folder: Path, device: str, until: float) -> None:
    torch.set_num_threads(1)
    while time.monotonic() < until:
        try:
            case = cases.get_nowait()
        except Exception:
            return
        try:
            lines.put(run(case, folder, device))
        except Exception as error:
            lines.put({**case._asdict(), "error": repr(error)})


def measure(options: argparse.Namespace) -> None:
    until, context = time.monotonic() + options.seconds, multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["HEADSTART_CACHE"] = str(folder / "cache")
        wanted = grid()[: options.cases]
        makers = [context.Process(target=tokenize, args=(d, folder)) for d in {case.data for case in wanted}]
        for process in makers:
            process.start()
        for process in makers:
            process.join()
        cases, lines = context.Queue(), context.Queue()
        for case in wanted:
            cases.put(case)
        workers = [
            context.Process(target=worker, args=(cases, lines, folder, options.device, until))
            for _ in range(options.jobs)
        ]
        for process in workers:
            process.start()
        while any(process.is_alive() for process in workers) or not lines.empty():
            try:
                print(json.dumps(lines.get(timeout=1.0)), flush=True)
            except Exception:
                continue


def table(rows: list[dict[str, Any]]) -> None:
    """The lines, sorted: loss, and accuracy on valid with few and with all labels."""
    print("set            operations objective shape   batch steps  loss   200 labels (3e-4, 1e-3)   all")
    for row in sorted((row for row in rows if "loss" in row), key=lambda r: (r["data"], r["operations"])):
        few = ", ".join(f"{100 * sum(values) / len(values):.1f}" for values in row["few"].values())
        print(
            f"{row['data']:14} {row['operations']:10.0e} {row['objective']:9} {row['width']}x{row['depth']}  "
            f"{row['batch_tokens']:6} {row['steps']:5}  {row['loss']:.3f}  {few:>12}  {100 * row['all']:12.1f}"
        )


def tfidf_lines() -> None:
    """TF-IDF on the rows that the bases were fine-tuned on, a line for each set."""
    from headstart.data.labelled import read_labelled
    from headstart.data.labels import LabelMap
    from headstart.data.splits import label_subset
    from headstart.study.baselines import tfidf

    for name in dict.fromkeys(case.data for case in grid()):
        data = Path(os.environ["HEADSTART_DATA"]) / name
        train, valid = (read_labelled(data / f"{part}.jsonl.gz") for part in ("train", "valid"))
        labels = LabelMap.of(train)

        def accuracy(rows: list[int], train: Any = train, valid: Any = valid, labels: Any = labels) -> float:
            chosen = train.subset(rows)
            texts = chosen.whole_texts, labels.ids(chosen), valid.whole_texts, labels.ids(valid)
            found = tfidf(*texts, valid.whole_texts, len(labels))
            return float((found.predictions == labels.ids(valid)).mean())

        few = [accuracy(sorted(label_subset(train.labels, train.whole_texts, FEW, seed))) for seed in range(SUBSETS)]
        line = {"data": name, "objective": "tfidf", "few": {"tfidf": few}, "all": accuracy(list(range(len(train))))}
        print(json.dumps(line), flush=True)


def picture(rows: list[dict[str, Any]], file: Path) -> None:
    """Accuracy over operations: of each objective the best shape, a line for each budget, TF-IDF across."""
    from matplotlib import pyplot

    import headstart.report.figures as figures

    names = list(dict.fromkeys(row["data"] for row in rows))
    colours = {"causal": "#0072B2", "masked": "#D55E00"}
    styles = {"few": ("-", "o", f"{FEW} labels"), "all": ("--", "s", "all labels")}
    pyplot.style.use(Path(figures.__file__).with_name("chart.mplstyle"))
    drawing, axes = pyplot.subplots(1, len(names), figsize=(9, 3.8), sharex=True, sharey=True, layout="constrained")
    for axis, name in zip(axes, names, strict=True):
        own = [row for row in rows if row["data"] == name]
        for objective, colour in colours.items():
            for budget, (line, marker, what) in styles.items():
                best: dict[float, float] = {}
                for row in own:
                    if row["objective"] == objective:
                        best[row["operations"]] = max(best.get(row["operations"], 0), _accuracy(row, budget))
                points = sorted(best.items())
                label = f"{objective}, {what}"
                axis.plot(*zip(*points, strict=True), line, marker=marker, color=colour, label=label, markersize=4)
        for row in own:
            for budget, (line, _, what) in styles.items():
                if row["objective"] == "tfidf":
                    axis.axhline(_accuracy(row, budget), color="#8A8A8A", linestyle=line, label=f"TF-IDF, {what}")
        axis.set(xscale="log", title=name, xlabel="operations of pretraining")
    axes[0].set_ylabel("accuracy on valid, %")
    drawing.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", frameon=False)
    drawing.savefig(file)


def _accuracy(row: dict[str, Any], budget: str) -> float:
    values = next(iter(row["few"].values())) if budget == "few" else [row["all"]]
    return 100 * sum(values) / len(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--cases", type=int, default=None, help="so many of the grid, from its start")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--table", type=Path, help="show the lines of a file instead")
    parser.add_argument("--picture", type=Path, help="draw them too, as SVG or PNG")
    parser.add_argument("--tfidf", action="store_true", help="score TF-IDF instead")
    options = parser.parse_args()
    if options.table:
        rows = [json.loads(line) for line in options.table.read_text().splitlines() if line.startswith("{")]
        table(rows)
        if options.picture:
            picture(rows, options.picture)
    elif options.tfidf:
        tfidf_lines()
    else:
        measure(options)


if __name__ == "__main__":
    main()
