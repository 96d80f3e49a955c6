"""A `tokenizer.json` of the `tokenizers` library, made to read text as nothing but text.

The library looks for the spelling of special tokens in what it encodes, and some models find them in their
own vocabulary besides. Here text that spells a special token is encoded like any other text.
"""

import copy
import itertools
import json
import os
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import tokenizers
from tokenizers import Regex, normalizers

from headstart.config.training import Normalisation
from headstart.errors import UserError, nearest
from headstart.tokenizers.special_tokens import KNOWN, MOST_UNUSED, ROLES

# Without a word from us the library goes down to one core after a fork, and warns on stderr.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

Spec = dict[str, Any]

# With at most so many cores, caching words is faster than the library alone; it takes one core.
FEW_CORES = 4


class HuggingFaceEngine:
    """Encodes and decodes by the content of a `tokenizer.json`."""

    def __init__(self, spec: Spec, where: str = "tokenizer.json") -> None:
        roles = spec.get("roles")  # ours: the library does not know it
        spec = {key: value for key, value in spec.items() if key != "roles"}
        _refuse_far_ids(spec, where)
        given, self._decoder = spec.get("added_tokens") or [], _parsed(spec, where)
        named = _named_roles(roles, [token["content"] for token in given], where)
        special = KNOWN | set(named.values())
        added = [{**t, "special": bool(t.get("special")) or t["content"] in special} for t in given]
        spec = {**spec, "added_tokens": added}
        if spec["added_tokens"] != given:
            self._decoder = _parsed(spec, where)
        # A model of merges alone finds no piece in its vocabulary as a whole, so no special one either.
        only_merges = "merges" in spec["model"] and not spec["model"].get("ignore_merges")
        self._encoder = self._decoder if only_merges else _parsed(_disguised(spec), where)
        self._encoder.encode_special_tokens = True
        self._encoder.no_truncation()
        self._encoder.no_padding()
        self.specials: dict[str, int] = {t["content"]: t["id"] for t in spec["added_tokens"] if t["special"]}
        vocabulary = self._decoder.get_vocab(with_added_tokens=True)
        self.pieces: list[str] = [""] * (max(vocabulary.values(), default=-1) + 1)
        for piece, identity in vocabulary.items():
            self.pieces[identity] = piece
        self._is_byte_level = '"type": "ByteLevel"' in json.dumps([spec.get("pre_tokenizer"), spec.get("decoder")])
        self.continuing: str = spec["model"].get("continuing_subword_prefix") or ""
        cores = int(os.environ.get("RAYON_NUM_THREADS") or 0) or os.cpu_count() or 1  # that the library uses
        by_words = _is_by_words(spec) and cores <= FEW_CORES
        self.encode_flat = WordCache(self.encode_whole).encode_flat if by_words else self.encode_whole

    def encode_whole(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The ids of all texts in one array, and how many belong to each, by the library alone."""
        encodings = self._encoder.encode_batch_fast(list(texts), add_special_tokens=False)
        lengths = np.fromiter((len(encoding) for encoding in encodings), np.int64, len(encodings))
        ids = itertools.chain.from_iterable(encoding.ids for encoding in encodings)
        return np.fromiter(ids, np.uint32, int(lengths.sum())), lengths

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids, special tokens spelled."""
        return self._decoder.decode(list(ids), skip_special_tokens=False)

    def text_of(self, identity: int) -> str:
        """The stretch of text that one token stands for; bytes that are no whole character as `<C3>`."""
        piece = self.pieces[identity]
        if not self._is_byte_level:
            return piece.replace("▁", " ")
        if any(character not in BYTE_OF for character in piece):
            return piece
        return shown_bytes(bytes(BYTE_OF[character] for character in piece))

    def with_special(self, spec: Spec, spelling: str) -> Spec:
        """The specification with one more special token, at the end."""
        token = special_token(len(self.pieces), spelling)
        return {**spec, "added_tokens": [*(spec.get("added_tokens") or []), token]}


def special_token(identity: int, spelling: str) -> Spec:
    """An entry of `added_tokens`."""
    return {
        "id": identity, "content": spelling, "single_word": False, "lstrip": False, "rstrip": False,
        "normalized": False, "special": True,
    }  # fmt: skip


def _refuse_far_ids(spec: Spec, where: str) -> None:
    """Refuse ids far beyond the number of pieces: every id below the largest takes memory."""
    model, added = spec["model"], spec.get("added_tokens")
    pieces = model.get("vocab") if isinstance(model, dict) else None
    ids = [*(pieces.values() if isinstance(pieces, dict) else ())]
    tokens = added if isinstance(added, list) else ()
    ids += [token.get("id") for token in tokens if isinstance(token, dict)]
    count = len(ids) + (len(pieces) if isinstance(pieces, list) else 0)
    largest = max((identity for identity in ids if isinstance(identity, int)), default=0)
    if largest > count + MOST_UNUSED:
        what, fix = f"has {count:,} pieces, and the id {largest:,}", "give the tokenizer's own file"
        raise UserError(what, where=where, fix=fix, code="bad-format")


def _parsed(spec: Spec, where: str) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_str(json.dumps(spec, ensure_ascii=False))
    except Exception as error:  # the library raises nothing narrower
        what = f"cannot be read by the `tokenizers` library ({error})"
        fix = "give a tokenizer.json, or train one: headstart tokenizer F… --out DIR"
        raise UserError(what, where=where, fix=fix, code="bad-format") from error


def _named_roles(named: Any, added: list[str], where: str) -> dict[str, str]:
    """Which token has which role, where the file says so."""
    if named is None:
        return {}
    if not isinstance(named, dict) or not all(
        role in ROLES and isinstance(spelling, str) and spelling in added for role, spelling in named.items()
    ):
        fix = f"roles are {', '.join(ROLES)}, each with an added token"
        what = "roles is not a table of roles and their special tokens"
        raise UserError(what, where=where, fix=fix, code="bad-format")
    return named


def _disguised(spec: Spec) -> Spec:
    """The same with special pieces under names that no text has, so that the model cannot find them."""
    spec = copy.deepcopy(spec)
    names = {t["content"]: f"\ufdd0{t['content']}\ufdd1" for t in spec["added_tokens"] if t["special"]}
    model = spec["model"]
    if isinstance(model.get("vocab"), dict):
        model["vocab"] = {names.get(piece, piece): identity for piece, identity in model["vocab"].items()}
    else:
        model["vocab"] = [[names.get(piece, piece), score] for piece, score in model["vocab"]]
    if model.get("unk_token"):
        model["unk_token"] = names.get(model["unk_token"], model["unk_token"])
    for token in spec["added_tokens"]:
        token["content"] = names.get(token["content"], token["content"])
    spec["post_processor"] = None  # it would look for the names
    return spec


def _is_by_words(spec: Spec) -> bool:
    """Whether nothing joins a word and the white space after it, so that words can be encoded one by one."""
    cutter, model = spec.get("pre_tokenizer") or {}, spec["model"]
    first = (cutter.get("pretokenizers") or [cutter])[0]
    is_cut = {
        "ByteLevel": first.get("use_regex", True) and not first.get("add_prefix_space", True),
        "BertPreTokenizer": True,
        "WhitespaceSplit": True,
        None: model.get("merges") == [],
    }.get(first.get("type"), False)
    has_words_of_its_own = any(not token["special"] for token in spec["added_tokens"])
    joins = normalisations_of(spec) is None or has_words_of_its_own or model.get("dropout")
    return bool(is_cut) and not joins


# Byte-level vocabularies write each byte as a visible character: itself, or one from 256 on.
_VISIBLE, _OTHERS = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}, itertools.count(256)
BYTE_OF = {chr(byte if byte in _VISIBLE else next(_OTHERS)): byte for byte in range(256)}


def shown_bytes(raw: bytes) -> str:
    """Bytes as text; those that are no whole character as `<C3>`."""
    return "".join(
        f"<{ord(character) - 0xDC00:02X}>" if "\udc80" <= character <= "\udcff" else character
        for character in raw.decode("utf-8", "surrogateescape")
    )


# ---- normalisation before a text is cut into tokens, on request
#
# Each works on single characters, so that a text may be cut anywhere, and keeps white space as it is.

APOSTROPHES = "’‘‛ʼ′´`＇"  # the typographic one, and what is typed instead

_PARTS: dict[Normalisation, normalizers.Normalizer] = {
    "apostrophes": normalizers.Replace(Regex(f"[{APOSTROPHES}]"), "'"), "lower-case": normalizers.Lowercase(),
}  # fmt: skip


def in_order(names: Sequence[str]) -> tuple[Normalisation, ...]:
    """The named normalisations in a fixed order; an unknown one is refused."""
    for name in names:
        if name not in _PARTS:
            raise UserError(f"no normalisation {name!r}", fix=nearest(name, _PARTS), code="unknown-name")
    return tuple(name for name in _PARTS if name in names)


def normaliser(names: Sequence[Normalisation]) -> Spec | None:
    """The part of a `tokenizer.json` that normalises so; None where nothing is asked for."""
    return dict(json.loads(_sequence(in_order(names)).__getstate__())) if names else None


def normalisations_of(spec: Spec) -> tuple[Normalisation, ...] | None:
    """The normalisations of a `tokenizer.json`; None where some are not ours."""
    subsets = ((), *((name,) for name in _PARTS), tuple(_PARTS))
    return next((names for names in subsets if normaliser(names) == spec.get("normalizer")), None)


def normalised(text: str, names: Sequence[Normalisation]) -> str:
    """The text after these normalisations."""
    return str(_sequence(in_order(names)).normalize_str(text)) if names else text


@cache
def _sequence(names: tuple[Normalisation, ...]) -> Any:
    return normalizers.Sequence([_PARTS[name] for name in names])


# ---- a cache of words ---------------------------------------------------------------------------------------

Encode = Callable[[Sequence[str]], tuple[np.ndarray, np.ndarray]]

# A word with the white space before it, or the white space at the end. Python's \s has the four separators
# 1C to 1F besides those of Unicode, which to a tokenizer are signs like any other.
_WORDS = re.compile(r"[^\S\x1c-\x1f]*[\S\x1c-\x1f]+|[^\S\x1c-\x1f]+")
CACHED_WORDS = 1 << 18
LONG_WORD = 64
_ID_BYTES = 4


class _Known(dict[str, bytes]):
    """The ids of words, as bytes; a long word, which is rarely repeated, is encoded each time."""

    def __init__(self, encode: Encode) -> None:
        super().__init__()
        self.encode = encode

    def __missing__(self, word: str) -> bytes:
        return self.encode([word])[0].tobytes()

    def learn(self, words: Sequence[str]) -> None:
        ids, lengths = self.encode(words)
        raw, ends = ids.tobytes(), (_ID_BYTES * np.cumsum(lengths)).tolist()
        self.update(zip(words, (raw[a:b] for a, b in itertools.pairwise([0, *ends])), strict=True))


class WordCache:
    """An encoder of texts made from an encoder that never joins a word and the white space after it.

    A corpus repeats its words, so each is encoded once and cached: of the eight million words of 95 novels 97 % were
    seen before, and looking them up halves the time of the library alone.
    """

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self._known = _Known(encode)

    def encode_flat(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The ids of all texts in one array, and how many belong to each."""
        words_of = [_WORDS.findall(text) for text in texts]
        words = list(itertools.chain.from_iterable(words_of))
        if len(self._known) > CACHED_WORDS:
            self._known = _Known(self._encode)
        known = self._known  # another thread may set a new one meanwhile
        new = [word for word in set(words) if word not in known]
        if 2 * len(new) > len(words):  # a short text, or a script that is written without spaces
            return self._encode(texts)
        known.learn([word for word in new if len(word) <= LONG_WORD])
        encoded = list(map(known.__getitem__, words))
        ids = np.frombuffer(b"".join(encoded), np.uint32)
        ends = np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded))) // _ID_BYTES
        word_counts = np.fromiter(map(len, words_of), np.int64, len(words_of))
        text_ends = np.concatenate([[0], ends])[np.cumsum(word_counts)]
        return ids, np.diff(text_ends, prepend=0)
