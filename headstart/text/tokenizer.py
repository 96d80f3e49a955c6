"""The tokenizer: text to ids and back, whatever it was made by, and which ids are special.

One object for a `tokenizer.json` of the `tokenizers` library, for the course's SentencePiece model and for each side
of a Marian translator. What differs between them is an engine of five small methods; the rest is here. Two things
hold for every one: text is never read as a special token, and a text of any length is encoded in bounded memory, cut
just before white space every 65,536 characters (where there is none, it is cut regardless).
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from headstart.errors import UserError
from headstart.text.aside import written_aside
from headstart.text.documents import PIECE_CHARACTERS, cut_before_space
from headstart.text.files import foreign_form
from headstart.text.huggingface import HuggingFaceEngine
from headstart.text.marian import MARIAN_FORMAT, MarianEngine
from headstart.text.normalising import Normalisation, normalisations_of, normalised
from headstart.text.roles import ROLES, SPELLINGS, Role, roles_among
from headstart.text.spm import SPM_FORMAT, SentencePieceEngine, read_spm

FILE_NAME = "tokenizer.json"
# An encoding takes about a hundred times the text while it is made, and some for the shortest.
BATCH_CHARACTERS, BATCH_TEXTS = 1 << 19, 1 << 14
_HALF_A_CHARACTER = re.compile(r"<[0-9A-F]{2}>")


class Engine(Protocol):
    """What a tokenizer is made of: pieces, and the way from text to their ids and back."""

    pieces: list[str]
    specials: dict[str, int]

    def encode_flat(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]: ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def text_of(self, identity: int) -> str: ...

    def continues_word(self, identity: int) -> bool | None: ...

    def with_special(self, spec: dict[str, Any], spelling: str) -> dict[str, Any]: ...


# Files of ours that hold another library's model.
_OWN_FORMATS: dict[str, Callable[[dict[str, Any]], Engine]] = {
    SPM_FORMAT: SentencePieceEngine,
    MARIAN_FORMAT: MarianEngine,
}


class Tokenizer:
    """Text to ids and back, with the special ids known by their role."""

    def __init__(self, spec: dict[str, Any], where: str = FILE_NAME) -> None:
        """From the content of a `tokenizer.json`; most callers want `load` or `train`."""
        self.spec = spec
        engine = _OWN_FORMATS.get(str(spec.get("format")))
        self._engine: Engine = engine(spec) if engine else HuggingFaceEngine(spec, where)
        self.roles: dict[Role, int | None] = roles_among(self._engine.specials, spec.get("roles"))
        self.special_ids: frozenset[int] = frozenset(self._engine.specials.values())
        # Only the unknown token may come from text: for what the vocabulary has no piece for.
        self._barred = np.zeros(self.size, bool)
        self._barred[sorted(self.special_ids - {self.roles["unknown"]})] = True

    @property
    def size(self) -> int:
        """How many ids there are, special ones included."""
        return len(self._engine.pieces)

    @property
    def pieces(self) -> list[str]:
        """Every token as its vocabulary writes it, by id."""
        return self._engine.pieces

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of the whole specification: another id anywhere gives another fingerprint."""
        canonical = json.dumps(self.spec, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    # ---- text and ids ----

    @cached_property
    def normalise(self) -> tuple[Normalisation, ...]:
        """The ways in which text is made alike before it is encoded, as far as they are ours."""
        return normalisations_of(self.spec) or ()

    def normalised(self, text: str) -> str:
        """The text as it is encoded, and as decoding gives it back: itself, unless the tokenizer normalises."""
        return normalised(text, self.normalise)

    def encode(self, text: str) -> np.ndarray:
        """The ids of a text, without begin, end or any other special token."""
        return self.encode_flat([text])[0]

    def encode_many(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The ids of each text, on all cores."""
        ids, lengths = self.encode_flat(texts)
        return np.split(ids, np.cumsum(lengths)[:-1]) if len(lengths) else []

    def encode_flat(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The ids of all texts in one array, and how many of them belong to each text."""
        flat, lengths = [np.zeros(0, np.uint32)], np.zeros(len(texts), np.int64)
        for batch, owners in _batches(texts):
            try:
                ids, counts = self._without_specials(*self._engine.encode_flat(batch))
            except (TypeError, UnicodeError):
                _refuse_surrogates(batch)
                raise
            flat.append(ids)
            np.add.at(lengths, owners, counts)
        return np.concatenate(flat), lengths

    def _without_specials(self, ids: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The engines give none; this is what makes it certain for any file, however strange."""
        kept = ~self._barred[ids]
        if kept.all():
            return ids, counts
        kept_before = np.concatenate([[0], np.cumsum(kept)])
        return ids[kept], np.diff(kept_before[np.cumsum(counts)], prepend=0)

    def decode(self, ids: Sequence[int] | np.ndarray, *, keep_specials: bool = False) -> str:
        """The text of the ids; special tokens are left out (the unknown is not), or spelled where kept."""
        numbers = [int(identity) for identity in ids]
        return self._engine.decode(numbers if keep_specials else [i for i in numbers if not self._barred[i]])

    def pieces_of(self, ids: Sequence[int] | np.ndarray) -> list[str]:
        """The stretch of text of each token, for showing: ` livre`, `##ment`, `<C3>` for half a character."""
        return [self._engine.text_of(int(identity)) for identity in ids]

    @cached_property
    def word_starts(self) -> np.ndarray:
        """For each id: whether the token begins a word (white space, a sign or a special token does)."""
        return np.array([self._starts_word(identity) for identity in range(self.size)], bool)

    def _starts_word(self, identity: int) -> bool:
        if identity in self.special_ids:
            return True
        if (continues := self._engine.continues_word(identity)) is not None:
            return not continues
        text = self._engine.text_of(identity)
        if not text or _HALF_A_CHARACTER.match(text):
            return False
        return unicodedata.category(text[0])[0] not in "LNM"  # letters, numbers, combining marks

    # ---- roles ----

    def id_of(self, role: Role) -> int:
        """The id of a role that has to be there."""
        identity = self.roles[role]
        if identity is None:
            raise UserError(
                f"the tokenizer has no {role} token ({_listed(self.roles)})",
                fix=f"append one ({SPELLINGS[role][0]}) with Tokenizer.with_role({role!r})",
            )
        return identity

    def with_role(self, role: Role) -> tuple["Tokenizer", str]:
        """A tokenizer that has the role, and a sentence about what was appended (empty: nothing was)."""
        if self.roles[role] is not None:
            return self, ""
        taken = set(self.pieces)
        spelling = next((spelling for spelling in SPELLINGS[role] if spelling not in taken), None)
        if spelling is None:
            raise UserError(
                f"no {role} token can be appended: {', '.join(SPELLINGS[role])} are ordinary tokens in it",
                fix="train a tokenizer: headstart tokenizer F… --out DIR",
            )
        wider = Tokenizer(self._engine.with_special(self.spec, spelling))
        said = f"appended {spelling} as token {self.size} for the role {role}: the vocabulary is {wider.size:,} now"
        return wider, said

    # ---- files ----

    def save(self, directory: str | Path) -> Path:
        """Write `tokenizer.json` into the directory, whole or not at all."""
        path = Path(directory) / FILE_NAME
        with written_aside(path) as file:
            file.write(json.dumps(self.spec, ensure_ascii=False, indent=1).encode() + b"\n")
        return path

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """From a `tokenizer.json`, a SentencePiece `.model` with its `dict.txt`, or a directory with either."""
        path = Path(path)
        if path.is_dir():
            path = _found_in(path)
        if path.suffix == ".model":
            return cls(read_spm(path), str(path))
        return cls(_read_json(path), str(path))


def _batches(texts: Sequence[str]) -> Iterator[tuple[list[str], list[int]]]:
    """Stretches of the texts in batches of a bounded size, and the text that each stretch belongs to."""
    batch: list[str] = []
    owners: list[int] = []
    size = 0
    for owner, text in enumerate(texts):
        start = 0
        while start < len(text):
            rest = len(text) - start
            window = text[start : start + PIECE_CHARACTERS + 1] if rest > PIECE_CHARACTERS else text[start:]
            end = cut_before_space(window) if rest > PIECE_CHARACTERS else rest
            batch.append(window[:end])
            owners.append(owner)
            start, size = start + end, size + end
            if size >= BATCH_CHARACTERS or len(batch) >= BATCH_TEXTS:
                yield batch, owners
                batch, owners, size = [], [], 0
    if batch:
        yield batch, owners


def _refuse_surrogates(texts: Sequence[str]) -> None:
    for text in texts:
        if found := re.search(r"[\ud800-\udfff]", text):
            raise UserError(
                f"the text has half a character (the lone surrogate {found[0]!r})",
                where=repr(text[max(0, found.start() - 20) : found.end() + 20]),
                fix="mend the text, or read it with errors='replace'",
            )


def _listed(roles: dict[Role, int | None]) -> str:
    present = [f"{role} {roles[role]}" for role in ROLES if roles[role] is not None]
    return "it has: " + (", ".join(present) or "no special token at all")


def _found_in(directory: Path) -> Path:
    if (directory / FILE_NAME).exists():
        return directory / FILE_NAME
    models = sorted(directory.glob("*.model"))
    if len(models) == 1:
        return models[0]
    raise UserError(
        f"holds {'several .model files' if models else f'no {FILE_NAME} and no SentencePiece .model'}",
        where=str(directory),
        fix="name the file itself, or train a tokenizer: headstart tokenizer F… --out DIR",
    )


def _read_json(path: Path) -> dict[str, Any]:
    if what := foreign_form(path):
        raise UserError(f"is {what}, and no JSON", where=str(path), fix="give a tokenizer.json or a .model")
    try:
        spec = json.loads(path.read_bytes())
    except OSError as error:
        raise UserError(
            f"cannot be read ({error.strerror})", where=str(path), fix="check the path"
        ) from error
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"is not JSON ({error})", where=str(path), fix="give a tokenizer.json or a .model"
        ) from error
    if not isinstance(spec, dict) or not isinstance(spec.get("model"), dict | str):
        raise UserError(
            "is JSON, but no tokenizer: it has no model", where=str(path), fix="give a tokenizer.json"
        )
    return spec
