"""Templates, the special tokens around a text, and padding. A long text is cut; its special tokens are not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from headstart.config.run import FrameName
from headstart.errors import UserError
from headstart.tokenizers.special_tokens import Role
from headstart.tokenizers.tokenizer import Tokenizer


class Framed(NamedTuple):
    """One example, ready for a batch."""

    tokens: np.ndarray
    segments: np.ndarray  # 0 for the first text and its special tokens, 1 for the second
    is_truncated: bool


@dataclass(frozen=True)
class Template:
    """The special ids before and after each text; None where there is none."""

    first: int | None
    last: int | None
    between: int = 1  # how many of the last id separate two texts

    @property
    def cost(self) -> int:
        """How many ids the template of one text takes."""
        return (self.first is not None) + (self.last is not None)

    def cost_of(self, *, pairs: bool) -> int:
        """How many ids the template of one text takes, or of two."""
        return self.cost + (self.between if pairs and self.last is not None else 0)

    def one(self, ids: np.ndarray, max_length: int) -> Framed:
        """`first text last`, in no more than `max_length` ids."""
        self._refuse_short(max_length, self.cost + 1)
        kept = ids[: max_length - self.cost]
        tokens = np.concatenate([_given(self.first), kept, _given(self.last)])
        return Framed(tokens, np.zeros(len(tokens), np.int64), len(kept) < len(ids))

    def pair(self, a: np.ndarray, b: np.ndarray, max_length: int, keep_a: Literal["head", "tail"] = "head") -> Framed:
        """`first a last b last` in no more than `max_length` ids: the longer text is cut first, as in BERT."""
        parted_by = np.repeat(_given(self.last), self.between)
        cost = self.cost_of(pairs=True)
        self._refuse_short(max_length, cost + 2)
        a_length, b_length = trimmed_lengths(len(a), len(b), max_length - cost)
        kept_a = a[:a_length] if keep_a == "head" else a[len(a) - a_length :]
        before = np.concatenate([_given(self.first), kept_a, parted_by])
        tokens = np.concatenate([before, b[:b_length], _given(self.last)])
        segments = (np.arange(len(tokens)) >= len(before)).astype(np.int64)
        return Framed(tokens, segments, a_length < len(a) or b_length < len(b))

    @staticmethod
    def _refuse_short(max_length: int, least: int) -> None:
        if max_length < least:
            needed = f"special tokens and text need at least {least}"
            what = f"--length {max_length} leaves no room for the text: {needed}"
            raise UserError(what, fix=f"--length {max(least, 16)}")


# The role before a text, the role after it, and how many of the latter separate two texts.
_TEMPLATES: dict[FrameName, tuple[Role | None, Role, int]] = {
    "causal": ("begin", "end", 1),  # begin text end
    "masked": ("cls", "sep", 1),  # cls a sep [b sep]
    "roberta": ("cls", "sep", 2),  # cls a sep [sep b sep]
    "marian": (None, "end", 1),  # text end
}


def template_of(tokenizer: Tokenizer, name: FrameName) -> Template:
    """The template of a text that is read."""
    first, last, between = _TEMPLATES[name]
    return Template(None if first is None else tokenizer.id_of(first), tokenizer.id_of(last), between)


def target_template_of(tokenizer: Tokenizer, name: FrameName) -> Template:
    """The template of a translation: the same, except that Marian's begins with the padding token."""
    template = template_of(tokenizer, name)
    return Template(tokenizer.id_of("pad"), template.last) if name == "marian" else template


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


def pad(examples: Sequence[np.ndarray], pad_id: int) -> tuple[np.ndarray, np.ndarray]:
    """The examples as one array, as wide as the longest, and where it is not padding."""
    width = max(map(len, examples), default=0)
    tokens = np.full((len(examples), width), pad_id, np.int64)
    present = np.zeros((len(examples), width), bool)
    for row, example in enumerate(examples):
        tokens[row, : len(example)] = example
        present[row, : len(example)] = True
    return tokens, present


def _given(identity: int | None) -> np.ndarray:
    return np.array([] if identity is None else [identity], np.int64)
