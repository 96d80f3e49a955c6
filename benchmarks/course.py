"""The course's own model and loop, written anew the way it is taught: torch's encoder layers, padded batches, AdamW."""

import math

import torch
from torch import Tensor, nn

WIDTH, DEPTH, HEADS, FFN, DROPOUT = 200, 4, 2, 200, 0.2


class CourseModel(nn.Module):
    """Embedding, sinusoids, four of torch's encoder layers under a square mask; a linear layer on top."""

    table: Tensor

    def __init__(self, vocab: int, outputs: int, longest: int = 1024) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, WIDTH)
        angles = torch.arange(longest)[:, None] * torch.exp(torch.arange(0, WIDTH, 2) * (-math.log(10_000.0) / WIDTH))
        self.register_buffer("table", torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, None])
        self.dropout = nn.Dropout(DROPOUT)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, FFN, DROPOUT)
        self.encoder = nn.TransformerEncoder(layer, DEPTH, enable_nested_tensor=False)
        self.output = nn.Linear(WIDTH, outputs)

    def forward(self, tokens: Tensor) -> Tensor:
        """Outputs at every place, (length, batch, outputs), of tokens (length, batch)."""
        mask = nn.Transformer.generate_square_subsequent_mask(len(tokens))
        x = self.embedding(tokens) * math.sqrt(WIDTH) + self.table[: len(tokens)]
        return self.output(self.encoder(self.dropout(x), mask))
