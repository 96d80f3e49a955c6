"""By which measure the best checkpoint of a run is chosen, and when a run has waited long enough for a better one."""

from collections.abc import Mapping

from headstart.errors import UserError

# What an evaluation on valid gives, for each objective.
MEASURES: dict[str, tuple[str, ...]] = {
    "causal": ("loss",),
    "masked": ("loss", "masked_accuracy"),
    "masked-nsp": ("loss", "masked_loss", "masked_accuracy", "pair_loss", "pair_accuracy"),
    "classification": ("loss", "accuracy", "macro_f1", "balanced_accuracy", "mcc", "calibration_error"),
    "multilabel": ("loss", "accuracy", "micro_f1", "macro_f1"),
    "regression": ("loss", "rmse", "mae", "pearson", "spearman"),
    "translation": ("loss", "cross_entropy", "accuracy", "bleu", "chrf"),
}
LESS_IS_BETTER = {
    "loss", "cross_entropy", "masked_loss", "pair_loss", "rmse", "mae", "calibration_error"
}  # fmt: skip


def check_choice(objective: str, choose_by: str, patience: int, evaluate_every: int) -> None:
    """Refuse a measure that a run of this objective does not have, before anything is read."""
    if choose_by not in MEASURES[objective]:
        raise UserError(
            f"a {objective} run cannot be chosen by {choose_by}",
            fix=f"--choose-by one of {', '.join(MEASURES[objective])}",
        )
    if choose_by != "loss" and not patience:
        raise UserError(
            "--choose-by without --patience", fix="give --patience too: without it nothing is chosen"
        )
    if choose_by != "loss" and not evaluate_every:
        raise UserError(
            "--choose-by without --evaluate-every",
            fix="give --evaluate-every too: without it there is only one to choose from",
        )


def cost(values: Mapping[str, float], measure: str) -> float:
    """The measure as something to be made small."""
    return values[measure] if measure in LESS_IS_BETTER else -values[measure]
