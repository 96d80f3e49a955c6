"""The design of a study: what is compared with what, on how many labels, how often; settings in, trials out.

A trial is an arm at a label budget with a seed. What arms must share at a (budget, seed) they share by
construction: the labelled rows (nested over budgets), their order, dropout, the first weights of what is new, the
tokenizer, the number of steps, and the learning rates that each may choose from on valid.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from headstart.config import defaults
from headstart.config import study as c
from headstart.config.model import ModelConfig
from headstart.config.resolve import pretraining_learning_rate
from headstart.config.study import FinetunePart, StudyConfig, StudyPart
from headstart.config.training import PretrainObjective
from headstart.data.labels import has_rare_class
from headstart.errors import UserError, nearest
from headstart.randomness import seed_of

# The head that an objective is pretrained with.
HEADS: dict[str, Any] = {"causal": "lm", "masked": "masked", "masked-nsp": "masked-nsp"}
MIXES: dict[str, tuple[c.ArmKind, ...]] = {
    "tfidf-lsa": ("tfidf", "lsa"), "combined": ("tfidf", "lsa", "frozen", "finetuned"),
}  # fmt: skip
"""The arms that are mixes of others, as far as the study has those."""
MIXED = MIXES["combined"]


class Arm(NamedTuple):
    """One way of doing the task."""

    name: str
    kind: c.ArmKind
    objective: PretrainObjective | None
    title: str

    @property
    def direction(self) -> Literal["causal", "bidirectional"]:
        return "causal" if self.objective == "causal" else "bidirectional"


class Trial(NamedTuple):
    """An arm at a budget with a seed."""

    arm: Arm
    budget: int
    seed: int

    @property
    def name(self) -> str:
        return f"{self.arm.name}-b{self.budget}-s{self.seed}"


class Pretraining(NamedTuple):
    """The pretraining of an objective with a seed; the control has its tokens shuffled."""

    objective: PretrainObjective
    seed: int
    shuffled: bool = False

    @property
    def name(self) -> str:
        return f"{'shuffled-' if self.shuffled else ''}{self.objective}-s{self.seed}"

    @classmethod
    def of(cls, trial: Trial, study: StudyPart) -> "Pretraining | None":
        """The one that a trial starts from, if it is the study's own."""
        arm = trial.arm
        if arm.kind not in c.PRETRAINED or arm.objective is None:
            return None
        return cls(arm.objective, trial.seed % study.pretrain_seeds, arm.kind == "shuffled")


class Seeds(NamedTuple):
    """The seeds of a trial, each for one purpose; which arm it is does not come into it."""

    labels: int
    initial: int
    order: int

    @classmethod
    def of(cls, study_seed: int, seed: int) -> "Seeds":
        return cls(*(seed_of(study_seed, f"study {purpose}", seed) % 2**31 for purpose in cls._fields))


def arms_of(study: StudyPart) -> list[Arm]:
    """The arms in the order in which to show them; a given start reads as the first objective of its direction."""
    _refuse_unknown("arm", study.arms, (*c.KINDS, *c.OPTIONAL))
    _refuse_unknown("objective", study.objectives, c.OBJECTIVES)
    for mix, needed in {**MIXES, "combined": ("tfidf", "finetuned")}.items():
        if missing := [kind for kind in needed if mix in study.arms and kind not in study.arms]:
            fix = f"give {', '.join(missing)} too"
            raise UserError(f"the arm {mix} without {' and '.join(missing)}", fix=fix, code="missing")
    objectives: list[PretrainObjective] = list(dict.fromkeys(study.objectives))  # type: ignore[arg-type]
    first, several = objectives[0], len(objectives) > 1
    # Causal and bidirectional bases differ without any pretraining too: each has a scratch of its own.
    readers = {("causal" if o == "causal" else "masked"): o for o in reversed(objectives)}
    both = len(readers) > 1
    imported = readers.get(study.start_reads, first)
    arms = [
        Arm("majority", "majority", None, "always the majority class"),
        Arm("tfidf", "tfidf", None, "TF-IDF of words and characters, logistic regression"),
        Arm("lsa", "lsa", None, "TF-IDF and truncated SVD of the unlabelled text too, logistic regression"),
        Arm("tfidf-lsa", "tfidf-lsa", None, "TF-IDF and LSA, mixed: the best use of the text without a network"),
    ]
    for reader, objective in sorted(readers.items(), key=lambda pair: objectives.index(pair[1])):
        how = {"causal": " (causal)", "masked": " (bidirectional)"}[reader] if both else ""
        name = f"scratch-{reader}" if both else "scratch"
        arms.append(Arm(name, "scratch", objective, f"from scratch{how}"))
    name = f"frozen-{first}" if several else "frozen"
    arms.append(Arm(name, "frozen", first, f"pretrained ({first}) and frozen: logistic regression on its vectors"))
    for objective in objectives:
        name = f"finetuned-{objective}" if several else "finetuned"
        arms.append(Arm(name, "finetuned", objective, f"pretrained ({objective}), then fine-tuned"))
    for objective in objectives:
        name = f"combined-{objective}" if several else "combined"
        arms.append(Arm(name, "combined", objective, f"fine-tuned ({objective}), frozen, TF-IDF and LSA, mixed"))
    arms += [
        Arm("imported", "imported", imported, "the given start, fine-tuned"),
        Arm("shuffled", "shuffled", first, "pretrained on the same tokens in random order, then fine-tuned"),
        Arm("scratch-long", "scratch-long", first, "from scratch, with the pretraining's compute on top"),
    ]
    return [arm for arm in arms if arm.kind in study.arms]


def metric_of(study: StudyPart, counts: Mapping[str, int]) -> c.Metric:
    """What to compare by, from the rows of each class in train."""
    if study.metric != "auto":
        return study.metric
    return "macro_f1" if has_rare_class(counts) else "accuracy"


def _refuse_unknown(what: str, given: list[str], known: tuple[str, ...]) -> None:
    if not given:
        raise UserError(f"no {what} at all", fix=f"give some of {', '.join(known)}", code="missing")
    for name in given:
        if name not in known:
            raise UserError(f"no {what} {name!r}", fix=nearest(name, known), code="unknown-name")


def trials_of(study: StudyPart) -> Iterator[Trial]:
    """Every trial; those with most labels first, since they take longest."""
    for budget in sorted(study.budgets, reverse=True):
        for arm in arms_of(study):
            if arm.kind == "scratch-long" and budget != max(study.budgets):
                continue  # equal total compute is read at the largest budget only
            for seed in range(study.seeds):
                yield Trial(arm, budget, seed)


def pairs_of(arms: list[Arm]) -> list[tuple[Arm, Arm]]:
    """The comparisons of interest, (arm, against): what pretraining bought, and what else would have done."""

    def of(*kinds: str) -> list[Arm]:
        return [arm for arm in arms if arm.kind in kinds]

    tuned, scratches = of("finetuned", "imported"), of("scratch")
    alone = len({scratch.direction for scratch in scratches}) == 1
    pairs = [(a, s) for a in tuned for s in scratches if alone or a.direction == s.direction]
    pairs += [(arm, other) for other in of("tfidf") for arm in (*tuned, *of("frozen", "combined"))]
    pairs += [(arm, other) for other in of("lsa") for arm in tuned]
    pairs += [(arm, other) for other in of("tfidf-lsa") for arm in of("combined")]
    for other in of("shuffled", "frozen", "scratch-long"):
        pairs += [(arm, other) for arm in of("finetuned") if arm.objective == other.objective]
    pairs += [(later, earlier) for earlier, later in itertools.combinations(of("finetuned"), 2)]
    return pairs + [(scratch, other) for other in of("tfidf") for scratch in scratches]


def learning_rates_of(finetune: FinetunePart, model: ModelConfig) -> list[float]:
    """The learning rates to choose from: given, or three up to what suits a pretraining of this width."""
    if finetune.learning_rate:
        return [finetune.learning_rate]
    if finetune.learning_rates:
        return sorted(finetune.learning_rates)
    return [float(f"{pretraining_learning_rate(model) * share:.1g}") for share in (0.1, 0.33, 1.0)]


def learning_rates_for(arm: Arm, finetune: FinetunePart, learning_rates: list[float]) -> list[float]:
    """Those that an arm tries: its own one, or those of all."""
    own = finetune.scratch_learning_rate if arm.kind.startswith("scratch") else None
    return [own] if own else learning_rates


def steps_of(finetune: FinetunePart, budget: int) -> tuple[int, int]:
    """The steps of every neural trial at a budget, and how many of them make an epoch."""
    epoch = -(-budget // finetune.batch)
    epochs = finetune.epochs or defaults.FINETUNE_EPOCHS
    return finetune.steps or max(finetune.least_steps, round(epochs * epoch)), epoch


def check(config: StudyConfig) -> None:
    """Refuse what no study can do."""
    if config.finetune.time or any(phase.time for phase in config.pretrain):
        fix = "give the study a time, or its parts steps or epochs"
        raise UserError("a time for a part of a study", fix=fix, code="conflict")
    if config.finetune.learning_rate and config.finetune.learning_rates:
        raise UserError("learning_rate and learning_rates at once", fix="give one of them", code="conflict")


def default_budgets(rows: int, classes: int = 0) -> list[int]:
    return [*(budget for budget in (50, 200, 800) if classes <= budget < rows), rows]


def with_budgets(study: StudyPart, rows: int, classes: int) -> StudyPart:
    """The study with its budgets set, and checked against the rows that there are."""
    budgets = sorted(set(study.budgets)) or default_budgets(rows, classes)
    for budget in budgets:
        if not classes <= budget <= rows:
            raise UserError(
                f"a budget of {budget:,} labels, where train has {rows:,} rows of {classes} classes",
                fix=f"give --budgets between {classes} and {rows}",
            )
    return dataclasses.replace(study, budgets=budgets)
