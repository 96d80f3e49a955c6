"""What of a model becomes a graph: small modules that read with explicit masks, and the shapes that stay open.

Nothing here looks at a length in Python, so that one graph serves all of them. Attention is computed by the book
(its `record` is given, and thrown away), positions come from the mask, and sinusoids are computed in the graph: it
has no longest length where the model has none.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headstart.model.base import Base, EncoderDecoderBase
from headstart.model.blocks import new_record
from headstart.model.heads import MaskedNextSentence
from headstart.model.masks import Mask, build_mask, token_positions
from headstart.model.model import Model
from headstart.model.positions import LONGEST_TABLE
from headstart.model.presets import ModelConfig

TOKENS, PRESENT, SEGMENTS = "input_ids", "attention_mask", "token_type_ids"
MEMORY, MEMORY_PRESENT = "encoder_hidden_states", "encoder_attention_mask"


@dataclass(frozen=True)
class Part:
    """One graph: its file, the module it is made of, and what goes in and out by name."""

    file: str
    module: nn.Module
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def examples(self, width: int) -> tuple[Tensor, ...]:
        """Inputs to follow the module with: of a batch and a length over 1, which would be taken for fixed."""
        return tuple(
            torch.zeros(2, 3, width) if name == MEMORY else torch.ones(2, _LENGTHS[name], dtype=torch.int64)
            for name in self.inputs
        )

    def open_shapes(self) -> tuple[dict[int, Any], ...]:
        """The dimensions of each input that may have any size."""
        batch = torch.export.Dim("batch")
        lengths = {3: torch.export.Dim("memory_length"), 5: torch.export.Dim("length")}
        return tuple({0: batch, 1: lengths[_LENGTHS[name]]} for name in self.inputs)


# Two lengths that belong to different texts must differ in the example.
_LENGTHS = {TOKENS: 5, PRESENT: 5, SEGMENTS: 5, MEMORY: 3, MEMORY_PRESENT: 3}


def parts_of(model: Model) -> list[Part]:
    """The graphs of a model: one, or an encoder and a decoder."""
    if isinstance(model.base, EncoderDecoderBase):
        return [
            Part("encoder.onnx", Encoder(model.base), (TOKENS, PRESENT), ("last_hidden_state",)),
            Part("decoder.onnx", Decoder(model), (TOKENS, MEMORY, MEMORY_PRESENT), ("logits",)),
        ]
    inputs = (TOKENS, PRESENT, SEGMENTS) if model.config.segments else (TOKENS, PRESENT)
    outputs: tuple[str, ...] = ("logits",)
    if model.head_config.kind == "masked-nsp":
        outputs = ("logits", "next_sentence_logits")
    elif model.head_config.kind == "none":
        outputs = ("last_hidden_state",)
    return [Part("model.onnx", SingleStack(model), inputs, outputs)]


class SingleStack(nn.Module):
    """A base of one stack and its head."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        assert isinstance(model.base, Base)
        self.base, self.head = model.base, model.head

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        present, config = attention_mask != 0, self.base.config
        batch, length = input_ids.shape
        positions = token_positions(batch, length, input_ids.device, present)
        mask = build_mask(length, length, causal=config.direction == "causal", keys_present=present)
        x = self.base.embedding(input_ids, positions, _longest(config), token_type_ids)
        hidden = self.base.stack(x, mask, positions, record=new_record())
        found: Tensor | MaskedNextSentence = self.head(hidden, present)
        return tuple(found) if isinstance(found, MaskedNextSentence) else found  # type: ignore[return-value]


class Encoder(nn.Module):
    """What reads the source."""

    def __init__(self, base: EncoderDecoderBase) -> None:
        super().__init__()
        self.base = base

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        present = attention_mask != 0
        batch, length = input_ids.shape
        positions = token_positions(batch, length, input_ids.device, present)
        mask = build_mask(length, length, causal=False, keys_present=present)
        x = self.base.embedding(input_ids, positions, _longest(self.base.config))
        memory: Tensor = self.base.encoder(x, mask, positions, record=new_record())
        return memory


class Decoder(nn.Module):
    """What writes the target: logits of the next token after each one. Padding comes after a target, unseen by it."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        assert isinstance(model.base, EncoderDecoderBase)
        self.base, self.head = model.base, model.head

    def forward(
        self, input_ids: Tensor, encoder_hidden_states: Tensor, encoder_attention_mask: Tensor
    ) -> Tensor:
        batch, length = input_ids.shape
        positions = token_positions(batch, length, input_ids.device)
        mask = Mask(causal_square=True)
        memory_length = encoder_hidden_states.shape[1]
        memory_mask = build_mask(
            length, memory_length, causal=False, keys_present=encoder_attention_mask != 0
        )
        embedding = self.base.target_embedding or self.base.embedding
        x = embedding(input_ids, positions, _longest(self.base.config))
        hidden = self.base.decoder(
            x, mask, positions, memory=encoder_hidden_states, memory_mask=memory_mask, record=new_record()
        )
        logits: Tensor = self.head(hidden)
        return logits


def _longest(config: ModelConfig) -> int:
    """What makes sinusoids be computed and not looked up, and leaves learned positions to their table's end."""
    return LONGEST_TABLE + 1 if config.positions == "sinusoidal" else 0
