"""The tokenizer of a foreign directory: tokenizer.json or a vocabulary alone, its special tokens by their role."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from headstart.errors import UserError
from headstart.interop.fields import Fields
from headstart.interop.reading import ForeignDirectory
from headstart.text.frames import FrameName
from headstart.text.roles import Role, roles_among
from headstart.text.tokenizer import Tokenizer

Spec = dict[str, Any]
_ROLES: dict[str, Role] = {
    "bos_token": "begin", "eos_token": "end", "pad_token": "pad", "unk_token": "unknown", "mask_token": "mask",
    "cls_token": "cls", "sep_token": "sep",
}  # fmt: skip
# What each frame needs, and which other roles may stand in, in this order.
_NEEDED: dict[str, dict[Role, tuple[Role, ...]]] = {
    "masked": {"cls": ("begin",), "sep": ("end",), "pad": ("sep", "end")},
    "causal": {"end": ("begin", "sep"), "begin": ("end",), "pad": ("end",)},
}
_SAVE = "save it with a tokenizer.json: transformers.AutoTokenizer.from_pretrained(DIR).save_pretrained(NEW)"


class FoundTokenizer(NamedTuple):
    """A tokenizer, and what the user should know about it."""

    tokenizer: Tokenizer
    notes: list[str]


def read_tokenizer(directory: ForeignDirectory, fields: Fields, frame: FrameName) -> FoundTokenizer:
    """The directory's tokenizer, with every role that the frame needs."""
    where = str(directory.path)
    settings = directory.json("tokenizer_config.json") if directory.has("tokenizer_config.json") else {}
    spec = {**_spec(directory, settings, frame), "truncation": None, "padding": None}
    spec, notes = _as_configured(spec, settings)
    pieces = Tokenizer(spec, f"{where}/tokenizer.json").pieces  # which the library could read, so that we can
    named = _named(directory, settings)
    _check_added(settings, pieces, where)
    named |= _by_id(fields, pieces, named)
    spec, told = _with_roles(_with_specials(spec, named, where), named, frame)
    return FoundTokenizer(Tokenizer(spec, f"{where}/tokenizer.json"), notes + told)


# ---- files --------------------------------------------------------------------------------------------------


def _spec(directory: ForeignDirectory, settings: Spec, frame: FrameName) -> Spec:
    if directory.has("tokenizer.json"):
        spec = directory.json("tokenizer.json")
        if not isinstance(spec.get("model"), dict):
            raise UserError(
                "is JSON, but no tokenizer: it has no model",
                where=str(directory.path / "tokenizer.json"),
                fix=_SAVE,
            )
        return spec
    if directory.has("vocab.txt"):
        return _wordpiece(directory, settings)
    if directory.has("vocab.json") and directory.has("merges.txt"):
        return _byte_pairs(directory, settings, frame)
    raise UserError(
        "has no tokenizer.json, and no vocab.txt or vocab.json with merges.txt either",
        where=str(directory.path),
        fix=_SAVE,
    )


def _lines(directory: ForeignDirectory, name: str) -> list[str]:
    try:
        text = directory.file(name).read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{name} is not UTF-8 at byte {error.start}", where=str(directory.path), fix=_SAVE
        ) from error
    return [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")]


def _wordpiece(directory: ForeignDirectory, settings: Spec) -> Spec:
    """BERT's tokenizer from its vocabulary: a piece a line."""
    vocabulary = {piece: identity for identity, piece in enumerate(_lines(directory, "vocab.txt"))}
    unknown = _spelling(settings.get("unk_token")) or "[UNK]"
    made = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=unknown))
    made.normalizer = normalizers.BertNormalizer(
        lowercase=settings.get("do_lower_case", True) is not False,
        strip_accents=accents if isinstance(accents := settings.get("strip_accents"), bool) else None,
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True) is not False,
    )
    made.pre_tokenizer, made.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    known = [piece for piece in ("[PAD]", unknown, "[CLS]", "[SEP]", "[MASK]") if piece in vocabulary]
    made.add_special_tokens(known)
    return dict(json.loads(made.to_str()))


def _byte_pairs(directory: ForeignDirectory, settings: Spec, frame: FrameName) -> Spec:
    """The tokenizer of GPT-2 and RoBERTa from its vocabulary and its merges."""
    vocabulary = directory.json("vocab.json")
    merges = [
        tuple(line.split(" ")) for line in _lines(directory, "merges.txt") if not line.startswith("#version")
    ]
    pairs = [merge for merge in merges if len(merge) == 2]
    try:
        made = tokenizers.Tokenizer(models.BPE(vocabulary, pairs))
    except Exception as error:  # the library raises nothing narrower
        raise UserError(
            f"vocab.json and merges.txt make no tokenizer ({error})", where=str(directory.path), fix=_SAVE
        ) from error
    prefix = settings.get("add_prefix_space") is True
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=prefix), decoders.ByteLevel()
    if frame == "masked":
        first, last = vocabulary.get("<s>"), vocabulary.get("</s>")
        if isinstance(first, int) and isinstance(last, int):
            made.post_processor = processors.RobertaProcessing(
                ("</s>", last), ("<s>", first), add_prefix_space=prefix
            )
    made.add_special_tokens(
        [
            piece
            for piece in ("<s>", "<pad>", "</s>", "<unk>", "<mask>", "<|endoftext|>")
            if piece in vocabulary
        ]
    )
    return dict(json.loads(made.to_str()))


def _as_configured(spec: Spec, settings: Spec) -> tuple[Spec, list[str]]:
    """Where tokenizer_config.json says otherwise than tokenizer.json, it is what `transformers` goes by."""
    wanted = {
        "normalizer": ("BertNormalizer", {"do_lower_case": "lowercase", "strip_accents": "strip_accents",
                                          "tokenize_chinese_chars": "handle_chinese_chars"}),
        "pre_tokenizer": ("ByteLevel", {"add_prefix_space": "add_prefix_space"}),
    }  # fmt: skip
    notes = []
    for name, (kind, keys) in wanted.items():
        part = spec.get(name)
        if not isinstance(part, dict) or part.get("type") != kind:
            continue
        for theirs, own in keys.items():
            value = settings.get(theirs)
            if isinstance(value, bool) and part.get(own) != value and part.get(own) is not None:
                notes.append(
                    f"tokenizer_config.json has {theirs} = {value}, tokenizer.json the reverse: {value}"
                )
                part = {**part, own: value}
        spec = {**spec, name: part}
    return spec, notes


# ---- special tokens -----------------------------------------------------------------------------------------


def _spelling(entry: object) -> str:
    """A special token as the files give it: a word, or a table with its content."""
    if isinstance(entry, Mapping):
        entry = entry.get("content")
    return entry if isinstance(entry, str) else ""


def _named(directory: ForeignDirectory, settings: Spec) -> dict[Role, str]:
    """Which token has which role, as special_tokens_map.json and tokenizer_config.json say."""
    listed = directory.json("special_tokens_map.json") if directory.has("special_tokens_map.json") else {}
    named = {
        role: spelling
        for key, role in _ROLES.items()
        if (spelling := _spelling(settings.get(key)) or _spelling(listed.get(key)))
    }
    others = {spelling for role, spelling in named.items() if role not in ("unknown", "pad")}
    if (
        named.get("unknown") in others
    ):  # GPT-2 names its only token so; it comes from no text, every byte being known
        del named["unknown"]
    return named


def _by_id(fields: Fields, pieces: list[str], named: Mapping[Role, str]) -> dict[Role, str]:
    """Roles that only config.json names, by number: the first one, where an end has several."""
    found: dict[Role, str] = {}
    for key, role in (("bos_token_id", "begin"), ("eos_token_id", "end"), ("pad_token_id", "pad")):
        identity = fields.content.get(key)
        if isinstance(identity, list) and identity:
            identity = identity[0]
        if role not in named and type(identity) is int and 0 <= identity < len(pieces):
            found[role] = pieces[identity]  # type: ignore[index]
    return found


def _check_added(settings: Spec, pieces: list[str], where: str) -> None:
    """Refuse a token that tokenizer_config.json adds and tokenizer.json does not have at that place."""
    added = settings.get("added_tokens_decoder")
    for key, entry in added.items() if isinstance(added, dict) else ():
        spelling = _spelling(entry)
        identity = int(key) if key.isdecimal() and len(key) < 10 else -1
        if not 0 <= identity < len(pieces) or pieces[identity] != spelling:
            raise UserError(
                f"tokenizer_config.json has the token {spelling!r} as {key[:10]}, and tokenizer.json has not",
                where=where,
                fix=_SAVE,
            )


def _with_specials(spec: Spec, named: Mapping[Role, str], where: str) -> Spec:
    """Every token with a role as a special one, at the place that it has in the vocabulary."""
    added = {token["content"]: token for token in spec.get("added_tokens") or []}
    vocabulary = _vocabulary(spec)
    for role, spelling in named.items():
        if spelling in added:
            added[spelling] = {**added[spelling], "special": True}
        elif spelling in vocabulary:
            added[spelling] = {
                "id": vocabulary[spelling], "content": spelling, "single_word": False, "lstrip": False,
                "rstrip": False, "normalized": False, "special": True,
            }  # fmt: skip
        elif role in ("pad", "mask", "unknown"):
            continue  # named out of habit: the embedding has no row for it
        else:
            raise UserError(f"the {role} token {spelling!r} is not in the tokenizer", where=where, fix=_SAVE)
    return {**spec, "added_tokens": sorted(added.values(), key=lambda token: token["id"])}


def _vocabulary(spec: Spec) -> dict[str, int]:
    pieces = spec["model"].get("vocab") or {}
    if isinstance(pieces, dict):
        return pieces
    return {entry[0]: identity for identity, entry in enumerate(pieces) if isinstance(entry, list)}


def _with_roles(spec: Spec, named: Mapping[Role, str], frame: FrameName) -> tuple[Spec, list[str]]:
    """The roles written down where a spelling alone does not tell them, and what stands in for what is missing."""
    specials = {token["content"]: token["id"] for token in spec["added_tokens"] if token.get("special")}
    by_spelling = roles_among(specials)
    spelled = {identity: spelling for spelling, identity in specials.items()}
    roles = {role: spelled[identity] for role, identity in by_spelling.items() if identity is not None}
    roles |= {role: spelling for role, spelling in named.items() if spelling in specials}
    notes = []
    for role, others in _NEEDED["causal" if frame == "causal" else "masked"].items():
        if role not in roles:
            other = next((other for other in others if other in roles), None)
            if other is None:
                raise UserError(
                    f"the tokenizer has no {role} token, and none that could stand in for it", fix=_SAVE
                )
            roles[role] = roles[other]
            notes.append(
                f"the tokenizer has no {role} token: {roles[other]} (the {other} token) stands in for it"
            )
    unlike = {role: spelling for role, spelling in roles.items() if by_spelling[role] != specials[spelling]}
    return ({**spec, "roles": unlike} if unlike else spec), notes


# ---- frames -------------------------------------------------------------------------------------------------


def frame_found(tokenizer: Tokenizer, frame: FrameName, where: str) -> tuple[FrameName, bool]:
    """The frame that fits what their tokenizer puts around texts, and whether a text comes out the very same."""
    theirs = _library(tokenizer)
    one, two = theirs.encode("a").ids, theirs.encode("a", "b").ids
    a, b = (theirs.encode(text, add_special_tokens=False).ids for text in ("a", "b"))
    if frame == "causal":
        begin, end = tokenizer.id_of("begin"), tokenizer.id_of("end")
        return "causal", one == [begin, *a, end]
    cls, sep = tokenizer.id_of("cls"), tokenizer.id_of("sep")
    if one == a:  # it adds nothing: the family's own
        return frame, False
    for name, between in (("masked", [sep]), ("roberta", [sep, sep])):
        if one == [cls, *a, sep] and two == [cls, *a, *between, *b, sep]:
            return name, True  # type: ignore[return-value]
    raise UserError(
        f"its tokenizer puts other special tokens around a text than {tokenizer.pieces[cls]} and "
        f"{tokenizer.pieces[sep]}: {theirs.encode('a').tokens}",
        where=where,
        fix="this checkpoint reads texts in a way that Headstart has no frame for",
    )


def without_begin(tokenizer: Tokenizer) -> list[str]:
    """What should be told where their tokenizer puts no begin before a prompt, as ours does."""
    begin = tokenizer.id_of("begin")
    if _library(tokenizer).encode("a").ids[:1] == [begin]:
        return []
    return [
        f"its tokenizer puts nothing before a prompt: here {tokenizer.pieces[begin]} stands before each, as begin"
    ]


def _library(tokenizer: Tokenizer) -> tokenizers.Tokenizer:
    """As the `tokenizers` library reads it, with what it puts around a text."""
    plain = {key: value for key, value in tokenizer.spec.items() if key != "roles"}
    return tokenizers.Tokenizer.from_str(json.dumps(plain))
