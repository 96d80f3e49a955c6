"""BERT's pretraining: masked tokens, and whether the second sentence follows the first."""

from collections.abc import Iterator

import numpy as np

from headstart.model.heads import IGNORED, token_loss
from headstart.model.model import Model
from headstart.model.presets import HeadConfig
from headstart.objectives.few_shapes import filled_up
from headstart.objectives.masked import Corruptor, masked_loss
from headstart.objectives.objective import Batch, Loss, Tensors
from headstart.randomness import stream
from headstart.text.frames import pad
from headstart.text.mixture import MixedPairs
from headstart.text.sentence_pairs import SentencePair, SentencePairs

FOLLOWS, DOES_NOT = 0, 1
LENGTH_MULTIPLE = 32


class MaskedNextSentence:
    """Both losses at once, each a mean of its own; class 0 says that the second sentence follows."""

    head = HeadConfig(kind="masked-nsp")

    def __init__(
        self, pairs: SentencePairs | MixedPairs, batch: int, corruptor: Corruptor, pad_id: int
    ) -> None:
        """`batch` is the number of pairs in a step."""
        self.pairs, self.batch, self.corruptor, self.pad_id = pairs, batch, corruptor, pad_id

    def steps_in(self, epochs: float, seed: int) -> int:
        return max(1, round(epochs * self.pairs.count / self.batch))

    def batch_at(self, seed: int, step: int) -> Batch:
        return self._collated(self.pairs.examples_at(seed, step, self.batch), stream(seed, "mask", step))

    def _collated(self, pairs: list[SentencePair], draws: np.random.Generator) -> Batch:
        tokens, present = pad([pair.tokens for pair in pairs], self.pad_id)
        segments, _ = pad([pair.segments for pair in pairs], 0)
        seen, targets = self.corruptor(tokens, draws)
        follows = np.array([FOLLOWS if pair.is_next else DOES_NOT for pair in pairs])
        # Hidden tokens for each pair of the whole batch: with it one division serves both means (see `loss`).
        weight = np.full(len(pairs), (targets != IGNORED).sum() / len(pairs))
        return {
            "tokens": seen, "targets": targets, "present": present, "segments": segments,
            "follows": follows, "pair_weight": weight.astype(np.float32),
        }  # fmt: skip

    def filled(self, batch: Batch) -> Batch:
        """In lengths of a multiple."""
        fillers = {"tokens": self.pad_id, "targets": IGNORED, "present": False, "segments": 0}
        return filled_up(batch, fillers, len(batch["tokens"]), LENGTH_MULTIPLE)

    def loss(self, model: Model, batch: Tensors) -> Loss:
        """Counted by hidden tokens: sum / count is the tokens' mean loss plus the pairs' mean loss."""
        hidden = model.base(batch["tokens"], present=batch["present"], segments=batch["segments"])
        tokens = masked_loss(model, hidden, batch)
        logits = model.head.sentence(hidden, batch["present"])
        pair_sum, pair_count = token_loss(logits, batch["follows"])
        correct = (logits.argmax(dim=-1) == batch["follows"]).sum()
        log = {"masked_loss": (tokens.sum, tokens.count), "pair_loss": (pair_sum, pair_count)}
        log |= {"pair_accuracy": (correct, pair_count), **tokens.log}
        return Loss(tokens.sum + pair_sum * batch["pair_weight"][0], tokens.count, log)

    def evaluation(self) -> Iterator[Batch]:
        steps = -(-self.pairs.count // self.batch)
        for step in range(steps):
            pairs = self.pairs.examples_at(0, step, self.batch)
            rest = self.pairs.count - step * self.batch  # what runs over into the next epoch is left out
            yield self._collated(pairs[:rest], stream(0, "mask for evaluation", step))
