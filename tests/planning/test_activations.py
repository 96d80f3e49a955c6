"""What is planned to be kept for backward, against what autograd keeps: torch's own hooks count it."""

import pytest
import torch

from headstart.config.model import HeadConfig
from headstart.config.presets import PRESETS, preset
from headstart.model.model import build
from headstart.planning import activations
from headstart.planning.activations import saved_tensors
from headstart.planning.workload import Lengths, Workload

TEXTS, LENGTH, TARGET, DOCUMENT = 4, 64, 33, 8


def kept_by(work):
    """Bytes of all storages that forward keeps, without the parameters' own; head and loss left out."""
    config = work.config
    model = build(config, work.head).train()
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = (storage.nbytes(), tensor)  # held, so that no other takes its place
        return tensor

    tokens = torch.zeros(TEXTS, LENGTH, dtype=torch.long)
    reading = {}
    if work.reading == "packed":
        reading["documents"] = (torch.arange(LENGTH) // DOCUMENT).expand(TEXTS, -1)
    is_half = work.precision == "bf16"
    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16, enabled=is_half),
    ):
        if config.decoder_depth:
            present = torch.ones(TEXTS, LENGTH, dtype=torch.bool)
            model.base(tokens, torch.zeros(TEXTS, TARGET, dtype=torch.long), source_present=present)
        else:
            model.base(tokens, **reading)
    return sum(count for count, _ in kept.values())


def workload(name, precision="fp32", reading="packed", **fields):
    heads = fields.pop("heads", PRESETS[name]["heads"])
    shape = {"vocab": 50, "context": 64, "width": 8 * heads, "heads": heads, "ffn": 90, "depth": 2, **fields}
    if "decoder_depth" in PRESETS[name]:
        shape["decoder_depth"], reading = 3, "padded"
    config = preset(name, **shape)
    kind = "translation" if config.decoder_depth else "lm"
    return Workload(
        config=config, head=HeadConfig(kind=kind), batch=TEXTS, precision=precision, reading=reading,
        document=DOCUMENT, lengths=Lengths(LENGTH, TARGET if config.decoder_depth else 0),
    )  # fmt: skip


def planned(work):
    of_head = sum(row.bytes for row in activations.head(work))
    return sum(row.bytes for row in saved_tensors(work)) - of_head


@pytest.mark.parametrize("reading", ["packed", "whole"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_keeps_what_is_planned(name, precision, reading):
    work = workload(name, precision, reading)
    assert planned(work) == pytest.approx(kept_by(work), rel=1e-3)


@pytest.mark.parametrize(
    "fields",
    [
        {"kv_heads": 2, "positions": "rotary"},
        {"kv_heads": 2},
        {"kv_heads": 2, "attention_dropout": 0.1},
        {"norm": "rms", "norm_place": "post"},
        {"activation": "relu", "ffn_dropout": 0.1},
        {"activation": "swiglu", "ffn_dropout": 0.1, "dropout": 0.1},
        {"activation": "silu", "direction": "bidirectional"},
        {"embedding_norm": True, "dropout": 0.2, "attention_dropout": 0.2, "context": 512},
    ],
    ids=str,
)
def test_other_shapes_keep_what_is_planned(fields):
    defaults = {"attention_dropout": 0.0, "dropout": 0.0, "heads": 4}
    work = workload("gpt2", **{**defaults, **fields})
    assert planned(work) == pytest.approx(kept_by(work), rel=1e-3)


def test_a_gpu_keeps_no_attention_weights():
    on_cpu = workload("gpt2")
    on_gpu = Workload(**{**vars(on_cpu), "device": "cuda"})
    names = [row.name for row in saved_tensors(on_gpu)]
    assert any("which were dropped" in row.name for row in saved_tensors(on_cpu))
    assert not any("which were dropped" in name for name in names)
    assert any("attention.mask" in name for name in names)  # documents side by side are a mask there


def test_a_frozen_base_keeps_nothing_of_itself():
    work = workload("tiny")
    head = HeadConfig(kind="classification")
    frozen = Workload(**{**vars(work), "head": head, "freeze": "base", "reading": "padded"})
    assert all(row.name.startswith("head.") for row in saved_tensors(frozen))


def test_what_is_kept_grows_with_the_batch_and_not_beyond_it():
    one, two = workload("tiny"), Workload(**{**vars(workload("tiny")), "batch": 2 * TEXTS})
    assert planned(two) == pytest.approx(2 * planned(one), rel=0.01)
    cut = Workload(**{**vars(two), "accumulate": 2})
    assert planned(cut) == planned(one)


def on_gpu(name, reading="packed", precision="bf16", **fields):
    return Workload(
        config=preset(name, vocab=100, **fields), head=HeadConfig(kind="lm"), batch=2, lengths=Lengths(32),
        device="cuda", precision=precision, reading=reading,
    )  # fmt: skip


def test_heads_that_a_gpus_kernels_do_not_take_are_computed_in_wider_ones():
    work = on_gpu("lab")  # heads of 100, computed in 104
    assert (work.is_widened, work.is_unfused) == (True, False)
    rows = {row.name: row.bytes for row in saved_tensors(work)}
    blocks, tokens = 4, 2 * 32
    assert rows["base.stack.blocks.*.attention.qkv"] == blocks * tokens * 3 * 208 * 2
    assert rows["base.stack.blocks.*.attention.mixed"] == blocks * tokens * (208 * 2 + 4 * 2)
    assert rows["base.stack.blocks.*.attention.matrices in bf16"] == blocks * 2 * 200 * (3 * 208 + 208)
    exact = {row.name: row.bytes for row in saved_tensors(on_gpu("lab", precision="fp32"))}
    assert exact["base.stack.blocks.*.attention.matrices of wider heads"] == blocks * 4 * 200 * 4 * 208
    assert not any("by the book" in name for name in rows)


def test_turned_heads_of_such_a_width_go_by_the_book_where_there_is_a_mask():
    work, whole = (on_gpu("lab", reading, positions="rotary") for reading in ("padded", "whole"))
    assert (work.is_unfused, whole.is_unfused) == (True, False)
    rows = {row.name: row.bytes for row in saved_tensors(work)}
    assert rows["base.stack.blocks.*.attention.weights, by the book"] == 4 * 2 * 32 * 32 * 2 * 9
    rows = {row.name: row.bytes for row in saved_tensors(whole)}
    filled = "base.stack.blocks.*.attention.query, .key, .value, .mixed, filled up"
    assert rows[filled] == 4 * 4 * 2 * 32 * 2 * 104 * 2


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (on_gpu("tiny"), True),
        (on_gpu("gpt2"), False),  # dropout on attention's weights
        (on_gpu("tiny", precision="fp32"), False),
        (on_gpu("tiny", "padded"), False),
        (Workload(**{**vars(on_gpu("tiny")), "accumulate": 2}), False),
        (Workload(**{**vars(on_gpu("tiny")), "device": "cpu"}), False),
    ],
)
def test_documents_are_read_by_offsets_where_a_kernel_takes_them(work, expected):
    assert work.reads_by_offsets == expected
    if work.device == "cuda":
        assert any("attention.mask" in row.name for row in saved_tensors(work)) != expected


def test_bytes_are_said_to_stand_in_as_many_tensors_as_there_are():
    rows = {row.name: row for row in saved_tensors(workload("modern-small", attention_dropout=0.1))}
    assert rows["base.stack.blocks.*.attention_norm"].tensors == 2 * 2
    assert rows["base.stack.blocks.*.attention.query, .key, .value"].tensors == 2 * 3
    assert rows["base.stack.blocks.*.feed_forward.inner"].tensors == 2 * 2  # one of both, and two more like halves
