"""Small translators on made-up pairs, made once for all tests that use one."""

from functools import cache

import small
import tiny_runs

from headstart.config.training import LoopConfig
from headstart.runs.load import load
from headstart.training.tasks.finetune import train_translator

SHAPE = {"width": 16, "ffn": 24, "heads": 2, "depth": 1, "decoder_depth": 2, "context": 64}


def reversed_words(text):
    return " ".join(reversed(text.removesuffix(".").split())) + "!"


@cache
def files():
    """Pairs to train on and to measure by."""
    texts = small.sentences(90, seed=31)
    lines = [f"{text}\t{reversed_words(text)}" for text in texts]
    found = {}
    for name, part in (("train", lines[:60]), ("valid", lines[60:75]), ("test", lines[75:])):
        found[name] = tiny_runs.directory() / f"translation-{name}.tsv"
        found[name].write_text("\n".join(part) + "\n", encoding="utf-8")
    return found


def train(out, **options):
    """A few steps on them."""
    settings = {
        "train": files()["train"], "valid": files()["valid"], "model": SHAPE, "tokenizer": small.tokenizer(),
        "length": 32, "batch_tokens": 300, "steps": 4, "learning_rate": 1e-2, "machine": tiny_runs.MACHINE,
        "loop": LoopConfig(schedule="inverse-sqrt"),
    }  # fmt: skip
    if options.get("start"):
        settings |= {"model": None, "tokenizer": None}
    return train_translator(out=out, **{**settings, **options})


@cache
def path_of(kind="joint"):
    """The directory of a run: joint, or with separate vocabularies."""
    out = tiny_runs.directory() / f"translator-{kind}"
    if kind == "separate":
        train(out, vocabularies="separate", tokenizer=None, vocab=300)
    else:
        train(out, test=files()["test"], steps=80)
    return out


def run_of(kind="joint"):
    """The run, freshly loaded."""
    return load(path_of(kind))
