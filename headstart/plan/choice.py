"""The largest sensible model for a corpus, a machine and a time.

The rule: a model is worth its size where it reads about 20 tokens for each parameter (Hoffmann et al., 2022: at equal
compute neither a larger one that reads less nor a smaller one that reads more does better), and a text read again
teaches nearly as much as a new one up to the fourth time (Muennighoff et al., 2023). So of the sizes below the largest
is taken that can read 20 tokens a parameter in the given time, counting four passes over the corpus at most. The
corpus is then read for all of that time, up to 20 passes: beyond, a small model learns it by heart.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from headstart.errors import UserError
from headstart.model.presets import HeadConfig, ModelConfig, preset
from headstart.plan.answer import largest_fitting, needed
from headstart.plan.machines import Target
from headstart.plan.memory import training_memory
from headstart.plan.operations import Lengths
from headstart.plan.parameters import total
from headstart.plan.time import Prices, step_seconds
from headstart.plan.workload import Precision, Workload, reading_of

TOKENS_A_PARAMETER = 20
USEFUL_PASSES, MOST_PASSES = 4, 20
BYTES_A_TOKEN = 4.0  # of text in a tokenizer of some thousand tokens, where none has counted it
CPU_BATCH_TOKENS, GPU_BATCH_TOKENS = 1_024, 65_536  # as pretraining takes by default
# The presets' kind of model in other sizes: heads 64 wide, feed-forward by the same factor.
SIZES = (
    (64, 2),
    (128, 2),
    (192, 4),
    (256, 4),
    (384, 6),
    (512, 6),
    (640, 10),
    (768, 12),
    (1024, 16),
    (1280, 24),
)


@dataclass(frozen=True, kw_only=True)
class Means:
    """What there is to train with, whatever the size of the model."""

    head: HeadConfig
    target: Target
    prices: Prices
    precision: Precision
    budget_seconds: float
    corpus_tokens: float
    length: int | None = None
    """Tokens of a text; None: the model's context."""


@dataclass(frozen=True)
class Choice:
    """What to train, and for how long."""

    work: Workload
    parameters: int
    steps: int
    seconds: float
    passes: float
    """Over the corpus."""

    bound: str
    """What kept it from being larger: time, text or memory."""


def seconds_in(budget: str) -> float:
    """`2h`, `90m`, `45s`, `3d` or `1h30m` in seconds."""
    parts = re.findall(r"([\d.]+)\s*([dhms])", budget.strip().lower())
    whole = "".join(f"{number}{unit}" for number, unit in parts)
    try:
        seconds = sum(float(n) * {"d": 86_400, "h": 3_600, "m": 60, "s": 1}[unit] for n, unit in parts)
    except ValueError:
        seconds = 0.0
    if whole != re.sub(r"\s", "", budget.lower()) or not 0 < seconds < float("inf"):
        raise UserError(f"a budget of {budget!r}", fix="give a time such as 2h, 90m or 1h30m")
    return seconds


def candidates(preset_name: str, overrides: dict[str, Any]) -> Iterator[ModelConfig]:
    """The preset in all sizes, smallest first; a width or depth that was given is kept."""
    like = preset(preset_name, **overrides)
    seen = set()
    for width, depth in SIZES:
        width, depth = int(overrides.get("width") or width), int(overrides.get("depth") or depth)
        heads = int(overrides.get("heads") or max(1, width // 64))
        ffn = int(overrides.get("ffn") or -(-round(width * like.ffn / like.width) // 64) * 64)
        if (width, depth) not in seen:
            seen.add((width, depth))
            yield replace(like, width=width, depth=depth, heads=heads, ffn=ffn)


def choose(sizes: Iterable[ModelConfig], means: Means) -> Choice:
    """The largest model that is worth it, of these from the smallest on; at least the smallest."""
    chosen: Choice | None = None
    bound = "the sizes that there are"
    for config in sizes:
        found = _reading(config, means)
        if found is None:
            bound = "the memory"
            break
        tokens = found.steps * found.work.batch * found.work.lengths.source
        useful = min(tokens, USEFUL_PASSES * means.corpus_tokens)
        if chosen is not None and useful < TOKENS_A_PARAMETER * found.parameters:
            bound = "the text" if useful < tokens else "the time"
            break
        chosen = found
    if chosen is None:
        raise UserError("not even the smallest model fits", fix="give a smaller --vocab or --length")
    return replace(chosen, bound=bound)


def _reading(config: ModelConfig, means: Means) -> Choice | None:
    """How much of the corpus a model reads in the time, in batches that fit; None if none does."""
    n = min(means.length or config.context, config.context)
    batch = max(1, (CPU_BATCH_TOKENS if means.target.kind == "cpu" else GPU_BATCH_TOKENS) // n)
    whole = Workload(
        config=config, head=means.head, batch=batch, lengths=Lengths(n), device=means.target.kind,
        precision=means.precision, reading=reading_of(means.head.kind),
    )  # fmt: skip

    def fits(size: int) -> bool:
        parts = -(-whole.batch // size)
        return needed(training_memory(replace(whole, accumulate=parts)), means.target) <= means.target.memory

    at_once = largest_fitting(fits, batch)
    if not at_once:
        return None
    work = replace(whole, accumulate=-(-batch // at_once))
    each = step_seconds(work, means.prices).total
    tokens = batch * n
    steps = max(1, int(min(means.budget_seconds / each, MOST_PASSES * means.corpus_tokens / tokens)))
    return Choice(
        work, total(config, means.head), steps, steps * each, steps * tokens / means.corpus_tokens, ""
    )
