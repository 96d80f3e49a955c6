"""Whether graphs say what the model says: onnxruntime against the model's own way of computing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from headstart.interop.onnx_parts import MEMORY, MEMORY_PRESENT, PRESENT, SEGMENTS, TOKENS
from headstart.model.base import EncoderDecoderBase
from headstart.model.model import Model
from headstart.model.presets import ModelConfig
from headstart.randomness import stream

CASES = 16
MOST_TEXTS, MOST_TOKENS = 5, 48
Arrays = dict[str, np.ndarray]


class Agreement(NamedTuple):
    """How far two ways of computing are apart at most, over so many batches."""

    difference: float
    """Of two numbers, as a share of the largest where that is over 1."""

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
        found = [
            _translation(model, encoder, decoder, source, target)
            for source, target in _pairs(model, length, cases)
        ]
    else:
        graph = session(directory / "model.onnx")
        found = [_single(model, graph, batch) for batch in _batches(model.config, length, cases, "texts")]
    return Agreement(max(found), len(found))


def _single(model: Model, graph: Any, batch: Arrays) -> float:
    segments = torch.from_numpy(batch[SEGMENTS]) if SEGMENTS in batch else None
    with torch.inference_mode():
        own = model(
            torch.from_numpy(batch[TOKENS]), present=torch.from_numpy(batch[PRESENT]) > 0, segments=segments
        )
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
    worst = 0.0
    for ours, other in zip(own, theirs, strict=True):
        one = ours.numpy()
        if one.shape != other.shape:
            return float("inf")
        # A number that is not finite on either side is no agreement.
        gap = float(np.abs(one.astype(np.float64) - other).max()) / max(1.0, float(np.abs(one).max()))
        worst = max(worst, gap if np.isfinite(gap) else float("inf"))
    return worst


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
        before = draws.integers(0, size + 1 - lengths) * (
            case % 2
        )  # every other batch is padded on both sides
        places = np.arange(size)
        batch = {
            TOKENS: draws.integers(0, config.vocab, (count, size)),
            PRESENT: ((places >= before) & (places < before + lengths)).astype(np.int64),
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
