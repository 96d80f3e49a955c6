"""Text made alike before it is cut into tokens: in lower case, with straight apostrophes. Only where it is asked for.

Each way works on single characters, so that a text may be cut anywhere and come out the same, and never makes or
takes white space. It is kept in the tokenizer's own file, in the words of the `tokenizers` library: whoever reads the
file normalises alike.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

from tokenizers import Regex, normalizers

from headstart.config import nearest
from headstart.errors import UserError

Normalisation = Literal["lower-case", "apostrophes"]
# The typographic one, and what is typed in its place.
APOSTROPHES = "’‘‛ʼ′´`＇"
_PARTS: dict[Normalisation, dict[str, Any]] = {
    "apostrophes": {"type": "Replace", "pattern": {"Regex": f"[{APOSTROPHES}]"}, "content": "'"},
    "lower-case": {"type": "Lowercase"},
}
NORMALISATIONS: tuple[Normalisation, ...] = tuple(_PARTS)


def in_order(names: Sequence[str]) -> tuple[Normalisation, ...]:
    """The ways that are named, in one order; an unknown one is refused."""
    for name in names:
        if name not in _PARTS:
            raise UserError(f"no normalisation {name!r}", fix=nearest(name, _PARTS))
    return tuple(name for name in _PARTS if name in names)


def normaliser(names: Sequence[Normalisation]) -> dict[str, Any] | None:
    """The part of a `tokenizer.json` that normalises so; None where nothing is asked for."""
    parts = [_PARTS[name] for name in in_order(names)]
    return {"type": "Sequence", "normalizers": parts} if parts else None


def normalisations_of(spec: dict[str, Any]) -> tuple[Normalisation, ...] | None:
    """The ways in which a `tokenizer.json` normalises; None where it does so in a way that is not ours."""
    found = spec.get("normalizer")
    if found is None:
        return ()
    parts = found.get("normalizers") if isinstance(found, dict) else None
    names = tuple(name for name, part in _PARTS.items() if isinstance(parts, list) and part in parts)
    return names if names and normaliser(names) == found else None


def normalised(text: str, names: Sequence[Normalisation]) -> str:
    """The text as a tokenizer that normalises in these ways sees it."""
    return str(_library(in_order(names)).normalize_str(text)) if names else text


@cache
def _library(names: tuple[Normalisation, ...]) -> Any:
    made = {
        "apostrophes": normalizers.Replace(Regex(f"[{APOSTROPHES}]"), "'"),
        "lower-case": normalizers.Lowercase(),
    }
    return normalizers.Sequence([made[name] for name in names])
