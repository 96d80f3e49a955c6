"""Frames: the special tokens around a text, put on in one place, and padding.

Causal: `begin text end`. Masked: `cls a sep`, or `cls a sep b sep` for two texts (RoBERTa: `cls a sep sep b sep`).
Marian: `text end` where a text is read, `pad text end` where it is written. A text that is too long is cut, its frame
is not.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from headstart.errors import UserError
from headstart.text.tokenizer import Tokenizer

Keep = Literal["head", "tail"]
FrameName = Literal["causal", "masked", "roberta", "marian"]


class Framed(NamedTuple):
    """One example, ready for a batch."""

    tokens: np.ndarray
    segments: np.ndarray
    """0 for the first text and its frame, 1 for the second."""

    is_truncated: bool


@dataclass(frozen=True)
class Frame:
    """The special ids before and after each text; None where there is none."""

    first: int | None
    last: int | None
    between: int = 1
    """How many of the last one stand between two texts."""

    @property
    def cost(self) -> int:
        """How many ids the frame of one text takes."""
        return (self.first is not None) + (self.last is not None)

    def one(self, ids: np.ndarray, max_length: int, keep: Keep = "head") -> Framed:
        """`first text last`, in no more than `max_length` ids: what stays is the text's head or its tail."""
        self._refuse_short(max_length, self.cost + 1)
        kept = _cut(ids, max_length - self.cost, keep)
        tokens = np.concatenate([_given(self.first), kept, _given(self.last)])
        return Framed(tokens, np.zeros(len(tokens), np.int64), len(kept) < len(ids))

    def pair(self, a: np.ndarray, b: np.ndarray, max_length: int, keep_a: Keep = "head") -> Framed:
        """`first a last b last` in no more than `max_length` ids: the longer text is cut first, as in BERT."""
        parted_by = np.repeat(_given(self.last), self.between)
        cost = self.cost + len(parted_by)
        self._refuse_short(max_length, cost + 2)
        a_length, b_length = trimmed_lengths(len(a), len(b), max_length - cost)
        kept_a, kept_b = _cut(a, a_length, keep_a), b[:b_length]
        before = np.concatenate([_given(self.first), kept_a, parted_by])
        tokens = np.concatenate([before, kept_b, _given(self.last)])
        segments = (np.arange(len(tokens)) >= len(before)).astype(np.int64)
        return Framed(tokens, segments, a_length < len(a) or b_length < len(b))

    @staticmethod
    def _refuse_short(max_length: int, least: int) -> None:
        if max_length < least:
            raise UserError(
                f"a length of {max_length} has no room for the text: the frame needs {least} at least",
                fix=f"--length {max(least, 16)}",
            )


def causal_frame(tokenizer: Tokenizer) -> Frame:
    """`begin text end`."""
    return Frame(tokenizer.id_of("begin"), tokenizer.id_of("end"))


def masked_frame(tokenizer: Tokenizer) -> Frame:
    """`cls a sep [b sep]`."""
    return Frame(tokenizer.id_of("cls"), tokenizer.id_of("sep"))


def roberta_frame(tokenizer: Tokenizer) -> Frame:
    """`cls a sep [sep b sep]`."""
    return Frame(tokenizer.id_of("cls"), tokenizer.id_of("sep"), between=2)


def marian_frame(tokenizer: Tokenizer) -> Frame:
    """`text end`."""
    return Frame(None, tokenizer.id_of("end"))


_FRAMES: dict[FrameName, Callable[[Tokenizer], Frame]] = {
    "causal": causal_frame,
    "masked": masked_frame,
    "roberta": roberta_frame,
    "marian": marian_frame,
}


def frame_of(tokenizer: Tokenizer, name: FrameName) -> Frame:
    """What stands around a text that is read."""
    return _FRAMES[name](tokenizer)


def target_frame_of(tokenizer: Tokenizer, name: FrameName) -> Frame:
    """What stands around a translation: the same, but that Marian begins to write after the padding token."""
    around = frame_of(tokenizer, name)
    return Frame(tokenizer.id_of("pad"), around.last) if name == "marian" else around


def trimmed_lengths(a: int, b: int, room: int) -> tuple[int, int]:
    """The lengths after taking one from the longer of the two (the second, if equal) until both fit."""
    excess = a + b - room
    if excess <= 0:
        return a, b
    gap = min(excess, abs(a - b))
    a, b = (a - gap, b) if a > b else (a, b - gap)
    rest = excess - gap
    return a - rest // 2, b - (rest + 1) // 2


def truncated_share(examples: Sequence[Framed]) -> float:
    """The share of examples that lost a part, to be reported."""
    return sum(example.is_truncated for example in examples) / max(1, len(examples))


def pad(
    examples: Sequence[np.ndarray],
    pad_id: int,
    *,
    side: Literal["right", "left"] = "right",
    multiple: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """The examples as one array, as wide as the longest (rounded up to a multiple), and what is not padding."""
    width = -(-max((len(example) for example in examples), default=0) // multiple) * multiple
    tokens = np.full((len(examples), width), pad_id, np.int64)
    present = np.zeros((len(examples), width), bool)
    for row, example in enumerate(examples):
        here = slice(0, len(example)) if side == "right" else slice(width - len(example), width)
        tokens[row, here] = example
        present[row, here] = True
    return tokens, present


def _given(identity: int | None) -> np.ndarray:
    return np.array([] if identity is None else [identity], np.int64)


def _cut(ids: np.ndarray, length: int, keep: Keep) -> np.ndarray:
    return ids[:length] if keep == "head" or len(ids) <= length else ids[len(ids) - length :]
