"""The finer settings of pretraining and fine-tuning in a study: each reaches its runs, and costs are counted by it."""

import dataclasses
import json
import re
import tomllib

import pytest
from small_study import MODEL, small_config, write_files

import headstart
from headstart.config.study import FinetunePart, PretrainPart, StudyConfig
from headstart.config.toml import to_toml
from headstart.errors import UserError
from headstart.planning.machines import cpu
from headstart.planning.time import paper_prices
from headstart.study.data import prepare, pretraining_operations, step_operations, trial_operations
from headstart.study.design import arms_of, trials_of
from headstart.study.recipes.forecast import forecast
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
    place = tmp_path_factory.mktemp("studies") / "finer"
    return place, headstart.study(finer_config(files), out=place, model=MODEL, jobs=2)


def settings(place, run):
    return tomllib.loads((place / run / "config.toml").read_text())


def test_every_setting_reaches_the_runs(finished, files):
    place, _ = finished
    first, second = (settings(place, f"pretrain/masked-s0{end}") for end in ("-phase-1", ""))
    assert first["masking"] == {
        "mask_prob": 0.3, "mask_random": 0.1, "mask_kept": 0.1, "whole_words": True
    }  # fmt: skip
    assert second["masking"] == {
        "mask_prob": 0.2, "mask_random": 0.0, "mask_kept": 0.05, "whole_words": False
    }  # fmt: skip
    assert second["data"]["weights"] == [2.0, 3.0, 3.0]
    for run in (first, second):
        assert (run["optimizer"]["muon_lr"], run["model"]["dropout"]) == (0.01, 0.0)
    scratch, frozen, tuned = (settings(place, f"trials/{arm}-b10-s0/rate-0.001") for arm in ARMS)
    for run in (tuned, scratch):
        assert (run["model"]["dropout"], run["loop"]["average"], run["r_drop"]) == (0.25, "tail", 0.5)
    # Lower layers that know nothing yet are not held back.
    assert (tuned["optimizer"]["layer_decay"], scratch["optimizer"]["layer_decay"]) == (0.5, 1.0)
    # The embedding comes last, at half of the steps or before.
    steps, stages = tuned["loop"]["steps"], tuned["model"]["depth"] + 1
    assert tuned["loop"]["unfreeze_every"] == steps // 2 // stages > 0
    assert scratch["loop"]["unfreeze_every"] == frozen["loop"]["unfreeze_every"] == 0
    assert Tokenizer.load(place / "tokenizer").normalise == ("apostrophes", "lower-case")


def test_the_rate_of_the_second_phase_goes_on_from_the_first(finished):
    place, _ = finished
    rates = []
    for run in ("masked-s0-phase-1", "masked-s0"):
        lines = (place / "pretrain" / run / "metrics.jsonl").read_text().splitlines()
        rates.append([r["learning_rate"] for r in map(json.loads, lines) if "learning_rate" in r])
    assert rates[0][-1] == rates[1][0] == 2e-3
    assert rates[1] == pytest.approx([2e-3, 1.5e-3, 1e-3, 0.5e-3])


def test_a_study_from_before_these_settings_goes_on(finished, files, monkeypatch):
    place, _ = finished
    small = small_config(files, arms=["majority"], budgets=[10], seeds=1)
    older = place.with_name("older")
    headstart.study(small, out=older, model=MODEL, jobs=1)
    file, new = older / "study.toml", ("mask_prob", "whole_words", "cooldown", "muon_lr", "average")
    new += ("layer_decay", "r_drop", "normalise", "mask_random", "mask_kept", "unfreeze")
    before = file.read_text()
    kept, count = re.subn(rf"(?m)^({'|'.join(new)}) = .*\n", "", before)
    assert count >= len(new)
    file.write_text(kept)
    monkeypatch.setattr("headstart.study.execution.workers._Worker", None)  # nobody may be put to work
    headstart.study(small, out=older, model=MODEL, jobs=1)
    assert file.read_text() == before
    file.write_text(kept)
    phase = dataclasses.replace(small.pretrain[0], mask_prob=0.3)
    with pytest.raises(UserError, match=r"pretrain 1.mask_prob was 0.15, is 0.3"):
        headstart.study(dataclasses.replace(small, pretrain=[phase]), out=older, model=MODEL, jobs=1)


def test_what_is_usual_is_what_runs_have_without_a_word():
    from headstart.config.training import LoopConfig, Masking, OptimizerConfig

    phase, finetune = PretrainPart(), FinetunePart()
    assert phase.part(Masking) == Masking()
    assert (phase.cooldown, phase.muon_lr) == (LoopConfig().cooldown, OptimizerConfig().muon_lr)
    assert (finetune.average, finetune.layer_decay) == (LoopConfig().average, OptimizerConfig().layer_decay)
    assert (finetune.dropout, finetune.r_drop, finetune.unfreeze) == (None, 0.0, 0.0)


def material_of(config, directory):
    return prepare(config, MODEL, directory, "cpu", lambda line: None)


def test_operations_are_those_of_the_share_and_of_both_readings(files, tmp_path):
    config = small_config(files, objectives=["masked"], arms=ARMS, budgets=[10])
    (phase,) = config.pretrain
    changed = dataclasses.replace(
        config,
        pretrain=[dataclasses.replace(phase, mask_prob=0.5)],
        finetune=dataclasses.replace(config.finetune, r_drop=1.0),
    )
    usual, now = material_of(config, tmp_path / "usual"), material_of(changed, tmp_path / "now")
    # 12 steps of 4 blocks of 32: 5 tokens of each are hidden at 0.15, 16 at 0.5; backward costs twice forward.
    head = 2 * 16 * 16 + 2 * 16 * usual.model.vocab
    more = pretraining_operations(now, "masked") - pretraining_operations(usual, "masked")
    assert more == 12 * 4 * 3 * (16 - 5) * head
    arm = arms_of(config.study)[0]
    assert step_operations(now, arm) == 2 * step_operations(usual, arm)
    for trial in trials_of(config.study):
        assert trial_operations(now, trial) == 2 * trial_operations(usual, trial)


def test_equal_operations_take_the_share_into_account(files, tmp_path):
    config = small_config(files, objectives=["causal", "masked"], arms=ARMS, budgets=[10])
    (phase,) = config.pretrain
    steps = []
    for share in (0.15, 0.9):
        phases = [dataclasses.replace(phase, steps=100, mask_prob=share)]
        found = material_of(dataclasses.replace(config, pretrain=phases), tmp_path / str(share))
        steps.append(found.steps["masked"][0])
        assert found.steps["causal"] == [100]
        equal = [pretraining_operations(found, objective) for objective in ("causal", "masked")]
        assert equal[0] == pytest.approx(equal[1], rel=0.01)
    assert steps[0] > steps[1]


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
    with pytest.raises(UserError, match=next(iter(changes))):
        dataclasses.replace(before, **changes)


def test_a_given_tokenizer_has_to_normalise_as_is_asked_for(files, tmp_path):
    config: StudyConfig = small_config(files, arms=["scratch"])
    plain = material_of(config, tmp_path / "plain").tokenizer
    part = dataclasses.replace(config.tokenizer, tokenizer=str(plain), normalise=["lower-case"])
    with pytest.raises(UserError, match="normalises nothing, and lower-case is asked for"):
        material_of(dataclasses.replace(config, tokenizer=part), tmp_path / "given")


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
