"""Runs of a few steps on made-up sentences, made once for all tests that use one."""

import atexit
import json
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from unittest import mock

import small
import torch

from headstart.config.training import OptimizerConfig
from headstart.machine import Machine
from headstart.runs.load import load
from headstart.tokenizers.training import train as train_tokenizer
from headstart.training.tasks.finetune import finetune
from headstart.training.tasks.pretrain import pretrain

MACHINE = Machine(torch.device("cpu"), "fp32", 1)
LENGTH = 16
SHAPE = {"width": 16, "ffn": 24, "heads": 2, "depth": 2}
LANGUAGE = ("causal", "rotary", "learned", "masked", "masked-nsp")
LABELLED = ("classification", "multilabel", "regression", "pairs", "char")


@cache
def directory():
    """A directory for all of it, gone at the end."""
    path = Path(tempfile.mkdtemp(prefix="headstart-tests-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


@cache
def files():
    """A corpus, a text to measure by, one long document, and labelled rows for every task."""
    texts = small.sentences(80, seed=7)
    rows = {
        "classification": [{"text": t, "label": "oui" if "belle" in t else "non"} for t in texts],
        "multilabel": [{"text": t, "label": [w for w in ("livre", "fin") if w in t]} for t in texts],
        "regression": [{"text": t, "label": len(t) / 50} for t in texts],
        "pairs": [
            {"text_a": a, "text_b": b, "label": str(len(a) > len(b))} for a, b in zip(texts, texts[::-1], strict=True)
        ],
    }
    rows["char"] = rows["classification"]
    found = {}
    for name, lines in rows.items():
        for part, chosen in (("train", lines[:50]), ("test", lines[50:])):
            found[name, part] = _written(f"{name}-{part}.jsonl", [json.dumps(row) for row in chosen])
    found["corpus"] = _written("corpus.txt", small.sentences(60))
    # Of several sentences a line, for pairs of them too.
    lines = [" ".join(text.capitalize() for text in small.sentences(3, seed)) for seed in range(9)]
    found["valid"] = _written("valid.txt", lines)
    found["long"] = _written("long.txt", [" ".join(small.sentences(30, seed=5))])
    return found


def _written(name, lines):
    path = directory() / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@cache
def path_of(kind):
    """The directory of a run of this kind."""
    with mock.patch.dict(os.environ, HEADSTART_CACHE=str(directory() / "cache")):
        return _pretrained(kind) if kind in LANGUAGE else _finetuned(kind)


def run_of(kind):
    """The run, freshly loaded: a test may do with it what it likes."""
    return load(path_of(kind))


def _pretrained(kind):
    objective = kind if kind in ("masked", "masked-nsp") else "causal"
    positions = kind if kind in ("rotary", "learned") else "sinusoidal"
    context = 24 if kind == "learned" else 64
    out = directory() / kind
    pretrain(
        [files()["corpus"], files()["valid"]], out=out, objective=objective, valid=files()["valid"],
        model={**SHAPE, "positions": positions, "context": context}, tokenizer=small.tokenizer(),
        length=2 * LENGTH if kind == "masked-nsp" else LENGTH, batch_tokens=8 * LENGTH, steps=4,
        optimizer=OptimizerConfig(learning_rate=1e-2), machine=MACHINE,
    )  # fmt: skip
    return out


def _finetuned(kind):
    from_scratch = kind in ("char", "pairs")
    tokenizer = train_tokenizer(lambda: iter(small.sentences(50)), vocab=60, kind="char").tokenizer
    task = "classification" if from_scratch else kind
    out = directory() / kind
    finetune(
        files()[kind, "train"], out=out, task=task, start=None if from_scratch else path_of("causal"),
        model={**SHAPE, "context": 64} if from_scratch else None, length=LENGTH if kind != "pairs" else 40,
        tokenizer=(tokenizer if kind == "char" else small.tokenizer()) if from_scratch else None,
        steps=4, learning_rate=1e-2, machine=MACHINE,
    )  # fmt: skip
    return out
