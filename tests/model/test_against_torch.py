"""With weights copied over, our models are torch.nn's: outputs to 1e-10, gradients to 1e-8, in float64."""

import math

import pytest
import torch
from torch import nn

from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.model.model import build


@pytest.fixture(autouse=True)
def double_precision():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def course_positions(length, width):
    """The encoding as the course's own code writes it down, loop by loop."""
    table = torch.zeros(length, width)
    for position in range(length):
        for column in range(width):
            angle = position / 10000 ** (2 * (column // 2) / width)
            table[position, column] = math.sin(angle) if column % 2 == 0 else math.cos(angle)
    return table


def layer_pairs(ours, theirs):
    """(our module, torch's module or parameter pair) for one block of ours and one layer of torch's."""
    yield ours.attention.qkv, (theirs.self_attn.in_proj_weight, theirs.self_attn.in_proj_bias)
    yield ours.attention.output, (theirs.self_attn.out_proj.weight, theirs.self_attn.out_proj.bias)
    yield ours.attention_norm, (theirs.norm1.weight, theirs.norm1.bias)
    yield ours.feed_forward.input, (theirs.linear1.weight, theirs.linear1.bias)
    yield ours.feed_forward.output, (theirs.linear2.weight, theirs.linear2.bias)
    if hasattr(ours, "cross_attention"):
        cross = theirs.multihead_attn
        yield ours.cross_attention.qkv, (cross.in_proj_weight, cross.in_proj_bias)
        yield ours.cross_attention.output, (cross.out_proj.weight, cross.out_proj.bias)
        yield ours.cross_norm, (theirs.norm2.weight, theirs.norm2.bias)
        yield ours.feed_forward_norm, (theirs.norm3.weight, theirs.norm3.bias)
    else:
        yield ours.feed_forward_norm, (theirs.norm2.weight, theirs.norm2.bias)


def pairs(stack, layers):
    for block, layer in zip(stack.blocks, layers, strict=True):
        yield from layer_pairs(block, layer)


def copy_weights(stack, layers):
    for module, (weight, bias) in pairs(stack, layers):
        with torch.no_grad():
            # biases and norms away from zero and one, so that a forgotten one shows
            module.bias.normal_()
            if module.weight.dim() == 1:
                module.weight.normal_()
            weight.copy_(module.weight)
            bias.copy_(module.bias)


def assert_same_gradients(stack, layers):
    for module, (weight, bias) in pairs(stack, layers):
        torch.testing.assert_close(module.weight.grad, weight.grad, rtol=0, atol=1e-8)
        torch.testing.assert_close(module.bias.grad, bias.grad, rtol=0, atol=1e-8)


def test_lab_is_the_courses_encoder_with_a_float_mask():
    config = preset("lab", vocab=31, dropout=0.0, attention_dropout=0.0, ffn_dropout=0.0)
    ours = build(config, HeadConfig(kind="lm"), seed=1)
    layer = nn.TransformerEncoderLayer(200, 2, 200, dropout=0.0, batch_first=True)
    theirs = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    copy_weights(ours.base.stack, theirs.layers)
    length = 9
    tokens = torch.randint(31, (3, length), generator=torch.Generator().manual_seed(0))
    embedding = nn.Embedding.from_pretrained(ours.base.embedding.tokens.weight.detach().clone(), freeze=False)
    mask = nn.Transformer.generate_square_subsequent_mask(length)  # zeros and −inf

    expected = theirs(embedding(tokens) * math.sqrt(200) + course_positions(length, 200), mask=mask)
    hidden = ours.base(tokens)
    torch.testing.assert_close(hidden, expected, rtol=0, atol=1e-10)

    direction = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(1))
    (hidden * direction).sum().backward()
    (expected * direction).sum().backward()
    assert_same_gradients(ours.base.stack, theirs.layers)
    torch.testing.assert_close(ours.base.embedding.tokens.weight.grad, embedding.weight.grad, rtol=0, atol=1e-8)


@pytest.mark.parametrize("padding", ["none", "right", "left"])
def test_encoder_decoder_is_torchs_encoder_and_decoder(padding):
    config = preset(
        "transformer-tiny", vocab=23, width=24, heads=4, ffn=40, depth=2, decoder_depth=3,
        dropout=0.0, attention_dropout=0.0, ffn_dropout=0.0,
    )  # fmt: skip
    ours = build(config, HeadConfig(kind="translation"), seed=2)
    sizes = {"d_model": 24, "nhead": 4, "dim_feedforward": 40, "dropout": 0.0, "batch_first": True}
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**sizes), 2, norm=None, enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**sizes), 3, norm=None)
    copy_weights(ours.base.encoder, encoder.layers)
    copy_weights(ours.base.decoder, decoder.layers)
    generator = torch.Generator().manual_seed(0)
    source = torch.randint(23, (2, 7), generator=generator)
    target = torch.randint(23, (2, 5), generator=generator)
    present = torch.ones(2, 7, dtype=torch.bool)
    positions = torch.arange(7).expand(2, 7).clone()
    if padding == "right":
        present[1, 4:] = False
    if padding == "left":
        present[1, :3] = False
        positions[1] = torch.tensor([0, 0, 0, 0, 1, 2, 3])

    weight = ours.base.embedding.tokens.weight.detach()
    table = course_positions(7, 24)
    memory = encoder(weight[source] * math.sqrt(24) + table[positions], src_key_padding_mask=~present)
    expected = decoder(
        weight[target] * math.sqrt(24) + table[:5],
        memory,
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(5),
        memory_key_padding_mask=~present,
    )
    hidden = ours.base(source, target, source_present=None if padding == "none" else present)
    torch.testing.assert_close(hidden, expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(ours.head(hidden), expected @ weight.T, rtol=0, atol=1e-10)

    direction = torch.randn(hidden.shape, generator=generator)
    (hidden * direction).sum().backward()
    (expected * direction).sum().backward()
    assert_same_gradients(ours.base.encoder, encoder.layers)
    assert_same_gradients(ours.base.decoder, decoder.layers)


def test_pre_norm_is_torchs_norm_first():
    fields = {"direction": "bidirectional", "positions": "sinusoidal"}  # torch's layers turn nothing
    config = preset("tiny", vocab=17, width=16, ffn=24, **fields)
    ours = build(config, HeadConfig(kind="lm"), seed=3)
    layer = nn.TransformerEncoderLayer(16, 4, 24, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
    theirs = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(16), enable_nested_tensor=False)
    copy_weights(ours.base.stack, theirs.layers)
    x = torch.randn(2, 6, 16, generator=torch.Generator().manual_seed(0))
    from headstart.model.attention import Mask

    mixed = ours.base.stack(x, Mask(), torch.arange(6)[None])
    torch.testing.assert_close(mixed, theirs(x), rtol=0, atol=1e-10)
