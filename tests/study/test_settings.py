"""The finer settings of pretraining and fine-tuning in a study: each reaches its runs, and costs are counted by it."""

import dataclasses
import json
import re
import tomllib

import pytest
from expected_errors import refused
from small_study import MODEL, small_config, write_files

from headstart.config.study import FinetunePart, PretrainPart
from headstart.config.toml import to_toml
from headstart.planning.machines import cpu
from headstart.planning.time import paper_prices
from headstart.study.recipes.forecast import forecast
from headstart.study.study import study as run_study
from headstart.tokenizers.tokenizer import Tokenizer

ARMS = ["scratch", "frozen", "finetuned"]
FIRST = {"schedule": "constant", "warmup": 0.2, "cooldown": 0.0, "mask_prob": 0.3, "whole_words": True}
SECOND = {
    "schedule": "linear", "warmup": 0.0, "steps": 4, "mask_prob": 0.2, "mask_random": 0.0, "mask_kept": 0.05,
}  # fmt: skip
MUON = {"optimizer": "muon", "muon_lr": 0.01, "learning_rate": 2e-3}
TUNING = {"average": "tail", "layer_decay": 0.5, "dropout": 0.25, "r_drop": 0.5, "unfreeze": 0.5}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("files"))


def finer_config(files):
    """Two phases over files of different weight, the second on from the first's rate; every finer setting."""
    config = small_config(files, arms=ARMS, objectives=["masked"], budgets=[10], seeds=1)
    (phase,) = config.pretrain
    mixed = [f"{files['corpus']}=2", f"{files['train']}=3", f"{files['valid']}=3"]
    return dataclasses.replace(
        config,
        tokenizer=dataclasses.replace(config.tokenizer, normalise=["lower-case", "apostrophes"]),
        pretrain=[
            dataclasses.replace(phase, **FIRST, **MUON),
            dataclasses.replace(phase, corpus=mixed, valid=files["corpus"], **SECOND, **MUON),
        ],
        finetune=dataclasses.replace(config.finetune, learning_rates=[1e-3], **TUNING),
    )


@pytest.fixture(scope="module")
def finished(files, tmp_path_factory):
    directory = tmp_path_factory.mktemp("studies") / "finer"
    return directory, run_study(finer_config(files), out=directory, model=MODEL, jobs=2)


def settings(directory, run):
    return tomllib.loads((directory / run / "config.toml").read_text())


def test_every_setting_reaches_the_runs(finished, files):
    directory, _ = finished
    first, second = (settings(directory, f"pretrain/masked-s0{end}") for end in ("-phase-1", ""))
    assert first["masking"] == {
        "mask_prob": 0.3, "mask_random": 0.1, "mask_kept": 0.1, "whole_words": True
    }  # fmt: skip
    assert second["masking"] == {
        "mask_prob": 0.2, "mask_random": 0.0, "mask_kept": 0.05, "whole_words": False
    }  # fmt: skip
    assert second["data"]["weights"] == [2.0, 3.0, 3.0]
    for run in (first, second):
        assert (run["optimizer"]["muon_lr"], run["model"]["dropout"]) == (0.01, 0.0)
    scratch, tuned = (settings(directory, f"trials/{arm}-b10-s0/lr-0.001") for arm in ("scratch", "finetuned"))
    for run in (tuned, scratch):
        assert (run["model"]["dropout"], run["loop"]["average"], run["r_drop"]) == (0.25, "tail", 0.5)
    # Lower layers that know nothing yet are not held back.
    assert (tuned["optimizer"]["layer_decay"], scratch["optimizer"]["layer_decay"]) == (0.5, 1.0)
    # The embedding comes last, at half of the steps or before.
    steps, stages = tuned["loop"]["steps"], tuned["model"]["depth"] + 1
    assert tuned["loop"]["unfreeze_every"] == steps // 2 // stages > 0
    assert scratch["loop"]["unfreeze_every"] == 0
    assert Tokenizer.load(directory / "tokenizer").normalise == ("apostrophes", "lower-case")


def test_the_rate_of_the_second_phase_goes_on_from_the_first(finished):
    directory, _ = finished
    rates = []
    for run in ("masked-s0-phase-1", "masked-s0"):
        lines = (directory / "pretrain" / run / "metrics.jsonl").read_text().splitlines()
        rates.append([r["learning_rate"] for r in map(json.loads, lines) if "learning_rate" in r])
    assert rates[0][-1] == rates[1][0] == 2e-3
    assert rates[1] == pytest.approx([2e-3, 1.5e-3, 1e-3, 0.5e-3])


def test_a_study_from_before_these_settings_goes_on(finished, files, monkeypatch):
    directory, _ = finished
    small = small_config(files, arms=["majority"], budgets=[10], seeds=1)
    older = directory.with_name("older")
    run_study(small, out=older, model=MODEL, jobs=1)
    file, new = older / "study.toml", ("mask_prob", "whole_words", "cooldown", "muon_lr", "average")
    new += ("layer_decay", "r_drop", "normalise", "mask_random", "mask_kept", "unfreeze", "metric", "class_weights")
    before = file.read_text()
    kept, count = re.subn(rf"(?m)^({'|'.join(new)}) = .*\n", "", before.partition("\n\n")[2])
    assert count >= len(new)
    file.write_text(kept)
    monkeypatch.setattr("headstart.study.execution.workers._Worker", None)  # nobody may be put to work
    run_study(small, out=older, model=MODEL, jobs=1)
    assert file.read_text() == before
    file.write_text(kept)
    phase = dataclasses.replace(small.pretrain[0], mask_prob=0.3)
    with refused("changed", "pretrain 1.mask_prob", "0.15", "0.3"):
        run_study(dataclasses.replace(small, pretrain=[phase]), out=older, model=MODEL, jobs=1)


def test_what_is_usual_is_what_runs_have_without_a_word():
    from headstart.config.training import LoopConfig, Masking, OptimizerConfig

    phase, finetune = PretrainPart(), FinetunePart()
    assert phase.part(Masking) == Masking()
    assert (phase.cooldown, phase.muon_lr) == (LoopConfig().cooldown, OptimizerConfig().muon_lr)
    assert (finetune.average, finetune.layer_decay) == (LoopConfig().average, OptimizerConfig().layer_decay)
    assert (finetune.dropout, finetune.r_drop, finetune.unfreeze) == (None, 0.0, 0.0)


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("finetune", {"dropout": 1.0}), ("finetune", {"layer_decay": 0.0}), ("finetune", {"r_drop": -1.0}),
        ("finetune", {"unfreeze": 1.5}), ("pretrain", {"mask_prob": 1.0}), ("pretrain", {"mask_kept": -0.1}),
        ("pretrain", {"mask_random": 0.6, "mask_kept": 0.5}), ("pretrain", {"cooldown": -0.1}),
    ],
)  # fmt: skip
def test_shares_that_cannot_be_are_refused(part, changes, files, tmp_path):
    config = small_config(files)
    before = config.pretrain[0] if part == "pretrain" else config.finetune
    with refused("bad-value", *(f"--{name.replace('_', '-')}" for name in changes)):
        dataclasses.replace(before, **changes)


def test_a_forecast_counts_both_readings_and_what_is_hidden(files, tmp_path):
    target = cpu(2)

    def seconds(share, r_drop):
        config = small_config(files, arms=["finetuned"], objectives=["masked"], budgets=[10])
        phases = [dataclasses.replace(config.pretrain[0], mask_prob=share)]
        changed = dataclasses.replace(
            config, pretrain=phases, finetune=dataclasses.replace(config.finetune, r_drop=r_drop, dropout=0.1)
        )
        (tmp_path / "study.toml").write_text(to_toml(dataclasses.asdict(changed)))
        found = forecast(str(tmp_path / "study.toml"), target, paper_prices(target, "fp32"))
        return [part.seconds for part in found.parts]

    usual, hidden, twice = seconds(0.15, 0.0), seconds(0.5, 0.0), seconds(0.15, 1.0)
    assert hidden[0] > usual[0] == twice[0]
    assert twice[1] > usual[1] == hidden[1]
