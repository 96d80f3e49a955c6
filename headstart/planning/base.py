"""The base that a text and a time are worth, by the laws of docs/recipes.md: shape, objective, tokenizer, training.

A study takes it, and so do a pretraining and a fine-tuning to which nobody gave a shape. The laws were read off
benchmarks/recipes.py, and from 1e16 operations on off benchmarks/cls-books.toml.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from headstart.planning.operations import per_text
from headstart.planning.workload import BYTES_A_TOKEN, Workload

Objective = Literal["causal", "masked"]


class Size(NamedTuple):
    """A shape, and from how many operations of pretraining on it is the best one."""

    operations: float
    width: int
    depth: int
    batch_tokens: int


SIZES = (
    Size(0, 128, 2, 4_096),
    Size(3e14, 192, 3, 4_096),
    Size(6e14, 256, 4, 8_192),
    Size(3e15, 384, 6, 16_384),
    Size(1e16, 512, 6, 65_536),
)
REGULARISED_FROM = 3e15
"""Operations from which dropout in pretraining and R-Drop in fine-tuning were part of what worked."""

TRIPLED_WORTH = (0.0, 1.2)
"""Points that three times the operations added with 200 labels, where that was measured: the least and the most."""

MOST_PASSES = {"causal": 8, "masked": 40}  # over the corpus; beyond, a small model learns it by heart
MOST_WITH_DROPOUT = 80  # passes of a masked base
MOSTLY_READ = 0.85  # of those passes: from here on more time is not worth it
LEAST_VOCAB, BYTES_A_WORD = 1_000, 250  # bytes of corpus for each token of the vocabulary
MOST_VOCAB = {"cooccurrence": 16_000, "random": 8_000}  # by what the first vectors of the tokens are
COUNTED_BELOW = 1e16
"""Operations below which vectors counted beforehand, with a vocabulary that makes the most of them, were better."""

CONTEXT = 512  # tokens, the longest block
PRESET = "modern-small"  # what the shape overrides
SHAPELESS = {"dropout", "attention_dropout", "ffn_dropout"}
"""Fields of the model that leave its shape to the recipe."""


class BaseRecipe(NamedTuple):
    """The settings of a base, by the part of the configuration that they belong to."""

    objective: Objective
    model: dict[str, Any]
    tokenizer: dict[str, Any]
    pretrain: dict[str, Any]


def base_recipe(size: Size, corpus_tokens: float, text_tokens: float) -> BaseRecipe:
    """What follows from the shape, the tokens of the corpus, and those of a text of the task (or of the corpus)."""
    is_regularised = size.operations >= REGULARISED_FROM
    first_vectors = "cooccurrence" if size.operations < COUNTED_BELOW else "random"
    vocab = min(MOST_VOCAB[first_vectors], max(LEAST_VOCAB, BYTES_A_TOKEN * corpus_tokens // BYTES_A_WORD))
    length = min(CONTEXT, 2 ** max(7, round(2 * text_tokens - 1).bit_length()))
    return BaseRecipe(
        objective="masked",
        model={
            "width": size.width, "depth": size.depth, "heads": size.width // 64,
            "ffn": 1_408 if size.width == 512 else 3 * size.width, "context": CONTEXT, "embedding_norm": True,
            "dropout": 0.1 if is_regularised else 0.0,
        },
        tokenizer={"vocab": int(vocab), "normalise": ["lower-case"]},
        pretrain={
            "length": length, "batch_tokens": size.batch_tokens, "optimizer": "muon-split",
            "learning_rate": 2e-3, "muon_lr": 0.01, "weight_decay": 0.1, "schedule": "linear",
            "mask_prob": 0.3 if size.width >= 256 else 0.15, "mask_random": 0.0, "mask_kept": 0.0,
            "embedding_init": first_vectors,
        },
    )  # fmt: skip


def finetune_recipe(size: Size) -> dict[str, Any]:
    """How a base of this size is fine-tuned; of several learning rates the first is the best for most tasks."""
    is_regularised = size.operations >= REGULARISED_FROM
    # Weights that know something already want smaller steps, and so do wide models.
    pretrained, scratch = (3e-4, 1e-3) if size.width < 512 else (1e-4, 3e-4)
    return {
        "pooling": "mean", "average": "tail", "dropout": 0.1, "epochs": 4.0 if is_regularised else 3.0,
        "r_drop": 1.0 if is_regularised else 0.0, "learning_rates": [pretrained, scratch],
        "scratch_learning_rate": scratch,
    }  # fmt: skip


def largest(operations_on: Callable[[Size], float]) -> Size:
    """The largest shape that gets its operations, given those that are to be had on each."""
    chosen = SIZES[0]
    for size in SIZES[1:]:
        if operations_on(size) < size.operations:
            break
        chosen = size
    return chosen


def most_passes(objective: str, dropout: float) -> int:
    """How often a base can read a text with profit."""
    has_dropout = objective != "causal" and dropout > 0
    return MOST_WITH_DROPOUT if has_dropout else MOST_PASSES.get(objective, MOST_PASSES["masked"])


def step_operations(work: Workload) -> float:
    """Of one step, forward and backward."""
    counted = per_text(work.config, work.head, work.lengths, masked_share=work.masked_share)
    return float(work.batch * (counted.forward + counted.backward))


def worth(factor: float) -> tuple[float, float]:
    """The points that so many times the operations may add with 200 labels: the least and the most."""
    low, high = TRIPLED_WORTH
    return low * math.log(factor, 3), high * math.log(factor, 3)
