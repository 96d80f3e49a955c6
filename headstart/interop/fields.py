"""The fields of a foreign config.json: read by name and type, and none of them passed over in silence."""

from collections.abc import Iterable, Mapping
from typing import Any

from headstart.errors import UserError


def words(text: str) -> frozenset[str]:
    """The words of a text: many names, written without quotes."""
    return frozenset(text.split())


# Where a checkpoint wants to bring code of its own, it says so in one of these.
CODE = ("auto_map", "custom_pipelines")
# What a configuration says besides, and what changes nothing in the computation of a finished model.
IGNORED = words(
    """
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
)
# What would change the computation in any family, with the value that changes nothing.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "pruned_heads": (None, {}, []),
    "is_decoder": (None, False),
    "add_cross_attention": (None, False),
    "cross_attention_hidden_size": (None,),
    "tie_encoder_decoder": (None, False),
    "is_encoder_decoder": (None, False),
    "quantization_config": (None,),
}
LARGEST = 10**9
_MISSING: Any = object()


class Fields:
    """A config.json as it was read; every answer is of the type that was asked for, or an error names the field."""

    def __init__(self, content: Mapping[str, Any], where: str) -> None:
        self.content, self.where = content, where

    def __contains__(self, name: str) -> bool:
        return name in self.content

    def integer(self, name: str, default: int | None = None) -> int:
        """A whole number of at least 0."""
        value = self._given(name, default)
        if type(value) is not int or not 0 <= value <= LARGEST:
            self.refuse(name, f"a whole number from 0 to {LARGEST:,}")
        return int(value)

    def number(self, name: str, default: float | None = None, least: float = 0.0) -> float:
        value = self._given(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= 1e12:
            self.refuse(name, f"a number from {least:g} on")
        return float(value)

    def flag(self, name: str, default: bool | None = None) -> bool:
        value = self._given(name, default)
        if not isinstance(value, bool):
            self.refuse(name, "true or false")
        return bool(value)

    def text(self, name: str, default: str | None = None) -> str:
        value = self._given(name, default)
        if not isinstance(value, str):
            self.refuse(name, "a word")
        return str(value)

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

    def refuse(self, name: str, wanted: str, default: Any = None) -> None:
        value = self.content.get(name, default)
        told = (
            f"{name} is {_shown(value)}"
            if name in self.content
            else f"{name} is missing, which means {_shown(value)}"
        )
        raise UserError(told, where=self.where, fix=f"Headstart computes this family with {name} = {wanted}")

    def refuse_unknown(self, read: Iterable[str]) -> None:
        """Refuse what nobody reads: a field that we do not know may change the computation."""
        known = {*read, *IGNORED, *NEUTRAL}
        for name in CODE:
            if name in self.content:
                refuse_code(name, self.where)
        for name, value in self.content.items():
            if name not in known:
                raise UserError(
                    f"{name} is {_shown(value)}, a field that Headstart does not know: it may change what the model "
                    "computes",
                    where=self.where,
                    fix=f"if it changes nothing, delete {name} from config.json",
                )
        for name, allowed in NEUTRAL.items():
            if name in self.content and name not in read:
                self.must_be(name, *allowed)

    def _given(self, name: str, default: Any) -> Any:
        value = self.content.get(name, _MISSING)
        if value is _MISSING or (value is None and default is not None):
            if default is None:
                raise UserError(f"has no {name}", where=self.where, fix=f"add {name} to config.json")
            return default
        return value


def refuse_code(name: str, where: str) -> None:
    raise UserError(
        f"{name} asks to run code that comes with the checkpoint, and no code of a checkpoint is run",
        where=where,
        fix="give a checkpoint of a plain BERT, RoBERTa, CamemBERT, DistilBERT, GPT-2, GPT-NeoX, Llama, Mistral or "
        "Marian",
    )


def _shown(value: Any) -> str:
    text = "null" if value is None else repr(value)
    return text if len(text) <= 200 else text[:200] + "…"
