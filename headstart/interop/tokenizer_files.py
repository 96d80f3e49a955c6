"""Tokenizer files as `transformers` has them: read with their special tokens by role, and written with a frame."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from headstart.config.run import FrameName
from headstart.errors import Code, UserError
from headstart.interop.directory import ForeignDirectory
from headstart.interop.families.fields import Fields
from headstart.storage.atomic import atomic_write
from headstart.tokenizers.huggingface import special_token
from headstart.tokenizers.special_tokens import Role, roles_among
from headstart.tokenizers.templates import Template
from headstart.tokenizers.tokenizer import Tokenizer

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


def _refused(what: str, where: str | Path, code: Code) -> UserError:
    return UserError(what, where=where, fix=_SAVE, code=code)


def read_tokenizer(directory: ForeignDirectory, fields: Fields, frame: FrameName) -> tuple[Tokenizer, list[str]]:
    """The directory's tokenizer, with every role that the frame needs, and notes for the user."""
    where = str(directory.path)
    settings = directory.json("tokenizer_config.json") if directory.has("tokenizer_config.json") else {}
    spec = {**_spec(directory, settings, frame), "truncation": None, "padding": None}
    spec, notes = _as_configured(spec, settings)
    pieces = Tokenizer(spec, f"{where}/tokenizer.json").pieces  # which the library could read, so that we can
    named = _named(directory, settings)
    _check_added(settings, pieces, where)
    named |= _by_id(fields, pieces, named)
    spec, more = _with_roles(_with_specials(spec, named, pieces, where), named, frame)
    return Tokenizer(spec, f"{where}/tokenizer.json"), notes + more


# ---- in: files --------------------------------------------------------------------------------------------------


def _spec(directory: ForeignDirectory, settings: Spec, frame: FrameName) -> Spec:
    if directory.has("tokenizer.json"):
        spec = directory.json("tokenizer.json")
        if not isinstance(spec.get("model"), dict):
            where = directory.path / "tokenizer.json"
            raise _refused("is JSON, but no tokenizer: it has no model", where, "bad-format")
        return spec
    if directory.has("vocab.txt"):
        return _wordpiece(directory, settings)
    if directory.has("vocab.json") and directory.has("merges.txt"):
        return _byte_pairs(directory, settings, frame)
    what = "has no tokenizer.json, and no vocab.txt or vocab.json with merges.txt either"
    raise _refused(what, directory.path, "no-file")


def _lines(directory: ForeignDirectory, name: str) -> list[str]:
    try:
        text = directory.file(name).read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise _refused(f"{name} is not UTF-8 at byte {error.start}", directory.path, "bad-text") from error
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
    lines = [line for line in _lines(directory, "merges.txt") if not line.startswith("#version")]
    pairs = [(merge[0], merge[1]) for line in lines if len(merge := line.split(" ")) == 2]
    try:
        made = tokenizers.Tokenizer(models.BPE(vocabulary, pairs))
    except Exception as error:  # the library raises nothing narrower
        what = f"vocab.json and merges.txt make no tokenizer ({error})"
        raise _refused(what, directory.path, "bad-format") from error
    prefix = settings.get("add_prefix_space") is True
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=prefix), decoders.ByteLevel()
    if frame == "masked":
        first, last = vocabulary.get("<s>"), vocabulary.get("</s>")
        if isinstance(first, int) and isinstance(last, int):
            ends = ("</s>", last), ("<s>", first)
            made.post_processor = processors.RobertaProcessing(*ends, add_prefix_space=prefix)
    specials = ("<s>", "<pad>", "</s>", "<unk>", "<mask>", "<|endoftext|>")
    made.add_special_tokens([piece for piece in specials if piece in vocabulary])
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
                notes.append(f"{theirs} is {value} by tokenizer_config.json; tokenizer.json has the reverse")
                part = {**part, own: value}
        spec = {**spec, name: part}
    return spec, notes


# ---- in: special tokens -----------------------------------------------------------------------------------------


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
    if named.get("unknown") in others:  # GPT-2's only token: it comes from no text, every byte being known
        del named["unknown"]
    return named


def _by_id(fields: Fields, pieces: list[str], named: Mapping[Role, str]) -> dict[Role, str]:
    """Roles that only config.json names, by number: the first one, where an end has several."""
    by_id: dict[Role, str] = {}
    for key, role in (("bos_token_id", "begin"), ("eos_token_id", "end"), ("pad_token_id", "pad")):
        identity = fields.content.get(key)
        if isinstance(identity, list) and identity:
            identity = identity[0]
        if role not in named and type(identity) is int and 0 <= identity < len(pieces):
            by_id[role] = pieces[identity]  # type: ignore[index]
    return by_id


def _check_added(settings: Spec, pieces: list[str], where: str) -> None:
    """Refuse a token that tokenizer_config.json adds and tokenizer.json does not have with that id."""
    added = settings.get("added_tokens_decoder")
    for key, entry in added.items() if isinstance(added, dict) else ():
        spelling = _spelling(entry)
        identity = int(key) if key.isdecimal() and len(key) < 10 else -1
        if not 0 <= identity < len(pieces) or pieces[identity] != spelling:
            what = f"tokenizer_config.json has the token {spelling!r} as {key[:10]}, tokenizer.json has not"
            raise _refused(what, where, "mismatch")


def _with_specials(spec: Spec, named: Mapping[Role, str], pieces: list[str], where: str) -> Spec:
    """Every token with a role as a special one, with the id that it has in the vocabulary."""
    added = {token["content"]: token for token in spec.get("added_tokens") or []}
    vocabulary = {piece: identity for identity, piece in enumerate(pieces)}
    for role, spelling in named.items():
        if spelling in added:
            added[spelling] = {**added[spelling], "special": True}
        elif spelling in vocabulary:
            added[spelling] = special_token(vocabulary[spelling], spelling)
        elif role in ("pad", "mask", "unknown"):
            continue  # named out of habit: the embedding has no row for it
        else:
            raise _refused(f"the {role} token {spelling!r} is not in the tokenizer", where, "mismatch")
    return {**spec, "added_tokens": sorted(added.values(), key=lambda token: token["id"])}


def _with_roles(spec: Spec, named: Mapping[Role, str], frame: FrameName) -> tuple[Spec, list[str]]:
    """The roles written down where a spelling alone does not show them, and what stands in for what is missing."""
    specials = {token["content"]: token["id"] for token in spec["added_tokens"] if token.get("special")}
    by_spelling = roles_among(specials)
    spelled = {identity: spelling for spelling, identity in specials.items()}
    roles = {role: spelled[identity] for role, identity in by_spelling.items() if identity is not None}
    roles |= {role: spelling for role, spelling in named.items() if spelling in specials}
    notes = []
    for role, others in _NEEDED["causal" if frame == "causal" else "masked"].items():
        if role not in roles:
            other = next((other for other in others if other in roles), None)
            what = f"the tokenizer has no {role} token"
            if other is None:
                raise _refused(f"{what}, and none that could stand in for it", "", "missing")
            roles[role] = roles[other]
            notes.append(f"{what}: {roles[other]} (the {other} token) stands in for it")
    unlike = {role: spelling for role, spelling in roles.items() if by_spelling[role] != specials[spelling]}
    return ({**spec, "roles": unlike} if unlike else spec), notes


# ---- in: frames -------------------------------------------------------------------------------------------------


def frame_of_tokenizer(tokenizer: Tokenizer, frame: FrameName, where: str) -> tuple[FrameName, bool]:
    """The frame that fits what their tokenizer puts around texts, and whether a text comes out the very same."""
    theirs = _library(tokenizer)
    one, two = theirs.encode("a").ids, theirs.encode("a", "b").ids
    a, b = (theirs.encode(text, add_special_tokens=False).ids for text in ("a", "b"))
    if frame == "causal":
        return "causal", one == [tokenizer.id_of("begin"), *a, tokenizer.id_of("end")]
    cls, sep = tokenizer.id_of("cls"), tokenizer.id_of("sep")
    if one == a:  # it adds nothing: the family's own
        return frame, False
    for name, between in (("masked", [sep]), ("roberta", [sep, sep])):
        if one == [cls, *a, sep] and two == [cls, *a, *between, *b, sep]:
            return name, True  # type: ignore[return-value]
    ours = f"{tokenizer.pieces[cls]} and {tokenizer.pieces[sep]}: {theirs.encode('a').tokens}"
    what = f"its tokenizer puts other special tokens around a text than {ours}"
    fix = "this checkpoint reads texts in a way that Headstart has no frame for"
    raise UserError(what, where=where, fix=fix, code="unsupported")


def without_begin(tokenizer: Tokenizer) -> list[str]:
    """A note where their tokenizer puts no begin before a prompt, as ours does."""
    begin = tokenizer.id_of("begin")
    note = f"its tokenizer puts nothing before a prompt: here {tokenizer.pieces[begin]} stands before each, as begin"
    return [] if _library(tokenizer).encode("a").ids[:1] == [begin] else [note]


def _library(tokenizer: Tokenizer) -> tokenizers.Tokenizer:
    """As the `tokenizers` library reads it, with what it puts around a text."""
    return tokenizers.Tokenizer.from_str(json.dumps(plain_spec(tokenizer)))


def plain_spec(tokenizer: Tokenizer) -> Spec:
    """The specification without its roles, which the `tokenizers` library refuses."""
    return {key: value for key, value in tokenizer.spec.items() if key != "roles"}


# ---- out ----------------------------------------------------------------------------------------------------


def tokenizer_obstacle(tokenizer: Tokenizer) -> str | None:
    """What keeps a tokenizer from being written as a tokenizer.json of the `tokenizers` library."""
    if "format" in tokenizer.spec:
        return "the tokenizer is a SentencePiece model, and a tokenizer.json of `tokenizers` is needed"
    return None


def write_tokenizer(tokenizer: Tokenizer, frame: Template, length: int, segments: bool, directory: Path) -> None:
    """Write tokenizer.json with the frame in it, and what `transformers` wants to know besides."""
    write_json(directory / "tokenizer.json", framed_spec(tokenizer, frame))
    names = {role: name for name, role in _ROLES.items()}
    known = {role: identity for role, identity in tokenizer.roles.items() if identity is not None}
    spelled = {names[role]: tokenizer.pieces[identity] for role, identity in known.items()}
    inputs = ["input_ids", *(["token_type_ids"] if segments else []), "attention_mask"]
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": length, "model_input_names": inputs,
        "clean_up_tokenization_spaces": False, **spelled,
    }  # fmt: skip
    write_json(directory / "tokenizer_config.json", settings)
    write_json(directory / "special_tokens_map.json", spelled)


def framed_spec(tokenizer: Tokenizer, frame: Template) -> Spec:
    """The specification with a post-processor that puts the frame around one text, or around two."""

    def special(identity: int | None, text: int, count: int = 1) -> list[Spec]:
        if identity is None:
            return []
        return [{"SpecialToken": {"id": tokenizer.pieces[identity], "type_id": text}}] * count

    first = special(frame.first, 0)
    a, b = ({"Sequence": {"id": name, "type_id": text}} for text, name in enumerate("AB"))
    pair = [*first, a, *special(frame.last, 0, frame.between), b, *special(frame.last, 1)]
    spelled = {i: tokenizer.pieces[i] for i in (frame.first, frame.last) if i is not None}
    template = {
        "type": "TemplateProcessing", "single": [*first, a, *special(frame.last, 0)], "pair": pair,
        "special_tokens": {piece: {"id": piece, "ids": [i], "tokens": [piece]} for i, piece in spelled.items()},
    }  # fmt: skip
    return {**plain_spec(tokenizer), "post_processor": template}


def write_json(path: Path, content: Spec) -> None:
    """Write a JSON file whole."""
    atomic_write(path, json.dumps(content, ensure_ascii=False, indent=1).encode() + b"\n")
