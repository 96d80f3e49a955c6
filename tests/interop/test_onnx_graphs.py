"""The modules that become graphs compute what the model computes."""

import pytest
import random_runs
import torch
import translators

from headstart.interop.onnx_graphs import graphs_of

TOKENS = torch.tensor([[5, 6, 7, 8], [9, 10, 0, 0]])
PRESENT = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])


@pytest.mark.parametrize(
    ("preset", "objective", "outputs"),
    [
        ("tiny", "causal", ["logits"]),
        ("lab", "classification", ["logits"]),
        ("bert-base", "masked", ["logits"]),
        ("bert-base", "masked-nsp", ["logits", "next_sentence_logits"]),
        ("gpt2", "base", ["last_hidden_state"]),
    ],
)
def test_a_single_stack_is_one_graph(tmp_path, preset, objective, outputs):
    model = random_runs.write(tmp_path / "run", preset, objective).model
    (graph,) = graphs_of(model)
    assert list(graph.outputs) == outputs
    segments = [torch.zeros_like(TOKENS)] if "token_type_ids" in graph.inputs else []
    with torch.no_grad():
        found = graph.module(TOKENS, PRESENT, *segments)
        wanted = model(TOKENS, present=PRESENT > 0, segments=segments[0] if segments else None)
    pairs = [(found, wanted)] if isinstance(wanted, torch.Tensor) else zip(found, wanted, strict=True)
    for one, other in pairs:
        is_counted = (PRESENT > 0)[..., None] if one.ndim == 3 else torch.tensor(True)
        assert torch.allclose(one * is_counted, other * is_counted, atol=1e-5)


def test_a_translator_is_an_encoder_and_a_decoder():
    model = translators.run_of().model
    encoder, decoder = graphs_of(model)
    target = torch.tensor([[3, 4, 5], [6, 7, 8]])
    with torch.no_grad():
        memory = encoder.module(TOKENS, PRESENT)
        found = decoder.module(target, memory, PRESENT)
        wanted = model.head(
            model.base.decode(target, model.base.encode(TOKENS, PRESENT > 0), memory_present=PRESENT > 0)
        )
    assert torch.allclose(found, wanted, atol=1e-5)


def test_examples_have_sizes_that_nothing_could_take_for_fixed():
    for graph in graphs_of(translators.run_of().model):
        for example, shape in zip(graph.examples(16), graph.open_shapes(), strict=True):
            assert example.shape[0] > 1
            assert example.shape[1] > 1
            assert set(shape) == {0, 1}
