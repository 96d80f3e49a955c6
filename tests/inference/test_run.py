"""`headstart.load(path)`: each call gives what the functions under it give."""

import inspect

import numpy as np
import pytest
import tiny_runs
import translators
from expected_errors import refused

import headstart
from headstart.config.generation import BEAM_OF_FIVE, SAMPLED, GenerationConfig
from headstart.inference import predict as functions
from headstart.inference.attention_maps import attention_of
from headstart.inference.evaluate import evaluate_run
from headstart.inference.generate import generate
from headstart.inference.translate import Translator, texts_of

TEXTS = ["une belle histoire", "le livre", "", "la fin du roman"]


def opened(kind):
    return headstart.load(tiny_runs.path_of(kind), device="cpu", precision="fp32", threads=1)


def test_a_classifier_predicts_labels_and_their_probabilities():
    run = opened("classification")
    expected = [one.answer for one in functions.predict(run.loaded, TEXTS, tiny_runs.MACHINE)]
    assert run.predict(TEXTS) == [one["label"] for one in expected]
    table = run.predict_proba(iter(TEXTS))
    assert table.shape == (4, 2)
    assert table.tolist() == pytest.approx(np.array([list(one["probabilities"].values()) for one in expected]))
    assert [run.labels[row] for row in table.argmax(axis=1)] == run.predict(TEXTS)
    assert (run.predict([]), run.predict_proba([]).shape) == ([], (0, 2))


def test_several_labels_values_and_pairs_come_as_they_were_trained():
    several = opened("multilabel").predict(TEXTS)
    assert all(set(one) <= {"livre", "fin"} for one in several)
    values = opened("regression").predict(TEXTS)
    assert all(isinstance(value, float) for value in values)
    assert opened("pairs").predict([("un livre", "deux livres")])[0] in ("True", "False")
    with refused("wrong-run", "predict"):
        opened("regression").predict_proba(TEXTS)


def test_one_text_alone_is_refused_with_the_list_to_give():
    with refused("bad-value", "[text]"):
        opened("classification").predict("une belle histoire")


@pytest.mark.parametrize("pool", ["first", "mean", "last"])
def test_the_vectors_of_the_base(pool):
    run = opened("causal")
    expected = [one.vectors for one in functions.embed(run.loaded, TEXTS, tiny_runs.MACHINE, pool)]
    assert np.array_equal(run.embed(TEXTS, pool), np.stack(expected))
    assert run.embed([]).shape == (0, tiny_runs.SHAPE["width"])


def test_a_language_model_generates_by_the_settings_of_the_command_line():
    run = opened("causal")

    def texts(config):
        return [one.text for one in generate(run.loaded, "le livre", tiny_runs.MACHINE, config)]

    sampled = GenerationConfig(**{**SAMPLED.given(), "max_tokens": 5, "seed": 3, "count": 2})
    assert run.generate("le livre", max_tokens=5, seed=3, count=2) == texts(sampled)
    assert run.generate("le livre", max_tokens=5, beam=2) == texts(GenerationConfig(max_tokens=5, beam=2))
    assert run.generate("le livre", max_tokens=5, temperature=0.0, top_p=1.0) == texts(GenerationConfig(max_tokens=5))
    with refused("unknown-name", "max_token", "max_tokens"):
        run.generate("le livre", max_token=5)
    with refused("wrong-run", "generate"):
        opened("classification").generate("le livre")


def test_a_translator_translates_by_beam_search():
    run = headstart.load(translators.path_of(), device="cpu", precision="fp32", threads=1)
    translator, texts = Translator.of(run.loaded, tiny_runs.MACHINE), ["a good book", "the end"]
    assert run.translate(texts) == texts_of(translator.translate(texts, BEAM_OF_FIVE))
    assert run.translate(texts, beam=1) == texts_of(translator.translate(texts, GenerationConfig(beam=1)))
    (best, second), _ = (one.candidates for one in run.translations(texts, count=2))
    assert best.text == run.translate(texts)[0]
    assert best.score >= second.score
    assert {one.kind for one in run.attention("a good book").maps} == {"encoder", "decoder", "cross"}


def test_it_evaluates_as_the_command_does(tmp_path):
    run, data = opened("classification"), tiny_runs.files()["classification", "test"]
    found, expected = run.evaluate(data), evaluate_run(run.loaded, data, tiny_runs.MACHINE)
    assert found.as_json() == expected.as_json()
    table = tmp_path / "test.csv"
    table.write_text("avis,note\nune belle histoire,oui\nle livre,non\n")
    assert run.evaluate(table, text_column="avis", label_column="note").count == 2
    assert run.evaluate([{"text": "le livre", "label": "oui"}]).count == 1, "rows in memory"


def test_the_attention_is_that_of_the_function():
    run = opened("classification")
    found, expected = run.attention("une belle histoire"), attention_of(run.loaded, "une belle histoire", run.machine)
    assert np.array_equal(found.maps[0].weights, expected.maps[0].weights)


def test_its_repr_is_one_short_line():
    shown = repr(opened("classification"))
    assert shown == f"<Run {tiny_runs.path_of('classification')}: classification, 2 labels>"
    assert repr(opened("causal")).endswith(": causal>")


def test_signatures_show_every_setting_with_its_type():
    parameters = inspect.signature(headstart.Run.generate).parameters
    assert GenerationConfig.names() <= set(parameters)
    assert parameters["beam"].annotation == int | None
    assert "text_column" in inspect.signature(headstart.Run.evaluate).parameters
