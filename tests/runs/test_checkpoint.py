"""A checkpoint is whole or it is not there; one wrong bit anywhere and it does not load."""

import errno
import os
import random
import signal
import subprocess

import checksummed
import forked
import pytest
import torch
from expected_errors import refused

from headstart.errors import IntegrityError, TryAgain
from headstart.runs import checkpoint
from headstart.runs.checkpoint import FILES, copy_into, latest, load, save, weights_digest


def tensors(step):
    generator = torch.Generator().manual_seed(step)
    model = {"base.a": torch.randn(5, 3, generator=generator), "head.b": torch.randn(4, generator=generator)}
    optimizer = {f"{name}|exp_avg": torch.randn(value.shape, generator=generator) for name, value in model.items()}
    return model, optimizer


def write(directory, step, keep=2):
    return save(directory, step, *tensors(step), state={"step": step, "loss": 1.5}, facts={"seed": 3}, keep=keep)


@pytest.fixture
def two_checkpoints(tmp_path):
    write(tmp_path, 5)
    write(tmp_path, 10)
    return tmp_path


def test_what_is_written_is_read(tmp_path):
    found = load(write(tmp_path, 5))
    model, optimizer = tensors(5)
    assert found.step == 5
    assert found.state == {"step": 5, "loss": 1.5}
    assert found.manifest["seed"] == 3
    for written, read in ((model, found.model), (optimizer, found.optimizer)):
        assert set(written) == set(read)
        assert all(torch.equal(written[name], read[name]) for name in written)


def test_the_same_content_gives_the_same_bytes(tmp_path):
    first, second = write(tmp_path / "a", 5), write(tmp_path / "b", 5)
    for name in (*FILES, "manifest.json"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_only_the_newest_are_kept(tmp_path):
    for step in (5, 10, 15, 20):
        write(tmp_path, step, keep=3)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"step-{step:08d}" for step in (10, 15, 20)]


def test_nothing_there_is_nothing_found(tmp_path):
    assert latest(tmp_path / "nowhere") == (None, [])


def test_every_single_flipped_bit_is_noticed(two_checkpoints):
    """200 flips over all files of the newest: each time the one before is used, and the file is named."""
    draw = random.Random(0)
    newest = two_checkpoints / "step-00000010"
    files = [newest / name for name in (*FILES, "manifest.json")]
    for flip in range(200):
        file = files[flip % 4]
        whole = file.read_bytes()
        broken = bytearray(whole)
        broken[draw.randrange(len(broken))] ^= 1 << draw.randrange(8)
        file.write_bytes(broken)
        found, passed_over = latest(two_checkpoints)
        assert found.step == 5
        assert len(passed_over) == 1
        assert "step 10" in passed_over[0]
        assert file.name in passed_over[0]
        file.write_bytes(whole)
    assert latest(two_checkpoints)[0].step == 10


@pytest.mark.parametrize("name", [*FILES, "manifest.json"])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_cut_file_is_noticed(two_checkpoints, name, share):
    file = two_checkpoints / "step-00000010" / name
    whole = file.read_bytes()
    file.write_bytes(whole[: int(share * (len(whole) - 1))])
    found, passed_over = latest(two_checkpoints)
    assert found.step == 5
    assert name in passed_over[0]


@pytest.mark.parametrize("name", [*FILES, "manifest.json"])
@pytest.mark.parametrize("change", ["missing", "renamed", "link", "directory"])
def test_a_file_that_is_not_there_as_written_is_noticed(two_checkpoints, name, change, tmp_path_factory):
    file = two_checkpoints / "step-00000010" / name
    if change == "renamed":
        file.rename(file.with_name("other"))
    elif change == "link":
        elsewhere = tmp_path_factory.mktemp("elsewhere") / name
        elsewhere.write_bytes(file.read_bytes())
        file.unlink()
        file.symlink_to(elsewhere)
    else:
        file.unlink()
        if change == "directory":
            file.mkdir()
    assert latest(two_checkpoints)[0].step == 5


def test_an_extra_file_is_noticed(two_checkpoints):
    (two_checkpoints / "step-00000010" / "weights.pt").write_bytes(b"\x80\x04canary")
    found, passed_over = latest(two_checkpoints)
    assert found.step == 5
    assert "weights.pt" in passed_over[0]


def test_a_manifest_cannot_point_elsewhere(two_checkpoints):
    file = two_checkpoints / "step-00000010" / "manifest.json"
    manifest = checksummed.read(file)
    manifest["files"] = {"../../../etc/passwd": {"sha256": "0", "bytes": 1}}
    checksummed.write(file, manifest)
    with refused("corrupt", "manifest.json", "../../../etc/passwd", by=IntegrityError):
        load(file.parent)


def test_a_lying_header_is_refused(two_checkpoints):
    """The checksum agrees, so it was written so: the safetensors library still refuses it, and we say so."""
    directory = two_checkpoints / "step-00000010"
    model = directory / "model.safetensors"
    model.write_bytes((2**60).to_bytes(8, "little") + b"{}")
    file = directory / "manifest.json"
    manifest = checksummed.read(file)
    manifest["files"]["model.safetensors"] = {
        "sha256": checkpoint._sha256(model), "bytes": model.stat().st_size,
    }  # fmt: skip
    checksummed.write(file, manifest)
    with refused("corrupt", str(directory), by=IntegrityError):
        load(directory)


def test_none_good_is_an_integrity_error_that_names_all(two_checkpoints):
    for path in two_checkpoints.iterdir():
        (path / "state.json").write_text("{}")
    with refused("corrupt", "step 10 ", "step 5 ", by=IntegrityError):
        latest(two_checkpoints)


def test_strange_names_are_not_checkpoints(two_checkpoints):
    (two_checkpoints / ".tmp-step-00000099-1").mkdir()
    (two_checkpoints / "step-latest").symlink_to("nowhere")
    (two_checkpoints / "notes.txt").write_text("mine")
    assert latest(two_checkpoints)[0].step == 10
    checkpoint.clean(two_checkpoints)
    assert not (two_checkpoints / ".tmp-step-00000099-1").exists()
    assert (two_checkpoints / "notes.txt").exists()


def test_weights_that_do_not_fit_are_listed():
    have = {"a": torch.zeros(2), "b": torch.zeros(2), "c": torch.zeros(2), "d": torch.zeros(1)}
    given = {
        "b": torch.zeros(3), "c": torch.zeros(2).double(), "d": torch.tensor([float("nan")]), "e": torch.zeros(1),
    }  # fmt: skip
    with refused("mismatch", by=IntegrityError) as caught:
        copy_into(have, given, "run")
    message = str(caught.value)
    for line in (
        "a is missing",
        "e does not belong",
        r"b is (3,)",
        "c is (2,) torch.float64",
        "d holds numbers",
    ):
        assert line in message
    many = {str(i): torch.zeros(1) for i in range(15)}
    with refused("mismatch", " 5 more", by=IntegrityError):
        copy_into(many, {}, "run")


def test_the_digest_is_of_names_shapes_types_and_numbers():
    a, b = torch.arange(4.0), torch.arange(4.0)
    same = weights_digest({"x": a, "y": b})
    assert weights_digest({"y": b, "x": a}) == same
    for other in (
        {"x": a, "z": b}, {"x": a, "y": b.double()}, {"x": a, "y": b.reshape(2, 2)}, {"x": a, "y": b + 1e-7},
    ):  # fmt: skip
        assert weights_digest(other) != same


SAVE_TWICE = """
import sys, pathlib, torch
from headstart.runs.checkpoint import save
for step in (5, 10):
    save(pathlib.Path(sys.argv[1]), step, {"a": torch.full((1000,), float(step))}, {}, {"step": step}, {})
"""


@pytest.mark.parametrize(
    ("point", "step"),
    [
        ("after:model", 5),
        ("after:state", 5),
        ("after:manifest", 5),
        ("before:rename", 5),
        ("after:rename", 10),
    ],
)
def test_killed_inside_a_save_the_last_whole_one_is_there(tmp_path, point, step):
    code = forked.run(
        SAVE_TWICE, tmp_path / "run", output=tmp_path / "log", environment={"HEADSTART_FAULT": f"{point}@2"}
    )
    assert code == -signal.SIGKILL
    found, passed_over = latest(tmp_path / "run")
    assert (found.step, passed_over) == (step, [])
    checkpoint.clean(tmp_path / "run")
    assert not list((tmp_path / "run").glob(".tmp-*"))


SAVE_TOO_MUCH = """
import pathlib, resource, signal, sys, torch
from headstart.errors import TryAgain
from headstart.runs.checkpoint import save
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10**6, 10**6))
try:
    save(pathlib.Path(sys.argv[1]), 10, {"a": torch.zeros(10**6)}, {}, {"step": 10}, {})
except TryAgain as error:
    print(error)
    raise SystemExit(error.exit_code)
"""


def test_a_file_size_limit_keeps_the_old_and_says_what_is_needed(tmp_path):
    write(tmp_path / "run", 5)
    code = forked.run(SAVE_TOO_MUCH, tmp_path / "run", output=tmp_path / "log")
    message = (tmp_path / "log").read_text()
    assert code == 75, message
    assert "needs 4,065,536 bytes" in message
    assert latest(tmp_path / "run")[0].step == 5
    assert not list((tmp_path / "run").glob(".tmp-*"))


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("PytorchStreamWriter failed: No space left on device"),
        checkpoint.SafetensorError('Error while serializing: IoError(Os { code: 28, message: "No space left" })'),
    ],
)
def test_a_full_disk_in_any_guise_is_try_again(two_checkpoints, monkeypatch, error):
    def full(*arguments):
        raise error

    monkeypatch.setattr(checkpoint, "save_file", full)
    with refused("disk-full", by=TryAgain):
        write(two_checkpoints, 15)
    assert latest(two_checkpoints)[0].step == 10
    assert not list(two_checkpoints.glob(".tmp-*"))


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_really_full_disk_is_try_again(tmp_path):
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(tmp_path)], capture_output=True)
    if mounted.returncode:
        pytest.skip("this machine does not let tests mount")
    try:
        write(tmp_path, 5)
        with refused("disk-full", str(tmp_path), "free", by=TryAgain):
            save(tmp_path, 10, {"a": torch.zeros(10**6)}, {}, {"step": 10}, {})
        assert latest(tmp_path)[0].step == 5
        assert not list(tmp_path.glob(".tmp-*"))
        write(tmp_path, 10)
        assert latest(tmp_path)[0].step == 10
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_file_system_that_cannot_rename_is_named(two_checkpoints, monkeypatch):
    def cannot(*arguments):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(os, "replace", cannot)
    with refused("unsupported", "Function not implemented", "--unsafe-fs"):
        write(two_checkpoints, 15)
    assert latest(two_checkpoints)[0].step == 10
