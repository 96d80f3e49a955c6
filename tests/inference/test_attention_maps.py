"""Where a run looks: the weights are those of the fast path, by hand and by another library."""

import dataclasses
import json
import math

import numpy as np
import pytest
import tiny_runs
import torch
import translators
from expected_errors import refused

from headstart.config.generation import GenerationConfig
from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.inference.attention_maps import attention_of, mask_of, positions_of
from headstart.inference.translate import translate
from headstart.model.base import Base
from headstart.model.model import build
from headstart.model.positions import sinusoids
from headstart.tokenizers.templates import template_of

MACHINE = tiny_runs.MACHINE
TEXT = "une belle histoire triste."
KINDS = [*tiny_runs.LANGUAGE, *(kind for kind in tiny_runs.LABELLED if kind != "pairs")]


def attention(kind, text=TEXT, **options):
    return attention_of(tiny_runs.run_of(kind), text, MACHINE, **options)


def tokens_read(run, text=TEXT):
    ids = run.tokenizer.encode(text)
    if run.config.objective == "causal":
        return [run.tokenizer.id_of("begin"), *map(int, ids)][: run.config.length]
    frame = template_of(run.tokenizer, run.config.frame)
    return frame.one(ids, run.config.length).tokens.astype(int).tolist()


def by_hand(layer, config, x, mask, memory=None):
    """Softmax of q·k/√d, head by head, from the matrices of a layer alone; rotary, pairs are complex numbers."""
    width, size = config.width, config.width // config.heads
    query, key, _ = layer.qkv.weight.split(width)
    query_bias, key_bias, _ = layer.qkv.bias.split(width)
    asked, seen = x @ query.T + query_bias, (x if memory is None else memory) @ key.T + key_bias
    turns = torch.arange(len(x))[:, None] * 10000.0 ** (-torch.arange(0, size, 2) / size)
    found = []
    for head in range(config.heads):
        q, k = (part[:, head * size : (head + 1) * size] for part in (asked, seen))
        if config.positions == "rotary":
            q, k = (
                torch.complex(*part.chunk(2, dim=-1)) * torch.polar(torch.ones_like(turns), turns) for part in (q, k)
            )
        scores = (q @ k.conj().T).real / math.sqrt(size)
        found.append(scores.masked_fill(~torch.from_numpy(mask), -torch.inf).softmax(-1))
    return torch.stack(found).detach().numpy()


def inputs_of_layers(layers, run):
    """What each of the layers is given while `run` runs, by the fast path."""
    caught, hooks = [], []
    for layer in layers:
        hooks.append(
            layer.register_forward_hook(
                lambda module, given, options, out: caught.append((given[0][0], options.get("memory"))),
                with_kwargs=True,
            )
        )
    with torch.no_grad():
        run()
    for hook in hooks:
        hook.remove()
    return caught


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_the_softmax_of_what_the_fast_path_computes(kind):
    found, run = attention(kind), tiny_runs.run_of(kind)
    (one,) = found.maps
    tokens = torch.tensor([tokens_read(run)])
    depth, heads, length = run.config.model.depth, run.config.model.heads, tokens.shape[1]
    assert one.kind == "self"
    assert one.weights.dtype == np.float32
    assert one.weights.shape == (depth, heads, length, length)
    assert len(one.rows) == len(one.columns) == length
    np.testing.assert_allclose(one.weights.sum(-1), 1, atol=1e-6)
    is_causal = run.config.model.direction == "causal"
    assert np.array_equal(one.mask, np.tril(np.ones((length, length))) if is_causal else np.ones((length, length)))
    assert (one.weights[:, :, ~one.mask] == 0).all()
    layers = [block.attention for block in run.model.base.stack.blocks]
    given = inputs_of_layers(layers, lambda: run.model.base(tokens))
    for shown, layer, (x, _) in zip(one.weights, layers, given, strict=True):
        expected = by_hand(layer, run.config.model, x, one.mask)
        np.testing.assert_allclose(shown, expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["causal", "rotary", "learned", "masked"])
def test_the_path_that_shows_weights_computes_what_the_fast_one_does(kind):
    run = tiny_runs.run_of(kind)
    tokens = torch.tensor([tokens_read(run)])
    with torch.no_grad():
        fast, slow = run.model.base(tokens), run.model.base(tokens, record={"self": [], "cross": []})
    torch.testing.assert_close(slow, fast, rtol=0, atol=1e-5)


def test_rotary_weights_are_those_that_mix_the_values():
    """The output of the fast attention is the weights times the values."""
    run, (one,) = tiny_runs.run_of("rotary"), attention("rotary").maps
    layer = run.model.base.stack.blocks[0].attention
    caught = []
    layer.output.register_forward_hook(lambda module, given, out: caught.append(given[0][0]))
    tokens = torch.tensor([tokens_read(run)])
    ((x, _),) = inputs_of_layers([layer], lambda: run.model.base(tokens))
    width = x.shape[-1]
    values = (x @ layer.qkv.weight[2 * width :].T + layer.qkv.bias[2 * width :]).unflatten(-1, (2, -1))
    mixed = torch.einsum("hij,jhd->ihd", torch.from_numpy(one.weights[0]), values).flatten(1)
    torch.testing.assert_close(mixed, caught[0], rtol=0, atol=1e-5)


# ---- tokens, and what is cut --------------------------------------------------------------------------------


def test_tokens_are_those_that_the_model_reads_with_the_special_ones_marked():
    (one,) = attention("causal").maps
    assert [token.is_special for token in one.rows] == [True] + [False] * (len(one.rows) - 1)
    assert "".join(token.text for token in one.rows[1:]) == TEXT
    (one,) = attention("masked").maps
    assert (one.rows[0].is_special, one.rows[-1].is_special) == (True, True)
    assert "".join(token.text for token in one.rows[1:-1]) == TEXT
    (one,) = attention("causal", "").maps
    assert one.weights.tolist() == [[[[1.0]]] * 2] * 2


def test_two_texts_are_read_as_one_with_segments():
    found = attention_of(tiny_runs.run_of("pairs"), TEXT, MACHINE, text_b="un livre.")
    assert sum(token.is_special for token in found.maps[0].rows) == 3
    nsp = tiny_runs.run_of("masked-nsp")
    (pair,) = attention_of(nsp, "une fin.", MACHINE, text_b="un livre.").maps
    frame = template_of(nsp.tokenizer, "masked")
    ids = frame.pair(nsp.tokenizer.encode("une fin."), nsp.tokenizer.encode("un livre."), 32)
    record = {"self": [], "cross": []}
    with torch.no_grad():
        tokens, segments = (torch.from_numpy(part.astype(np.int64))[None] for part in ids[:2])
        nsp.model.base(tokens, segments=segments if nsp.config.model.segments else None, record=record)
    np.testing.assert_allclose(pair.weights[1], record["self"][1][0].numpy(), atol=1e-6)


@pytest.mark.parametrize("kind", ["causal", "masked", "classification"])
def test_a_long_text_is_cut_and_that_is_said(kind):
    found = attention(kind, "livre " * 50)
    assert (found.is_cut, found.length) == (True, tiny_runs.LENGTH)
    assert len(found.maps[0].rows) == tiny_runs.LENGTH
    found = attention(kind, "livre " * 50, most_tokens=6)
    assert (found.is_cut, len(found.maps[0].rows)) == (True, 6)
    assert found.maps[0].rows[-1].is_special == (kind != "causal"), "the frame is never cut"
    assert not attention(kind, "un livre").is_cut


def test_the_longest_text_that_fits_is_not_cut():
    run = tiny_runs.run_of("causal")
    count = len(tokens_read(run))
    assert not attention("causal", most_tokens=count).is_cut
    assert attention("causal", most_tokens=count - 1).is_cut


# ---- translation --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["joint", "separate"])
def test_a_translation_has_three_maps_of_the_weights_that_it_used(kind):
    run, text, target = translators.run_of(kind), "un livre triste.", "triste livre un!"
    found = attention_of(run, text, MACHINE, target=target)
    encoder, decoder, cross = found.maps
    assert [one.kind for one in found.maps] == ["encoder", "decoder", "cross"]
    words = run.vocabularies
    source = template_of(words.source, "causal").one(words.source.encode(text), 32).tokens.astype(int).tolist()
    read = [words.target.id_of("begin"), *map(int, words.target.encode(target))]
    assert "".join(token.text for token in cross.rows[1:]).strip() == target
    base, given = run.model.base, (torch.tensor([source]), torch.tensor([read]))
    for one, layers in (
        (encoder, [block.attention for block in base.encoder.blocks]),
        (decoder, [block.attention for block in base.decoder.blocks]),
        (cross, [block.cross_attention for block in base.decoder.blocks]),
    ):
        for shown, layer, (x, memory) in zip(
            one.weights, layers, inputs_of_layers(layers, lambda: base(*given)), strict=True
        ):
            expected = by_hand(layer, run.config.model, x, one.mask, None if memory is None else memory[0])
            np.testing.assert_allclose(shown, expected, atol=1e-5)
        np.testing.assert_allclose(one.weights.sum(-1), 1, atol=1e-6)
    assert cross.weights.shape == (2, 2, len(read), len(source))
    assert cross.mask.all()
    assert np.array_equal(decoder.mask, np.tril(np.ones((len(read), len(read)))))


def test_without_a_target_the_runs_own_translation_is_looked_at():
    run, text = translators.run_of(), "un livre triste."
    found = attention_of(run, text, MACHINE)
    (own,) = translate(run, [text], MACHINE, GenerationConfig(beam=5))
    ids = own.candidates[0].ids
    assert len(found.maps[2].rows) == len(ids) + 1
    again = attention_of(run, text, MACHINE, target=own.candidates[0].text)
    if list(map(int, run.vocabularies.target.encode(own.candidates[0].text))) == ids:
        np.testing.assert_array_equal(found.maps[2].weights, again.maps[2].weights)


def test_source_and_target_are_cut_and_a_blank_source_is_its_frame():
    run = translators.run_of()
    found = attention_of(run, "livre " * 50, MACHINE, target="fin " * 50, most_tokens=10)
    assert found.is_cut
    assert found.maps[2].weights.shape[2:] == (10, 10)
    assert attention_of(run, "un", MACHINE, target="fin " * 50).is_cut
    assert attention_of(run, "", MACHINE).maps[2].weights.shape[3] == 2


# ---- what cannot be shown -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "options", "code"),
    [
        ("causal", {"text_b": "b"}, "wrong-run"),
        ("masked", {"text_b": "b"}, "wrong-run"),
        ("classification", {"text_b": "b"}, "mismatch"),
        ("pairs", {}, "mismatch"),
        ("causal", {"target": "b"}, "wrong-run"),
    ],
)
def test_texts_that_the_run_does_not_read_are_refused(kind, options, code):
    with refused(code, *([kind] if code == "wrong-run" else [])):
        attention(kind, **options)


def test_a_second_text_for_a_translation_is_refused():
    with refused("wrong-run", "translation", "target"):
        attention_of(translators.run_of(), "a", MACHINE, text_b="b")


def test_weights_that_are_no_numbers_are_refused_in_words():
    run = tiny_runs.run_of("causal")
    with torch.no_grad():
        run.model.base.embedding.tokens.weight.fill_(torch.nan)
    with refused("not-finite"):
        attention_of(run, TEXT, MACHINE)


# ---- positions ----------------------------------------------------------------------------------------------


def test_sinusoidal_positions_are_what_is_added():
    found = attention("causal").positions
    count = len(tokens_read(tiny_runs.run_of("causal")))
    assert found.kind == "sinusoidal"
    np.testing.assert_allclose(found.values, sinusoids(torch.arange(count), 16).numpy(), atol=1e-7)


def test_learned_positions_are_the_rows_of_the_table():
    found, run = attention("learned").positions, tiny_runs.run_of("learned")
    assert found.kind == "learned"
    table = run.model.base.embedding.positions.weight.detach().numpy()
    np.testing.assert_array_equal(found.values, table[: len(found.values)])


def test_rotary_positions_are_sines_and_cosines_of_the_angles():
    found = attention("rotary").positions
    assert found.kind == "rotary"
    assert found.values.shape[1] == 8
    angles = np.arange(len(found.values))[:, None] * 10000.0 ** (-np.arange(0, 8, 2) / 8)
    np.testing.assert_allclose(found.values[:, ::2], np.sin(angles), atol=1e-6)
    np.testing.assert_allclose(found.values[:, 1::2], np.cos(angles), atol=1e-6)


def test_of_many_columns_pairs_from_first_to_last_are_shown():
    config = preset("lab", vocab=20)
    found = positions_of(Base(config).embedding, config, 5)
    assert found.values.shape == (5, 64)
    assert (found.columns[:2], found.columns[-2:]) == ([0, 1], [198, 199])
    assert all(b == a + 1 for a, b in zip(found.columns[::2], found.columns[1::2], strict=True))
    whole = sinusoids(torch.arange(5), 200).numpy()
    np.testing.assert_allclose(found.values, whole[:, found.columns], atol=1e-7)


# ---- as JSON, and against another library -------------------------------------------------------------------


def test_as_json_it_is_plain_and_the_rows_still_sum_to_one():
    found = attention("rotary")
    plain = json.loads(json.dumps(found.as_json(), allow_nan=False))
    (one,) = plain["maps"]
    assert set(one) == {"kind", "rows", "columns", "weights", "mask"}
    assert one["rows"][0] == found.maps[0].rows[0]._asdict()
    np.testing.assert_allclose(np.array(one["weights"]).sum(-1), 1, atol=1e-5)
    assert np.array_equal(one["mask"], found.maps[0].mask)
    assert (plain["is_cut"], plain["positions"]["kind"]) == (False, "rotary")


def test_the_mask_of_a_single_token_is_itself():
    assert mask_of(1, 1, is_causal=True).tolist() == [[True]]
    assert mask_of(2, 3, is_causal=False).all()


def test_gpt2_weights_are_hugging_faces():
    transformers = pytest.importorskip("transformers", reason="needs the extra hf")
    run = tiny_runs.run_of("causal")
    config = preset("gpt2", vocab=run.tokenizer.size, width=24, depth=2, heads=3, ffn=40, context=16)
    model = build(config, HeadConfig(), seed=4).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 0.5)
    theirs = transformers.GPT2Model(
        transformers.GPT2Config(vocab_size=config.vocab, n_positions=16, n_embd=24, n_layer=2, n_head=3, n_inner=40,
                                attn_implementation="eager")
    ).eval()  # fmt: skip
    own = dict(model.named_parameters())
    names = {
        "attention.qkv": "attn.c_attn", "attention.output": "attn.c_proj", "attention_norm": "ln_1",
        "feed_forward.input": "mlp.c_fc", "feed_forward.output": "mlp.c_proj", "feed_forward_norm": "ln_2",
    }  # fmt: skip
    with torch.no_grad():
        theirs.wte.weight.copy_(own["base.embedding.tokens.weight"])
        theirs.wpe.weight.copy_(own["base.embedding.positions.weight"])
        for name, parameter in theirs.named_parameters():
            if name.startswith("h."):
                _, layer, part = name.split(".", 2)
                leaf = part.rpartition(".")[2]
                mine = next(ours for ours, other in names.items() if part.startswith(other))
                tensor = own[f"base.stack.blocks.{layer}.{mine}.{leaf}"]
                parameter.copy_(tensor.T if "c_" in part and leaf == "weight" else tensor)
    run = dataclasses.replace(run, model=model, config=dataclasses.replace(run.config, model=config))
    (one,) = attention_of(run, TEXT, MACHINE).maps
    with torch.no_grad():
        expected = theirs(torch.tensor([tokens_read(run)]), output_attentions=True).attentions
    np.testing.assert_allclose(one.weights, torch.cat(expected).numpy(), atol=1e-6)
