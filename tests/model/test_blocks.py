"""A block and its parts, against torch's modules and by hand."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.model.attention import Mask
from headstart.model.blocks import Block, FeedForward, MultiHeadAttention, Stack, make_norm, new_record
from headstart.model.model import build

SHAPE = {
    "vocab": 9,
    "width": 8,
    "heads": 2,
    "ffn": 12,
    "depth": 2,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "ffn_dropout": 0.0,
}
CAUSAL = Mask(causal_square=True)


def config(name="lab", **changes):
    return preset(name, **{**SHAPE, **changes})


@pytest.fixture
def x():
    torch.manual_seed(0)
    return torch.randn(2, 5, 8)


def test_attention_is_torchs_multihead_attention(x):
    own, theirs = MultiHeadAttention(config()), nn.MultiheadAttention(8, 2, batch_first=True)
    theirs.load_state_dict({
        "in_proj_weight": own.qkv.weight, "in_proj_bias": own.qkv.bias, "out_proj.weight": own.output.weight,
        "out_proj.bias": own.output.bias,
    })  # fmt: skip
    square = nn.Transformer.generate_square_subsequent_mask(5)
    wanted, weights = theirs(x, x, x, attn_mask=square, average_attn_weights=False)
    record = []
    assert torch.allclose(own(x, CAUSAL), wanted, atol=1e-6)
    assert torch.allclose(own(x, CAUSAL, record=record), wanted, atol=1e-6)
    assert torch.allclose(record[0], weights, atol=1e-6)


def test_heads_that_share_keys_are_heads_with_repeated_ones(x):
    shared = MultiHeadAttention(config(kv_heads=1))
    whole = MultiHeadAttention(config())
    q, k, v = shared.qkv.weight.split([8, 4, 4])
    bias = shared.qkv.bias.split([8, 4, 4])
    with torch.no_grad():
        whole.qkv.weight.copy_(torch.cat([q, k, k, v, v]))
        whole.qkv.bias.copy_(torch.cat([bias[0], bias[1], bias[1], bias[2], bias[2]]))
        whole.output.load_state_dict(shared.output.state_dict())
    assert torch.allclose(shared(x, CAUSAL), whole(x, CAUSAL), atol=1e-6)


def test_a_feed_forward_is_two_products_and_a_gate_multiplies(x):
    plain = FeedForward(config(activation="relu"))
    assert torch.allclose(plain(x), plain.output(F.relu(plain.input(x))))
    gated = FeedForward(config(activation="swiglu"))
    gate, inner = gated.input(x).split(12, dim=-1)
    assert torch.allclose(gated(x), gated.output(F.silu(gate) * inner))


@pytest.mark.parametrize("place", ["pre", "post"])
def test_a_block_is_torchs_encoder_layer(x, place):
    block = Block(config(norm_place=place, activation="relu"), cross=False).eval()
    theirs = nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True, norm_first=place == "pre").eval()
    names = {
        "self_attn.in_proj_": "attention.qkv.", "self_attn.out_proj.": "attention.output.",
        "linear1.": "feed_forward.input.", "linear2.": "feed_forward.output.", "norm1.": "attention_norm.",
        "norm2.": "feed_forward_norm.",
    }  # fmt: skip
    own = block.state_dict()
    theirs.load_state_dict({a + end: own[b + end] for a, b in names.items() for end in ("weight", "bias")})
    square = nn.Transformer.generate_square_subsequent_mask(5)
    first, second = block(x, CAUSAL)
    found = first if second is None else first + second
    assert torch.allclose(found, theirs(x, src_mask=square), atol=1e-5)


def test_norms_are_torchs():
    assert isinstance(make_norm(config(norm="layer")), nn.LayerNorm)
    assert isinstance(make_norm(config(norm="rms")), nn.RMSNorm)
    assert make_norm(config(norm="layer", bias=False)).bias is None


def test_a_stack_is_its_blocks_and_records_each(x):
    stack = Stack(config(norm_place="post"), depth=2).eval()
    positions = torch.arange(5)[None]
    wanted = x
    for block in stack.blocks:
        wanted, _ = block(wanted, CAUSAL)
    assert torch.allclose(stack(x, CAUSAL, positions), wanted, atol=1e-6)
    record = new_record()
    stack(x, CAUSAL, positions, record=record)
    assert len(record["self"]) == 2
    assert torch.allclose(record["self"][1].sum(dim=-1), torch.ones(2, 2, 5))


def make(config, kind="lm"):
    kind = "translation" if config.decoder_depth else kind
    return build(config, HeadConfig(kind=kind), seed=1).double().eval()


def tokens_for(config, *shape, seed=0):
    return torch.randint(config.vocab, shape, generator=torch.Generator().manual_seed(seed))


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_heads_that_share_keys_are_heads_whose_keys_are_the_same(kv_heads):
    """By hand: the rows of a key's and a value's head, repeated for each of the heads that share them."""
    shape = {"vocab": 13, "width": 16, "depth": 2, "heads": 4, "ffn": 8, "context": 16}
    shared = make(preset("modern-small", kv_heads=kv_heads, bias=True, **shape))
    full = make(preset("modern-small", bias=True, **shape))
    own, other = dict(shared.named_parameters()), dict(full.named_parameters())
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.normal_(0, 0.3, generator=torch.Generator().manual_seed(len(name)))
            if ".qkv." not in name:
                other[name].copy_(parameter)
                continue
            query, *both = parameter.split([16, 4 * kv_heads, 4 * kv_heads])
            repeated = [
                part.unflatten(0, (kv_heads, 4)).repeat_interleave(4 // kv_heads, 0).flatten(0, 1) for part in both
            ]
            other[name].copy_(torch.cat([query, *repeated]))
    tokens = tokens_for(shared.config, 2, 9)
    close(shared(tokens), full(tokens))
    cache = shared.base.new_cache()
    shared.base(tokens[:, :8], cache=cache)
    assert cache.layers[0][0].contents()[0].shape == (2, kv_heads, 8, 4)


def test_dropout_works_only_in_training():
    model = build(preset("lab", vocab=9), HeadConfig(kind="lm"))
    tokens = tokens_for(model.config, 2, 6)
    assert not torch.equal(model(tokens), model(tokens))
    model.eval()
    assert torch.equal(model(tokens), model(tokens))
