"""A foreign config.json: read by name and type, none of its fields passed over in silence, and what keeps a run out."""

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from headstart.config.model import HeadConfig, HeadKind, Pooling
from headstart.config.run import RunConfig
from headstart.errors import UserError
from headstart.planning.parameters import SENTENCE_KINDS

# Where a checkpoint wants to bring code of its own, it says so in one of these.
CODE = ("auto_map", "custom_pipelines")

# What a configuration says besides, and what changes nothing in the computation of a finished model.
_IGNORED = """
    _name_or_path architectures model_type transformers_version torch_dtype dtype use_cache gradient_checkpointing
    initializer_range initializer_factor output_attentions output_hidden_states return_dict use_return_dict torchscript
    task_specific_params finetuning_task id2label label2id num_labels _num_labels problem_type use_bfloat16
    tokenizer_class prefix bos_token_id eos_token_id pad_token_id sep_token_id decoder_start_token_id language
    chunk_size_feed_forward tf_legacy_loss attn_implementation _attn_implementation_internal _commit_hash
    classifier_dropout max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty
    temperature top_k top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size
    encoder_no_repeat_ngram_size bad_words_ids num_return_sequences output_scores return_dict_in_generate
    forced_bos_token_id forced_eos_token_id remove_invalid_values exponential_decay_length_penalty suppress_tokens
    begin_suppress_tokens max_new_tokens transformers.js_config
"""

# What would change the computation in any family, with the value that changes nothing.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "pruned_heads": (None, {}, []), "is_decoder": (None, False), "add_cross_attention": (None, False),
    "cross_attention_hidden_size": (None,), "tie_encoder_decoder": (None, False),
    "is_encoder_decoder": (None, False), "quantization_config": (None,),
}  # fmt: skip

ACTIVATIONS_OUT = {"gelu": "gelu", "relu": "relu", "gelu-tanh": "gelu_new", "silu": "silu"}
LARGEST = 10**9
_MISSING: Any = object()


class Fields:
    """A config.json as it was read; every value has the type that was asked for, or an error names the field."""

    def __init__(self, content: Mapping[str, Any], where: str) -> None:
        self.content, self.where = content, where

    def __contains__(self, name: str) -> bool:
        return name in self.content

    def integer(self, name: str, default: int | None = None) -> int:
        """A whole number of at least 0."""
        value = self._given(name, default)
        is_one = type(value) is int and 0 <= value <= LARGEST
        return int(value) if is_one else self.refuse(name, f"a whole number from 0 to {LARGEST:,}")

    def number(self, name: str, default: float | None = None, least: float = 0.0) -> float:
        value = self._given(name, default)
        is_one = type(value) in (int, float) and least <= value <= 1e12
        return float(value) if is_one else self.refuse(name, f"a number from {least:g} on")

    def flag(self, name: str, default: bool | None = None) -> bool:
        value = self._given(name, default)
        return value if isinstance(value, bool) else self.refuse(name, "true or false")

    def text(self, name: str, default: str | None = None) -> str:
        value = self._given(name, default)
        return value if isinstance(value, str) else self.refuse(name, "a word")

    def one_of(self, name: str, choices: Mapping[str, Any], default: str | None = None) -> Any:
        """What a word stands for; another word than those is refused."""
        value = self.text(name, default)
        if value not in choices:
            self.refuse(name, " or ".join(repr(choice) for choice in choices))
        return choices[value]

    def must_be(self, name: str, *allowed: Any, default: Any = None) -> None:
        """Refuse a field whose value is none of these; one that is missing has the default."""
        value = self.content.get(name, default)
        if not any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in allowed):
            self.refuse(name, " or ".join("null" if one is None else repr(one) for one in allowed), default)

    def refuse(self, name: str, wanted: str, default: Any = None) -> NoReturn:
        shown = _shown(self.content.get(name, default))
        what = f"{name} is {shown}" if name in self.content else f"{name} is missing, which means {shown}"
        fix = f"Headstart computes this family with {name} = {wanted}"
        raise UserError(what, where=self.where, fix=fix, code="unsupported")

    def refuse_unknown(self, read: Iterable[str]) -> None:
        """Refuse what nobody reads: a field that we do not know may change the computation."""
        refuse_code(self.content, self.where)
        known = {*read, *_IGNORED.split(), *NEUTRAL}
        for name, value in self.content.items():
            if name not in known:
                what = f"{name} is {_shown(value)}, a field that Headstart does not know: it may change what the "
                fix = f"if it changes nothing, delete {name} from config.json"
                raise UserError(f"{what}model computes", where=self.where, fix=fix, code="unknown-name")
            if name in NEUTRAL and name not in read:
                self.must_be(name, *NEUTRAL[name])

    def _given(self, name: str, default: Any) -> Any:
        value = self.content.get(name, _MISSING)
        if value is _MISSING or (value is None and default is not None):
            value = default
        if value is None and name not in self.content:
            raise UserError(f"has no {name}", where=self.where, fix=f"add {name} to config.json", code="missing")
        return value


def refuse_code(content: Mapping[str, Any], where: str) -> None:
    """Refuse a file that asks for code to be run."""
    for name in CODE:
        if name in content:
            what = f"{name} asks to run code that comes with the checkpoint, which Headstart never does"
            fix = "give a plain BERT, RoBERTa, CamemBERT, DistilBERT, GPT-2, GPT-NeoX, Llama, Mistral, Marian"
            raise UserError(what, where=where, fix=fix, code="unsupported")


def _shown(value: Any) -> str:
    text = "null" if value is None else repr(value)
    return text if len(text) <= 200 else text[:200] + "…"


# ---- heads over whole texts: how many labels, which names, or a number --------------------------------------

_KINDS: dict[str, HeadKind] = {
    "regression": "regression", "single_label_classification": "classification",
    "multi_label_classification": "multilabel",
}  # fmt: skip


def heads_of(stem: str, **more: str) -> dict[str, str]:
    """The classes of a family, by our heads: those that any family has, and more."""
    return {"none": f"{stem}Model", **more, **dict.fromkeys(SENTENCE_KINDS, f"{stem}ForSequenceClassification")}


def sentence_head(fields: Fields, pooling: Pooling) -> tuple[HeadConfig, tuple[str, ...]]:
    """The head of a …ForSequenceClassification, and its labels in their order."""
    names = _labels(fields)
    problem = fields.content.get("problem_type")
    if problem is None:
        problem = "regression" if len(names) == 1 else "single_label_classification"
    elif problem not in _KINDS:
        fields.refuse("problem_type", " or ".join(_KINDS))
    head = HeadConfig(kind=_KINDS[str(problem)], classes=len(names), pooling=pooling)
    return head, () if head.kind == "regression" else names


def _labels(fields: Fields) -> tuple[str, ...]:
    given = fields.content.get("id2label")
    if given is None:
        count = fields.integer("num_labels", 2)
        return tuple(f"LABEL_{number}" for number in range(min(count, 10**6)))
    count = len(given) if isinstance(given, dict) else 0
    names = [name for number in range(count) if isinstance(name := given.get(str(number)), str) and name]
    if not names or len(set(names)) < count:
        what = f"id2label is no table of different names by number: {str(given)[:200]}"
        raise UserError(what, where=fields.where, fix='id2label = {"0": "…", "1": "…"}', code="bad-format")
    return tuple(names)


def label_fields(run: RunConfig) -> dict[str, Any]:
    """What config.json says of the labels; nothing where the head is not over whole texts."""
    if run.head.kind not in SENTENCE_KINDS:
        return {}
    names = run.label_names or [f"LABEL_{number}" for number in range(run.head.classes)]
    return {
        "id2label": {str(number): name for number, name in enumerate(names)},
        "label2id": {name: number for number, name in enumerate(names)},
        "problem_type": next(problem for problem, kind in _KINDS.items() if kind == run.head.kind),
    }
