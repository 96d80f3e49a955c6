"""Operations from the configuration against torch's own counter, run over the built model."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import heads_for, model_configs
from torch.utils.flop_counter import FlopCounterMode

from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.model.blocks import new_record
from headstart.model.heads import MaskedHead
from headstart.model.model import build
from headstart.planning.operations import per_text
from headstart.planning.workload import Lengths


def counted_forward(config, head, lengths):
    """What torch counts in one forward pass of one text, by the slow path, whose products it can see."""
    model = build(config, head).eval()
    record = new_record()
    source = torch.zeros(1, lengths.source, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        if config.decoder_depth:
            target = torch.zeros(1, lengths.target, dtype=torch.long)
            memory = model.base.encode(source, record=record)
            model.head(model.base.decode(target, memory, record=record))
        else:
            hidden = model.base(source, record=record)
            if head.kind in ("masked", "masked-nsp"):
                places = round(0.15 * lengths.source)
                if head.kind == "masked":
                    model.head(hidden[:, :places])
                else:
                    MaskedHead.forward(model.head, hidden[:, :places])
                    model.head.sentence(hidden)
            else:
                model.head(hidden)
    return counter.get_total_flops()


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_forward_is_what_torch_counts(data):
    config = data.draw(model_configs())
    head = data.draw(heads_for(config))
    lengths = Lengths(data.draw(st.integers(4, 8)), data.draw(st.integers(1, 8)) if config.decoder_depth else 0)
    assert per_text(config, head, lengths).forward == counted_forward(config, head, lengths)


def test_backward_is_twice_forward_by_torchs_count():
    config = preset("lab", vocab=50, dropout=0.0)
    model = build(config, HeadConfig(kind="lm"))
    tokens = torch.zeros(1, 12, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        loss = model.head(model.base(tokens, record=new_record())).sum()
        loss.backward()
    planned = per_text(config, HeadConfig(kind="lm"), Lengths(12))
    assert planned.forward + planned.backward == counter.get_total_flops()


@pytest.mark.parametrize("name", ["lab", "gpt2"])
def test_a_step_is_6n_and_12ldt_a_token(name):
    """The field's rule of thumb: six operations a matrix weight and token, and 12·L·d·T for attention."""
    config = preset(name, vocab=8_192, context=256)
    text = per_text(config, HeadConfig(kind="lm"), Lengths(256))
    d, f, depth = config.width, config.ffn, config.depth
    weights = depth * (4 * d * d + 2 * d * f) + d * 8_192
    assert text.forward + text.backward == 256 * (6 * weights + 12 * depth * d * 256)
    assert text.forward_over_length == 256 * 4 * depth * d * 256


def test_nothing_flows_back_through_a_frozen_base():
    config, head = preset("lab", vocab=100), HeadConfig(kind="classification", classes=2)
    assert per_text(config, head, Lengths(10), freeze="base").backward == 2 * 2 * 200 * 2
