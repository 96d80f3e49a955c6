"""What a base does, by effect: causality, padding, packing, the cache, the recorded weights."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import model_configs

from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.model.blocks import new_record
from headstart.model.model import build

SINGLE = ("causal", "bidirectional")
QUICK = settings(deadline=None, max_examples=40)


def make(config, kind="lm"):
    kind = "translation" if config.decoder_depth else kind
    return build(config, HeadConfig(kind=kind), seed=1).double().eval()


def tokens_for(config, *shape, seed=0):
    return torch.randint(config.vocab, shape, generator=torch.Generator().manual_seed(seed))


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)


@QUICK
@given(model_configs(shapes=SINGLE), st.integers(0, 6))
def test_changing_a_token_changes_nothing_before_it(config, place):
    model = make(config)
    tokens = tokens_for(config, 1, 7)
    changed = tokens.clone()
    changed[0, place] = (changed[0, place] + 1) % config.vocab
    before, after = model.base(tokens), model.base(changed)
    if config.direction == "causal":
        assert torch.equal(before[:, :place], after[:, :place])


@pytest.mark.parametrize(("direction", "sees_future"), [("causal", False), ("bidirectional", True)])
def test_only_a_bidirectional_base_sees_the_future(direction, sees_future):
    model = make(preset("tiny", vocab=9, direction=direction))
    tokens = tokens_for(model.config, 1, 7)
    changed = tokens.clone()
    changed[0, 5] = (changed[0, 5] + 1) % 9
    difference = (model.base(tokens) - model.base(changed)).abs().amax(-1)[0]
    assert (difference[5:] > 0).all()
    assert bool((difference[:5] > 0).all()) == sees_future


def test_a_decoder_sees_all_of_the_source_and_no_future_of_the_target():
    model = make(preset("transformer-tiny", vocab=13, width=16, ffn=16))
    source, target = tokens_for(model.config, 1, 6), tokens_for(model.config, 1, 5, seed=1)
    before = model.base(source, target)
    other = target.clone()
    other[0, 3] = (other[0, 3] + 1) % 13
    assert torch.equal(before[:, :3], model.base(source, other)[:, :3])
    other = source.clone()
    other[0, -1] = (other[0, -1] + 1) % 13
    assert ((before - model.base(other, target)).abs().amax(-1) > 0).all()


@QUICK
@given(model_configs(shapes=SINGLE), st.integers(0, 4), st.integers(0, 4), st.integers(1, 4))
def test_padding_on_either_side_changes_nothing(config, left, right, length):
    model = make(config)
    text = tokens_for(config, 1, length)
    row = torch.cat([tokens_for(config, 1, left, seed=1), text, tokens_for(config, 1, right, seed=2)], dim=1)
    present = torch.zeros(1, left + length + right, dtype=torch.bool)
    present[:, left : left + length] = True
    segments = torch.zeros_like(row) if config.segments else None
    hidden = model.base(row, present=present, segments=segments)
    close(hidden[:, left : left + length], model.base(text))


@QUICK
@given(model_configs(shapes=SINGLE), st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_documents_side_by_side_are_as_if_alone(config, lengths):
    model = make(config)
    texts = [tokens_for(config, 1, length, seed=i) for i, length in enumerate(lengths)]
    documents = torch.cat([torch.full((1, length), i) for i, length in enumerate(lengths)], dim=1)
    packed = model.base(torch.cat(texts, dim=1), documents=documents)
    close(packed, torch.cat([model.base(text) for text in texts], dim=1))


@QUICK
@given(model_configs(shapes=["causal"]), st.lists(st.integers(1, 3), min_size=1, max_size=3), st.booleans())
def test_cached_reading_equals_reading_at_once(config, chunks, padded):
    model = make(config)
    total = sum(chunks)
    tokens = tokens_for(config, 3, total)
    present = None
    if padded:  # prompts of three lengths, padded on the left
        present = torch.arange(total)[None] >= torch.tensor([[0], [total // 2], [total - 1]])
    cache, outputs, start = model.base.new_cache(), [], 0
    for length in chunks:
        part = slice(start, start + length)
        outputs.append(model.base(tokens[:, part], present=None if present is None else present[:, part], cache=cache))
        start += length
    expected = model.base(tokens, present=present)
    real = torch.ones(3, total, dtype=torch.bool) if present is None else present
    close(torch.cat(outputs, dim=1)[real], expected[real])


@QUICK
@given(model_configs(shapes=["encoder-decoder"]), st.integers(1, 6))
def test_cached_decoding_equals_decoding_at_once(config, length):
    model = make(config)
    source = tokens_for(config, 2, 5)
    present = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    target = torch.randint(config.output_vocab, (2, length), generator=torch.Generator().manual_seed(3))
    memory = model.base.encode(source, present)
    cache = model.base.new_cache()
    steps = [
        model.base.decode(target[:, t : t + 1], memory, memory_present=present, cache=cache) for t in range(length)
    ]
    close(torch.cat(steps, dim=1), model.base(source, target, source_present=present))


@QUICK
@given(model_configs())
def test_recording_the_weights_changes_no_output(config):
    model = make(config)
    tokens = tokens_for(config, 2, 6)
    present = torch.tensor([[True] * 6, [False] * 2 + [True] * 4])
    record = new_record()
    if config.decoder_depth:
        target = torch.zeros(2, 4, dtype=torch.long)
        memory = model.base.encode(tokens, present)
        reading = {"memory_present": present}
        close(
            model.base.decode(target, memory, record=record, **reading),
            model.base.decode(target, memory, **reading),
        )
        assert [w.shape for w in record["cross"]] == [(2, config.heads, 4, 6)] * config.decoder_depth
        assert (record["cross"][0][1, :, :, :2] == 0).all()
    else:
        close(
            model.base(tokens, present=present, record=record)[present],
            model.base(tokens, present=present)[present],
        )
        assert [w.shape for w in record["self"]] == [(2, config.heads, 6, 6)] * config.depth
        close(record["self"][0][0].sum(-1), torch.ones(config.heads, 6, dtype=torch.float64))


def test_an_empty_row_in_a_batch_gives_no_nan():
    for name in ("lab", "tiny", "bert-base", "modern-small"):
        config = preset(name, vocab=9, width=32, heads=2, ffn=32, depth=2)
        model = build(config, HeadConfig(kind="classification"))
        present = torch.tensor([[True, True, True], [False, False, False]])
        logits = model(tokens_for(config, 2, 3), present=present)
        assert logits.isfinite().all()
        logits.sum().backward()
        assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_bf16_autocast_works_for_every_preset():
    for name in ("lab", "tiny", "gpt2", "bert-base", "modern-small"):
        config = preset(name, vocab=9, width=32, heads=2, ffn=32, depth=1)
        model = build(config, HeadConfig(kind="lm"))
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(tokens_for(config, 2, 5), present=torch.ones(2, 5, dtype=torch.bool))
        assert logits.isfinite().all()


def test_one_segment_is_that_of_both_texts():
    """RoBERTa has a table of one row, whatever the second text is numbered by."""
    model = make(preset("bert-base", vocab=9, width=8, heads=2, ffn=8, depth=1, context=8, segments=1), "masked")
    tokens = tokens_for(model.config, 1, 6)
    assert torch.equal(model.base(tokens, segments=(torch.arange(6) > 2).long()[None]), model.base(tokens))
