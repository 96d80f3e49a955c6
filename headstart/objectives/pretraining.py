"""The pretraining objectives: causal, masked, and masked with next-sentence prediction (BERT)."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from headstart.config.model import HeadConfig
from headstart.config.training import Masking, PretrainObjective
from headstart.data.packing import MixedBlocks, PackedBlocks
from headstart.data.sentence_pairs import MixedPairs, SentencePair, SentencePairs
from headstart.data.token_store import TokenStore
from headstart.kernels.unpadding import Varlen
from headstart.model.heads import IGNORED, token_loss
from headstart.model.model import Model
from headstart.objectives.batches import Batch, Tensors, pad_batch, select_positions, with_cu_seqlens
from headstart.objectives.objective import Loss, Objective
from headstart.randomness import stream
from headstart.tokenizers.templates import pad, template_of
from headstart.tokenizers.tokenizer import Tokenizer

FOLLOWS, DOES_NOT = 0, 1
LENGTH_MULTIPLE = 32


def pretraining_objective(
    name: PretrainObjective,
    stores: Sequence[TokenStore],
    tokenizer: Tokenizer,
    length: int,
    batch: int,
    masking: Masking,
    *,
    weights: Sequence[float] = (1.0,),
) -> Objective:
    """The objective of that name over a store, or over several with weights; block boundaries move in every epoch."""
    frame = template_of(tokenizer, "causal" if name == "causal" else "masked")
    is_mixed = list(weights) != [1.0]
    if name == "masked-nsp":
        pairs = [SentencePairs(store, length, frame) for store in stores]
        chosen = MixedPairs(pairs, weights) if is_mixed else pairs[0]
        return MaskedNextSentence(chosen, batch, Corruptor(tokenizer, masking), tokenizer.id_of("pad"))
    sources = [PackedBlocks(store, length, frame, shift=True) for store in stores]
    blocks = MixedBlocks(sources, weights) if is_mixed else sources[0]
    return Causal(blocks, batch) if name == "causal" else Masked(blocks, batch, Corruptor(tokenizer, masking))


# ---- masking (BERT): which tokens are hidden, and what the model sees instead ---------------------------------


class Corruptor:
    """Masks tokens, never special ones."""

    def __init__(self, tokenizer: Tokenizer, masking: Masking) -> None:
        self.masking, self.mask_id = masking, tokenizer.id_of("mask")
        self._is_special = np.zeros(tokenizer.size, bool)
        self._is_special[sorted(tokenizer.special_ids)] = True
        self._plain = np.flatnonzero(~self._is_special)
        self._starts_word = tokenizer.word_starts

    def __call__(self, tokens: np.ndarray, draws: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """The tokens as the model sees them, and the targets: the masked tokens, elsewhere IGNORED."""
        chosen, masked = self._chosen(tokens, draws), self.masking.mask_token_share
        targets = np.where(chosen, tokens, IGNORED)
        if masked == 1:
            return np.where(chosen, self.mask_id, tokens), targets
        fate = draws.random(tokens.shape)
        others = self._plain[draws.integers(len(self._plain), size=tokens.shape)]
        seen = np.where(chosen & (fate < masked), self.mask_id, tokens)
        becomes_other = chosen & (fate >= masked) & (fate < masked + self.masking.mask_random)
        return np.where(becomes_other, others, seen), targets

    def _chosen(self, tokens: np.ndarray, draws: np.random.Generator) -> np.ndarray:
        """Exactly the given share of each row's plain tokens (at least one), drawn by token or by word."""
        allowed = ~self._is_special[tokens]
        chance = draws.random(tokens.shape)
        rows = np.arange(len(tokens))[:, None]
        if self.masking.whole_words:
            words = self._word_of(tokens)
            chance = chance[rows, words]
        # Tokens of one word draw one number, so the stable sort keeps them together.
        ranks = np.empty(tokens.shape, np.int64)
        order = np.argsort(np.where(allowed, chance, 2.0), axis=1, kind="stable")
        np.put_along_axis(ranks, order, np.arange(tokens.shape[1])[None], axis=1)
        plain_count = allowed.sum(axis=1, keepdims=True)
        wanted = np.maximum(1, np.round(self.masking.mask_prob * plain_count)).astype(np.int64)
        chosen = allowed & (ranks < wanted)
        if self.masking.whole_words:  # a word that the count cut in two is masked whole
            touched = np.zeros(tokens.shape, bool)
            touched[np.nonzero(chosen)[0], words[chosen]] = True
            chosen = allowed & touched[rows, words]
        return chosen

    def _word_of(self, tokens: np.ndarray) -> np.ndarray:
        """For each token the position in its row where its word starts."""
        positions = np.broadcast_to(np.arange(tokens.shape[1]), tokens.shape)
        starts = self._starts_word[tokens].copy()
        starts[:, 0] = True
        # A word begins after every special token.
        starts[:, 1:] |= self._is_special[tokens[:, :-1]]
        return np.maximum.accumulate(np.where(starts, positions, 0), axis=1)


# ---- over packed blocks: causal and masked ------------------------------------------------------------------


class _Packed(Objective):
    """An objective over blocks of equal length that documents are packed into."""

    def __init__(self, blocks: PackedBlocks | MixedBlocks, batch: int) -> None:
        """`batch` is the number of blocks in a step."""
        self.blocks, self.batch, self.fixed_batch_tokens = blocks, batch, batch * blocks.length

    def steps_in(self, epochs: float, seed: int) -> int:
        return max(1, round(epochs * self.blocks.count / self.batch))

    def pad_to_static_shape(self, batch: Batch) -> Batch:
        """Blocks have one shape already."""
        return with_cu_seqlens(batch)

    def _with_documents(self, batch: Batch, documents: np.ndarray) -> Batch:
        return batch if self.blocks.is_one_document else {**batch, "documents": documents}

    def _blocks_in_order(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Every block of the stream and the token after it, the incomplete last one too: (blocks, length + 1) each.

        Tokens, their documents, and which still belong to the stream: after its end it begins again.
        """
        blocks = self.blocks
        assert isinstance(blocks, PackedBlocks), "a weighted mixture is for training, not for evaluation"
        starts = np.arange(0, blocks.stream_length - 1, blocks.length)
        for first in range(0, len(starts), self.batch):
            here = starts[first : first + self.batch]
            tokens, documents = blocks.stretches(here)
            yield tokens, documents, here[:, None] + np.arange(blocks.length + 1) < blocks.stream_length


def read_blocks(model: Model, batch: Tensors) -> Tensor:
    """The hidden vector of each token of packed blocks, (tokens, width)."""
    tokens, cu_seqlens = batch["tokens"], batch.get("cu_seqlens")
    # Attention dropout needs the square of weights that cu_seqlens would avoid. So does fp32 on a GPU, whose
    # variable-length kernel takes half precision only: without it every document would be padded to a block.
    has_dropout = model.training and model.config.attention_dropout > 0
    is_exact = tokens.is_cuda and not torch.is_autocast_enabled("cuda")
    if cu_seqlens is None or has_dropout or is_exact:
        return model.base(tokens, documents=batch.get("documents")).flatten(0, 1)
    # On a GPU the ends are not needed, and to fetch them would mean to wait.
    ends = (tokens.numel(),) if cu_seqlens.is_cuda else tuple(cu_seqlens[1:].tolist())
    return model.base(tokens.view(1, -1), varlen=Varlen(ends, cu_seqlens, tokens.shape[1])).flatten(0, 1)


class Causal(_Packed):
    """Predict each token from those before it in its document."""

    head = HeadConfig(kind="lm")
    uses_target_positions = False  # nearly every token has a target: selecting would cost more than it saves

    def batch_at(self, seed: int, step: int) -> Batch:
        return self._collate(*self.blocks.examples_at(seed, step, self.batch))

    def _collate(self, tokens: np.ndarray, targets: np.ndarray, documents: np.ndarray) -> Batch:
        # After the end of a document comes another document: there is nothing to predict.
        targets = np.where(tokens == self.blocks.frame.last, IGNORED, targets)
        return self._with_documents({"tokens": tokens, "targets": targets}, documents)

    def loss(self, model: Model, batch: Tensors) -> Loss:
        loss = model.head.loss_at(read_blocks(model, batch), batch["targets"].flatten(), wants_correct=False)
        return Loss(loss.sum, (batch["targets"] != IGNORED).sum(), {})

    def evaluation(self) -> Iterator[Batch]:
        for tokens, documents, present in self._blocks_in_order():
            targets = np.where(present[:, 1:], tokens[:, 1:], IGNORED)
            yield self._collate(tokens[:, :-1], targets, documents[:, :-1])


class Masked(_Packed):
    """Predict the masked tokens from both sides; the head computes at masked positions alone."""

    head = HeadConfig(kind="masked")

    def __init__(self, blocks: PackedBlocks | MixedBlocks, batch: int, corruptor: Corruptor) -> None:
        """`batch` is the number of blocks in a step."""
        super().__init__(blocks, batch)
        self.corruptor = corruptor

    def batch_at(self, seed: int, step: int) -> Batch:
        tokens, _, documents = self.blocks.examples_at(seed, step, self.batch)
        return self._collate(tokens, documents, stream(seed, "mask", step))

    def _collate(self, tokens: np.ndarray, documents: np.ndarray, draws: np.random.Generator) -> Batch:
        seen, targets = self.corruptor(tokens, draws)
        return self._with_documents({"tokens": seen, "targets": targets}, documents)

    def loss(self, model: Model, batch: Tensors) -> Loss:
        return masked_loss(model, read_blocks(model, batch), batch)

    def evaluation(self) -> Iterator[Batch]:
        for number, (tokens, documents, present) in enumerate(self._blocks_in_order()):
            batch = self._collate(tokens[:, :-1], documents[:, :-1], stream(0, "mask for evaluation", number))
            yield {**batch, "targets": np.where(present[:, :-1], batch["targets"], IGNORED)}


def masked_loss(model: Model, hidden: Tensor, batch: Tensors) -> Loss:
    """Cross-entropy and accuracy at the masked positions."""
    targets = batch["position_targets"]
    loss, count = model.head.loss_at(select_positions(hidden, batch), targets), (targets != IGNORED).sum()
    return Loss(loss.sum, count, {"masked_accuracy": (loss.correct, count)})


# ---- over pairs of sentences: masked-nsp --------------------------------------------------------------------


class MaskedNextSentence(Objective):
    """Masked tokens, and whether the second sentence follows the first (class 0): each loss is a mean."""

    head = HeadConfig(kind="masked-nsp")

    def __init__(self, pairs: SentencePairs | MixedPairs, batch: int, corruptor: Corruptor, pad_id: int) -> None:
        """`batch` is the number of pairs in a step."""
        self.pairs, self.batch, self.corruptor, self.pad_id = pairs, batch, corruptor, pad_id

    def steps_in(self, epochs: float, seed: int) -> int:
        return max(1, round(epochs * self.pairs.count / self.batch))

    def batch_at(self, seed: int, step: int) -> Batch:
        return self._collate(self.pairs.examples_at(seed, step, self.batch), stream(seed, "mask", step))

    def _collate(self, pairs: list[SentencePair], draws: np.random.Generator) -> Batch:
        tokens, present = pad([pair.tokens for pair in pairs], self.pad_id)
        segments, _ = pad([pair.segments for pair in pairs], 0)
        seen, targets = self.corruptor(tokens, draws)
        follows = np.array([FOLLOWS if pair.is_next else DOES_NOT for pair in pairs])
        # Masked tokens for each pair of the whole batch: with it one division gives both means (see `loss`).
        weight = np.full(len(pairs), (targets != IGNORED).sum() / len(pairs))
        return {
            "tokens": seen, "targets": targets, "present": present, "segments": segments,
            "follows": follows, "pair_weight": weight.astype(np.float32),
        }  # fmt: skip

    def pad_to_static_shape(self, batch: Batch) -> Batch:
        padding = {"tokens": self.pad_id, "targets": IGNORED, "present": False, "segments": 0}
        return pad_batch(batch, padding, len(batch["tokens"]), LENGTH_MULTIPLE)

    def loss(self, model: Model, batch: Tensors) -> Loss:
        """Counted by masked tokens: sum / count is the tokens' mean loss plus the pairs' mean loss."""
        hidden = model.base(batch["tokens"], present=batch["present"], segments=batch["segments"])
        tokens = masked_loss(model, hidden, batch)
        logits = model.head.sentence(hidden, batch["present"])
        pair_sum, pair_count = token_loss(logits, batch["follows"])
        correct = (logits.argmax(dim=-1) == batch["follows"]).sum()
        log = {"masked_loss": (tokens.sum, tokens.count), "pair_loss": (pair_sum, pair_count)}
        log |= {"pair_accuracy": (correct, pair_count), **tokens.log}
        return Loss(tokens.sum + pair_sum * batch["pair_weight"][0], tokens.count, log)

    def evaluation(self) -> Iterator[Batch]:
        for step in range(-(-self.pairs.count // self.batch)):
            pairs = self.pairs.examples_at(0, step, self.batch)
            rest = self.pairs.count - step * self.batch  # pairs of the next epoch are left out
            yield self._collate(pairs[:rest], stream(0, "mask for evaluation", step))
