"""What is swapped: a head turns the base's vectors into predictions, and knows the loss that goes with them.

The parts have the same names in every head (`output`, `transform`, `pooler` …), so that a swap can carry them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.model.activations import ACTIVATIONS
from headstart.model.base import Base, EncoderDecoderBase
from headstart.model.blocks import make_norm
from headstart.model.chunked_loss import IGNORED, TokenLoss, output_loss
from headstart.model.dropout import Dropout
from headstart.model.presets import HeadConfig, ModelConfig, Pooling

AnyBase = Base | EncoderDecoderBase
POOLER_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "relu": F.relu}


def make_output(config: ModelConfig, base: AnyBase) -> nn.Linear:
    """The layer over the vocabulary; tied, its matrix is the embedding's own."""
    output = nn.Linear(config.width, config.output_vocab, bias=config.output_bias)
    if config.tied:
        written = base.target_embedding if isinstance(base, EncoderDecoderBase) else None
        output.weight = (written or base.embedding).tokens.weight
    return output


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
    loss_sum = F.cross_entropy(
        logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    return loss_sum, (targets != IGNORED).sum()


class LanguageModelHead(nn.Module):
    """The next token, at every position; the translation head too."""

    def __init__(self, config: ModelConfig, head: HeadConfig, base: AnyBase) -> None:
        super().__init__()
        self.output = make_output(config, base)

    def forward(self, hidden: Tensor, present: Tensor | None = None) -> Tensor:
        """Logits for vectors of any leading shape."""
        return self.output(hidden)

    def loss_at(
        self, hidden: Tensor, targets: Tensor, smoothing: float = 0.0, *, wants_right: bool = True
    ) -> TokenLoss:
        """The loss of vectors (tokens, width), each with its target, without holding all their logits."""
        return output_loss(
            hidden, self.output.weight, self.output.bias, targets, smoothing, wants_right=wants_right
        )

    def loss(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return token_loss(logits, targets)


class MaskedHead(nn.Module):
    """The token behind a mask, through BERT's transform; give it only the vectors at masked places."""

    def __init__(self, config: ModelConfig, head: HeadConfig, base: AnyBase) -> None:
        super().__init__()
        self.transform = nn.Linear(config.width, config.width, bias=config.bias)
        # A gate needs a third matrix that BERT's transform does not have: plain GELU then.
        self.activation = ACTIVATIONS["gelu" if config.activation == "swiglu" else config.activation]
        self.transform_norm = make_norm(config)
        self.output = make_output(config, base)

    def masked(self, hidden: Tensor) -> Tensor:
        """Logits of the tokens, for vectors of any leading shape."""
        return self.output(self._transformed(hidden))

    def loss_at(self, hidden: Tensor, targets: Tensor) -> TokenLoss:
        """The loss of vectors (tokens, width), each with its target, without holding all their logits."""
        return output_loss(self._transformed(hidden), self.output.weight, self.output.bias, targets)

    def _transformed(self, hidden: Tensor) -> Tensor:
        inner = self.activation(self.transform(hidden))
        # In the numbers of the norm: torch has no kernel for an RMS norm of two kinds of them.
        return self.transform_norm(inner.to(self.transform.weight.dtype))

    def forward(self, hidden: Tensor, present: Tensor | None = None) -> Any:
        return self.masked(hidden)

    def loss(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return token_loss(logits, targets)


class NextSentenceHead(nn.Module):
    """Whether the second sentence follows the first: class 0 says that it does, as in BERT."""

    def __init__(self, config: ModelConfig, head: HeadConfig, base: AnyBase) -> None:
        super().__init__()
        self.pooler = nn.Linear(config.width, config.width, bias=config.bias)
        self.next_sentence = nn.Linear(config.width, 2)

    def forward(self, hidden: Tensor, present: Tensor | None = None) -> Tensor:
        """Logits (batch, 2), read at the first token."""
        return self.next_sentence(torch.tanh(self.pooler(pool(hidden, present, "first"))))

    def loss(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return token_loss(logits, targets)


class MaskedNextSentence(NamedTuple):
    """What BERT's pretraining head predicts, or what it should have predicted."""

    masked: Tensor
    next_sentence: Tensor


class MaskedNextSentenceHead(MaskedHead):
    """BERT's pretraining: the masked tokens and the next sentence at once."""

    def __init__(self, config: ModelConfig, head: HeadConfig, base: AnyBase) -> None:
        super().__init__(config, head, base)
        pair = NextSentenceHead(config, head, base)
        self.pooler, self.next_sentence = pair.pooler, pair.next_sentence

    def sentence(self, hidden: Tensor, present: Tensor | None = None) -> Tensor:
        """Logits of the pair alone, (batch, 2)."""
        return self.next_sentence(torch.tanh(self.pooler(pool(hidden, present, "first"))))

    def forward(self, hidden: Tensor, present: Tensor | None = None) -> MaskedNextSentence:
        return MaskedNextSentence(self.masked(hidden), self.sentence(hidden, present))

    def loss(self, logits: MaskedNextSentence, targets: MaskedNextSentence) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """Weighted so that one division by the count of masked tokens gives BERT's sum of both means."""
        masked_sum, masked_count = token_loss(logits.masked, targets.masked)
        pair_sum, pair_count = token_loss(logits.next_sentence, targets.next_sentence)
        return masked_sum + pair_sum * (masked_count / pair_count.clamp(min=1)), masked_count


class NoHead(nn.Module):
    """A base alone, as some checkpoints elsewhere are: it predicts nothing.

    With pooling it keeps BERT's dense layer for the sentence head that may come.
    """

    def __init__(self, config: ModelConfig, head: HeadConfig, base: AnyBase) -> None:
        super().__init__()
        has_pooler = config.pooler and head.pooling is not None
        self.pooler = nn.Linear(config.width, config.width, bias=config.bias) if has_pooler else None

    def forward(self, hidden: Tensor, present: Tensor | None = None) -> Tensor:
        """The base's own vectors."""
        return hidden


class SentenceHead(nn.Module):
    """Something about the whole text: pool, BERT's dense layer where configured, dropout, one linear layer."""

    def __init__(self, config: ModelConfig, head: HeadConfig, base: AnyBase) -> None:
        super().__init__()
        self.pooling = head.pooling_for(config)
        self.pooler = nn.Linear(config.width, config.width, bias=config.bias) if config.pooler else None
        self.activation = POOLER_ACTIVATIONS[config.pooler_activation]
        self.dropout = Dropout(config.dropout)
        self.classifier = nn.Linear(config.width, head.classes)

    def forward(self, hidden: Tensor, present: Tensor | None = None) -> Tensor:
        """Logits, or values, (batch, classes); never in half precision, whose steps would show in them."""
        with torch.autocast(hidden.device.type, enabled=False):
            return self.of_pooled(pool(hidden.to(self.classifier.weight.dtype), present, self.pooling))

    def of_pooled(self, pooled: Tensor) -> Tensor:
        """The same of what is one vector for each text already, (batch, width)."""
        with torch.autocast(pooled.device.type, enabled=False):
            pooled = pooled.to(self.classifier.weight.dtype)
            if self.pooler is not None:
                pooled = self.activation(self.pooler(pooled))
            return self.classifier(self.dropout(pooled))


class ClassificationHead(SentenceHead):
    """One label for each text; targets are class numbers (batch,)."""

    def loss(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return token_loss(logits, targets)


class MultilabelHead(SentenceHead):
    """Any number of labels for each text; targets are zeros and ones (batch, classes). Counts texts."""

    def loss(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        each = F.binary_cross_entropy_with_logits(logits, targets.to(logits.dtype), reduction="none")
        return each.mean(dim=1).sum(), torch.full((), len(logits), device=logits.device)


class RegressionHead(SentenceHead):
    """Numbers for each text; targets (batch,) or (batch, classes). Squared error, counted by text."""

    def loss(self, values: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        each = (values - targets.reshape(values.shape).to(values.dtype)) ** 2
        return each.mean(dim=1).sum(), torch.full((), len(values), device=values.device)


HEADS: dict[str, type[nn.Module]] = {
    "lm": LanguageModelHead,
    "masked": MaskedHead,
    "next-sentence": NextSentenceHead,
    "masked-nsp": MaskedNextSentenceHead,
    "translation": LanguageModelHead,
    "classification": ClassificationHead,
    "multilabel": MultilabelHead,
    "regression": RegressionHead,
    "none": NoHead,
}
