"""RoBERTa and what computes as it does: CamemBERT, XLM-RoBERTa."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from headstart.interop.bert import Bert
from headstart.interop.families import Described, Exported
from headstart.interop.fields import Fields
from headstart.interop.reading import ForeignDirectory
from headstart.interop.sentence_heads import SENTENCE_KINDS
from headstart.model.presets import ModelConfig
from headstart.text.tokenizer import Tokenizer
from headstart.training.run_directory import RunConfig
from headstart.training.vocabularies import Vocabularies


class Roberta(Bert):
    """RoBERTa: BERT whose positions are counted from the padding token on, and whose classifier has its own layer."""

    name = "roberta"
    model_types = ("roberta",)
    prefix = "roberta."
    heads: ClassVar[dict[str, str]] = {
        "none": "RobertaModel", "masked": "RobertaForMaskedLM",
        **dict.fromkeys(SENTENCE_KINDS, "RobertaForSequenceClassification"),
    }  # fmt: skip
    transform, transform_norm = "lm_head.dense", "lm_head.layer_norm"
    decoder, output_bias, bias_copy = "lm_head.decoder.weight", "lm_head.bias", "lm_head.decoder.bias"
    pooler, classifier = "classifier.dense", "classifier.out_proj"
    frame = "roberta"

    def described(self, fields: Fields, names: frozenset[str]) -> Described:
        found = super().described(fields, names)
        if found.head.kind == "masked" and found.model.activation != "gelu":
            fields.refuse("hidden_act", "'gelu' where there is a head for masked tokens")
        return found

    def _context(self, fields: Fields) -> int:
        """The first rows of the table stand for padding, up to its token's number."""
        first = fields.integer("pad_token_id", 1) + 1
        rows = fields.integer("max_position_embeddings", 512)
        if rows <= first:
            fields.refuse("max_position_embeddings", f"more than the {first} rows that padding has")
        return rows - first

    def tensors_in(self, found: Described, theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        name = "embeddings.position_embeddings.weight"
        if name in theirs and theirs[name].ndim == 2:
            first = len(theirs[name]) - found.model.context
            theirs = {**theirs, name: theirs[name][max(0, first) :].contiguous()}
        return super().tensors_in(found, theirs)

    def read_vocabularies(
        self, directory: ForeignDirectory, fields: Fields, found: Described
    ) -> tuple[Vocabularies, list[str]]:
        """The tokenizer; positions are not counted over the padding token, so no text may hold it."""
        words, told = super().read_vocabularies(directory, fields, found)
        roles, padding = words.source.roles, fields.integer("pad_token_id", 1)
        others = [identity for role, identity in roles.items() if role != "pad"]
        if padding != roles["pad"] or padding in others:
            fields.refuse(
                "pad_token_id", "that of a padding token, which the tokenizer has for nothing else", 1
            )
        return words, told

    def wanted(self, model: ModelConfig) -> dict[str, tuple[Any, ...]]:
        return {**super().wanted(model), "segments": (0, 1)}

    def obstacle(self, run: RunConfig, tokenizer: Tokenizer, weights: Mapping[str, Tensor]) -> str | None:
        found = super().obstacle(run, tokenizer, weights)
        if found is None and run.head.kind == "masked" and run.model.activation != "gelu":
            return f"activation is {run.model.activation!r}, and its head for masked tokens needs 'gelu'"
        if found is None and tokenizer.roles["pad"] in (None, tokenizer.roles["cls"], tokenizer.roles["sep"]):
            return (
                "the tokenizer has no padding token of its own, and its positions are counted by that token"
            )
        return found

    def _with_all_tables(self, theirs: dict[str, Tensor], model: ModelConfig) -> dict[str, Tensor]:
        if not model.segments:
            theirs["embeddings.token_type_embeddings.weight"] = torch.zeros(1, model.width)
        return theirs

    def exported(self, run: RunConfig, tokenizer: Tokenizer, weights: Mapping[str, Tensor]) -> Exported:
        found = super().exported(run, tokenizer, weights)
        name = f"{self.prefix}embeddings.position_embeddings.weight"
        table = found.tensors[name]
        padding = torch.zeros(tokenizer.id_of("pad") + 1, table.shape[1])
        found.tensors[name] = torch.cat([padding, table])
        found.config["max_position_embeddings"] = len(table) + len(padding)
        found.config["type_vocab_size"] = 1
        return found


class Camembert(Roberta):
    """CamemBERT computes as RoBERTa does."""

    name = "camembert"
    model_types = ("camembert",)
    heads: ClassVar[dict[str, str]] = {
        kind: name.replace("Roberta", "Camembert") for kind, name in Roberta.heads.items()
    }


class XlmRoberta(Roberta):
    """XLM-RoBERTa too, on a hundred languages."""

    name = "xlm-roberta"
    model_types = ("xlm-roberta",)
    heads: ClassVar[dict[str, str]] = {kind: f"XLM{name}" for kind, name in Roberta.heads.items()}
