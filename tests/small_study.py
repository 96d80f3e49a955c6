"""A study that takes seconds: a base that hardly learns anything, on a part of the embedded corpus."""

import json
from pathlib import Path

from headstart.config.study import FinetunePart, PretrainPart, StudyConfig, StudyPart, TokenizerPart
from headstart.demo.corpus import reviews

MODEL = {"width": 16, "depth": 1, "heads": 2, "ffn": 32, "context": 64}


def write_files(directory: Path, hostile: str = "") -> dict[str, str]:
    """Corpus, train, valid and test as files; returns their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    files = files_in(directory)
    lines = [review.french for review in reviews(0, "unlabelled", count=150)]
    (directory / "corpus.txt").write_text("\n".join(lines) + "\n")
    for name, count in (("train", 40), ("valid", 20), ("test", 30)):
        rows = [{"text": r.french + hostile, "label": r.label} for r in reviews(0, name, count=count)]
        (directory / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return files


def files_in(directory: Path) -> dict[str, str]:
    """Where `write_files` puts them."""
    return {
        "corpus": str(directory / "corpus.txt"),
        **{n: str(directory / f"{n}.jsonl") for n in ("train", "valid", "test")},
    }


def small_config(files: dict[str, str], **changes) -> StudyConfig:
    """Two budgets, two seeds, two rates, a few steps of each."""
    study = {"budgets": [10, 20], "seeds": 2, "precision": "fp32", **changes}
    return StudyConfig(
        study=StudyPart(**study),
        tokenizer=TokenizerPart(vocab=300),
        pretrain=[PretrainPart(corpus=[files["corpus"]], steps=12, length=32, batch_tokens=128, evaluations=3)],
        finetune=FinetunePart(
            **{name: files[name] for name in ("train", "valid", "test")},
            epochs=2, least_steps=4, batch=5, learning_rates=[1e-3, 1e-2], length=32, evaluations=2,
        ),
    )  # fmt: skip
