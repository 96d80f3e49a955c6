"""A run's tokenizer as files that `transformers` reads: the same ids, with the same frame around every text."""

import json
from pathlib import Path
from typing import Any

from headstart.text.frames import Frame
from headstart.text.roles import Role
from headstart.text.tokenizer import Tokenizer
from headstart.training.run_directory import write_whole

Spec = dict[str, Any]
_NAMES: dict[Role, str] = {
    "begin": "bos_token", "end": "eos_token", "pad": "pad_token", "unknown": "unk_token", "mask": "mask_token",
    "cls": "cls_token", "sep": "sep_token",
}  # fmt: skip


def tokenizer_obstacle(tokenizer: Tokenizer) -> str | None:
    """What keeps a tokenizer from being written as a tokenizer.json of the `tokenizers` library."""
    if "format" in tokenizer.spec:
        return "the tokenizer is a SentencePiece model, and a tokenizer.json of `tokenizers` is needed"
    return None


def write_tokenizer(tokenizer: Tokenizer, frame: Frame, length: int, segments: bool, directory: Path) -> None:
    """Write tokenizer.json with the frame in it, and what `transformers` wants to know besides."""
    write_json(directory / "tokenizer.json", framed_spec(tokenizer, frame))
    spelled = {
        _NAMES[role]: tokenizer.pieces[identity]
        for role, identity in tokenizer.roles.items()
        if identity is not None
    }
    inputs = (
        ["input_ids", "token_type_ids", "attention_mask"] if segments else ["input_ids", "attention_mask"]
    )
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": length, "model_input_names": inputs,
        "clean_up_tokenization_spaces": False, **spelled,
    }  # fmt: skip
    write_json(directory / "tokenizer_config.json", settings)
    write_json(directory / "special_tokens_map.json", spelled)


def framed_spec(tokenizer: Tokenizer, frame: Frame) -> Spec:
    """The specification with a post-processor that puts the frame around one text, or around two."""

    def special(identity: int | None, text: int, count: int = 1) -> list[Spec]:
        if identity is None:
            return []
        return [{"SpecialToken": {"id": tokenizer.pieces[identity], "type_id": text}}] * count

    first, a, b = special(frame.first, 0), _sequence("A", 0), _sequence("B", 1)
    pair = [*first, a, *special(frame.last, 0, frame.between), b, *special(frame.last, 1)]
    names = {
        tokenizer.pieces[identity]: {
            "id": tokenizer.pieces[identity], "ids": [identity], "tokens": [tokenizer.pieces[identity]],
        }
        for identity in (frame.first, frame.last)
        if identity is not None
    }  # fmt: skip
    template = {
        "type": "TemplateProcessing", "single": [*first, a, *special(frame.last, 0)], "pair": pair,
        "special_tokens": names,
    }  # fmt: skip
    own = {key: value for key, value in tokenizer.spec.items() if key != "roles"}  # which the library refuses
    return {**own, "post_processor": template}


def _sequence(name: str, text: int) -> Spec:
    return {"Sequence": {"id": name, "type_id": text}}


def write_json(path: Path, content: Spec) -> None:
    """Write a JSON file whole."""
    write_whole(path, json.dumps(content, ensure_ascii=False, indent=1).encode() + b"\n")
