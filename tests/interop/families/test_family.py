"""Their tensors under our names, and back, by a table of parts."""

import pytest
import torch
from expected_errors import refused

from headstart.errors import IntegrityError
from headstart.interop.families.family import Part, gather, linear, scatter
from headstart.interop.families.fields import Fields
from headstart.interop.huggingface import FAMILIES, family_of

QKV = Part("qkv.weight", ("q.weight", "k.weight"), rows=(2, 1))
TURNED = Part("out.weight", ("o.weight",), turned=True)
THEIRS = {
    "q.weight": torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
    "k.weight": torch.tensor([[5.0, 6.0]]),
    "o.weight": torch.tensor([[7.0, 8.0, 9.0]]),
}


def test_parts_are_stacked_and_turned():
    ours, used = gather([QKV, TURNED], THEIRS)
    assert ours["qkv.weight"].tolist() == [[1, 2], [3, 4], [5, 6]]
    assert ours["out.weight"].tolist() == [[7], [8], [9]]
    assert used == set(THEIRS)


def test_the_way_back_gives_the_same_tensors():
    ours, _ = gather([QKV, TURNED], THEIRS)
    theirs = scatter([QKV, TURNED], ours)
    assert theirs.keys() == THEIRS.keys()
    assert all(torch.equal(theirs[name], THEIRS[name]) for name in THEIRS)


def test_a_layer_has_a_weight_and_a_bias():
    assert linear("a", "x", "y", rows=(1, 2)) == [
        Part("a.weight", ("x.weight", "y.weight"), (1, 2)),
        Part("a.bias", ("x.bias", "y.bias"), (1, 2)),
    ]
    assert linear("a", "x", bias=False, turned=True) == [Part("a.weight", ("x.weight",), (), True)]


@pytest.mark.parametrize(
    ("name", "tensor", "code"),
    [
        ("k.weight", None, "mismatch"),
        ("k.weight", torch.zeros(2, 2), "mismatch"),
        ("k.weight", torch.zeros(1, 3), "mismatch"),
        ("o.weight", torch.zeros(1, 3, dtype=torch.int8), "unsupported"),
    ],
)
def test_a_tensor_that_is_missing_of_another_shape_or_quantized_is_named(name, tensor, code):
    theirs = {key: value for key, value in THEIRS.items() if key != name or tensor is not None}
    if tensor is not None:
        theirs[name] = tensor
    with refused(code, name, by=IntegrityError):
        gather([QKV, TURNED], theirs)


def test_every_model_type_leads_to_its_family():
    for model_type, family in FAMILIES.items():
        assert family.model_type == model_type
        assert family_of(Fields({"model_type": model_type}, "config.json")) is family
    assert len(FAMILIES) == 10


def test_another_family_is_refused_with_those_that_there_are():
    with refused("unsupported", "t5") as caught:
        family_of(Fields({"model_type": "t5"}, "config.json"))
    assert all(name in caught.value.fix for name in FAMILIES)


def test_every_class_that_is_named_is_one_of_transformers():
    transformers = pytest.importorskip("transformers")
    for family in FAMILIES.values():
        for name in family.heads.values():
            assert hasattr(transformers, name), name
