"""What makes a run what it is, as resolved: config.toml."""

from dataclasses import field
from typing import Annotated, Literal

from headstart.config import training
from headstart.config.model import HeadConfig, ModelConfig
from headstart.config.reading import Reading

ObjectiveName = Literal[
    "causal", "masked", "masked-nsp", "classification", "multilabel", "regression", "translation", "base"
]
FrameName = Literal["causal", "masked", "roberta", "marian"]


class DataConfig(training.CorpusFiles, training.LabelledFiles, training.LabelSubset, training.Shuffling, Reading):
    """Where the examples come from, and how they are read."""

    weights: Annotated[list[float], training.WEIGHT] = field(default_factory=list)
    """How often the blocks of each file of the corpus come in an epoch (empty: all once)."""

    fingerprint: str = ""
    """Over the content of all of it."""


class TranslationConfig(training.BatchTokens, training.TranslationOptions):
    """What a translation run has besides; of the target's own tokenizer the fingerprint."""


class RunConfig(
    training.TextLength, training.BatchSize, training.ClassWeighting, training.Freezing, training.Start,
    training.EmbeddingInit,
):  # fmt: skip
    """All that makes a run what it is: config.toml. Of the start it has the digest of its weights."""

    objective: ObjectiveName
    """What is predicted."""

    frame: FrameName
    """The special tokens around a text: begin and end, cls and sep (RoBERTa: two between texts), or Marian's."""

    pairs: bool = False
    """Whether it was fine-tuned on pairs of texts."""

    label_names: list[str] = field(default_factory=list)
    """The classes, in the order of their numbers."""

    data: DataConfig
    model: ModelConfig
    head: HeadConfig
    optimizer: training.OptimizerConfig
    loop: training.LoopConfig
    masking: training.Masking
    translation: TranslationConfig | None = None
