"""What is swapped: a head turns the base's vectors into predictions.

The parts have the same names in every head (`output`, `transform`, `pooler` …), so that a transfer can carry them.
"""

import functools
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.config.model import HeadConfig, HeadKind, ModelConfig, Pooling
from headstart.kernels.cross_entropy import IGNORED, TokenLoss, output_loss
from headstart.kernels.layers import Dropout
from headstart.model.blocks import ACTIVATIONS, make_norm


def pool(hidden: Tensor, present: Tensor | None, pooling: Pooling) -> Tensor:
    """One vector for each sequence, (batch, width); padding never counts, a sequence of nothing gives zeros."""
    batch, length, _ = hidden.shape
    if present is None:
        present = torch.ones(batch, length, dtype=torch.bool, device=hidden.device)
    if pooling == "mean":
        total = (hidden * present[..., None]).sum(dim=1)
        return total / present.sum(dim=1, keepdim=True).clamp(min=1)
    order = torch.arange(length, device=hidden.device)
    if pooling == "first":
        index = torch.where(present, order, length).amin(dim=1).clamp(max=length - 1)
    else:
        index = torch.where(present, order, 0).amax(dim=1)
    picked = hidden[torch.arange(batch, device=hidden.device), index]
    return picked * present.any(dim=1, keepdim=True)


def token_loss(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy: its sum, and how many targets counted."""
    rows, wanted = logits.flatten(0, -2), targets.flatten()
    return F.cross_entropy(rows, wanted, ignore_index=IGNORED, reduction="sum"), (wanted != IGNORED).sum()


def sentence_loss(
    kind: HeadKind, outputs: Tensor, targets: Tensor, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The loss of outputs (batch, classes), by the kind of head: its sum, and how many texts counted.

    Targets are class numbers (batch,), zeros and ones (batch, classes), or numbers (batch,) or (batch, classes). With
    weights (batch,), for class numbers, a text counts as its weight.
    """
    if weights is not None:
        each = F.cross_entropy(outputs, targets, ignore_index=IGNORED, reduction="none")
        return (each * weights).sum(), weights.sum()
    if kind == "classification":
        return token_loss(outputs, targets)
    targets = targets.reshape(outputs.shape).to(outputs.dtype)
    if kind == "multilabel":
        each = F.binary_cross_entropy_with_logits(outputs, targets, reduction="none")
    else:
        each = (outputs - targets) ** 2
    return each.mean(dim=1).sum(), torch.full((), len(outputs), device=outputs.device)


class LanguageModelHead(nn.Module):
    """The next token, at every position; the translation head too. Tied, its matrix is the embedding's own."""

    def __init__(self, config: ModelConfig, head: HeadConfig, embedding: nn.Parameter) -> None:
        super().__init__()
        self.output = nn.Linear(config.width, config.output_vocab, bias=config.output_bias)
        if config.tied:
            self.output.weight = embedding

    def forward(self, hidden: Tensor, present: Tensor | None = None) -> Tensor:
        """Logits for vectors of any leading shape."""
        return self.output(hidden)

    def loss_at(
        self, hidden: Tensor, targets: Tensor, smoothing: float = 0.0, *, wants_correct: bool = True
    ) -> TokenLoss:
        """The loss of vectors (tokens, width), each with its target, without holding all their logits."""
        weight, bias = self.output.weight, self.output.bias
        return output_loss(hidden, weight, bias, targets, smoothing, wants_correct=wants_correct)


class MaskedHead(nn.Module):
    """The token behind a mask, through BERT's transform; give it only the vectors at masked positions."""

    def __init__(self, config: ModelConfig, head: HeadConfig, embedding: nn.Parameter) -> None:
        super().__init__()
        self.transform = nn.Linear(config.width, config.width, bias=config.bias)
        # A gate needs a third matrix that BERT's transform does not have: plain GELU then.
        self.activation = ACTIVATIONS["gelu" if config.activation == "swiglu" else config.activation]
        self.transform_norm = make_norm(config)
        self.output = LanguageModelHead(config, head, embedding).output

    def forward(self, hidden: Tensor, present: Tensor | None = None) -> Any:
        """Logits of the tokens, for vectors of any leading shape."""
        return self.output(self._transformed(hidden))

    def loss_at(self, hidden: Tensor, targets: Tensor) -> TokenLoss:
        """The loss of vectors (tokens, width), each with its target, without holding all their logits."""
        return output_loss(self._transformed(hidden), self.output.weight, self.output.bias, targets)

    def _transformed(self, hidden: Tensor) -> Tensor:
        inner = self.activation(self.transform(hidden))
        # In the precision of the norm: torch has no kernel for an RMS norm of two precisions.
        return self.transform_norm(inner.to(self.transform.weight.dtype))


class NextSentenceHead(nn.Module):
    """Whether the second sentence follows the first: class 0 says that it does, as in BERT."""

    def __init__(self, config: ModelConfig, head: HeadConfig, embedding: nn.Parameter) -> None:
        super().__init__()
        self.pooler = nn.Linear(config.width, config.width, bias=config.bias)
        self.next_sentence = nn.Linear(config.width, 2)

    def forward(self, hidden: Tensor, present: Tensor | None = None) -> Tensor:
        """Logits (batch, 2), read at the first token."""
        return self.next_sentence(torch.tanh(self.pooler(pool(hidden, present, "first"))))


class MaskedNextSentenceLogits(NamedTuple):
    """What BERT's pretraining head predicts."""

    masked: Tensor
    next_sentence: Tensor


class MaskedNextSentenceHead(MaskedHead):
    """BERT's pretraining: the masked tokens and the next sentence at once."""

    def __init__(self, config: ModelConfig, head: HeadConfig, embedding: nn.Parameter) -> None:
        super().__init__(config, head, embedding)
        pair = NextSentenceHead(config, head, embedding)
        self.pooler, self.next_sentence = pair.pooler, pair.next_sentence

    def sentence(self, hidden: Tensor, present: Tensor | None = None) -> Tensor:
        """Logits of the pair alone, (batch, 2)."""
        return self.next_sentence(torch.tanh(self.pooler(pool(hidden, present, "first"))))

    def forward(self, hidden: Tensor, present: Tensor | None = None) -> MaskedNextSentenceLogits:
        return MaskedNextSentenceLogits(super().forward(hidden), self.sentence(hidden, present))


class NoHead(nn.Module):
    """A base alone, which predicts nothing; with pooling it keeps BERT's dense layer for a later sentence head."""

    def __init__(self, config: ModelConfig, head: HeadConfig, embedding: nn.Parameter) -> None:
        super().__init__()
        has_pooler = config.pooler and head.pooling is not None
        self.pooler = nn.Linear(config.width, config.width, bias=config.bias) if has_pooler else None

    def forward(self, hidden: Tensor, present: Tensor | None = None) -> Tensor:
        """The base's own vectors."""
        return hidden


class SentenceHead(nn.Module):
    """Something about the whole text: pool, BERT's dense layer where configured, dropout, one linear layer."""

    def __init__(self, config: ModelConfig, head: HeadConfig, embedding: nn.Parameter) -> None:
        super().__init__()
        self.pooling, self.loss = head.pooling_for(config), functools.partial(sentence_loss, head.kind)
        self.pooler = nn.Linear(config.width, config.width, bias=config.bias) if config.pooler else None
        self.activation = ACTIVATIONS[config.pooler_activation]
        self.dropout = Dropout(config.dropout)
        self.classifier = nn.Linear(config.width, head.classes)

    def forward(self, hidden: Tensor, present: Tensor | None = None) -> Tensor:
        """Logits, or values, (batch, classes); never in half precision, whose steps would show in them."""
        return self.of_pooled(pool(hidden.to(self.classifier.weight.dtype), present, self.pooling))

    def of_pooled(self, pooled: Tensor) -> Tensor:
        """The same of what is one vector for each text already, (batch, width)."""
        with torch.autocast(pooled.device.type, enabled=False):
            pooled = pooled.to(self.classifier.weight.dtype)
            if self.pooler is not None:
                pooled = self.activation(self.pooler(pooled))
            return self.classifier(self.dropout(pooled))


HEADS: dict[str, type[nn.Module]] = {
    "lm": LanguageModelHead,
    "masked": MaskedHead,
    "next-sentence": NextSentenceHead,
    "masked-nsp": MaskedNextSentenceHead,
    "translation": LanguageModelHead,
    "classification": SentenceHead,
    "multilabel": SentenceHead,
    "regression": SentenceHead,
    "none": NoHead,
}
