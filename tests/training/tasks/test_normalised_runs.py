"""A run whose tokenizer normalises: trained, gone on with, used and exported, all by the same text."""

import json

import pytest
import small
import tiny_runs
from expected_errors import refused
from tokenizers import Tokenizer as Library

from headstart.inference.predict import predict
from headstart.interop.tokenizer_files import framed_spec, plain_spec
from headstart.runs.load import load
from headstart.tokenizers.templates import template_of
from headstart.training.tasks.finetune import finetune
from headstart.training.tasks.pretrain import pretrain

BOTH = ("apostrophes", "lower-case")


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs")
    texts = [text.capitalize().replace(" est", " l’est") for text in small.sentences(60)]
    (directory / "corpus.txt").write_text("\n".join(texts))
    return directory


def pretrained(directory, **changes):
    given = {
        "out": directory / "base", "objective": "masked", "model": {**tiny_runs.SHAPE, "context": 64}, "vocab": 300,
        "length": 16, "batch_tokens": 64, "steps": 2, "machine": tiny_runs.MACHINE, **changes,
    }  # fmt: skip
    pretrain([directory / "corpus.txt"], **given)
    return load(given["out"])


def test_a_base_has_the_tokenizer_that_was_asked_for_and_a_classifier_has_its(directory, monkeypatch):
    monkeypatch.setenv("HEADSTART_CACHE", str(directory / "cache"))
    base = pretrained(directory, normalise=["lower-case", "apostrophes"])
    assert base.tokenizer.normalise == BOTH
    assert pretrained(directory, normalise=BOTH).digest == base.digest  # found finished
    with refused("mismatch", "apostrophes and lower-case", "--normalise asks for lower-case"):
        pretrained(directory, normalise=["lower-case"])
    with refused("mismatch", "nothing", "--normalise asks for lower-case"):
        pretrained(directory, out=directory / "other", tokenizer=small.tokenizer(), normalise=["lower-case"])

    finetune(
        tiny_runs.files()["classification", "train"], out=directory / "tuned", start=directory / "base", length=16,
        steps=2, machine=tiny_runs.MACHINE,
    )  # fmt: skip
    tuned = load(directory / "tuned")
    assert tuned.tokenizer.fingerprint == base.tokenizer.fingerprint
    upper, lower = predict(tuned, ["L’HISTOIRE EST BELLE", "l'histoire est belle"], tiny_runs.MACHINE)
    assert upper == lower

    text = "L’Histoire EST là"
    others = [
        framed_spec(tuned.tokenizer, template_of(tuned.tokenizer, "masked")),
        plain_spec(tuned.tokenizer),
    ]
    for spec in others:  # what Hugging Face and ONNX are given
        found = Library.from_str(json.dumps(spec)).encode(text, add_special_tokens=False)
        assert found.ids == tuned.tokenizer.encode(text).tolist()
