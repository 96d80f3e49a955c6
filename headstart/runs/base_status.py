"""Whether a pretrained base has learned, which has to be known before anything is said of pretraining.

Four numbers of one kind, in nats per token, decide: the loss on held-out text, the loss on the text that was read, and
what counts of tokens and of token pairs give on the held-out text (inference/perplexity.py). It holds for any
language and tokenizer: text that is harder to predict raises all four.

* learned: the held-out loss is clearly below that of token pairs, and no longer falls fast.
* too_little_text: it is not, while the base predicts the text that it has read much better.
* undertrained: it is not, and the base knows its own text no better.

What a task makes of the base does not decide: features at chance may be the fault of the labels.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.runs.directory import RunDirectory

MOST_OF_PAIRS = 0.9
"""The held-out loss over that of token pairs; above it a base knows hardly more than a table of counts. On imdb-small
with 200 labels, fine-tuning reached 58 % from a base at 1.21 (scratch: 64 %), 74 % at 0.88 and 79 % at 0.75."""

LEAST_CARRIED = 0.75
"""What must carry over to held-out text of the gain over token frequencies on the text that was read. Of whole corpora
read up to twice it was 0.98 and more; of 1,000 reviews, read 5 times, 0.68; of 200 and 50, read 19 and 75 times,
nothing."""

STEEPEST = 0.1
"""What the last doubling of the steps may have added to the gain over token frequencies. On the embedded corpus a
masked base had 0.14 after 700 steps, with a loss of 1.89; 1,515 steps gave 1.01, and 0.08."""


@dataclass(frozen=True, kw_only=True)
class BaseStatus:
    """What a pretraining came to; losses and entropies in nats per token."""

    status: str  # learned, undertrained or too_little_text
    sentence: str
    steps: int
    epochs: float
    tokens: int  # of the text that it was trained on
    loss: float  # on held-out text
    train_loss: float | None = None  # over the last tenth of the steps
    unigram_entropy: float  # of the held-out text, by token frequencies
    bigram_entropy: float  # of the same, by the token before
    slope: float | None = None  # of the held-out loss over the second half, for each doubling of the steps
    frozen_above_chance: float | None = None  # accuracy of the frozen arm minus that of the majority class

    @property
    def has_learned(self) -> bool:
        return self.status == "learned"


def base_status(path: str | Path, earlier: Sequence[Path] = ()) -> BaseStatus | None:
    """Of a finished pretraining and its earlier phases; None for other runs, and for shuffled tokens."""
    run = RunDirectory(path)
    result = run.read_result() or {}
    loss, entropies = _token_loss(result.get("valid") or {}), result.get("entropies")
    if loss is None or entropies is None or run.read_config().data.shuffled:
        return None
    phases = [_amounts(RunDirectory(one)) for one in (*earlier, path)]
    steps, tokens, tokens_read = map(sum, zip(*phases, strict=True))
    curve = [
        (one["step"] + steps - phases[-1][0], at)
        for one in result["evaluations"]
        if (at := _token_loss(one)) is not None
    ]
    return judged(
        steps=steps, epochs=tokens_read / tokens, tokens=tokens, loss=loss,
        train_loss=result["train_loss"],
        unigram_entropy=entropies["unigram"], bigram_entropy=entropies["bigram"], slope=slope(curve),
    )  # fmt: skip


def _amounts(run: RunDirectory) -> tuple[int, int, int]:
    """The steps of a run, the tokens of its text, and those that it has read over all epochs."""
    result, config = run.read_result() or {}, run.read_config()
    steps = int(result["step"])
    return steps, result["counts"]["train"]["tokens"], steps * config.batch * config.length


def base_warning(path: str | Path) -> str | None:
    """What to tell whoever uses this run as a base, if it has not learned."""
    status = base_status(path)
    return None if status is None or status.has_learned else f"{path}: {status.sentence}"


def _token_loss(values: dict[str, Any]) -> float | None:
    """Of the predicted tokens; next-sentence prediction adds its own to `loss`. None where it was not finite."""
    return values.get("masked_loss", values.get("loss"))


def slope(curve: Sequence[tuple[int, float]]) -> float | None:
    """By least squares over the second half of the steps; negative where the loss falls.

    The learning rate decays meanwhile, which lowers the loss too, and at last ends all progress: it is what the second
    half of this schedule has brought, not what a longer one would bring.
    """
    late = [(math.log2(step), loss) for step, loss in curve if 2 * step >= curve[-1][0]]
    # numpy's least squares depend on the number of threads in their last bits.
    return statistics.linear_regression(*zip(*late, strict=True)).slope if len(set(late)) > 1 else None


def judged(**facts: Any) -> BaseStatus:
    """The status that these facts make, and its sentence."""
    loss, unigram, bigram = (facts[name] for name in ("loss", "unigram_entropy", "bigram_entropy"))
    gain, train_loss, fall = unigram - loss, facts.get("train_loss"), -(facts.get("slope") or 0.0)
    steps = f"{facts['steps']:,} step{'' if facts['steps'] == 1 else 's'}"
    read = f"{steps} ({facts['epochs']:.1f} epochs of {facts['tokens']:,} tokens)"
    reached = f"held-out loss {loss:.2f} where token frequencies alone give {unigram:.2f} and token pairs {bigram:.2f}"
    is_steep = fall > STEEPEST * abs(gain)
    if loss <= MOST_OF_PAIRS * bigram and not is_steep:
        status, name, advice = "learned", "The base has learned", ""
    elif train_loss is not None and train_loss < bigram and gain < LEAST_CARRIED * (unigram - train_loss):
        status, name = "too_little_text", "The text is too little for this base"
        advice = (
            f", but {train_loss:.2f} on the text that it has read. More steps would not help: "
            "give it more text (--corpus) before concluding"
        )
    else:
        status, name = "undertrained", "The base is undertrained"
        still = f"; it still fell by {fall:.2f} while the steps doubled" if is_steep else ""
        advice = f"{still}. Give it more time (--time) before concluding"
    return BaseStatus(status=status, sentence=f"{name}: {read}, {reached}{advice}.", **facts)
