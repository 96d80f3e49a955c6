"""How well a causal run predicts a text: nats a token, bits a byte, and the loss by how much it has read.

Every token of the text is predicted once, and the end of every document too; what a tokenizer begins a document
with is given. Bits per byte divide by the UTF-8 bytes of the text, so that runs with other tokenizers compare.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from headstart.errors import UserError
from headstart.model.heads import IGNORED
from headstart.model.model import Model
from headstart.objectives.causal import Causal
from headstart.text.frames import Frame, causal_frame
from headstart.text.packing import PackedBlocks
from headstart.text.store import TokenStore
from headstart.training.batches import to_device
from headstart.training.loading import LoadedRun
from headstart.training.machine import Machine

MOST_BUCKETS = 32


class TokenLosses(NamedTuple):
    """The predicted tokens of a batch, in the order of the stream."""

    nats: np.ndarray
    positions: np.ndarray
    """Where the token before it stands in its document or block: 0 where the model has read one token alone."""

    documents: np.ndarray
    places: np.ndarray
    """Where it stands in the stream of all documents."""


@dataclass(frozen=True)
class LanguageScores:
    """Sums over a text; `nats` and `counts` have a place for each position."""

    nats: np.ndarray
    counts: np.ndarray
    text_bytes: int

    @property
    def count(self) -> int:
        return int(self.counts.sum())

    @property
    def loss(self) -> float:
        return float(self.nats.sum() / max(1, self.count))

    @property
    def bits_per_byte(self) -> float:
        return float(self.nats.sum() / math.log(2) / max(1, self.text_bytes))

    def metrics(self) -> dict[str, float]:
        """Loss, perplexity and bits per byte."""
        # Beyond a loss of 709 a perplexity is no number any more, and JSON has no word for infinity.
        perplexity = {"perplexity": math.exp(self.loss)} if self.loss < 709 else {}
        return {"loss": self.loss, **perplexity, "bits_per_byte": self.bits_per_byte}

    def by_position(self) -> list[float | None]:
        """The mean loss after having read 1, 2, 3 … tokens; None where no text is so long."""
        return [
            nats / count if count else None
            for nats, count in zip(self.nats.tolist(), self.counts.tolist(), strict=True)
        ]

    def buckets(self, trained_length: int) -> list[dict[str, float | int | None]]:
        """The same over stretches of positions, counted from 1; the trained length is an edge of them."""
        width = max(1, trained_length // 4)
        while len(self.nats) / width > MOST_BUCKETS:
            width *= 2
        edges = range(0, len(self.nats), width)
        found: list[dict[str, float | int | None]] = []
        for first in edges:
            nats, counts = self.nats[first : first + width], self.counts[first : first + width]
            count = int(counts.sum())
            loss = float(nats.sum()) / count if count else None
            found.append({"first": first + 1, "last": first + len(nats), "loss": loss, "count": count})
        return found


def check_length(run: LoadedRun, length: int | None) -> int:
    """The length to read with; refused before any work where learned positions end before it."""
    if length is None:
        return run.config.length
    if length < 1:
        raise UserError(f"length is {length}", fix="give 1 or more")
    model = run.config.model
    if model.positions == "learned" and length > model.context:
        raise UserError(
            f"{length} tokens, but the run's learned positions end at {model.context}",
            where=str(run.path),
            fix=f"--length {model.context} at most; sinusoidal and rotary positions go beyond what was trained",
        )
    return length


def fitting_length(store: TokenStore, frame: Frame, length: int) -> int:
    """The length, or the whole stream where that is shorter: a small text is one block."""
    return max(1, min(length, len(store) + frame.cost * store.document_count - 1))


def batch_for(run: LoadedRun, length: int) -> int:
    """Blocks in a batch: as many tokens as a batch of the training had."""
    return max(1, run.config.batch * run.config.length // length)


def language_scores(
    run: LoadedRun,
    store: TokenStore,
    machine: Machine,
    length: int | None = None,
    on_share: Callable[[float], None] = lambda share: None,
) -> LanguageScores:
    """The scores of a causal run over a store, read in blocks of the length (default: the trained one).

    `on_share` hears what share of the text is done.
    """
    objective = objective_over(run, store, check_length(run, length))
    length = objective.blocks.length  # of the text, where that is shorter
    nats, counts = np.zeros(length), np.zeros(length, np.int64)
    for part in token_losses(run.model, objective, machine):
        nats += np.bincount(part.positions, part.nats, minlength=length)
        counts += np.bincount(part.positions, minlength=length)
        on_share(min(1.0, int(counts.sum()) / (len(store) + store.document_count)))
    return LanguageScores(nats, counts, store.header.text_bytes)


def objective_over(run: LoadedRun, store: TokenStore, length: int) -> Causal:
    """The causal objective over a store, in blocks of the length."""
    frame = causal_frame(run.tokenizer)
    fitting = fitting_length(store, frame, length)
    return Causal(PackedBlocks(store, fitting, frame), batch_for(run, fitting))


@torch.inference_mode()
def token_losses(model: Model, objective: Causal, machine: Machine) -> Iterator[TokenLosses]:
    """The loss of every token, batch by batch."""
    model.to(machine.device).eval()
    place = 1  # the first token of the stream is given
    for batch in objective.evaluation():
        tensors = to_device(batch, machine.device)
        counted = batch["targets"] != IGNORED
        with machine.autocast():
            hidden = model.base(tensors["tokens"], documents=tensors.get("documents"))
            logits = model.head(hidden[tensors["targets"] != IGNORED])
        targets = tensors["targets"][tensors["targets"] != IGNORED]
        nats = F.cross_entropy(logits.float(), targets, reduction="none").double().cpu().numpy()
        documents = batch.get("documents", np.zeros_like(batch["tokens"]))
        places = place + np.arange(counted.size).reshape(counted.shape)
        place += counted.size
        yield TokenLosses(nats, _positions(documents)[counted], documents[counted], places[counted])


def _positions(documents: np.ndarray) -> np.ndarray:
    """How many tokens of the same document stand before each in its row: the positions that the model sees."""
    order = np.broadcast_to(np.arange(documents.shape[1]), documents.shape)
    starts = np.zeros_like(order)
    starts[:, 1:] = np.where(documents[:, 1:] != documents[:, :-1], order[:, 1:], 0)
    return order - np.maximum.accumulate(starts, axis=1)
