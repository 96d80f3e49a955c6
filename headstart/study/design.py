"""The design of a study: what is compared with what, on how many labels, how often; settings in, trials out.

A trial is an arm at a label budget with a seed. What arms must share at a (budget, seed) they share by
construction: the labelled rows (nested over budgets), their order, dropout, the first weights of what is new, the
tokenizer, the number of steps, and the learning rates that each may choose from on valid.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from headstart.config import nearest
from headstart.errors import UserError
from headstart.model.presets import ModelConfig
from headstart.plan.workload import OptimizerName
from headstart.randomness import seed_of
from headstart.text.normalising import Normalisation
from headstart.training.pretrain import PretrainObjective, default_rate

ArmKind = Literal[
    "majority", "tfidf", "scratch", "frozen", "finetuned", "imported", "shuffled", "scratch-long"
]
KINDS: tuple[ArmKind, ...] = ("majority", "tfidf", "scratch", "frozen", "finetuned")  # what is always there
OPTIONAL: tuple[ArmKind, ...] = ("imported", "shuffled", "scratch-long")
BASELINES, PRETRAINED = ("majority", "tfidf"), ("frozen", "finetuned", "shuffled")
OBJECTIVES: tuple[PretrainObjective, ...] = ("causal", "masked", "masked-nsp")


@dataclass(frozen=True, kw_only=True)
class ReadingPart:
    """How the files are read."""

    text_column: str = "text"
    label_column: str = "label"
    encoding: str = "utf-8"
    errors: Literal["strict", "replace", "ignore"] = "strict"
    skip_bad_rows: bool = False


@dataclass(frozen=True, kw_only=True)
class TokenizerPart:
    """The tokenizer that all arms share."""

    path: str = ""
    """A tokenizer's directory (empty: one is trained on the corpus)."""

    kind: Literal["bpe", "unigram", "wordpiece", "char"] = "bpe"
    vocab: int = 8_000
    normalise: list[Normalisation] = field(default_factory=list)
    """What one that is trained makes alike in every text: lower-case, apostrophes."""


@dataclass(frozen=True, kw_only=True)
class PretrainPart:
    """One phase of pretraining; the next one starts from it."""

    corpus: list[str] = field(default_factory=list)
    valid: str = ""
    documents: Literal["auto", "line", "blank", "file"] = "auto"
    epochs: float = 3.0
    steps: int = 0
    """Updates, instead of epochs."""

    length: int = 0
    """Tokens of a block (0: the context)."""

    batch_tokens: int = 0
    """Tokens in a step (0: by the device)."""

    learning_rate: float = 0.0
    """Peak rate (0: by the width)."""

    optimizer: OptimizerName = "adamw"
    matrix_rate: float = 0.005
    """Peak rate of Muon."""

    schedule: Literal["linear", "cosine", "constant", "inverse-sqrt"] = "cosine"
    warmup: float = 0.05
    cooldown: float = 0.2
    """Share of the steps that a constant schedule falls over at the end (0: a next phase goes on from its rate)."""

    weight_decay: float = 0.01
    mask_share: float = 0.15
    """Share of the tokens that the masked objectives hide."""

    mask_random: float = 0.1
    """Share of those that become another token and not the mask token."""

    mask_kept: float = 0.1
    """Share of those that stay as they are."""

    whole_words: bool = False
    """Whether they hide whole words."""

    evaluations: int = 8
    """Points of the pretraining curve."""


@dataclass(frozen=True, kw_only=True)
class FinetunePart:
    """The labelled task, and how each trial learns it."""

    train: str = ""
    valid: str = ""
    test: str = ""
    epochs: float = 10.0
    least_steps: int = 160
    """Steps at the small budgets, where the epochs would be too few to learn anything."""

    batch: int = 16
    length: int = 0
    """Tokens of the longest text (0: the context)."""

    rates: list[float] = field(default_factory=list)
    """The learning rates that every neural arm may choose from (empty: three, by the width)."""

    pooling: Literal["", "last", "mean", "first"] = ""
    weight_decay: float = 0.01
    schedule: Literal["linear", "cosine", "constant", "inverse-sqrt"] = "linear"
    warmup: float = 0.1
    layer_decay: float = 1.0
    """The rate of each layer is this times that of the layer above it, where weights have learned before."""

    unfreeze: float = 0.0
    """Share of the steps over which a base that has learned before begins to learn again, one block after the other
    from the top down, the embedding last (0: all of it from the start)."""

    average: Literal["none", "ema", "tail"] = "none"
    """Weights to end with: the last, a moving average, or the mean over the last fifth of the steps."""

    dropout: float | None = None
    """Dropout of the base and before the classifier, instead of the model's (not given: the model's)."""

    r_drop: float = 0.0
    """Weight of the disagreement between two readings of each text with different dropout (0: one reading)."""

    evaluations: int = 10
    """Points of the curve over epochs, at most."""


@dataclass(frozen=True, kw_only=True)
class StudyPart:
    """What is compared."""

    demo: Literal["", "plain", "null"] = ""
    """The embedded corpus instead of files."""

    preset: str = "tiny"
    objectives: list[str] = field(default_factory=lambda: ["causal"])
    arms: list[str] = field(default_factory=lambda: list(KINDS))
    budgets: list[int] = field(default_factory=list)
    """Numbers of labels (empty: 50, 200, 800 and all)."""

    seeds: int = 5
    pretrain_seeds: int = 1
    """Pretraining runs for each objective; trials of seed s take run s modulo this."""

    start: str = ""
    """A run to take as a base: its tokenizer and shape are then everyone's."""

    start_reads: Literal["", "causal", "masked"] = ""
    """How the start reads its text: taken from it."""

    seed: int = 0
    """What all seeds are derived from."""

    threads: int = 1
    """Threads of every trial: fixed, so that the results do not depend on how many run side by side."""

    precision: Literal["auto", "fp32", "bf16"] = "auto"
    fast: bool = False
    """On a GPU exact repetition is given up for speed; as resolved, whether it was."""


@dataclass(frozen=True, kw_only=True)
class StudyConfig:
    """A STUDY.toml, as given or as resolved; `model` is kept apart, since it belongs to a preset."""

    study: StudyPart = StudyPart()
    tokenizer: TokenizerPart = TokenizerPart()
    reading: ReadingPart = ReadingPart()
    pretrain: list[PretrainPart] = field(default_factory=list)
    finetune: FinetunePart = FinetunePart()


class Arm(NamedTuple):
    """One way of doing the task."""

    name: str
    kind: ArmKind
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
        if arm.kind not in PRETRAINED or arm.objective is None:
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
    _refuse_unknown("arm", study.arms, (*KINDS, *OPTIONAL))
    _refuse_unknown("objective", study.objectives, OBJECTIVES)
    objectives: list[PretrainObjective] = list(dict.fromkeys(study.objectives))  # type: ignore[arg-type]
    first, several = objectives[0], len(objectives) > 1
    # Causal and bidirectional bases differ without any pretraining too: each has a scratch of its own.
    readers = {("causal" if o == "causal" else "masked"): o for o in reversed(objectives)}
    both = len(readers) > 1
    imported = readers.get(study.start_reads, first)
    arms = [
        Arm("majority", "majority", None, "always the commonest class"),
        Arm("tfidf", "tfidf", None, "TF-IDF of words and characters, logistic regression"),
    ]
    for reader, objective in sorted(readers.items(), key=lambda pair: objectives.index(pair[1])):
        how = {"causal": " (causal)", "masked": " (bidirectional)"}[reader] if both else ""
        arms.append(
            Arm(f"scratch-{reader}" if both else "scratch", "scratch", objective, f"from scratch{how}")
        )
    name = f"frozen-{first}" if several else "frozen"
    arms.append(Arm(name, "frozen", first, f"pretrained ({first}) and frozen: only the head learns"))
    for objective in objectives:
        name = f"finetuned-{objective}" if several else "finetuned"
        arms.append(Arm(name, "finetuned", objective, f"pretrained ({objective}), then fine-tuned"))
    arms += [
        Arm("imported", "imported", imported, "the given start, fine-tuned"),
        Arm("shuffled", "shuffled", first, "pretrained on the same tokens in random order, then fine-tuned"),
        Arm("scratch-long", "scratch-long", first, "from scratch, with the pretraining's compute on top"),
    ]
    return [arm for arm in arms if arm.kind in study.arms]


def _refuse_unknown(what: str, given: list[str], known: tuple[str, ...]) -> None:
    if not given:
        raise UserError(f"no {what} at all", fix=f"give some of {', '.join(known)}")
    for name in given:
        if name not in known:
            raise UserError(f"no {what} {name!r}", fix=nearest(name, known))


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
    pairs += [(arm, other) for other in of("tfidf") for arm in tuned]
    for other in of("shuffled", "frozen", "scratch-long"):
        pairs += [(arm, other) for arm in of("finetuned") if arm.objective == other.objective]
    pairs += [(later, earlier) for earlier, later in itertools.combinations(of("finetuned"), 2)]
    return pairs + [(scratch, other) for other in of("tfidf") for scratch in scratches]


def rates_of(finetune: FinetunePart, model: ModelConfig) -> list[float]:
    """The learning rates to choose from: given, or three up to what suits a pretraining of this width."""
    if finetune.rates:
        return sorted(finetune.rates)
    return [float(f"{default_rate(model) * share:.1g}") for share in (0.1, 0.33, 1.0)]


def steps_of(finetune: FinetunePart, budget: int) -> tuple[int, int]:
    """The steps of every neural trial at a budget, and how many of them make an epoch."""
    epoch = -(-budget // finetune.batch)
    return max(finetune.least_steps, round(finetune.epochs * epoch)), epoch


def check(config: StudyConfig) -> None:
    """Refuse numbers that no study can have."""
    study, finetune = config.study, config.finetune
    numbers = [
        ("seeds", study.seeds), ("pretrain-seeds", study.pretrain_seeds), ("threads", study.threads),
        ("batch", finetune.batch), ("evaluations", finetune.evaluations),
        *(("evaluations of the pretraining", phase.evaluations) for phase in config.pretrain),
    ]  # fmt: skip
    for name, number in numbers:
        if number < 1:
            raise UserError(f"{name} is {number}", fix="give 1 or more")
    fates = [phase.mask_random + phase.mask_kept for phase in config.pretrain]
    shares = [
        ("dropout in fine-tuning", finetune.dropout or 0.0, 0 <= (finetune.dropout or 0.0) < 1),
        ("layer_decay", finetune.layer_decay, 0 < finetune.layer_decay <= 1),
        ("unfreeze", finetune.unfreeze, 0 <= finetune.unfreeze <= 1),
        *(("mask_share", phase.mask_share, 0 < phase.mask_share < 1) for phase in config.pretrain),
        *(("mask_random", phase.mask_random, phase.mask_random >= 0) for phase in config.pretrain),
        *(("mask_kept", phase.mask_kept, phase.mask_kept >= 0) for phase in config.pretrain),
        *(("mask_random and mask_kept together", both, both <= 1) for both in fates),
        *(("cooldown", phase.cooldown, 0 <= phase.cooldown <= 1) for phase in config.pretrain),
    ]
    for name, share, is_possible in shares:
        if not is_possible:
            raise UserError(f"{name} is {share}", fix="give a share between 0 and 1")
    if not 0 <= finetune.r_drop < math.inf:
        raise UserError(f"r_drop is {finetune.r_drop}", fix="give 0 or more, such as 1")
    for rate in finetune.rates:
        if not 0 < rate < 1:
            raise UserError(
                f"a learning rate of {rate}", fix="give --rates between 0 and 1, such as 1e-4,3e-4,1e-3"
            )


def with_budgets(study: StudyPart, rows: int, classes: int) -> StudyPart:
    """The study with its budgets set, and checked against the rows that there are."""
    budgets = sorted(set(study.budgets)) or [*(b for b in (50, 200, 800) if classes <= b < rows), rows]
    for budget in budgets:
        if not classes <= budget <= rows:
            raise UserError(
                f"a budget of {budget:,} labels, where train has {rows:,} rows of {classes} classes",
                fix=f"give --budgets between {classes} and {rows}",
            )
    return dataclasses.replace(study, budgets=budgets)
