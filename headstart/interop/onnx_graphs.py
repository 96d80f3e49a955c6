"""The graphs of a model, and whether onnxruntime computes with them what the model computes.

Nothing in the modules looks at a length in Python, so that one graph serves all of them. Attention is computed without
a fused kernel (its `record` is given, and thrown away), positions come from the mask, and sinusoids are computed in
the graph: it has no longest length where the model has none.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from headstart.config.model import ModelConfig
from headstart.model.attention import Mask, build_mask
from headstart.model.base import EncoderDecoderBase
from headstart.model.blocks import new_record
from headstart.model.heads import MaskedNextSentenceLogits
from headstart.model.model import Model
from headstart.model.positions import LONGEST_TABLE, token_positions
from headstart.randomness import stream

TOKENS, PRESENT, SEGMENTS = "input_ids", "attention_mask", "token_type_ids"
MEMORY, MEMORY_PRESENT = "encoder_hidden_states", "encoder_attention_mask"


@dataclass(frozen=True)
class Graph:
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


def graphs_of(model: Model) -> list[Graph]:
    """The graphs of a model: one, or an encoder and a decoder."""
    if isinstance(model.base, EncoderDecoderBase):
        return [
            Graph("encoder.onnx", Encoder(model), (TOKENS, PRESENT), ("last_hidden_state",)),
            Graph("decoder.onnx", Decoder(model), (TOKENS, MEMORY, MEMORY_PRESENT), ("logits",)),
        ]
    inputs = (TOKENS, PRESENT, SEGMENTS) if model.config.segments else (TOKENS, PRESENT)
    outputs = {"masked-nsp": ("logits", "next_sentence_logits"), "none": ("last_hidden_state",)}
    return [Graph("model.onnx", SingleStack(model), inputs, outputs.get(model.head_config.kind, ("logits",)))]


class _OfModel(nn.Module):
    """A part of a model."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.base: Any = model.base
        self.head = model.head


class SingleStack(_OfModel):
    """A base of one stack and its head."""

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        present = attention_mask != 0
        is_causal = self.base.config.direction == "causal"
        hidden = _read(self.base, self.base.stack, input_ids, present, is_causal, token_type_ids)
        outputs: Tensor | MaskedNextSentenceLogits = self.head(hidden, present)
        return tuple(outputs) if isinstance(outputs, MaskedNextSentenceLogits) else outputs  # type: ignore[return-value]


class Encoder(_OfModel):
    """What reads the source."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return _read(self.base, self.base.encoder, input_ids, attention_mask != 0)


class Decoder(_OfModel):
    """What writes the target: logits of the next token after each one. Padding comes after a target, unseen by it."""

    def forward(self, input_ids: Tensor, encoder_hidden_states: Tensor, encoder_attention_mask: Tensor) -> Tensor:
        batch, length = input_ids.shape
        positions = token_positions(batch, length, input_ids.device)
        mask = Mask(causal_square=True)
        keys, present = encoder_hidden_states.shape[1], encoder_attention_mask != 0
        memory_mask = build_mask(length, keys, causal=False, keys_present=present)
        embedding = self.base.target_embedding or self.base.embedding
        x = embedding(input_ids, positions, _longest(self.base.config))
        hidden = self.base.decoder(
            x, mask, positions, memory=encoder_hidden_states, memory_mask=memory_mask, record=new_record()
        )
        logits: Tensor = self.head(hidden)
        return logits


def _read(
    base: Any, stack: nn.Module, ids: Tensor, present: Tensor, causal: bool = False, segments: Tensor | None = None
) -> Tensor:
    """What a stack makes of texts: (batch, length, width)."""
    batch, length = ids.shape
    positions = token_positions(batch, length, ids.device, present)
    mask = build_mask(length, length, causal=causal, keys_present=present)
    x = base.embedding(ids, positions, _longest(base.config), segments)
    hidden: Tensor = stack(x, mask, positions, record=new_record())
    return hidden


def _longest(config: ModelConfig) -> int:
    """What makes sinusoids be computed and not looked up, and leaves learned positions to their table's end."""
    return LONGEST_TABLE + 1 if config.positions == "sinusoidal" else 0


# ---- onnxruntime against the model ---------------------------------------------------------------------------

CASES = 16
MOST_TEXTS, MOST_TOKENS = 5, 48
Arrays = dict[str, np.ndarray]


class Agreement(NamedTuple):
    """How far two ways of computing are apart at most, over so many batches."""

    difference: float  # of two numbers, as a share of the largest where that is over 1
    batches: int


def session(path: Path) -> Any:
    """A graph ready to compute, on one thread and without chatter."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors alone
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def check(model: Model, directory: Path, length: int, cases: int = CASES) -> Agreement:
    """Compare over random batches of random lengths up to `length` and beyond, with padding on both sides."""
    if isinstance(model.base, EncoderDecoderBase):
        encoder, decoder = session(directory / "encoder.onnx"), session(directory / "decoder.onnx")
        gaps = [_translation(model, encoder, decoder, *pair) for pair in _pairs(model, length, cases)]
    else:
        graph = session(directory / "model.onnx")
        gaps = [_single(model, graph, batch) for batch in _batches(model.config, length, cases, "texts")]
    return Agreement(max(gaps), len(gaps))


def _single(model: Model, graph: Any, batch: Arrays) -> float:
    inputs = {name: torch.from_numpy(array) for name, array in batch.items()}
    with torch.inference_mode():
        own = model(inputs[TOKENS], present=inputs[PRESENT] > 0, segments=inputs.get(SEGMENTS))
    ours, theirs = [own] if isinstance(own, Tensor) else list(own), graph.run(None, batch)
    # What stands on padding is nobody's: a vector for each token counts where there is one.
    counts = batch[PRESENT][..., None]
    ours = [one * torch.from_numpy(counts) if one.ndim == 3 else one for one in ours]
    return _apart(ours, [other * counts if other.ndim == 3 else other for other in theirs])


def _translation(model: Model, encoder: Any, decoder: Any, source: Arrays, target: Arrays) -> float:
    """Memory against memory, and logits over the memory that the graph itself made."""
    written = target[TOKENS]
    present = torch.from_numpy(source[PRESENT]) > 0
    base: Any = model.base
    with torch.inference_mode():
        memory = base.encode(torch.from_numpy(source[TOKENS]), present)
        own = model.head(base.decode(torch.from_numpy(written), memory, memory_present=present))
    (theirs,) = encoder.run(None, source)
    logits = decoder.run(None, {TOKENS: written, MEMORY: theirs, MEMORY_PRESENT: source[PRESENT]})
    return max(_apart([memory], [theirs]), _apart([own], logits))


def _apart(own: list[Tensor], theirs: list[np.ndarray]) -> float:
    pairs = [(ours.double().numpy(), other) for ours, other in zip(own, theirs, strict=True)]
    if any(ours.shape != other.shape for ours, other in pairs):
        return float("inf")
    gap = np.max([np.abs(ours - other).max() / max(1.0, np.abs(ours).max()) for ours, other in pairs])
    return float(np.nan_to_num(gap, nan=np.inf, posinf=np.inf))  # what is not finite is no agreement


# ---- random batches -----------------------------------------------------------------------------------------


def _batches(config: ModelConfig, length: int, cases: int, purpose: str) -> Iterator[Arrays]:
    """One token alone, the longest, and others between; one in four reads beyond what was trained, if it may."""
    draws = stream(0, "onnx check", purpose)
    longest = min(length, MOST_TOKENS)
    for case in range(cases):
        reach = longest if config.positions == "learned" or case % 4 else 2 * longest
        size = {0: 1, 1: longest}.get(case, int(draws.integers(1, reach + 1)))
        count = int(draws.integers(1, MOST_TEXTS + 1))
        lengths = draws.integers(1, size + 1, size=(count, 1))
        # Every other batch is padded on both sides.
        before = draws.integers(0, size + 1 - lengths) * (case % 2)
        positions = np.arange(size)
        batch = {
            TOKENS: draws.integers(0, config.vocab, (count, size)),
            PRESENT: ((positions >= before) & (positions < before + lengths)).astype(np.int64),
        }
        if config.segments:
            batch[SEGMENTS] = draws.integers(0, config.segments, (count, size))
        yield batch


def _pairs(model: Model, length: int, cases: int) -> Iterator[tuple[Arrays, Arrays]]:
    draws = stream(0, "onnx check", "targets")
    for number, source in enumerate(_batches(model.config, length, cases, "sources")):
        count = len(source[TOKENS])
        size = 1 if number == 0 else int(draws.integers(1, min(length, MOST_TOKENS) + 1))
        yield source, {TOKENS: draws.integers(0, model.config.output_vocab, (count, size))}
