"""The largest sensible model for a corpus, a machine and a time.

The rule: a model is worth its size where it reads about 20 tokens for each parameter (Hoffmann et al., 2022: at equal
compute neither a larger one that reads less nor a smaller one that reads more does better), and a text read again
teaches nearly as much as a new one up to the fourth time (Muennighoff et al., 2023). So of the sizes below the largest
is taken that can read 20 tokens a parameter in the given time, counting four passes over the corpus at most. The
corpus is then read for all of that time, up to 20 passes: beyond, a small model learns it by heart.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from headstart.config.defaults import PRETRAIN_BATCH_TOKENS
from headstart.config.model import HeadConfig, ModelConfig
from headstart.config.presets import preset
from headstart.errors import UserError
from headstart.planning.machines import Target
from headstart.planning.memory import largest_fitting, training_memory
from headstart.planning.parameters import total
from headstart.planning.time import Prices, step_seconds
from headstart.planning.workload import ComputePrecision, Lengths, Workload, reading_of

TOKENS_A_PARAMETER = 20
USEFUL_PASSES, MOST_PASSES = 4, 20

# The presets' kind of model in other sizes: heads 64 wide, feed-forward by the same factor.
SIZES = ((64, 2), (128, 2), (192, 4), (256, 4), (384, 6), (512, 6), (640, 10), (768, 12), (1024, 16), (1280, 24))


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What there is to train with, for a model of any size."""

    head: HeadConfig
    target: Target
    prices: Prices
    precision: ComputePrecision
    budget_seconds: float
    corpus_tokens: float
    length: int | None = None  # tokens of a text; None: the model's context


@dataclass(frozen=True)
class Choice:
    """What to train, and for how long."""

    work: Workload
    parameters: int
    steps: int
    seconds: float
    passes: float  # over the corpus
    bound: str  # what kept it from being larger: time, text or memory


def candidates(preset_name: str, overrides: dict[str, Any]) -> Iterator[ModelConfig]:
    """The preset in all sizes, smallest first; a width or depth that was given is kept."""
    like = preset(preset_name, **overrides)
    shapes = set()
    for width, depth in SIZES:
        width, depth = int(overrides.get("width") or width), int(overrides.get("depth") or depth)
        heads = int(overrides.get("heads") or max(1, width // 64))
        ffn = int(overrides.get("ffn") or -(-round(width * like.ffn / like.width) // 64) * 64)
        if (width, depth) not in shapes:
            shapes.add((width, depth))
            yield replace(like, width=width, depth=depth, heads=heads, ffn=ffn)


def choose(sizes: Iterable[ModelConfig], resources: Resources) -> Choice:
    """The largest model that is worth it, of these from the smallest on; at least the smallest."""
    chosen: Choice | None = None
    bound = "the sizes that there are"
    for config in sizes:
        fitted = _fitted(config, resources)
        if fitted is None:
            bound = "the memory"
            break
        tokens = fitted.steps * fitted.work.batch * fitted.work.lengths.source
        useful = min(tokens, USEFUL_PASSES * resources.corpus_tokens)
        if chosen is not None and useful < TOKENS_A_PARAMETER * fitted.parameters:
            bound = "the text" if useful < tokens else "the time"
            break
        chosen = fitted
    if chosen is None:
        raise UserError("not even the smallest model fits", fix="give a smaller --vocab or --length", code="too-large")
    return replace(chosen, bound=bound)


def _fitted(config: ModelConfig, resources: Resources) -> Choice | None:
    """How much of the corpus a model reads in the time, in batches that fit; None if none does."""
    n = min(resources.length or config.context, config.context)
    batch = max(1, PRETRAIN_BATCH_TOKENS[resources.target.kind] // n)
    whole = Workload(
        config=config, head=resources.head, batch=batch, lengths=Lengths(n), device=resources.target.kind,
        precision=resources.precision, reading=reading_of(resources.head.kind),
    )  # fmt: skip

    def fits(size: int) -> bool:
        parts = -(-whole.batch // size)
        return training_memory(replace(whole, accumulate=parts)).total <= resources.target.memory

    at_once = largest_fitting(fits, batch)
    if not at_once:
        return None
    work = replace(whole, accumulate=-(-batch // at_once))
    each, tokens, corpus = step_seconds(work, resources.prices).total, batch * n, resources.corpus_tokens
    steps = max(1, int(min(resources.budget_seconds / each, MOST_PASSES * corpus / tokens)))
    return Choice(work, total(config, resources.head), steps, steps * each, steps * tokens / corpus, "")
