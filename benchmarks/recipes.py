"""What a pretraining of so many operations is worth: loss and accuracy over shapes, objectives and corpora.

    HEADSTART_DATA=… python benchmarks/recipes.py --jobs 8 --seconds 260 > benchmarks/recipes.jsonl
    HEADSTART_DATA=… python benchmarks/recipes.py --vectors --device cpu --threads 2 >> benchmarks/recipes.jsonl
    HEADSTART_DATA=… python benchmarks/recipes.py --baselines >> benchmarks/recipes.jsonl
    python benchmarks/recipes.py --table benchmarks/recipes.jsonl --picture docs/pictures/recipes.svg

Each case pretrains a base on a set's unlabelled text and on its training texts without their labels, then fine-tunes
it on 50 and on 200 labels (two subsets of each) and on all of them, and scores valid; test is not read. A case is a
line of JSON when it is finished. Cases run in forked processes; after `--seconds` no new one begins. `--vectors` tries
the first token vectors alone: random and counted ones, at 3e13 operations. `--baselines` scores TF-IDF and LSA on the
same rows. planning/base.py holds the rules that were read off these lines, docs/recipes.md shows them.
"""

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import headstart
from headstart.config.model import HeadConfig, ModelConfig
from headstart.data.readers.documents import pieces
from headstart.planning.operations import per_text
from headstart.planning.workload import Lengths
from headstart.tokenizers.training import train as train_tokenizer

LENGTH, MASK_PROB = 256, 0.3
FEWEST, FEW, SUBSETS, FEW_STEPS, EPOCHS = 50, 200, 2, 160, 3
HEADS = {"causal": "lm", "masked": "masked"}
CORPORA = {
    "imdb-small": "imdb-small/unlabelled.txt.gz", "ag-news-small": "ag-news-small/unlabelled.txt.gz",
    "pubmed-sections": "pubmed-sections/corpus.txt.gz", "cls-books": "fr-reviews/train.txt.gz",
}  # fmt: skip


class Case(NamedTuple):
    """One pretraining and what is fine-tuned from it."""

    data: str
    operations: float
    objective: str
    width: int
    depth: int
    batch_tokens: int = 4_096
    vocab: int = 16_000
    embedding_init: str = "cooccurrence"

    @property
    def files(self) -> list[Path]:
        """The corpus and the training texts."""
        data = Path(os.environ["HEADSTART_DATA"])
        return [data / CORPORA[self.data], data / self.data / "train.jsonl.gz"]

    @property
    def tokenizer(self) -> str:
        return f"{self.data}-{self.vocab}"

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
        model = ModelConfig(**self.shape, vocab=self.vocab, direction=direction)
        head = HeadConfig(kind=HEADS[self.objective])  # type: ignore[arg-type]
        counted = per_text(model, head, Lengths(LENGTH), masked_share=MASK_PROB)
        each = (counted.forward + counted.backward) * (self.batch_tokens // LENGTH)
        return max(1, round(self.operations / each))


def grid() -> list[Case]:
    """What is tried: both objectives on every set, then more operations and other shapes and vocabularies."""
    imdb, both, inits = "imdb-small", ("masked", "causal"), ("cooccurrence", "random")
    cases = [Case(name, 1e14, o, 128, 2, embedding_init=kind) for name in CORPORA for o in both for kind in inits]
    cases += [Case(imdb, 3e14, o, 256, 4, embedding_init=kind) for o in both for kind in inits]
    cases += [Case(imdb, 1e15, "masked", 256, 4, 8_192, embedding_init=kind) for kind in inits]
    cases += [Case(imdb, 3e13, o, 128, 2) for o in both]
    cases += [Case(imdb, 1e14, o, 192, 3) for o in both]
    cases += [Case(imdb, 1e14, "masked", 128, 2, vocab=vocab) for vocab in (3_000, 8_000, 32_000)]
    return [*cases, *(Case(name, 3e14, "masked", 256, 4) for name in CORPORA if name != imdb)]


def vectors() -> list[Case]:
    """Random first token vectors against counted ones."""
    names, kinds = ("imdb-small", "pubmed-sections", "ag-news-small"), ("cooccurrence", "random")
    return [Case(name, 3e13, "masked", 128, 2, embedding_init=kind) for name in names for kind in kinds]


def run(case: Case, folder: Path, machine: dict[str, Any]) -> dict[str, Any]:
    """Pretrain, fine-tune, score valid."""
    data = case.files[-1].parent
    base, started = folder / "-".join(map(str, case)), time.monotonic()
    result = headstart.pretrain(
        case.files, out=base, objective=case.objective, steps=case.steps, embedding_init=case.embedding_init,
        tokenizer=str(folder / case.tokenizer), length=LENGTH, batch_tokens=case.batch_tokens, optimizer="muon-split",
        learning_rate=2e-3, muon_lr=0.01, weight_decay=0.1, schedule="linear", mask_prob=MASK_PROB,
        mask_random=0.0, mask_kept=0.0, save_every_seconds=1e9, **machine, **case.shape,
    )  # fmt: skip
    scored = {"loss": result["valid"]["loss"], "pretraining_seconds": time.monotonic() - started}

    def accuracy(name: str, **settings: Any) -> float:
        done = headstart.finetune(
            data / "train.jsonl.gz", valid=data / "valid.jsonl.gz", out=base / name, start=base, pooling="mean",
            length=LENGTH, average="tail", dropout=0.1, save_every_seconds=1e9, **machine, **settings,
        )  # fmt: skip
        return float(done["valid"]["accuracy"])

    for name, labels in (("fewest", FEWEST), ("few", FEW)):
        subsets = {"labels": labels, "steps": FEW_STEPS, "learning_rate": 3e-4}
        scored[name] = [accuracy(f"{name}-{seed}", labels_seed=seed, **subsets) for seed in range(SUBSETS)]
    scored["all"] = accuracy("all", epochs=EPOCHS, learning_rate=3e-4)
    return {**case._asdict(), "steps": case.steps, **scored, "seconds": time.monotonic() - started}


def tokenize(case: Case, folder: Path) -> None:
    """A tokenizer for a set, and its corpus in the cache."""
    files = [str(file) for file in case.files]
    trained = train_tokenizer(
        lambda: (piece.text for piece in pieces(files)), vocab=case.vocab, kind="bpe", normalise=["lower-case"]
    )
    trained.tokenizer.with_role("mask")[0].save(folder / case.tokenizer)
    for objective in HEADS:  # each builds its token store
        headstart.pretrain(
            files, out=folder / f"warm-{case.tokenizer}-{objective}", objective=objective, steps=1, length=LENGTH,
            width=16, depth=1, heads=1, ffn=16, tokenizer=str(folder / case.tokenizer), device="cpu", threads=1,
        )  # fmt: skip


def worker(cases: Any, lines: Any, folder: Path, machine: dict[str, Any], until: float) -> None:
    torch.set_num_threads(machine["threads"])
    while time.monotonic() < until:
        try:
            case = cases.get_nowait()
        except Exception:
            return
        try:
            lines.put(run(case, folder, machine))
        except Exception as error:
            lines.put({**case._asdict(), "error": repr(error)})


def measure(options: argparse.Namespace) -> None:
    until, context = time.monotonic() + options.seconds, multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["HEADSTART_CACHE"] = str(folder / "cache")
        wanted = (vectors() if options.vectors else grid())[: options.cases]
        texts = {case.tokenizer: case for case in wanted}
        makers = [context.Process(target=tokenize, args=(case, folder)) for case in texts.values()]
        machine = {"device": options.device, "threads": options.threads}
        for process in makers:
            process.start()
        for process in makers:
            process.join()
        cases, lines = context.Queue(), context.Queue()
        for case in wanted:
            cases.put(case)
        workers = [
            context.Process(target=worker, args=(cases, lines, folder, machine, until)) for _ in range(options.jobs)
        ]
        for process in workers:
            process.start()
        while any(process.is_alive() for process in workers) or not lines.empty():
            try:
                print(json.dumps(lines.get(timeout=1.0)), flush=True)
            except Exception:
                continue


def percent(values: Any) -> str:
    """The mean of one accuracy or of several, or a dash where none was measured."""
    each = values if isinstance(values, list) else [values]
    return "–" if values is None else f"{100 * sum(each) / len(each):.1f}"


def table(rows: list[dict[str, Any]]) -> None:
    """The lines, sorted: loss, and accuracy on valid with 50, 200 and all labels."""
    print("set              operations objective shape    vocab first vectors  steps   loss    50   200   all")
    for row in sorted((r for r in rows if "loss" in r), key=lambda r: (r["data"], r["operations"], r["objective"])):
        scores = "  ".join(f"{percent(row.get(budget)):>4}" for budget in STYLES)
        print(
            f"{row['data']:16} {row['operations']:10.0e} {row['objective']:9} {row['width']}x{row['depth']} "
            f"{row['vocab']:8} {row['embedding_init']:13} {row['steps']:5}  {row['loss']:.3f}  {scores}"
            f"  {row.get('variant', '')}"
        )


def baseline_lines(name: str) -> None:
    """TF-IDF and LSA on the rows of a set that the bases were fine-tuned on, a line each."""
    from headstart.data.labelled import read_labelled
    from headstart.data.labels import LabelMap
    from headstart.data.splits import label_subset
    from headstart.runs.linear import features
    from headstart.study.baselines import fit_lsa, logistic_regression, tfidf

    files = Case(name, 0, "masked", 0, 0).files
    train, valid = (read_labelled(files[-1].with_name(f"{part}.jsonl.gz")) for part in ("train", "valid"))
    labels = LabelMap.of(train)
    ids, valid_ids = (np.asarray(labels.ids(rows)) for rows in (train, valid))
    learnt = fit_lsa([piece.text for piece in pieces([str(file) for file in files])])
    vectors, valid_vectors = (np.hstack(features(learnt, rows.whole_texts)) for rows in (train, valid))

    def by_tfidf(rows: list[int]) -> Any:
        texts = train.subset(rows).whole_texts
        return tfidf(texts, ids[rows], valid.whole_texts, valid_ids, valid.whole_texts, len(labels))

    def by_lsa(rows: list[int]) -> Any:
        return logistic_regression(vectors[rows], valid_vectors, valid_vectors, ids[rows], valid_ids, len(labels))

    def rows_of(budget: int) -> list[list[int]]:
        return [sorted(label_subset(train.labels, train.whole_texts, budget, seed)) for seed in range(SUBSETS)]

    chosen = {"fewest": rows_of(FEWEST), "few": rows_of(FEW), "all": [list(range(len(train)))]}
    for objective, fit in (("tfidf", by_tfidf), ("lsa", by_lsa)):
        scores = {k: [float((fit(rows).predictions == valid_ids).mean()) for rows in v] for k, v in chosen.items()}
        print(json.dumps({"data": name, "objective": objective, **scores}), flush=True)


STYLES = {
    "fewest": (":", "^", f"{FEWEST} labels"),
    "few": ("-", "o", f"{FEW} labels"),
    "all": ("--", "s", "all labels"),
}


def picture(rows: list[dict[str, Any]], file: Path) -> None:
    """Accuracy over operations: of the first vectors the best shape, a line for each budget, LSA and TF-IDF across."""
    from matplotlib import pyplot

    import headstart.report.figures as figures

    colours = {"counted": ("#0072B2", ("cooccurrence", "windows")), "random": ("#D55E00", ("random",))}
    pyplot.style.use(Path(figures.__file__).with_name("chart.mplstyle"))
    drawing, axes = pyplot.subplots(2, 2, figsize=(9, 7), sharex=True, layout="constrained")
    for axis, name in zip(axes.flat, CORPORA, strict=True):
        own = [row for row in rows if row["data"] == name and "variant" not in row]
        for title, (colour, kinds) in colours.items():
            for budget, (line, marker, what) in STYLES.items():
                best: dict[float, float] = {}
                for row in own:
                    if row.get("embedding_init") in kinds and row["objective"] == "masked" and row.get(budget):
                        accuracy = float(percent(row[budget]))
                        best[row["operations"]] = max(best.get(row["operations"], 0), accuracy)
                label = f"{title} vectors, {what}"
                x, y = zip(*sorted(best.items()), strict=True) if best else ((), ())
                axis.plot(x, y, line, marker=marker, color=colour, label=label, markersize=4)
        for objective, colour in (("lsa", "#E0A000"), ("tfidf", "#8A8A8A")):
            for row in (row for row in own if row["objective"] == objective):
                for budget, (line, _, what) in STYLES.items():
                    label = f"{objective.upper().replace('TFIDF', 'TF-IDF')}, {what}"
                    axis.axhline(float(percent(row[budget])), color=colour, linestyle=line, linewidth=1, label=label)
        axis.set(xscale="log", title=name, xlabel="operations of pretraining", ylabel="accuracy on valid, %")
    drawing.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    drawing.savefig(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--cases", type=int, default=None, help="so many of the grid, from its start")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--table", type=Path, help="show the lines of a file instead")
    parser.add_argument("--picture", type=Path, help="draw them too, as SVG or PNG")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--vectors", action="store_true", help="the first token vectors instead of the grid")
    parser.add_argument("--baselines", action="store_true", help="score TF-IDF and LSA instead")
    options = parser.parse_args()
    if options.table:
        rows = [json.loads(line) for line in options.table.read_text().splitlines() if line.startswith("{")]
        table(rows)
        if options.picture:
            picture(rows, options.picture)
    elif options.baselines:
        for name in CORPORA:
            baseline_lines(name)
    else:
        measure(options)


if __name__ == "__main__":
    main()
