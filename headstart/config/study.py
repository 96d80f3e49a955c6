"""The settings of a study: study.toml. What a trial shares with a single run is declared in config/training.py."""

from dataclasses import dataclass, field
from typing import Annotated, Literal, get_args

from headstart.config import training
from headstart.config.defaults import PRESET
from headstart.config.generation import Seed
from headstart.config.model import PoolingChoice
from headstart.config.reading import DocumentSplit, RowReading
from headstart.config.schema import BELOW_ONE, POSITIVE, SHARE, Bound, Settings, fields_of

_UsualArm = Literal["majority", "tfidf", "lsa", "tfidf-lsa", "scratch", "frozen", "finetuned", "combined"]
_OptionalArm = Literal["imported", "shuffled", "scratch-long"]
ArmKind = Literal[_UsualArm, _OptionalArm]
Metric = Literal["accuracy", "macro_f1"]

KINDS: tuple[ArmKind, ...] = get_args(_UsualArm)
OPTIONAL: tuple[ArmKind, ...] = get_args(_OptionalArm)
MOST_SEEDS = 1_000  # each is a trial for every arm and budget
STUDY_TIME = "30m"  # where data is given without a STUDY.toml
BASELINES, PRETRAINED = ("majority", "tfidf", "lsa"), ("frozen", "finetuned", "combined", "shuffled")
WITHOUT_STEPS = (*BASELINES, "tfidf-lsa", "frozen", "combined")  # no network is trained for them
OBJECTIVES: tuple[training.PretrainObjective, ...] = ("causal", "masked", "masked-nsp")


class TokenizerPart(training.TokenizerConfig):
    """The tokenizer that all arms share."""

    kind: training.TokenizerKind = "bpe"
    """Kind of tokenizer, where one is trained."""


class Evaluations(Settings):
    """How often a run of a study is evaluated."""

    evaluations: Annotated[int, Bound(1, 10_000)] = 8
    """Points of the curve, at most."""


class PretrainPart(
    training.CorpusFiles, DocumentSplit, training.Duration, training.TextLength, training.BatchTokens,
    training.OptimizerConfig, training.Schedule, training.Masking, training.EmbeddingInit, Evaluations,
    defaults=training.PRETRAIN_DEFAULTS,
    sentences={
        "steps": "Updates of each pretraining run.",
        "epochs": "Passes of pretraining over the corpus, instead of steps (3 where nothing else decides).",
        "batch_tokens": "Tokens in a batch of pretraining.",
    },
):  # fmt: skip
    """One phase of pretraining, by default 3 epochs; the next one starts from it."""

    labelled_texts: bool = False
    """Read the texts of train too, without their labels."""


class FinetunePart(
    training.LabelledFiles, training.Duration, training.BatchSize, training.ClassWeighting, training.TextLength,
    PoolingChoice,
    training.OptimizerConfig, training.Schedule, training.Averaging, Evaluations,
    defaults={"evaluations": 10},
    sentences={
        "epochs": "Passes of fine-tuning over the labelled rows (10 where nothing else decides).",
        "length": "Tokens of a block and of the longest labelled text; longer texts are truncated.",
        "train": "Labelled rows: .jsonl, .csv, .tsv, .parquet, lines with a .label file beside them, or the folder of "
        "a dataset.",
        "batch": "Texts in a batch of fine-tuning.",
    },
):  # fmt: skip
    """The labelled task, and how each trial learns it, by default in 10 epochs."""

    least_steps: Annotated[int, POSITIVE] = 160
    """Steps at the small budgets, where the epochs would be too few to learn anything."""

    learning_rates: Annotated[list[float], Bound(0, 1, is_open=True)] = field(default_factory=list)
    """Learning rates that every neural arm chooses from on valid (empty: three, by the width)."""

    unfreeze: Annotated[float, SHARE] = 0.0
    """Share of the steps over which a pretrained base is unfrozen, one block after the other from the top down, the
    embedding last (0: all of it trains from the start)."""

    scratch_learning_rate: Annotated[float, Bound(0, 1, is_open=True)] | None = None
    """Learning rate of the arms from scratch, which want a higher one (not given: those of the other arms)."""

    dropout: Annotated[float, BELOW_ONE] | None = None
    """Dropout of the base and before the classifier in fine-tuning (not given: the model's)."""


class StudyPart(
    training.TimeLimit, training.Preset, training.Start, Seed, training.Computing,
    defaults={"preset": PRESET, "start": "", "threads": 1},
    sentences={
        "time": "Time for the whole study on this machine, such as 90s, 30m or 2h; the recipe decides what is not "
        "given (default with your own data: 30m).",
        "preset": "Shape of the base, instead of the recipe's.",
        "start": "A run or an imported checkpoint to fine-tune, instead of pretraining.",
    },
):  # fmt: skip
    """What is compared."""

    demo: Literal["", "plain", "null"] = ""
    """The embedded corpus, or its null variant, in which pretraining cannot help, instead of files."""

    objectives: list[str] = field(default_factory=lambda: ["causal"])
    """What to pretrain by: causal, masked, masked-nsp; several get equal compute."""

    arms: list[str] = field(default_factory=lambda: list(KINDS))
    """What to compare: majority, tfidf, lsa, tfidf-lsa, scratch, frozen, finetuned, combined, shuffled, scratch-long
    (default: the first eight)."""

    budgets: Annotated[list[int], POSITIVE] = field(default_factory=list)
    """Numbers of labels (default: 50, 200, 800 and all)."""

    seeds: Annotated[int, Bound(1, MOST_SEEDS)] = 5
    """How often each trial is repeated with another seed (3 in the demo)."""

    pretrain_seeds: Annotated[int, Bound(1, MOST_SEEDS)] = 1
    """Pretraining runs for each objective; trials of seed s take run s modulo this."""

    metric: Literal["auto", Metric] = "auto"
    """What arms are compared by and chosen by on valid: accuracy, macro_f1, or (auto) macro_f1 where the rarest class
    has under a tenth of the rows of train, and under half of an even share."""

    start_reads: Literal["", "causal", "masked"] = ""
    """How the start reads its text: taken from it."""


@dataclass(frozen=True, kw_only=True)
class StudyConfig:
    """A STUDY.toml, as given or as resolved; `model` is kept apart, since it belongs to a preset."""

    study: StudyPart = StudyPart()
    tokenizer: TokenizerPart = TokenizerPart()
    reading: RowReading = RowReading()
    pretrain: list[PretrainPart] = field(default_factory=list)
    finetune: FinetunePart = FinetunePart()


# The settings of each part of a study, by the names of their flags and keywords.
PARTS = {
    "study": {
        **{n: n for n in ("time", "demo", "arms", "budgets", "seeds", "pretrain_seeds", "start", "preset", "fast")},
        "objective": "objectives", "metric": "metric",
    },
    "tokenizer": {"tokenizer": "tokenizer"},
    "pretrain": {
        "pretrain_epochs": "epochs", "pretrain_steps": "steps", "batch_tokens": "batch_tokens", "length": "length",
    },
    "finetune": {
        n: n for n in ("train", "valid", "test", "epochs", "batch", "learning_rates", "length", "class_weights")
    },
}  # fmt: skip
_CLASSES: tuple[type[Settings], ...] = (StudyPart, TokenizerPart, PretrainPart, FinetunePart)
SETTINGS = {
    flag: fields_of(cls)[name]._replace(name=flag)
    for cls, names in zip(_CLASSES, PARTS.values(), strict=True)
    for flag, name in names.items()
}
