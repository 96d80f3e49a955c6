"""A `tokenizer.json` of the `tokenizers` library, made to read text as nothing but text.

The library looks for the spelling of special tokens in what it encodes, and some models find them in their
own vocabulary besides. Here text that spells a special token is encoded like any other text.
"""

import copy
import itertools
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

# Without a word from us the library goes down to one core after a fork, and warns on stderr.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
import tokenizers

from headstart.errors import UserError
from headstart.text.normalising import normalisations_of
from headstart.text.roles import KNOWN, ROLES
from headstart.text.word_memory import WordMemory

Spec = dict[str, Any]
MOST_UNUSED = 1 << 16  # ids that no piece has
# Up to this many, remembering words is quicker than the library's own way; it takes one core.
FEW_CORES = 4


class HuggingFaceEngine:
    """Encodes and decodes by the content of a `tokenizer.json`."""

    def __init__(self, spec: Spec, where: str = "tokenizer.json") -> None:
        roles = spec.get("roles")
        spec = {
            key: value for key, value in spec.items() if key != "roles"
        }  # ours: the library does not know it
        _refuse_far_ids(spec, where)
        given, self._decoder = spec.get("added_tokens") or [], _parsed(spec, where)
        named = _named_roles(roles, [token["content"] for token in given], where)
        spec = {**spec, "added_tokens": [_as_special(token, named) for token in given]}
        if spec["added_tokens"] != given:
            self._decoder = _parsed(spec, where)
        self._encoder = self._decoder if _only_merges(spec["model"]) else _parsed(_disguised(spec), where)
        self._encoder.encode_special_tokens = True
        self._encoder.no_truncation()
        self._encoder.no_padding()
        self.specials: dict[str, int] = {t["content"]: t["id"] for t in spec["added_tokens"] if t["special"]}
        vocabulary = self._decoder.get_vocab(with_added_tokens=True)
        self.pieces: list[str] = [""] * (max(vocabulary.values(), default=-1) + 1)
        for piece, identity in vocabulary.items():
            self.pieces[identity] = piece
        self._is_byte_level = any(part == "ByteLevel" for part in _part_types(spec))
        self._continuing = spec["model"].get("continuing_subword_prefix") or ""
        by_words = _is_by_words(spec) and _cores() <= FEW_CORES
        self.encode_flat = WordMemory(self.encode_whole).encode_flat if by_words else self.encode_whole

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

    def continues_word(self, identity: int) -> bool | None:
        """Whether the piece says itself that it continues a word; None where pieces do not say."""
        return self.pieces[identity].startswith(self._continuing) if self._continuing else None

    def with_special(self, spec: Spec, spelling: str) -> Spec:
        """The specification with one more special token, at the end."""
        token = {"id": len(self.pieces), "content": spelling, "special": True, "normalized": False}
        token |= {"single_word": False, "lstrip": False, "rstrip": False}
        return {**spec, "added_tokens": [*(spec.get("added_tokens") or []), token]}


def _refuse_far_ids(spec: Spec, where: str) -> None:
    """Refuse ids far beyond the number of pieces: every id below the largest is given its place in memory."""
    model, added = spec["model"], spec.get("added_tokens")
    pieces = model.get("vocab") if isinstance(model, dict) else None
    ids = [*(pieces.values() if isinstance(pieces, dict) else ())]
    ids += [
        token.get("id") for token in (added if isinstance(added, list) else ()) if isinstance(token, dict)
    ]
    count = len(ids) + (len(pieces) if isinstance(pieces, list) else 0)
    largest = max((identity for identity in ids if isinstance(identity, int)), default=0)
    if largest > count + MOST_UNUSED:
        raise UserError(
            f"has {count:,} pieces, and the id {largest:,}", where=where, fix="give the tokenizer's own file"
        )


def _cores() -> int:
    """The threads that the library works with."""
    return int(os.environ.get("RAYON_NUM_THREADS") or 0) or os.cpu_count() or 1


def _parsed(spec: Spec, where: str) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_str(json.dumps(spec, ensure_ascii=False))
    except Exception as error:  # the library raises nothing narrower
        raise UserError(
            f"is no tokenizer that the `tokenizers` library can read ({error})",
            where=where,
            fix="give a tokenizer.json, or train one: headstart tokenizer F… --out DIR",
        ) from error


def _named_roles(named: Any, added: list[str], where: str) -> dict[str, str]:
    """Which token has which role, where the file says so."""
    if named is None:
        return {}
    if not isinstance(named, dict) or not all(
        role in ROLES and isinstance(spelling, str) and spelling in added for role, spelling in named.items()
    ):
        raise UserError(
            "roles is no table of roles and of special tokens that have them",
            where=where,
            fix=f"roles are {', '.join(ROLES)}, each with an added token",
        )
    return named


def _as_special(token: Spec, named: dict[str, str]) -> Spec:
    is_special = bool(token.get("special")) or token["content"] in KNOWN or token["content"] in named.values()
    return {**token, "special": is_special}


def _only_merges(model: Spec) -> bool:
    """Whether no piece can come out whole by being found in the vocabulary: then no special one can."""
    return "merges" in model and not model.get("ignore_merges")


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


def _part_types(spec: Spec) -> Iterator[str]:
    """The types of the parts that cut and join text, those inside sequences too."""
    waiting = [spec.get("pre_tokenizer"), spec.get("decoder")]
    while waiting:
        part = waiting.pop()
        if part:
            yield part["type"]
            waiting += [*part.get("pretokenizers", []), *part.get("decoders", [])]


# ---- the byte-level alphabet ------------------------------------------------------------------------------


def _byte_alphabet() -> dict[str, int]:
    """Byte-level vocabularies write each byte as a visible character: itself, or one from 256 on."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = itertools.count(256)
    return {chr(byte if byte in visible else next(others)): byte for byte in range(256)}


BYTE_OF: dict[str, int] = _byte_alphabet()


def shown_bytes(raw: bytes) -> str:
    """Bytes as text; those that are no whole character as `<C3>`."""
    return "".join(
        f"<{ord(character) - 0xDC00:02X}>" if "\udc80" <= character <= "\udcff" else character
        for character in raw.decode("utf-8", "surrogateescape")
    )
