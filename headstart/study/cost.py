"""What a study costs, in operations, from its design alone: pretrainings, steps and trials."""

from headstart.plan.operations import Lengths, per_text
from headstart.study.design import BASELINES, Arm, Trial, steps_of
from headstart.study.material import Material, text_operations
from headstart.training.pretrain import PretrainObjective


def pretraining_operations(material: Material, objective: PretrainObjective) -> float:
    """Forward and backward over all phases."""
    phases = zip(material.config.pretrain, material.steps[objective], strict=True)
    return float(
        sum(
            steps * max(1, phase.batch_tokens // phase.length) * text_operations(material, objective, phase)
            for phase, steps in phases
        )
    )


def step_operations(material: Material, arm: Arm) -> float:
    """Of one step of fine-tuning, by the mean length of a text; a frozen base has no backward."""
    freeze = "base" if arm.kind == "frozen" else None
    lengths = Lengths(max(1, round(material.mean_tokens)))
    totals = per_text(material.model_for(arm.objective), material.head, lengths, freeze)  # type: ignore[arg-type]
    readings = 2 if material.config.finetune.r_drop else 1
    return float(readings * material.config.finetune.batch * (totals.forward + totals.backward))


def trial_steps(material: Material, trial: Trial) -> tuple[int, int]:
    """The steps of each try of a trial, and how many make an epoch; the long scratch has the base's compute too."""
    steps, epoch = steps_of(material.config.finetune, trial.budget)
    if trial.arm.kind == "scratch-long":
        extra = pretraining_operations(material, trial.arm.objective or "causal")
        steps += round(extra / len(material.rates) / step_operations(material, trial.arm))
    return steps, epoch


def trial_operations(material: Material, trial: Trial) -> float:
    """Of all tries of a trial; baselines count as none."""
    if trial.arm.kind in BASELINES:
        return 0.0
    steps, _ = trial_steps(material, trial)
    return len(material.rates) * steps * step_operations(material, trial.arm)
