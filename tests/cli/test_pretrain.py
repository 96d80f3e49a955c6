"""What is hidden from a masked model, as flags."""

import pytest
import tiny_runs
from commands import ask

from headstart.objectives.masked import Corruption
from headstart.training.run_directory import RunDirectory

SMALL = [
    "--objective", "masked", "--width", "16", "--depth", "1", "--heads", "2", "--ffn", "24", "--vocab", "320",
    "--length", "16", "--batch-tokens", "64", "--steps", "1", "--device", "cpu", "--precision", "fp32", "--threads",
    "1",
]  # fmt: skip


def pretrained(capsys, out, *flags):
    corpus = str(tiny_runs.files()["corpus"])
    return ask(capsys, ["pretrain", "--corpus", corpus, "--out", str(out), *SMALL, *flags])


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ([], Corruption()),
        (["--mask-random", "0", "--mask-kept", "0"], Corruption(masked=1.0, random=0.0)),
        (["--mask-share", "0.3", "--mask-kept", "0.2", "--whole-words"],
         Corruption(share=0.3, masked=0.7, random=0.1, whole_words=True)),
    ],
)  # fmt: skip
def test_what_is_asked_for_is_hidden(capsys, tmp_path, flags, wanted):
    said = pretrained(capsys, tmp_path / "run", *flags)
    assert said.code == 0, said.err
    assert RunDirectory(tmp_path / "run").read_config().corruption == wanted


@pytest.mark.parametrize("flags", [["--mask-random", "1.2"], ["--mask-kept=-0.1"], ["--mask-kept", "0.95"]])
def test_shares_that_are_no_parts_of_a_whole_are_refused(capsys, tmp_path, flags):
    said = pretrained(capsys, tmp_path / "run", *flags)
    assert said.code == 2
    assert "together at most 1" in said.err
