"""What each token did to a prediction, on models whose answer is known by hand."""

import dataclasses
import json

import numpy as np
import pytest
import small
import tiny_runs
import torch
from expected_errors import refused
from torch import nn

from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.inference.attribution import attribution_of
from headstart.inference.predict import predict
from headstart.model.model import build
from headstart.tokenizers.templates import template_of

MACHINE = tiny_runs.MACHINE
TEXT = "une belle histoire triste."
METHODS = ["leave-one-out", "gradient"]


def attribution(kind, text=TEXT, **options):
    return attribution_of(tiny_runs.run_of(kind), text, MACHINE, **options)


class Bag(nn.Module):
    """A model that adds up the embeddings of its tokens, and their number: what each token does is known.

    It has the parts that are looked for in a real one: `base.embedding.tokens`, a configuration, a forward pass.
    """

    def __init__(self, vocab, classes):
        super().__init__()
        self.config = preset("tiny", vocab=vocab)
        self.base = nn.Module()
        self.base.embedding = nn.Module()
        self.base.embedding.tokens = nn.Embedding(vocab, 3)
        self.matrix = nn.Parameter(torch.randn(3, classes, generator=torch.Generator().manual_seed(2)))

    def forward(self, tokens, *, present, segments=None):
        return (self.base.embedding.tokens(tokens) * present[..., None]).sum(dim=1) @ self.matrix

    def score(self, token):
        with torch.no_grad():
            return (self.base.embedding.tokens.weight[token] @ self.matrix).double().numpy()


def bag_run(objective, labels):
    run = tiny_runs.run_of("classification")
    head = HeadConfig(kind=objective, classes=max(1, len(labels)))
    model = Bag(run.tokenizer.size, head.classes)
    config = dataclasses.replace(run.config, objective=objective, label_names=labels, head=head)
    return dataclasses.replace(run, model=model, config=config)


def ids_of(run, text=TEXT):
    return template_of(run.tokenizer, "causal").one(run.tokenizer.encode(text), run.config.length).tokens.astype(int)


@pytest.mark.parametrize("method", METHODS)
def test_in_a_bag_of_tokens_the_attribution_on_a_value_is_the_tokens_own_score(method):
    run = bag_run("regression", [])
    found = attribution_of(run, TEXT, MACHINE, method=method)
    scores = [float(run.model.score(token)[0]) for token in ids_of(run)]
    assert (found.of, found.method) == ("value", method)
    assert found.unit.startswith("value, ")
    assert [token.attribution for token in found.tokens[1:-1]] == pytest.approx(scores[1:-1], abs=1e-5)
    ends = [found.tokens[0].attribution, found.tokens[-1].attribution]
    assert ends == pytest.approx([scores[0], scores[-1]], abs=1e-5) if method == "gradient" else ends == [0, 0]


def test_of_a_value_that_is_linear_the_gradients_add_up_to_the_whole():
    run = bag_run("regression", [])
    found = attribution_of(run, TEXT, MACHINE, method="gradient")
    (said,) = predict(run, [TEXT], MACHINE)
    assert sum(token.attribution for token in found.tokens) == pytest.approx(said.answer["value"], abs=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_of_several_labels_it_is_the_likeliest_ones_logit(method):
    run = bag_run("multilabel", ["a", "b", "c"])
    found = attribution_of(run, TEXT, MACHINE, method=method)
    (said,) = predict(run, [TEXT], MACHINE)
    probabilities = said.answer["probabilities"]
    assert found.of == max(probabilities, key=probabilities.get)
    column = run.config.label_names.index(found.of)
    scores = [float(run.model.score(token)[column]) for token in ids_of(run)]
    assert [token.attribution for token in found.tokens[1:-1]] == pytest.approx(scores[1:-1], abs=1e-5)


def test_of_two_classes_it_is_the_difference_of_their_scores():
    run = bag_run("classification", ["non", "oui"])
    found = attribution_of(run, TEXT, MACHINE)
    column = run.config.label_names.index(found.of)
    scores = [run.model.score(token) for token in ids_of(run)]
    expected = [float(score[column] - score[1 - column]) for score in scores]
    assert [token.attribution for token in found.tokens[1:-1]] == pytest.approx(expected[1:-1], abs=1e-5)


def test_of_three_classes_the_log_odds_are_those_of_the_probabilities():
    run = bag_run("classification", ["a", "b", "c"])
    found = attribution_of(run, TEXT, MACHINE)
    total = sum(run.model.score(token) for token in ids_of(run))

    def log_odds(scores):
        shares = np.exp(scores) / np.exp(scores).sum()
        return float(np.log(shares / (1 - shares))[run.config.label_names.index(found.of)])

    for token, shown in zip(ids_of(run)[1:-1], found.tokens[1:-1], strict=True):
        expected = log_odds(total) - log_odds(total - run.model.score(token))
        assert shown.attribution == pytest.approx(expected, abs=1e-4)


# ---- real runs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression"])
def test_leaving_out_in_a_batch_is_predicting_each_shorter_text_alone(kind):
    run, found = tiny_runs.run_of(kind), attribution(kind)
    ids = ids_of(run)

    def number(tokens):
        with torch.no_grad():
            outputs = run.model(torch.from_numpy(tokens)[None])[0].double().numpy()
        if kind == "regression":
            return float(outputs[0])
        column = run.config.label_names.index(found.of)
        if kind == "multilabel":
            return float(outputs[column])
        share = np.exp(outputs - outputs.max()) / np.exp(outputs - outputs.max()).sum()
        return float(np.log(share[column] / (1 - share[column])))

    for position in range(1, len(ids) - 1):
        expected = number(ids) - number(np.delete(ids, position))
        assert found.tokens[position].attribution == pytest.approx(expected, abs=1e-4)


def test_gradient_times_input_is_the_slope_along_the_embedding():
    """A finite difference: the embedding at one position made a little longer."""
    run, found = tiny_runs.run_of("classification"), attribution("classification", method="gradient")
    run.model.double()
    ids, column = ids_of(run), run.config.label_names.index(found.of)
    table, step = run.model.base.embedding.tokens, 1e-5
    for position in range(len(ids)):
        values = []
        for sign in (1, -1):
            scale = torch.ones(len(ids), 1, dtype=torch.float64)
            scale[position] += sign * step
            hook = table.register_forward_hook(lambda module, given, out, scale=scale: out * scale)
            with torch.no_grad():
                outputs = run.model(torch.from_numpy(ids)[None])[0]
            hook.remove()
            values.append(float(outputs[column] - outputs[1 - column]))
        gradient = (values[0] - values[1]) / (2 * step)
        assert found.tokens[position].attribution == pytest.approx(gradient, abs=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_tokens_are_the_text_with_its_frame_marked(method):
    found = attribution("classification", method=method)
    assert [token.is_special for token in found.tokens] == [True, *[False] * (len(found.tokens) - 2), True]
    assert "".join(token.text for token in found.tokens[1:-1]) == TEXT
    (said,) = predict(tiny_runs.run_of("classification"), [TEXT], MACHINE)
    assert found.of == said.answer["label"]


@pytest.mark.parametrize("method", METHODS)
def test_the_bytes_of_a_character_are_left_out_together(method):
    run = bag_run("regression", [])
    found = attribution_of(run, "fin☺", MACHINE, method=method)
    smile = found.tokens[-2]
    assert smile.text == "☺"
    expected = sum(float(run.model.score(token)[0]) for token in run.tokenizer.encode("☺").astype(int))
    assert smile.attribution == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_pairs_empty_and_long_texts_have_an_attribution(method):
    pair = attribution("pairs", text_b="un livre.", method=method)
    assert sum(token.is_special for token in pair.tokens) == 3
    empty = attribution("classification", "", method=method)
    assert [token.is_special for token in empty.tokens] == [True, True]
    long = attribution("classification", "livre " * 60, method=method)
    assert (long.is_cut, len(long.tokens)) == (True, tiny_runs.LENGTH)
    assert json.loads(json.dumps(long.as_json(), allow_nan=False))["tokens"][1]["text"]


def test_a_gradient_is_taken_wherever_it_is_asked_for():
    run = tiny_runs.run_of("classification")
    with torch.inference_mode():
        inside = attribution_of(run, TEXT, MACHINE, method="gradient")
    assert inside == attribution_of(run, TEXT, MACHINE, method="gradient")


def test_looking_changes_nothing():
    run = tiny_runs.run_of("classification")
    before = list(predict(run, [TEXT], MACHINE))
    for method in METHODS:
        attribution_of(run, TEXT, MACHINE, method=method)
    assert list(predict(run, [TEXT], MACHINE)) == before
    assert all(parameter.grad is None for parameter in run.model.parameters())


def test_runs_methods_and_numbers_that_cannot_serve_are_refused():
    with refused("wrong-run", "causal run", "headstart predict"):
        attribution("causal")
    with refused("unknown-name", "'shap'"):
        attribution("classification", method="shap")
    with refused("mismatch"):
        attribution("classification", text_b="b")
    model = build(preset("tiny", vocab=small.tokenizer().size, width=16, heads=2), HeadConfig(kind="classification"))
    with torch.no_grad():
        model.head.classifier.weight.fill_(torch.nan)
    with refused("not-finite"):
        attribution_of(dataclasses.replace(tiny_runs.run_of("classification"), model=model), TEXT, MACHINE)
