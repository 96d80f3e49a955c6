"""The metrics by which the best checkpoint of a run can be chosen, and when a run stops for lack of a better one."""

import math
from collections.abc import Mapping

from headstart.config.training import LoopConfig
from headstart.errors import UserError
from headstart.inference.evaluate import Scores
from headstart.runs.directory import finite
from headstart.training.checkpoints import CheckpointManager, LoopState

# What an evaluation on valid gives, for each objective.
METRICS: dict[str, tuple[str, ...]] = {
    "causal": ("loss",),
    "masked": ("loss", "masked_accuracy"),
    "masked-nsp": ("loss", "masked_loss", "masked_accuracy", "pair_loss", "pair_accuracy"),
    "classification": ("loss", "accuracy", "macro_f1", "balanced_accuracy", "mcc", "calibration_error"),
    "multilabel": ("loss", "accuracy", "micro_f1", "macro_f1"),
    "regression": ("loss", "rmse", "mae", "pearson", "spearman"),
    "translation": ("loss", "cross_entropy", "accuracy", "bleu", "chrf"),
}

LESS_IS_BETTER = {"loss", "cross_entropy", "masked_loss", "pair_loss", "rmse", "mae", "calibration_error"}


def check_best_metric(objective: str, given: LoopConfig) -> None:
    """Refuse a metric that a run of this objective does not have, before anything is read."""
    if given.best_metric not in METRICS[objective]:
        fix = f"--best-metric one of {', '.join(METRICS[objective])}"
        raise UserError(f"a {objective} run has no metric {given.best_metric}", fix=fix, code="unknown-name")
    if given.best_metric == "loss":
        return
    for flag, value in (("--patience", given.patience), ("--evaluate-every", given.evaluate_every)):
        if not value:
            raise UserError(f"--best-metric without {flag}", fix=f"give {flag} too", code="missing")


def to_minimize(values: Mapping[str, float], metric: str) -> float:
    """The metric with a sign such that less is better."""
    return values[metric] if metric in LESS_IS_BETTER else -values[metric]


def log_scores(scores: Scores, state: LoopState, loop: LoopConfig, checkpoints: CheckpointManager) -> None:
    """Log an evaluation; save the best, and stop where patience ends."""
    state.evaluated_step = state.step
    state.evaluations.append(finite({"step": state.step, **scores.values}))
    checkpoints.metrics.write(event="valid", step=state.step, **scores.values)
    score = to_minimize(scores.values, loop.best_metric)
    if math.isfinite(score) and (state.best_score is None or score < state.best_score):
        state.best_score, state.best_step = score, state.step
        if loop.patience:
            checkpoints.save_best(state)
    elif loop.patience:
        waited = (state.step - max(0, state.best_step)) // max(1, loop.evaluate_every)
        state.stopped_early = waited >= loop.patience
