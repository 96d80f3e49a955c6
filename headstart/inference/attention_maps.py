"""The attention weights of a run over a text, its mask, and its positions.

A causal run reads `begin text`; a fine-tuned or masked one the text in its frame; a translation run the source in the
encoder and `begin target` in the decoder. The weights are those of the reference attention, which keeps them.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from headstart.config.generation import BEAM_OF_FIVE
from headstart.config.model import ModelConfig
from headstart.errors import UserError
from headstart.inference.predict import of_one_kind
from headstart.inference.translate import Translator
from headstart.machine import Machine
from headstart.model.attention import build_mask, subsequent_mask
from headstart.model.base import Embedding
from headstart.model.blocks import new_record
from headstart.model.positions import Rotation
from headstart.runs.load import LoadedRun
from headstart.tokenizers.templates import Framed, template_of
from headstart.tokenizers.token_texts import ShownToken, shown_tokens

MOST_TOKENS = 64
MOST_COLUMNS = 64
JSON_DIGITS = 6
AttentionKind = Literal["self", "encoder", "decoder", "cross"]


@dataclass(frozen=True)
class AttentionMap:
    """How much each row token attends to each column token, in every layer and head of one stack."""

    kind: AttentionKind  # self-attention of a single stack, an encoder or a decoder; or cross-attention to the source
    rows: list[ShownToken]
    columns: list[ShownToken]
    weights: np.ndarray  # (layers, heads, rows, columns), float32; each row sums to one
    mask: np.ndarray  # (rows, columns), True where attention is allowed


@dataclass(frozen=True)
class Positions:
    """The positions of the tokens of the first map."""

    kind: Literal["sinusoidal", "learned", "rotary"]  # the last rotates queries and keys
    values: np.ndarray  # (tokens, columns), float32: what is added; for rotary sine, cosine of each angle
    columns: list[int]  # which columns of the width (of a head, if rotary) are shown


@dataclass(frozen=True)
class AttentionMaps:
    """The maps of a text, and its positions."""

    maps: list[AttentionMap]
    positions: Positions
    is_cut: bool  # whether a part of the text is left out: it is longer than the run reads, or than is shown
    length: int  # the most tokens that are shown

    def as_json(self) -> dict[str, Any]:
        """As plain lists, the numbers rounded to six decimals."""
        return {
            "maps": [
                {
                    **vars(one), "rows": [token._asdict() for token in one.rows], "mask": one.mask.tolist(),
                    "columns": [token._asdict() for token in one.columns], "weights": _plain(one.weights),
                }
                for one in self.maps
            ],
            "positions": {**vars(self.positions), "values": _plain(self.positions.values)},
            "is_cut": self.is_cut,
        }  # fmt: skip


def attention_of(
    run: LoadedRun, text: str, machine: Machine, *, text_b: str | None = None, target: str | None = None,
    most_tokens: int = MOST_TOKENS,
) -> AttentionMaps:  # fmt: skip
    """The attention of a run over a text, or over two where it reads pairs.

    A translation run has three maps, for `target` or for its own translation; other runs have one. A text of more
    than `most_tokens` tokens is cut.
    """
    objective, where, length = run.config.objective, run.path, min(most_tokens, run.config.length)
    if target is not None and objective != "translation":
        fix = "leave the target out"
        raise UserError(f"is a {objective} run: it has no target", where=where, fix=fix, code="wrong-run")
    if text_b is not None and objective in ("causal", "masked", "translation"):
        fix = "give it as the target" if objective == "translation" else "give one text"
        raise UserError(f"is a {objective} run: it reads no second text", where=where, fix=fix, code="wrong-run")
    if objective in ("classification", "multilabel", "regression"):
        list(of_one_kind(run, [text if text_b is None else (text, text_b)]))
    if objective == "translation":
        return _of_stacks(run, text, target, machine, length)
    return _of_one_stack(run, _read(run, text, text_b, length), machine, length)


def _read(run: LoadedRun, text: str, text_b: str | None, length: int) -> Framed:
    """The text as a single stack reads it."""
    tokenizer = run.tokenizer
    ids = tokenizer.encode(text)
    if run.config.objective == "causal":
        kept = [tokenizer.id_of("begin"), *map(int, ids)][:length]
        return Framed(np.array(kept, np.int64), np.zeros(len(kept), np.int64), len(kept) <= len(ids))
    frame = template_of(tokenizer, run.config.frame)
    return frame.one(ids, length) if text_b is None else frame.pair(ids, tokenizer.encode(text_b), length)


@torch.inference_mode()
def _of_one_stack(run: LoadedRun, text: Framed, machine: Machine, length: int) -> AttentionMaps:
    model, config = run.model.to(machine.device).eval(), run.config.model
    tokens = torch.from_numpy(text.tokens.astype(np.int64))[None].to(machine.device)
    segments = torch.from_numpy(text.segments)[None].to(machine.device) if config.segments else None
    record = new_record()
    with machine.autocast():
        model.base(tokens, segments=segments, record=record)
    shown = shown_tokens(run.tokenizer, text.tokens)
    maps = [_map(run, "self", shown, shown, record["self"])]
    return AttentionMaps(maps, positions_of(model.base.embedding, config, len(shown)), text.is_truncated, length)


def _map(
    run: LoadedRun, kind: AttentionKind, rows: list[ShownToken], columns: list[ShownToken], layers: Sequence[Tensor]
) -> AttentionMap:
    """The map of the only text of a batch, from the weights of each layer."""
    weights = torch.cat(list(layers)).float().cpu().numpy()
    if not np.isfinite(weights).all():
        raise UserError("its attention weights are not finite", where=run.path, fix="train it again", code="not-finite")
    is_causal = kind == "decoder" or (kind == "self" and run.config.model.direction == "causal")
    return AttentionMap(kind, rows, columns, weights, mask_of(len(rows), len(columns), is_causal=is_causal))


def mask_of(rows: int, columns: int, *, is_causal: bool, **masked: Any) -> np.ndarray:
    """The mask of the model for one text, (rows, columns); `masked` as in `build_mask`."""
    mask = build_mask(rows, columns, causal=is_causal, **masked)
    allowed = subsequent_mask(rows) if mask.causal_square else mask.allowed
    if allowed is None:
        return np.ones((rows, columns), bool)
    return np.broadcast_to(allowed.numpy().reshape(allowed.shape[-2:]), (rows, columns))


@torch.inference_mode()
def _of_stacks(run: LoadedRun, text: str, target: str | None, machine: Machine, length: int) -> AttentionMaps:
    translator = dataclasses.replace(Translator.of(run, machine), length=length)
    model, vocabularies = run.model.to(machine.device).eval(), run.vocabularies
    frame, target_frame = translator.frames
    source = frame.one(vocabularies.source.encode(text), length)
    if target is None:
        (translated,) = translator.translate([text], BEAM_OF_FIVE)
        written, is_target_cut = translated.candidates[0].ids, False
    else:
        ids = list(map(int, vocabularies.target.encode(target)))
        written, is_target_cut = ids[: length - 1], len(ids) > length - 1
    assert target_frame.first is not None
    read = [target_frame.first, *written]
    encoded, decoded = new_record(), new_record()
    with machine.autocast():
        tokens = torch.from_numpy(source.tokens.astype(np.int64))[None].to(machine.device)
        memory = model.base.encode(tokens, record=encoded)  # type: ignore[operator]
        model.base.decode(torch.tensor([read], device=machine.device), memory, record=decoded)  # type: ignore[operator]
    sources = shown_tokens(vocabularies.source, source.tokens)
    targets = shown_tokens(vocabularies.target, read)
    maps = [
        _map(run, "encoder", sources, sources, encoded["self"]),
        _map(run, "decoder", targets, targets, decoded["self"]),
        _map(run, "cross", targets, sources, decoded["cross"]),
    ]
    positions = positions_of(model.base.embedding, run.config.model, len(sources))
    return AttentionMaps(maps, positions, source.is_truncated or is_target_cut, length)


@torch.inference_mode()
def positions_of(embedding: Embedding, config: ModelConfig, count: int) -> Positions:
    """The vectors that positions add to the first tokens of a text, or the angles that they rotate by."""
    device = embedding.tokens.weight.device
    positions = torch.arange(count, device=device)[None]
    if embedding.positions is not None:
        nothing = torch.zeros(1, count, config.width, device=device)
        values = embedding.positions(nothing, positions, count)[0]
    else:
        turn = Rotation(positions, config.width // config.heads, torch.float32, config.rotary_base)
        half = config.width // config.heads // 2
        values = torch.stack([turn.sine[0, 0, :, :half], turn.cosine[0, 0, :, :half]], dim=-1).flatten(-2)
    columns = list(range(values.shape[-1]))
    if len(columns) > MOST_COLUMNS:  # some, from first to last, in pairs: a sine stays with its cosine
        pairs = np.linspace(0, len(columns) // 2 - 1, MOST_COLUMNS // 2).round().astype(int)
        columns = [column for pair in pairs.tolist() for column in (2 * pair, 2 * pair + 1)]
    return Positions(config.positions, values[:, columns].float().cpu().numpy(), columns)


def _plain(numbers: np.ndarray) -> list[Any]:
    return np.round(numbers.astype(np.float64), JSON_DIGITS).tolist()
