"""Where a run looks: the attention weights that it used for a text, its mask, and what its positions add.

The text is read as the run reads it: a language model that goes on with it, `begin text`; a fine-tuned one and a
masked one, the text in its frame; a translation run, the source in the encoder and `begin target` in the decoder.
The weights are those of the slow path, which computes the same as the fast one and keeps them.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from headstart.errors import UserError
from headstart.model.base import Embedding
from headstart.model.blocks import new_record
from headstart.model.masks import build_mask, subsequent_mask
from headstart.model.positions import Rotation
from headstart.model.presets import ModelConfig
from headstart.text.frames import Framed, frame_of
from headstart.text.token_texts import ShownToken, shown_tokens
from headstart.training.loading import LoadedRun
from headstart.training.machine import Machine
from headstart.training.predicting import of_one_kind
from headstart.training.translating import Search, Translator

MOST_TOKENS = 64
MOST_COLUMNS = 64
JSON_DIGITS = 6

Kind = Literal["self", "encoder", "decoder", "cross"]


@dataclass(frozen=True)
class AttentionMap:
    """Where the tokens of the rows look among those of the columns, in every layer and head of one stack."""

    kind: Kind
    """Of a text over itself, in a single stack, an encoder or a decoder; or of the target over the source."""

    rows: list[ShownToken]
    columns: list[ShownToken]
    weights: np.ndarray
    """(layers, heads, rows, columns), float32; each row sums to one."""

    mask: np.ndarray
    """(rows, columns), True where a row may look."""


@dataclass(frozen=True)
class Positions:
    """How the tokens of the first map know where they stand."""

    kind: Literal["sinusoidal", "learned", "rotary"]
    """The first two are added to the embedding; by the last, queries and keys are turned."""

    values: np.ndarray
    """(tokens, columns), float32: what is added; for rotary the sine and the cosine of each angle, in turn."""

    columns: list[int]
    """Which columns of the width (of a head, if rotary) these are, where there are more than are shown."""


@dataclass(frozen=True)
class AttentionMaps:
    """All that there is to see of a text in a run."""

    maps: list[AttentionMap]
    positions: Positions
    is_cut: bool
    """Whether a part of the text was left out: it is longer than the run reads, or than is shown."""

    length: int
    """The most tokens that could be shown."""

    def as_json(self) -> dict[str, Any]:
        """As plain lists, the numbers rounded to six decimals."""
        return {
            "maps": [
                {
                    "kind": one.kind,
                    "rows": [token._asdict() for token in one.rows],
                    "columns": [token._asdict() for token in one.columns],
                    "weights": _plain(one.weights),
                    "mask": one.mask.tolist(),
                }
                for one in self.maps
            ],
            "positions": {
                "kind": self.positions.kind,
                "values": _plain(self.positions.values),
                "columns": self.positions.columns,
            },
            "is_cut": self.is_cut,
        }


def attention_of(
    run: LoadedRun,
    text: str,
    machine: Machine,
    *,
    text_b: str | None = None,
    target: str | None = None,
    most_tokens: int = MOST_TOKENS,
) -> AttentionMaps:
    """The attention of a run over a text, or over two where it reads pairs.

    A translation run has three maps, for `target` or for its own translation; other runs have one. Of a text with
    more than `most_tokens` tokens, or more than the run reads, the rest is left out, which `is_cut` says.
    """
    _refuse_other_texts(run, text, text_b, target)
    length = min(most_tokens, run.config.length)
    if run.config.objective == "translation":
        return _of_translation(run, text, target, machine, length)
    return _of_one_stack(run, _read(run, text, text_b, length), machine, length)


def _refuse_other_texts(run: LoadedRun, text: str, text_b: str | None, target: str | None) -> None:
    objective, where = run.config.objective, str(run.path)
    if target is not None and objective != "translation":
        raise UserError(f"is a {objective} run: it writes no target", where=where, fix="leave the target out")
    if text_b is not None and objective in ("causal", "masked", "translation"):
        fix = "give it as the target" if objective == "translation" else "give one text"
        raise UserError(f"is a {objective} run: it reads no second text", where=where, fix=fix)
    if objective in ("classification", "multilabel", "regression"):
        list(of_one_kind(run, [text if text_b is None else (text, text_b)]))


def _read(run: LoadedRun, text: str, text_b: str | None, length: int) -> Framed:
    """The text as a single stack reads it."""
    words = run.tokenizer
    ids = words.encode(text)
    if run.config.objective == "causal":
        kept = [words.id_of("begin"), *map(int, ids)][:length]
        return Framed(np.array(kept, np.int64), np.zeros(len(kept), np.int64), len(kept) <= len(ids))
    frame = frame_of(words, run.config.frame)
    return frame.one(ids, length) if text_b is None else frame.pair(ids, words.encode(text_b), length)


# ---- a single stack -----------------------------------------------------------------------------------------


@torch.inference_mode()
def _of_one_stack(run: LoadedRun, text: Framed, machine: Machine, length: int) -> AttentionMaps:
    model, config, count = run.model.to(machine.device).eval(), run.config.model, len(text.tokens)
    tokens = torch.from_numpy(text.tokens.astype(np.int64))[None].to(machine.device)
    segments = torch.from_numpy(text.segments)[None].to(machine.device) if config.segments else None
    record = new_record()
    with machine.autocast():
        model.base(tokens, segments=segments, record=record)
    shown = shown_tokens(run.tokenizer, text.tokens)
    mask = mask_of(count, count, is_causal=config.direction == "causal")
    found = AttentionMap("self", shown, shown, _stacked(record["self"], run), mask)
    return AttentionMaps(
        [found], positions_of(model.base.embedding, config, count), text.is_truncated, length
    )


def _stacked(layers: Sequence[Tensor], run: LoadedRun) -> np.ndarray:
    """The weights of the only text of a batch, (layers, heads, rows, columns)."""
    weights = torch.cat(list(layers)).float().cpu().numpy()
    if not np.isfinite(weights).all():
        raise UserError(
            "its weights are not finite: what it looks at is no number",
            where=str(run.path),
            fix="train it again",
        )
    return weights


def mask_of(rows: int, columns: int, *, is_causal: bool) -> np.ndarray:
    """Who may look at whom where nothing is padded, as the model has it: (rows, columns)."""
    mask = build_mask(rows, columns, causal=is_causal)
    allowed = subsequent_mask(rows) if mask.causal_square else mask.allowed
    return np.ones((rows, columns), bool) if allowed is None else allowed.numpy().reshape(rows, columns)


# ---- encoder and decoder ------------------------------------------------------------------------------------


@torch.inference_mode()
def _of_translation(
    run: LoadedRun, text: str, target: str | None, machine: Machine, length: int
) -> AttentionMaps:
    translator = dataclasses.replace(Translator.of(run, machine), length=length)
    model, words, (frame, target_frame) = (
        run.model.to(machine.device).eval(),
        run.vocabularies,
        translator.frames,
    )
    source = frame.one(words.source.encode(text), length)
    if target is None:
        (found,) = translator.translate([text], Search())
        written, is_target_cut = found.candidates[0].ids, False
    else:
        written, is_target_cut = _cut(list(map(int, words.target.encode(target))), length - 1)
    assert target_frame.first is not None
    read = [target_frame.first, *written]
    encoded, decoded = new_record(), new_record()
    with machine.autocast():
        memory = model.base.encode(  # type: ignore[operator]
            torch.from_numpy(source.tokens.astype(np.int64))[None].to(machine.device), record=encoded
        )
        model.base.decode(torch.tensor([read], device=machine.device), memory, record=decoded)  # type: ignore[operator]
    sources, targets = shown_tokens(words.source, source.tokens), shown_tokens(words.target, read)
    maps = [
        AttentionMap(kind, rows, columns, _stacked(layers, run),
                     mask_of(len(rows), len(columns), is_causal=kind == "decoder"))
        for kind, rows, columns, layers in _three(sources, targets, encoded["self"], decoded)
    ]  # fmt: skip
    positions = positions_of(model.base.embedding, run.config.model, len(sources))
    return AttentionMaps(maps, positions, source.is_truncated or is_target_cut, length)


def _three(
    sources: list[ShownToken],
    targets: list[ShownToken],
    encoder: list[Tensor],
    decoder: dict[str, list[Tensor]],
) -> list[tuple[Kind, list[ShownToken], list[ShownToken], list[Tensor]]]:
    return [
        ("encoder", sources, sources, encoder),
        ("decoder", targets, targets, decoder["self"]),
        ("cross", targets, sources, decoder["cross"]),
    ]


def _cut(ids: list[int], length: int) -> tuple[list[int], bool]:
    return ids[:length], len(ids) > length


# ---- positions ----------------------------------------------------------------------------------------------


@torch.inference_mode()
def positions_of(embedding: Embedding, config: ModelConfig, count: int) -> Positions:
    """What the positions add to the first tokens of a text, or how they turn them."""
    device = embedding.tokens.weight.device
    places = torch.arange(count, device=device)[None]
    if embedding.positions is not None:
        nothing = torch.zeros(1, count, config.width, device=device)
        values = embedding.positions(nothing, places, count)[0]
    else:
        turn = Rotation(places, config.width // config.heads, torch.float32, config.rotary_base)
        half = config.width // config.heads // 2
        values = torch.stack([turn.sine[0, 0, :, :half], turn.cosine[0, 0, :, :half]], dim=-1).flatten(-2)
    columns = _some_pairs(values.shape[-1])
    return Positions(config.positions, values[:, columns].float().cpu().numpy(), columns)


def _some_pairs(width: int) -> list[int]:
    """At most MOST_COLUMNS of the columns from first to last, in pairs: a sine and its cosine stay together."""
    if width <= MOST_COLUMNS:
        return list(range(width))
    pairs = np.linspace(0, width // 2 - 1, MOST_COLUMNS // 2).round().astype(int)
    return [column for pair in pairs.tolist() for column in (2 * pair, 2 * pair + 1)]


def _plain(numbers: np.ndarray) -> list[Any]:
    rounded: list[Any] = np.round(numbers.astype(np.float64), JSON_DIGITS).tolist()
    return rounded
