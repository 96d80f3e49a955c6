"""How well a causal run predicts a text: by token, in bits per byte and by position; and how well counts do.

Every token is predicted once, and the end of every document too; the begin token is given. Bits per byte divide by
the UTF-8 bytes of the text, so that runs with different tokenizers compare.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from headstart.cancellation import stop_if_cancelled
from headstart.config.training import Masking, PretrainObjective
from headstart.data.packing import PackedBlocks
from headstart.data.token_store import TokenStore
from headstart.errors import UserError
from headstart.machine import Machine
from headstart.model.heads import IGNORED
from headstart.model.model import Model
from headstart.objectives.batches import to_device
from headstart.objectives.pretraining import Causal
from headstart.runs.load import LoadedRun, require
from headstart.tokenizers.templates import Template, template_of
from headstart.tokenizers.token_texts import shown_tokens

# Beyond this loss the perplexity overflows a float.
LARGEST_LOSS = 709


class TokenLosses(NamedTuple):
    """The predicted tokens of a batch, in the order of the stream."""

    nats: np.ndarray
    positions: np.ndarray  # of the token before it in its document or block: 0 where one token was read
    documents: np.ndarray
    offsets: np.ndarray  # in the stream of all documents


@dataclass(frozen=True)
class LanguageScores:
    """Sums over a text; `nats` and `counts` have an entry for each position."""

    nats: np.ndarray
    counts: np.ndarray
    text_bytes: int

    @property
    def count(self) -> int:
        return int(self.counts.sum())

    def metrics(self) -> dict[str, float]:
        """Loss, perplexity and bits per byte."""
        loss = float(self.nats.sum() / max(1, self.count))
        perplexity = {"perplexity": math.exp(loss)} if loss < LARGEST_LOSS else {}
        bits_per_byte = float(self.nats.sum() / math.log(2) / max(1, self.text_bytes))
        return {"loss": loss, **perplexity, "bits_per_byte": bits_per_byte}

    def by_position(self) -> list[float | None]:
        """The mean loss after 1, 2, 3 … tokens; None where no text is so long."""
        both = zip(self.nats.tolist(), self.counts.tolist(), strict=True)
        return [nats / count if count else None for nats, count in both]

    def buckets(self, trained_length: int) -> list[dict[str, float | int | None]]:
        """The same over ranges of positions, counted from 1; the trained length is an edge of them."""
        width = max(1, trained_length // 4)
        while len(self.nats) / width > 32:  # buckets at most
            width *= 2
        buckets: list[dict[str, float | int | None]] = []
        for first in range(0, len(self.nats), width):
            nats, counts = self.nats[first : first + width], self.counts[first : first + width]
            count = int(counts.sum())
            loss = float(nats.sum()) / count if count else None
            buckets.append({"first": first + 1, "last": first + len(nats), "loss": loss, "count": count})
        return buckets


def check_length(run: LoadedRun, length: int | None) -> int:
    """The length to read with; one that is longer than learned positions is refused before any work."""
    if length is None:
        return run.config.length
    if length < 1:
        raise UserError(f"length is {length}", fix="give 1 or more")
    model = run.config.model
    if model.positions == "learned" and length > model.context:
        what = f"{length} tokens, but the run's learned positions end at {model.context}"
        fix = f"--length {model.context} at most; sinusoidal and rotary positions go beyond what was trained"
        raise UserError(what, where=run.path, fix=fix, code="too-large")
    return length


def fitting_length(store: TokenStore, frame: Template, length: int) -> int:
    """The length, or the whole stream where that is shorter: a small text is one block."""
    return max(1, min(length, len(store) + frame.cost * store.document_count - 1))


def batch_for(run: LoadedRun, length: int) -> int:
    """Blocks in a batch: as many tokens as a batch of the training had."""
    return max(1, run.config.batch * run.config.length // length)


def language_scores(
    run: LoadedRun, store: TokenStore, machine: Machine, length: int | None = None,
    on_share: Callable[[float], None] = lambda share: None,
) -> LanguageScores:  # fmt: skip
    """The scores of a causal run over a store, read in blocks of the length (default: the trained one)."""
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
    frame = template_of(run.tokenizer, "causal")
    fitting = fitting_length(store, frame, length)
    return Causal(PackedBlocks(store, fitting, frame), batch_for(run, fitting))


@torch.inference_mode()
def token_losses(model: Model, objective: Causal, machine: Machine) -> Iterator[TokenLosses]:
    """The loss of every token, batch by batch."""
    model.to(machine.device).eval()
    offset = 1  # the first token of the stream is given
    for batch in objective.evaluation():
        tensors, counted = to_device(batch, machine.device), batch["targets"] != IGNORED
        is_target = tensors["targets"] != IGNORED
        with machine.autocast():
            hidden = model.base(tensors["tokens"], documents=tensors.get("documents"))
            logits = model.head(hidden[is_target])
        nats = F.cross_entropy(logits.float(), tensors["targets"][is_target], reduction="none").double().cpu().numpy()
        documents = batch.get("documents", np.zeros_like(batch["tokens"]))
        offsets = offset + np.arange(counted.size).reshape(counted.shape)
        offset += counted.size
        yield TokenLosses(nats, _positions(documents)[counted], documents[counted], offsets[counted])


def _positions(documents: np.ndarray) -> np.ndarray:
    """The position of each token within its document and row, as the model sees it."""
    order = np.broadcast_to(np.arange(documents.shape[1]), documents.shape)
    starts = np.zeros_like(order)
    starts[:, 1:] = np.where(documents[:, 1:] != documents[:, :-1], order[:, 1:], 0)
    return order - np.maximum.accumulate(starts, axis=1)


class TokenScore(NamedTuple):
    """A token of a text, and how probable it was to the run."""

    text: str
    probability: float
    rank: int  # 1 where no other token was more probable
    is_special: bool  # the end of the text is the last token that is predicted


@dataclass(frozen=True)
class TokenScores:
    """How well a run predicts a text."""

    tokens: list[TokenScore]
    loss: float  # nats per token, as in `evaluate`
    perplexity: float | None  # None where it overflows a float
    is_cut: bool

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {**dataclasses.asdict(self), "tokens": [token._asdict() for token in self.tokens]}


@torch.inference_mode()
def score_tokens(run: LoadedRun, text: str, machine: Machine, *, within_context: bool = False) -> TokenScores:
    """How probable each token, and the end, was after those before it, in blocks of the run's length.

    `within_context` cuts the text at the context: what comes after it, the end too, is not scored.
    """
    require(run.config.objective, "generate", str(run.path))
    tokenizer, model = run.tokenizer, run.model.to(machine.device).eval()
    whole = [tokenizer.id_of("begin"), *map(int, tokenizer.encode(text)), tokenizer.id_of("end")]
    ids = whole[: run.config.model.context + 1] if within_context else whole  # the last is predicted only
    nats, ranks = list[float](), list[int]()
    for start in range(0, len(ids) - 1, run.config.length):
        stop_if_cancelled()
        block = torch.tensor(ids[start : start + run.config.length + 1], device=machine.device)
        read, targets = block[:-1], block[1:, None]
        with machine.autocast():
            logits = model(read[None])[0]
        logs = logits.float().log_softmax(dim=-1)
        true = logs.gather(-1, targets)
        nats += (-true[:, 0].double()).tolist()
        ranks += (1 + (logs > true).sum(dim=-1)).tolist()
    if not all(map(math.isfinite, nats)):
        raise UserError("its weights are not finite", where=run.path, fix="train it again", code="not-finite")
    loss = sum(nats) / len(nats)
    each = zip(shown_tokens(tokenizer, ids[1:]), nats, ranks, strict=True)
    tokens = [TokenScore(shown.text, math.exp(-lost), rank, shown.is_special) for shown, lost, rank in each]
    perplexity = math.exp(loss) if loss < LARGEST_LOSS else None
    return TokenScores(tokens, loss, perplexity, is_cut=len(ids) < len(whole))


# ---- without a network: by how often each token occurs, and by the token before it -------------------------
# A base whose held-out loss is no lower has learned nothing that a table of counts lacks. Both predict what
# the objective does: a causal base document ends too, a masked one also the tokens that are left visible.

MOST_TOKENS = 2**22  # of a store that are counted: seconds, whatever its size
_WINDOW = 2**14  # tokens in a row of a larger one
_DISCOUNT = 0.75  # taken from the count of each pair, for pairs that did not occur (absolute discounting)


def ngram_entropies(
    train: Sequence[TokenStore], valid: TokenStore, objective: PretrainObjective, masking: Masking
) -> dict[str, float]:
    """Cross-entropies of held-out text in nats per token, by the frequencies of tokens and pairs in train."""
    boundary = 1 + int(max(store.tokens.max() for store in (*train, valid)))  # stands between documents
    counted = np.concatenate([_sample(store, boundary) for store in train])
    held_out = _sample(valid, boundary)
    before, targets, singles = held_out[:-1], held_out[1:], counted
    if objective != "causal":  # special tokens are never masked
        before, targets = before[targets != boundary], targets[targets != boundary]
        singles = counted[counted != boundary]
    unigram = np.bincount(singles, minlength=boundary + 1) + 1.0  # no token is impossible
    unigram /= unigram.sum()
    found = {"unigram": unigram[targets], "bigram": _bigram(counted, before, targets, unigram)}
    entropies = {name: float(-np.log(probabilities).mean()) for name, probabilities in found.items()}
    visible = 0.0 if objective == "causal" else masking.mask_random + masking.mask_kept
    if not visible:
        return entropies
    # The best guess for a visible token without its context: itself, as often as tokens are kept.
    kept = masking.mask_kept / visible
    doubt = -sum(share * math.log(share) for share in (kept, 1 - kept) if share)
    return {name: (1 - masking.mask_kept) * entropy + visible * doubt for name, entropy in entropies.items()}


def _sample(store: TokenStore, boundary: int) -> np.ndarray:
    """The tokens with a boundary around each document; of a large store, windows at equal distances."""
    size = len(store) if len(store) <= MOST_TOKENS else _WINDOW
    windows = []
    for start in range(0, len(store), size * -(-len(store) // MOST_TOKENS)):
        end = min(start + size, len(store))
        cuts = store.documents[slice(*np.searchsorted(store.documents, (start, end + 1)))]
        windows.append(np.insert(store.tokens[start:end].astype(np.int64), cuts - start, boundary))
    return np.concatenate(windows)


def _bigram(counted: np.ndarray, before: np.ndarray, targets: np.ndarray, unigram: np.ndarray) -> np.ndarray:
    """The probability of each target after the token before it; what the discount frees goes by frequency."""
    size = len(unigram)
    pairs, counts = np.unique(counted[:-1] * size + counted[1:], return_counts=True)
    wanted = before * size + targets
    indices = np.searchsorted(pairs, wanted).clip(max=len(pairs) - 1)
    count = np.where(pairs[indices] == wanted, counts[indices], 0)
    total = np.bincount(pairs // size, counts, minlength=size)[before]
    kinds = np.bincount(pairs // size, minlength=size)[before]
    freed = np.where(total > 0, _DISCOUNT * kinds / np.maximum(total, 1), 1.0)
    return np.maximum(count - _DISCOUNT, 0) / np.maximum(total, 1) + freed * unigram[targets]
