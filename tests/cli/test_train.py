"""`headstart pretrain` and `headstart finetune`: flags reach the run, or are refused; how a result is printed."""

import json
from pathlib import Path

import pytest
import tiny_runs
import translators
from commands import invoke

from headstart.cli import train
from headstart.cli.options import Common
from headstart.config.generation import BEAM_OF_FIVE
from headstart.config.training import FinetuneSettings, Masking
from headstart.runs.directory import RunDirectory
from headstart.runs.load import load

RESULT = {
    "step": 3,
    "stopped_early": True,
    "parameters": 1234,
    "valid": {"loss": 1.5, "bleu": None},
    "test": None,
}


def trained(data, *, console, override_resume, **given):
    console.on_start(Path("runs/x"))
    console.log(f"trained on {data} with {given}")
    return {**RESULT, "signatures": {"bleu": "nrefs:1"}}


def test_a_result_is_printed_and_lines_go_to_standard_error(capsys):
    train.run_training(trained, "a.txt", {"epochs": 2.0}, train.COMMAND, Common(threads=1))
    printed = capsys.readouterr()
    assert "run         runs/x" in printed.out
    assert "3 (stopped early)" in printed.out
    assert "1,234" in printed.out
    assert "1.5000" in printed.out
    assert "not finite" in printed.out
    assert "nrefs:1" in printed.out
    assert "trained on a.txt" in printed.err
    assert "'epochs': 2.0" in printed.err
    assert "trained on" not in printed.out


def test_json_is_one_object_with_the_run(capsys):
    train.run_training(trained, "a.txt", {}, train.COMMAND, Common(json=True))
    assert json.loads(capsys.readouterr().out)["run"] == "runs/x"


@pytest.mark.parametrize(("rank", "world", "speaks"), [("0", "2", True), ("1", "2", False), ("1", "1", True)])
def test_the_first_rank_reports_for_all(monkeypatch, capsys, rank, world, speaks):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", world)
    assert train.is_first_rank() == speaks
    train.run_training(trained, "a.txt", {}, train.COMMAND, Common())
    assert bool(capsys.readouterr().out) == speaks


def test_a_base_that_has_not_learned_is_warned_of_after_its_training_and_before_the_next(capsys):
    base = tiny_runs.path_of("masked")

    def pretrained(data, *, console, **given):
        console.on_start(base)
        return RESULT

    train.run_training(pretrained, "a.txt", {}, train.COMMAND, Common())
    assert f"{base}: The base is undertrained" in capsys.readouterr().err
    train.run_training(trained, "a.txt", {"start": str(base)}, train.COMMAND, Common())
    said = capsys.readouterr().err
    assert said.index(f"{base}: The base is undertrained") < said.index("trained on a.txt")


# ---- pretraining -------------------------------------------------------------------------------------------


SMALL = [
    "--objective", "masked", "--width", "16", "--depth", "1", "--heads", "2", "--ffn", "24", "--vocab", "320",
    "--length", "16", "--batch-tokens", "64", "--steps", "1", "--device", "cpu", "--precision", "fp32", "--threads",
    "1",
]  # fmt: skip


def pretrained(capsys, out, *flags):
    corpus = str(tiny_runs.files()["corpus"])
    return invoke(capsys, ["pretrain", "--corpus", corpus, "--out", str(out), *SMALL, *flags])


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ([], Masking()),
        (["--mask-random", "0", "--mask-kept", "0"], Masking(mask_random=0.0, mask_kept=0.0)),
        (["--mask-prob", "0.3", "--mask-kept", "0.2", "--whole-words"],
         Masking(mask_prob=0.3, mask_kept=0.2, whole_words=True)),
    ],
)  # fmt: skip
def test_what_is_asked_for_is_hidden(capsys, tmp_path, flags, wanted):
    said = pretrained(capsys, tmp_path / "run", *flags)
    assert said.code == 0, said.err
    assert RunDirectory(tmp_path / "run").read_config().masking == wanted


@pytest.mark.parametrize("flags", [["--mask-random", "1.2"], ["--mask-kept=-0.1"], ["--mask-kept", "0.95"]])
def test_shares_that_are_no_parts_of_a_whole_are_refused(capsys, tmp_path, flags):
    said = pretrained(capsys, tmp_path / "run", *flags)
    assert said.code == 2
    assert "--mask-kept" in said.err or "--mask-random" in said.err


# ---- fine-tuning and translation ---------------------------------------------------------------------------


def tune(capsys, out, *flags):
    files = translators.files()
    shape = ["--width", "16", "--ffn", "24", "--heads", "2", "--depth", "1", "--decoder-depth", "1"]
    return invoke(
        capsys,
        ["finetune", "--task", "translation", "--train", str(files["train"]), "--valid", str(files["valid"]),
         "--test", str(files["test"]), "--out", str(out), *shape, "--vocab", "320", "--length", "32", "--steps", "2",
         "--device", "cpu", "--precision", "fp32", "--threads", "1", *flags],
    )  # fmt: skip


def test_finetune_trains_a_translator_and_prints_its_scores(capsys, tmp_path):
    answer = tune(capsys, tmp_path / "run")
    assert answer.code == 0, answer.err
    for line in ("valid  cross_entropy", "valid  bleu", "test   bleu", "test   chrf", "|tok:13a|"):
        assert line in answer.out
    config = load(tmp_path / "run").config
    assert (config.loop.schedule, config.translation.label_smoothing) == ("inverse-sqrt", 0.1)
    assert config.model.norm_place == "post", "the preset is transformer-tiny"
    again = tune(capsys, tmp_path / "run", "--json")
    assert json.loads(again.out)["signatures"]["bleu"].startswith("nrefs:1")


def test_flags_of_a_translation_reach_the_run(capsys, tmp_path):
    answer = tune(
        capsys, tmp_path / "run", "--vocabularies", "separate", "--batch-tokens", "200", "--label-smoothing", "0.2",
        "--labels", "20", "--beam", "1",
    )  # fmt: skip
    assert answer.code == 0, answer.err
    run = load(tmp_path / "run")
    assert not run.vocabularies.is_joint
    assert (run.config.translation.batch_tokens, run.config.translation.label_smoothing) == (200, 0.2)
    assert run.config.data.labels == 20


@pytest.mark.parametrize(
    "flags",
    [
        ["--pooling", "mean"],
        ["--freeze", "base"],
        ["--batch", "16"],
        ["--text-column", "a"],
        ["--label-column", "b"],
    ],
)
def test_flags_for_labels_are_refused(capsys, tmp_path, flags):
    answer = tune(capsys, tmp_path / "run", *flags)
    assert answer.code == 2
    assert "with --task=translation" in answer.err


@pytest.mark.parametrize(
    "flags", [["--label-smoothing", "0.2"], ["--start-into", "both"], ["--valid-bleu"], ["--beam", "3"]]
)
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_flags_for_translation_are_refused_elsewhere(capsys, tmp_path, flags, task):
    command = ["finetune", "--task", task, "--train", "nowhere.tsv", "--out", str(tmp_path / "run")]
    answer = invoke(capsys, [*command, *flags])
    assert answer.code == 2
    assert f"{flags[0]} with --task={task}" in answer.err
    assert not (tmp_path / "run").exists()


def test_the_defaults_are_those_of_the_schema():
    settings = FinetuneSettings()
    assert settings.label_smoothing == 0.1
    assert (settings.beam, settings.length_penalty) == (BEAM_OF_FIVE.beam, BEAM_OF_FIVE.length_penalty)
    assert settings.batch == 16
