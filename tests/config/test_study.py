"""The parts of a STUDY.toml."""

from expected_errors import refused

from headstart.config.schema import build
from headstart.config.study import FinetunePart, PretrainPart, StudyConfig, StudyPart
from headstart.config.training import LoopConfig, Masking, OptimizerConfig, Schedule


def test_each_part_has_its_own_defaults():
    assert (PretrainPart().schedule, PretrainPart().warmup, PretrainPart().evaluations) == ("cosine", 0.05, 8)
    assert (FinetunePart().schedule, FinetunePart().warmup, FinetunePart().evaluations) == ("linear", 0.1, 10)
    assert (StudyPart().preset, StudyPart().threads, StudyPart().start) == ("tiny", 1, "")


def test_what_a_trial_shares_with_a_run_is_the_same_setting():
    phase = PretrainPart(muon_lr=0.02, cooldown=0.0, mask_prob=0.3)
    assert phase.part(OptimizerConfig) == OptimizerConfig(muon_lr=0.02)
    assert phase.part(Schedule) == Schedule(schedule="cosine", warmup=0.05, cooldown=0.0)
    assert phase.part(Masking) == Masking(mask_prob=0.3)
    assert LoopConfig().average == FinetunePart().average


def test_a_table_is_read_strictly():
    read = build(StudyConfig, {"finetune": {"learning_rates": [1e-4]}, "pretrain": [{"steps": 5}]}, "s.toml")
    assert (read.finetune.learning_rates, read.pretrain[0].steps) == ([1e-4], 5)
    with refused("unknown-name", "'learning_rate_s'", "'learning_rates'"):
        build(StudyConfig, {"finetune": {"learning_rate_s": [1e-4]}}, "s.toml")
    with refused("bad-value", "mask_prob is 1.5"):
        build(StudyConfig, {"pretrain": [{"mask_prob": 1.5}]}, "s.toml")
