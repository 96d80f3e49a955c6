"""The tokenizer: text to ids and back, and which ids are special.

One class for a `tokenizer.json` of the `tokenizers` library, for SentencePiece models and for each side of a Marian
translator; they differ in an engine of four small methods. Text is never read as a special token, and a text of any
length is encoded in bounded memory: it is cut before white space every 65,536 characters. A translation run has one
tokenizer for both sides, or one for each.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from headstart.config.training import Normalisation
from headstart.data.readers.documents import cut_long
from headstart.data.readers.files import foreign_form
from headstart.errors import IntegrityError, UserError
from headstart.storage.atomic import atomic_write
from headstart.tokenizers import sentencepiece
from headstart.tokenizers.huggingface import HuggingFaceEngine, normalisations_of, normalised
from headstart.tokenizers.sentencepiece import MarianEngine, SentencePieceEngine
from headstart.tokenizers.special_tokens import SPELLINGS, Role, roles_among

FILE_NAME = "tokenizer.json"
SOURCE_FILE, TARGET_FILE = "tokenizer.source.json", "tokenizer.target.json"

# An encoding takes about a hundred times the text while it is made, and some for the shortest.
BATCH_CHARACTERS, BATCH_TEXTS = 1 << 19, 1 << 14
_HALF_A_CHARACTER = re.compile(r"<[0-9A-F]{2}>")

Engine = HuggingFaceEngine | SentencePieceEngine | MarianEngine
Item = TypeVar("Item")

# Files of ours that hold another library's model.
_OWN_FORMATS: dict[str, type[SentencePieceEngine | MarianEngine]] = {
    sentencepiece.SPM_FORMAT: SentencePieceEngine, sentencepiece.MARIAN_FORMAT: MarianEngine,
}  # fmt: skip


class Tokenizer:
    """Text to ids and back, with the special ids known by their role."""

    def __init__(self, spec: dict[str, Any], where: str = FILE_NAME) -> None:
        """From the content of a `tokenizer.json`; most callers want `load` or `train`."""
        self.spec = spec
        engine = _OWN_FORMATS.get(str(spec.get("format")))
        self._engine: Engine = engine(spec) if engine else HuggingFaceEngine(spec, where)
        self.pieces = self._engine.pieces  # every token as its vocabulary writes it, by id
        self.size = len(self.pieces)  # special tokens included
        self.roles: dict[Role, int | None] = roles_among(self._engine.specials, spec.get("roles"))
        self.special_ids: frozenset[int] = frozenset(self._engine.specials.values())
        # Only the unknown token may come from text: for what the vocabulary has no piece for.
        self._barred = np.zeros(self.size, bool)
        self._barred[sorted(self.special_ids - {self.roles["unknown"]})] = True

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of the whole specification: another id anywhere gives another fingerprint."""
        canonical = json.dumps(self.spec, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    @cached_property
    def normalise(self) -> tuple[Normalisation, ...]:
        """The normalisations that text gets before it is encoded, as far as they are ours."""
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
        stretches = ((owner, part) for owner, text in enumerate(texts) for part in cut_long(text) if part)
        for batch in in_batches(stretches, lambda stretch: len(stretch[1])):
            owners, parts = zip(*batch, strict=True)
            try:
                ids, counts = self._without_specials(*self._engine.encode_flat(parts))
            except (TypeError, UnicodeError):
                _refuse_surrogates(parts)
                raise
            flat.append(ids)
            np.add.at(lengths, list(owners), counts)
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
        if self._engine.continuing:
            return not self.pieces[identity].startswith(self._engine.continuing)
        text = self._engine.text_of(identity)
        if not text or _HALF_A_CHARACTER.match(text):
            return False
        return unicodedata.category(text[0])[0] not in "LNM"  # letters, numbers, combining marks

    def id_of(self, role: Role) -> int:
        """The id of a role that has to be there."""
        identity = self.roles[role]
        if identity is None:
            present = [f"{name} {there}" for name, there in self.roles.items() if there is not None]
            what = f"the tokenizer has no {role} token (it has: {', '.join(present) or 'no special token at all'})"
            fix = f"append one ({SPELLINGS[role][0]}) with Tokenizer.with_role({role!r})"
            raise UserError(what, fix=fix, code="missing")
        return identity

    def with_role(self, role: Role) -> tuple["Tokenizer", str]:
        """A tokenizer that has the role, and a sentence about what was appended (empty: nothing was)."""
        if self.roles[role] is not None:
            return self, ""
        taken = set(self.pieces)
        spelling = next((spelling for spelling in SPELLINGS[role] if spelling not in taken), None)
        if spelling is None:
            what = f"no {role} token can be appended: {', '.join(SPELLINGS[role])} are ordinary tokens in it"
            raise UserError(what, fix="train a tokenizer: headstart tokenizer F… --out DIR", code="conflict")
        wider = Tokenizer(self._engine.with_special(self.spec, spelling))
        note = f"appended {spelling} as token {self.size} for the role {role}: the vocabulary is {wider.size:,} now"
        return wider, note

    def save(self, directory: str | Path, name: str = FILE_NAME) -> Path:
        path, data = Path(directory) / name, json.dumps(self.spec, ensure_ascii=False, indent=1).encode() + b"\n"
        if not path.is_file() or path.read_bytes() != data:
            atomic_write(path, data)
        return path

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """From a `tokenizer.json`, a SentencePiece `.model` with its `dict.txt`, or a directory with either."""
        path = Path(path)
        if path.is_dir():
            path = _file_in(path)
        return cls((sentencepiece.read_spm if path.suffix == ".model" else _read_json)(path), str(path))


def in_batches(items: Iterable[Item], characters: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Texts, each with what belongs to it, in batches of a bounded size."""
    batch, size = list[Item](), 0
    for item in items:
        batch.append(item)
        size += characters(item)
        if size >= BATCH_CHARACTERS or len(batch) >= BATCH_TEXTS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _refuse_surrogates(texts: Sequence[str]) -> None:
    for text in texts:
        if half := re.search(r"[\ud800-\udfff]", text):
            what = f"the text has half a character (the lone surrogate {half[0]!r})"
            where = repr(text[max(0, half.start() - 20) : half.end() + 20])
            raise UserError(what, where=where, fix="correct it, or read with errors='replace'", code="bad-text")


def _file_in(directory: Path) -> Path:
    if (directory / FILE_NAME).exists():
        return directory / FILE_NAME
    models = sorted(directory.glob("*.model"))
    if len(models) == 1:
        return models[0]
    what = f"holds {'several .model files' if models else f'no {FILE_NAME} and no SentencePiece .model'}"
    fix = "name the file itself, or train a tokenizer: headstart tokenizer F… --out DIR"
    raise UserError(what, where=directory, fix=fix, code="conflict" if models else "no-file")


def _read_json(path: Path) -> dict[str, Any]:
    spec, form = None, foreign_form(path)
    what = f"is {form}, and no JSON" if form else "is JSON, but not a tokenizer: it has no model"
    try:
        spec = None if form else json.loads(sentencepiece.read_bytes(path))
    except (ValueError, RecursionError) as error:
        what = f"is not JSON ({error})"
    if not isinstance(spec, dict) or not isinstance(spec.get("model"), dict | str):
        raise UserError(what, where=path, fix="give a tokenizer.json or a .model", code="bad-format")
    return spec


# ---- the two sides of a translation


@dataclass(frozen=True)
class Vocabularies:
    """What a source is read with, and what a target is written with."""

    source: Tokenizer
    target: Tokenizer

    @property
    def is_joint(self) -> bool:
        return self.source.fingerprint == self.target.fingerprint

    @property
    def fingerprint(self) -> str:
        """That of the one tokenizer, or of both."""
        both = f"{self.source.fingerprint}+{self.target.fingerprint}"
        return self.source.fingerprint if self.is_joint else both

    def save(self, directory: str | Path) -> None:
        """Write `tokenizer.json`, or a file for each side."""
        if self.is_joint:
            self.source.save(directory)
            return
        for name, tokenizer in ((SOURCE_FILE, self.source), (TARGET_FILE, self.target)):
            tokenizer.save(directory, name)


def read_separate(
    directory: Path, source_fingerprint: str, target_fingerprint: str, fix_of: Callable[[Path], str]
) -> Vocabularies:
    """The two tokenizers of a run; refused where one is not the one that the run was trained with."""
    sides = []
    for name, trained in ((SOURCE_FILE, source_fingerprint), (TARGET_FILE, target_fingerprint)):
        fix = fix_of(directory / name)
        try:
            tokenizer = Tokenizer.load(directory / name)
        except UserError as error:
            raise IntegrityError(error.what, where=directory / name, fix=fix, code=error.code) from error
        if tokenizer.fingerprint != trained:
            other = f"{name} ({tokenizer.size:,} tokens, {tokenizer.fingerprint[:12]}…)"
            what = f"{other} is not the one that the run was trained with ({trained[:12]}…)"
            raise IntegrityError(what, where=directory, fix=fix, code="mismatch")
        sides.append(tokenizer)
    return Vocabularies(*sides)
