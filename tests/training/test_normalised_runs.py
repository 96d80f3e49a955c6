"""A run whose tokenizer normalises: trained, gone on with, used and exported, all by the same text."""

import json

import pytest
import small
import tiny_runs
from tokenizers import Tokenizer as Library

from headstart.errors import UserError
from headstart.interop.onnx import _for_others
from headstart.interop.tokenizers_out import framed_spec
from headstart.text.frames import masked_frame
from headstart.training.budget import Budget
from headstart.training.finetune import finetune
from headstart.training.loading import load
from headstart.training.predicting import predict
from headstart.training.pretrain import pretrain
from headstart.training.vocabularies import Vocabularies

BOTH = ("apostrophes", "lower-case")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    texts = [text.capitalize().replace(" est", " l’est") for text in small.sentences(60)]
    (place / "corpus.txt").write_text("\n".join(texts))
    return place


def pretrained(place, **changes):
    given = {
        "out": place / "base", "objective": "masked", "overrides": {**tiny_runs.SHAPE, "context": 64}, "vocab": 300,
        "length": 16, "batch_tokens": 64, "budget": Budget(steps=2), "machine": tiny_runs.MACHINE, **changes,
    }  # fmt: skip
    pretrain([place / "corpus.txt"], **given)
    return load(given["out"])


def test_a_base_has_the_tokenizer_that_was_asked_for_and_a_classifier_has_its(runs, monkeypatch):
    monkeypatch.setenv("HEADSTART_CACHE", str(runs / "cache"))
    base = pretrained(runs, normalise=["lower-case", "apostrophes"])
    assert base.tokenizer.normalise == BOTH
    assert pretrained(runs, normalise=BOTH).digest == base.digest  # found finished
    with pytest.raises(
        UserError, match="normalises apostrophes and lower-case, where lower-case is asked for"
    ):
        pretrained(runs, normalise=["lower-case"])
    with pytest.raises(UserError, match="normalises nothing"):
        pretrained(runs, out=runs / "other", tokenizer=small.tokenizer(), normalise=["lower-case"])

    finetune(
        tiny_runs.files()["classification", "train"], out=runs / "tuned", start=runs / "base", length=16,
        budget=Budget(steps=2), machine=tiny_runs.MACHINE,
    )  # fmt: skip
    tuned = load(runs / "tuned")
    assert tuned.tokenizer.fingerprint == base.tokenizer.fingerprint
    upper, lower = predict(tuned, ["L’HISTOIRE EST BELLE", "l'histoire est belle"], tiny_runs.MACHINE)
    assert upper == lower

    text = "L’Histoire EST là"
    others = [
        framed_spec(tuned.tokenizer, masked_frame(tuned.tokenizer)),
        _for_others(Vocabularies(tuned.tokenizer, tuned.tokenizer)).source.spec,
    ]
    for spec in others:  # what Hugging Face and ONNX are given
        found = Library.from_str(json.dumps(spec)).encode(text, add_special_tokens=False)
        assert found.ids == tuned.tokenizer.encode(text).tolist()
