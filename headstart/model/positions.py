"""Where a token stands, and how a model knows it: sinusoidal, learned, rotary."""

import torch
from torch import Tensor, nn

from headstart.config.model import ModelConfig
from headstart.errors import UserError

LONGEST_TABLE = 1 << 16  # beyond it sinusoids are computed when they are needed


def token_positions(
    batch: int,
    length: int,
    device: torch.device,
    present: Tensor | None = None,
    documents: Tensor | None = None,
) -> Tensor:
    """Where each token stands in its own document, (batch or 1, length): padding is not counted."""
    if present is None and documents is None:
        return torch.arange(length, device=device)[None]
    if present is None:
        present = torch.ones(batch, length, dtype=torch.bool, device=device)
    before = present.long().cumsum(-1) - present.long()
    if documents is not None:
        starts = torch.zeros_like(before)
        new = documents[:, 1:] != documents[:, :-1]
        starts[:, 1:] = torch.where(new, before[:, 1:], 0)
        before = before - starts.cummax(-1).values
    return before


def sinusoids(positions: Tensor, width: int, dtype: torch.dtype | None = None) -> Tensor:
    """The encoding of 2017: sin and cos of position · 10000^(−2i/width) in columns 2i and 2i + 1, (…, width)."""
    pairs = torch.arange(0, width, 2, device=positions.device, dtype=torch.float64)
    frequencies = torch.exp(pairs * (-torch.log(torch.tensor(1e4, dtype=torch.float64)) / width))
    angles = positions[..., None].to(torch.float64) * frequencies
    table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)
    return table[..., :width].to(dtype or torch.get_default_dtype())


class Sinusoidal(nn.Module):
    """Adds the sinusoids; has no parameters and no longest length."""

    table: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.width, self.made_in = config.width, torch.get_default_dtype()
        length = min(config.context, LONGEST_TABLE)
        self.register_buffer("table", sinusoids(torch.arange(length), config.width), persistent=False)

    def forward(self, x: Tensor, positions: Tensor, longest: int) -> Tensor:
        if longest > len(self.table):  # computed as the table was, so that the two never differ by rounding
            return x + sinusoids(positions, self.width, self.made_in).to(x.dtype)
        return x + self.table[positions].to(x.dtype)


class Learned(nn.Module):
    """Adds a row of a table that is trained; beyond the table there is nothing."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.context, config.width))

    def forward(self, x: Tensor, positions: Tensor, longest: int) -> Tensor:
        if longest > len(self.weight) and (need := int(positions.max()) + 1) > len(self.weight):
            what = f"{need} tokens, but the learned positions end at {len(self.weight)}"
            fix = "cut the text, or train with sinusoidal or rotary positions"
            raise UserError(what, fix=fix, code="too-large")
        return x + self.weight[positions]


ADDED_POSITIONS: dict[str, type[nn.Module]] = {"sinusoidal": Sinusoidal, "learned": Learned}


class Rotation:
    """Turns pairs of a head's numbers by angles that grow with the position (rotary positions)."""

    def __init__(self, positions: Tensor, head_width: int, dtype: torch.dtype, base: float = 1e4) -> None:
        # float32 at least: bf16 has no number between 256 and 258
        exact = torch.promote_types(dtype, torch.float32)
        steps = torch.arange(0, head_width, 2, device=positions.device).to(exact)
        # Computed as elsewhere, to the bit: at position 1,000 an angle shows how its frequency was rounded.
        angles = positions[..., None].to(exact) * (1.0 / base ** (steps / head_width))
        angles = torch.cat([angles, angles], dim=-1)[:, None]  # (batch or 1, 1, length, head width)
        self.cosine, self.sine = angles.cos(), angles.sin()

    def __call__(self, x: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=-1)
        return (x * self.cosine + torch.cat([-second, first], dim=-1) * self.sine).to(x.dtype)
