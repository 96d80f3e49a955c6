"""A checkpoint's directory, read as plain data."""

import hashlib
import json

import pytest
import torch
from expected_errors import refused
from safetensors.torch import save_file

from headstart.errors import IntegrityError, visible
from headstart.interop.directory import ForeignDirectory


@pytest.fixture
def checkpoint(tmp_path):
    path = tmp_path / "checkpoint"
    path.mkdir()
    (path / "config.json").write_text('{"a": 1}')
    save_file({"x": torch.tensor([1.0, 2.0], dtype=torch.float16)}, path / "model.safetensors")
    return path


def test_files_and_weights_are_read(checkpoint):
    directory = ForeignDirectory(checkpoint)
    assert directory.json("config.json") == {"a": 1}
    tensors = directory.tensors()
    assert tensors["x"].dtype == torch.float32
    assert tensors["x"].tolist() == [1, 2]
    assert directory.digests() == {
        name: hashlib.sha256((checkpoint / name).read_bytes()).hexdigest()
        for name in ("config.json", "model.safetensors")
    }


def test_shards_are_put_together_as_the_index_says(checkpoint):
    (checkpoint / "model.safetensors").unlink()
    for number in (1, 2):
        save_file({f"x{number}": torch.tensor([float(number)])}, checkpoint / f"{number}.safetensors")
    index = {"weight_map": {"x1": "1.safetensors", "x2": "2.safetensors"}}
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps(index))
    assert {name: tensor.item() for name, tensor in ForeignDirectory(checkpoint).tensors().items()} == {
        "x1": 1,
        "x2": 2,
    }
    index["weight_map"]["x2"] = "1.safetensors"
    save_file({"x1": torch.zeros(1), "x2": torch.zeros(1), "x3": torch.zeros(1)}, checkpoint / "1.safetensors")
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps(index))
    with refused("mismatch", "x3", "1.safetensors", by=IntegrityError):
        ForeignDirectory(checkpoint).tensors()


@pytest.mark.parametrize("name", ["../config.json", "/etc/hostname", "..", "", "a\\b", "a\0b"])
def test_a_name_that_leads_elsewhere_is_refused(checkpoint, name):
    with refused("unsupported", visible(repr(name))):
        ForeignDirectory(checkpoint).file(name)


def test_a_link_that_leads_out_is_refused_and_one_that_stays_is_not(checkpoint, tmp_path):
    (tmp_path / "secret.json").write_text("{}")
    (checkpoint / "out.json").symlink_to(tmp_path / "secret.json")
    (checkpoint / "in.json").symlink_to(checkpoint / "config.json")
    assert ForeignDirectory(checkpoint).json("in.json") == {"a": 1}
    with refused("unsupported", "out.json"):
        ForeignDirectory(checkpoint).json("out.json")


@pytest.mark.parametrize(
    ("text", "code"),
    [("", "bad-format"), ("[1]", "bad-format"), ("{", "bad-format"), ('{"a": 1, "a": 2}', "bad-format"),
     ('{"auto_map": {}}', "unsupported")],
)  # fmt: skip
def test_json_that_is_no_plain_object_is_refused(checkpoint, text, code):
    (checkpoint / "config.json").write_text(text)
    with refused(code, "config.json"):
        ForeignDirectory(checkpoint).json("config.json")


def test_pickles_and_numbers_that_are_not_finite_are_refused(checkpoint):
    save_file({"x": torch.tensor([float("nan")])}, checkpoint / "model.safetensors")
    with refused("not-finite", "model.safetensors: x ", by=IntegrityError):
        ForeignDirectory(checkpoint).tensors()
    (checkpoint / "model.safetensors").unlink()
    (checkpoint / "pytorch_model.bin").write_bytes(b"")
    with refused("unsupported", "pytorch_model.bin"):
        ForeignDirectory(checkpoint).tensors()
