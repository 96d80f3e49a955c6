"""Files made to harm: none of them runs code, leads out of its directory, or ends in anything but a message."""

import json
import os
import pickle
import shutil
import struct

import checksummed
import pytest
import small
import torch
from canary import Canary
from expected_errors import refused
from safetensors.torch import load_file, save_file

from headstart.cli.main import run as headstart
from headstart.errors import IntegrityError
from headstart.runs import checkpoint
from headstart.tokenizers.tokenizer import Tokenizer

SECRET = "hs-secret-8d1f0c77e2b94a35"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A small run that ended, with secrets in the environment while it ran."""
    path = tmp_path_factory.mktemp("hostile")
    (path / "corpus.txt").write_text("\n".join(small.sentences(60)))
    rows = [f"{text}\t{'oui' if 'belle' in text else 'non'}" for text in small.sentences(40, seed=4)]
    (path / "rows.tsv").write_text("\n".join(["text\tlabel", *rows]))
    small.tokenizer().save(path / "tokenizer")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADSTART_CACHE", str(path / "cache"))
        for name in ("AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "HEADSTART_TOKEN", "DATABASE_URL"):
            patch.setenv(name, SECRET)
        patch.setenv("HTTPS_PROXY", f"https://user:{SECRET}@proxy.example")
        assert headstart(command(path, path / "run")) == 0
    return path


def command(workspace, out, *more):
    return [
        "pretrain", "--corpus", str(workspace / "corpus.txt"), "--tokenizer", str(workspace / "tokenizer"),
        "--length", "24", "--depth", "1", "--width", "16", "--ffn", "24", "--heads", "2", "--batch-tokens", "96",
        "--steps", "4", "--save-every", "2", "--device", "cpu", "--precision", "fp32", "--threads", "1",
        "--out", str(out), *more,
    ]  # fmt: skip


def tune(workspace, out, start):
    return ["finetune", "--train", str(workspace / "rows.tsv"), "--steps", "2", "--start", str(start),
            "--device", "cpu", "--precision", "fp32", "--threads", "1", "--out", str(out)]  # fmt: skip


@pytest.fixture
def run(workspace, tmp_path, monkeypatch):
    """A copy of the run, to be tampered with."""
    monkeypatch.setenv("HEADSTART_CACHE", str(workspace / "cache"))
    shutil.copytree(workspace / "run", tmp_path / "run")
    return tmp_path / "run"


# ---- code in weights --------------------------------------------------------------------------------------


def pickled(canary):
    return pickle.dumps(Canary(canary))


def torch_saved(canary):
    """A zip file with a pickle inside: what .pt, .bin and .ckpt files are."""
    path = canary.with_name("saved")
    torch.save(Canary(canary), path)
    return path.read_bytes()


def numpy_saved(canary):
    """The header of a .npy file of objects, then a pickle."""
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"
    header += b" " * (118 - 1 - len(header)) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + pickled(canary)


def safely_made(canary):
    """Nothing that runs code: what such a name promises, in a place that wants something else."""
    path = canary.with_name("honest")
    save_file({"a": torch.zeros(3)}, path)
    return path.read_bytes()


POISONS = [pickled, torch_saved, numpy_saved]
# What a refusal has to say.
WORDS = {pickled: "is a pickle", torch_saved: "is a zip archive", numpy_saved: "is a NumPy array"}
NAMES = [
    "base.pt", "base.pth", "base.bin", "base.ckpt", "base.pkl", "base.joblib", "base.npy", "BASE.PT", "base",
    "base.safetensors", ".metadata",
]  # fmt: skip


@pytest.mark.parametrize("poison", POISONS)
def test_the_canary_can_sing(tmp_path, poison):
    """What the tests below look for does happen when somebody unpickles."""
    canary = tmp_path / "canary"
    raw = poison(canary)
    if poison is torch_saved:
        torch.load(tmp_path / "saved", weights_only=False)
    else:
        pickle.loads(raw[raw.index(b"\x80\x04") :])
    assert canary.exists()


@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("name", NAMES)
def test_a_pickle_by_any_name_is_no_start(workspace, tmp_path, capsys, name, poison):
    canary = tmp_path / "canary"
    (tmp_path / name).write_bytes(poison(canary))
    other = command(workspace, tmp_path / "out")
    other[other.index("--tokenizer") + 1] = str(tmp_path / name)
    for line in (
        tune(workspace, tmp_path / "out", tmp_path / name),
        other,
        command(workspace, tmp_path / "out", "--config", str(tmp_path / name)),
    ):
        assert headstart(line) == 2
        said = capsys.readouterr().err
        assert str(tmp_path / name) in said
        assert "fix:" in said
    assert not canary.exists()


@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("name", ["base.safetensors", "base.json", "tokenizer.json", "base"])
def test_a_renamed_pickle_is_told_by_its_first_bytes(workspace, tmp_path, capsys, name, poison):
    canary = tmp_path / "canary"
    (tmp_path / name).write_bytes(poison(canary))
    other = command(workspace, tmp_path / "out")
    other[other.index("--tokenizer") + 1] = str(tmp_path / name)
    for line in (tune(workspace, tmp_path / "out", tmp_path / name), other, ["embed", str(tmp_path / name)]):
        assert headstart(line) == 2
        said = capsys.readouterr().err
        assert WORDS[poison] in said
        assert "can run code" in said
    assert not canary.exists()


def test_weights_alone_are_no_run(workspace, tmp_path, capsys):
    (tmp_path / "base.safetensors").write_bytes(safely_made(tmp_path / "canary"))
    assert headstart(tune(workspace, tmp_path / "out", tmp_path / "base.safetensors")) == 2
    assert "is a file, and no run" in capsys.readouterr().err


@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("name", ["corpus.pt", "corpus.npy", "corpus.txt", "rows.jsonl", "rows.parquet", "a.gz"])
def test_a_pickle_is_no_text(workspace, tmp_path, capsys, monkeypatch, name, poison):
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path / "cache"))
    canary = tmp_path / "canary"
    (tmp_path / name).write_bytes(poison(canary))
    line = command(workspace, tmp_path / "out")
    line[2] = str(tmp_path / name)
    assert headstart(line) == 2
    assert name in capsys.readouterr().err
    assert not canary.exists()


@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("name", ["weights.safetensors", "tokenizer.json", "config.toml", "result.json"])
def test_a_pickle_inside_a_run_is_refused(workspace, run, tmp_path, capsys, name, poison):
    canary = tmp_path / "canary"
    (run / name).write_bytes(poison(canary))
    assert headstart(tune(workspace, tmp_path / "out", run)) in (2, 3)
    said = capsys.readouterr().err
    assert name in said
    assert WORDS[poison] in said or name == "config.toml"
    assert not canary.exists()


@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("name", checkpoint.FILES)
def test_a_pickle_inside_a_checkpoint_is_refused_even_with_its_checksum(run, tmp_path, name, poison):
    canary = tmp_path / "canary"
    newest = run / "checkpoints/step-00000004"
    (newest / name).write_bytes(poison(canary))
    sign(newest)
    found, passed_over = checkpoint.latest(run / "checkpoints")
    assert found.step == 2
    assert f"{name}: cannot be read: it {WORDS[poison]}" in passed_over[0]
    assert not canary.exists()


def test_an_extra_pickle_in_a_checkpoint_is_refused(run, tmp_path):
    (run / "checkpoints/step-00000004/.metadata").write_bytes(pickled(tmp_path / "canary"))
    found, passed_over = checkpoint.latest(run / "checkpoints")
    assert found.step == 2
    assert ".metadata" in passed_over[0]
    assert not (tmp_path / "canary").exists()


# ---- manifests and links ----------------------------------------------------------------------------------


def sign(directory, **changes):
    """Write a manifest that fits what is there, with changes: what somebody could do who knows our format."""
    file = directory / "manifest.json"
    manifest = checksummed.read(file)
    manifest["files"] = {
        name: {"sha256": checkpoint._sha256(directory / name), "bytes": (directory / name).stat().st_size}
        for name in checkpoint.FILES
    }
    manifest |= changes
    checksummed.write(file, {key: value for key, value in manifest.items() if value != "gone"})


ENTRY = {"sha256": "0" * 64, "bytes": 1}
BAD_MANIFESTS = {
    "leads upwards": {"files": {"../../../weights.safetensors": ENTRY}},
    "leads to the root": {"files": {"/etc/passwd": ENTRY}},
    "names one file more": {"files": {**dict.fromkeys(checkpoint.FILES, ENTRY), "../x": ENTRY}},
    "has no files": {"files": "gone"},
    "has files of another kind": {"files": list(checkpoint.FILES)},
    "has a number for files": {"files": 7},
    "has no checksums": {"files": {name: {"bytes": 1} for name in checkpoint.FILES}},
    "has words for checksums": {"files": dict.fromkeys(checkpoint.FILES, "sha256")},
    "has no step": {"step": "gone"},
    "has a word for a step": {"step": "4"},
    "is of another step": {"step": 99},
    "has a negative step": {"step": -4},
    "is of another format": {"format": 2},
}


@pytest.mark.parametrize("changes", BAD_MANIFESTS.values(), ids=BAD_MANIFESTS)
def test_a_manifest_that_lies_is_refused(run, changes):
    sign(run / "checkpoints/step-00000004", **changes)
    found, passed_over = checkpoint.latest(run / "checkpoints")
    assert found.step == 2
    assert "manifest.json" in passed_over[0]


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"null", b"{}", b'"x"', b"[" * 10**5, b"\xff\xfe", b'{"format": 1}', b'{"a": NaN}']
)
def test_a_manifest_that_is_none_is_refused(run, raw):
    (run / "checkpoints/step-00000004/manifest.json").write_bytes(raw)
    assert checkpoint.latest(run / "checkpoints")[0].step == 2


@pytest.mark.parametrize("raw", [b"[]", b"null", b"7", b"{}", b"[" * 10**5, b'{"sha256": "x"'])
def test_a_state_that_is_none_is_refused(run, raw):
    newest = run / "checkpoints/step-00000004"
    (newest / "state.json").write_bytes(raw)
    sign(newest)
    assert checkpoint.latest(run / "checkpoints")[0].step == 2


def test_a_state_with_other_fields_exits_3(workspace, run, capsys):
    (run / "result.json").unlink()
    for step in (2, 4):
        path = run / f"checkpoints/step-{step:08d}"
        checksummed.write(path / "state.json", {"step": step, "os.system": "true"})
        sign(path)
    assert headstart(command(workspace, run)) == 3
    assert "other fields" in capsys.readouterr().err


def test_a_renamed_checkpoint_is_refused(run):
    (run / "checkpoints/step-00000004").rename(run / "checkpoints/step-00000400")
    found, passed_over = checkpoint.latest(run / "checkpoints")
    assert found.step == 2
    assert "step 400 cannot be used" in passed_over[0]


@pytest.mark.parametrize("target", ["another checkpoint", "nowhere", "/etc"])
def test_a_link_is_no_checkpoint_and_nothing_is_removed_behind_it(workspace, run, tmp_path, capsys, target):
    """A link as the newest: the one before is used; the run passes over the link's place without following it."""
    elsewhere = tmp_path / "elsewhere"
    link = run / "checkpoints/step-00000004"
    link.rename(elsewhere)
    link.symlink_to({"another checkpoint": elsewhere, "nowhere": tmp_path / "nowhere"}.get(target, target))
    (run / "result.json").unlink()
    assert headstart(command(workspace, run)) == 0
    assert "step 4 cannot be used" in capsys.readouterr().err.replace("\n", " ")
    assert not link.is_symlink()
    assert checkpoint.latest(run / "checkpoints")[0].step == 4
    assert checkpoint.weights_digest(checkpoint.load(link).model) == checkpoint.weights_digest(
        load_file(elsewhere / "model.safetensors")
    )
    assert sorted(path.name for path in elsewhere.iterdir()) == sorted([*checkpoint.FILES, "manifest.json"])
    assert (run / "weights.safetensors").read_bytes() == (workspace / "run/weights.safetensors").read_bytes()


@pytest.mark.parametrize("raw", [b"[]", b"null", b"{}", b'{"step": "4"}', b"[" * 10**5, b"\x80\x04"])
def test_a_result_that_is_none_exits_3(workspace, run, capsys, raw):
    (run / "result.json").write_bytes(raw)
    assert headstart(command(workspace, run)) == 3
    assert "result.json" in capsys.readouterr().err
    (run / "result.json").unlink()  # as the message says
    assert headstart(command(workspace, run)) == 0


# ---- safetensors ------------------------------------------------------------------------------------------


def lying(header, body=b"\0" * 64):
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + body


def tensor(shape, start, end, kind="F32"):
    return {"dtype": kind, "shape": shape, "data_offsets": [start, end]}


LIES = {
    "a header of 2^60 bytes": struct.pack("<Q", 2**60) + b"{}",
    "a header longer than the file": struct.pack("<Q", 10**6) + b"{}",
    "no JSON": lying(b"\x80\x04" * 8),
    "tensors that overlap": lying({"a": tensor([8], 0, 32), "b": tensor([8], 16, 48)}),
    "a gap": lying({"a": tensor([4], 0, 16), "b": tensor([4], 48, 64)}),
    "an end behind the file": lying({"a": tensor([2**20], 0, 2**22)}),
    "a shape that does not fit": lying({"a": tensor([999], 0, 64)}),
    "a shape over 64 bits": lying({"a": tensor([2**40, 2**40], 0, 64)}),
    "offsets backwards": lying({"a": tensor([16], 64, 0)}),
    "an unknown type": lying({"a": tensor([16], 0, 64, "O8")}),
    "nothing": b"",
}


@pytest.mark.parametrize("raw", LIES.values(), ids=LIES)
def test_a_lying_header_is_refused(workspace, run, tmp_path, capsys, raw):
    newest = run / "checkpoints/step-00000004"
    (newest / "model.safetensors").write_bytes(raw)
    sign(newest)
    with refused("corrupt", newest.name, "header", by=IntegrityError):
        checkpoint.load(newest)
    (run / "weights.safetensors").write_bytes(raw)
    assert headstart(tune(workspace, tmp_path / "out", run)) == 3
    assert "weights.safetensors" in capsys.readouterr().err


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_numbers_are_reported(workspace, run, tmp_path, capsys, value):
    """Even where every checksum agrees, in a start and in a checkpoint."""
    weights = load_file(run / "weights.safetensors")
    weights["base.embedding.tokens.weight"][3, 2] = value
    save_file(weights, run / "weights.safetensors")
    checksummed.change(run / "result.json", weights_sha256=checkpoint.weights_digest(weights))
    assert headstart(tune(workspace, tmp_path / "out", run)) == 3
    wanted = "base.embedding.tokens.weight holds numbers that are not finite"
    assert wanted in capsys.readouterr().err
    (run / "result.json").unlink()
    save_file(weights, run / "checkpoints/step-00000004/model.safetensors")
    sign(run / "checkpoints/step-00000004")
    assert headstart(command(workspace, run)) == 3
    assert wanted in capsys.readouterr().err


# ---- secrets ----------------------------------------------------------------------------------------------


def test_no_secret_of_the_environment_is_in_any_file(workspace):
    written = [path for part in ("run", "cache") for path in (workspace / part).rglob("*") if path.is_file()]
    assert len(written) >= 12
    for path in written:
        raw = path.read_bytes()
        assert SECRET.encode() not in raw, path
        assert b"proxy.example" not in raw, path
    names = [os.fsencode(str(path)) for path in written]
    assert not any(SECRET.encode() in name for name in names)


@pytest.mark.parametrize("part", ["vocabulary", "added"])
def test_a_tokenizer_with_one_far_id_is_refused_before_it_takes_memory(tmp_path, part):
    vocabulary = {"a": 0, "b": 2**31 if part == "vocabulary" else 1}
    token = {"id": 2**31, "content": "<x>", "special": True, "normalized": False}
    token |= {"single_word": False, "lstrip": False, "rstrip": False}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "a"}
    spec = {"version": "1.0", "model": model, "added_tokens": [token] if part == "added" else []}
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    with refused("bad-format", "tokenizer.json", "2,147,483,648"):
        Tokenizer.load(tmp_path)
