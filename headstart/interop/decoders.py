"""What causal decoders elsewhere have in common: their heads, and how rotary positions are configured."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from headstart.errors import UserError
from headstart.interop.expressing import head_obstacle, model_obstacle, pooling_obstacle
from headstart.interop.families import Described, Exported, Family, Part, scattered
from headstart.interop.fields import Fields
from headstart.interop.sentence_heads import SENTENCE_KINDS, label_fields, sentence_head, shift_for_bias
from headstart.model.presets import HeadConfig, ModelConfig
from headstart.text.tokenizer import Tokenizer
from headstart.training.run_directory import ObjectiveName, RunConfig

# What every decoder here has.
DECODER: dict[str, tuple[Any, ...]] = {
    "decoder_depth": (0,), "direction": ("causal",), "norm_place": ("pre",), "embedding_norm": (False,),
    "scale_embedding": (False,), "segments": (0,), "output_bias": (False,),
}  # fmt: skip


class CausalFamily(Family):
    """What causal decoders have in common: a language model's head or a classifier without bias on the last token."""

    embedding: str
    output = "lm_head.weight"
    has_bias = True
    wants: ClassVar[dict[str, tuple[Any, ...]]]

    # ---- in ----

    def shape(self, fields: Fields) -> ModelConfig:
        """The base."""
        raise NotImplementedError

    def described(self, fields: Fields, names: frozenset[str]) -> Described:
        model = self.shape(fields)
        named = self.architecture_in(fields)
        labels: tuple[str, ...] = ()
        notes: tuple[str, ...] = ()
        objective: ObjectiveName = "causal"
        if named in SENTENCE_KINDS or (named is None and "score.weight" in names):
            head, labels = sentence_head(fields, "last")
            objective = head.kind  # type: ignore[assignment]
        elif model.tied or self.output in names:  # a tied output needs no tensor of its own
            head = HeadConfig(kind="lm")
        else:
            head, objective = HeadConfig(kind="none"), "base"
            notes = (
                "it has no language model's head: it serves `embed` and as a start, and does not generate",
            )
        return Described(
            model=model, head=head, objective=objective, frame="causal", labels=labels, notes=notes
        )

    def parts(self, model: ModelConfig, head: HeadConfig) -> Iterator[Part]:
        yield Part("base.embedding.tokens.weight", (self.embedding,))
        yield from self.base_parts(model)
        if head.kind == "lm" and not model.tied:
            yield Part("head.output.weight", (self.output,))
        if head.kind in SENTENCE_KINDS:
            yield Part("head.classifier.weight", ("score.weight",))

    def base_parts(self, model: ModelConfig) -> Iterator[Part]:
        """The tensors of the base but for the embedding."""
        raise NotImplementedError

    def copies(self, model: ModelConfig, head: HeadConfig) -> Mapping[str, str]:
        return {self.output: "base.embedding.tokens.weight"} if model.tied or head.kind != "lm" else {}

    def completed(self, found: Described, ours: dict[str, Tensor]) -> dict[str, Tensor]:
        """Theirs have no bias in the classifier: ours is zero."""
        if found.head.kind in SENTENCE_KINDS:
            ours["head.classifier.bias"] = torch.zeros(found.head.classes)
        return ours

    # ---- out ----

    def obstacle(self, run: RunConfig, tokenizer: Tokenizer, weights: Mapping[str, Tensor]) -> str | None:
        found = model_obstacle(run.model, self.wanted(run.model)) or head_obstacle(run, self.heads)
        if found is not None or run.head.kind not in SENTENCE_KINDS:
            return found
        found = model_obstacle(run.model, {"pooler": (False,)}) or pooling_obstacle(run, "last")
        if found is None and not self._can_fold(weights):
            last = "bias that could take it up" if self.has_bias else "bias at all"
            found = f"the classifier has a bias, and this family's has none, nor has its last norm a {last}"
        return found

    def wanted(self, model: ModelConfig) -> dict[str, tuple[Any, ...]]:
        return {**DECODER, **self.wants}

    def _can_fold(self, weights: Mapping[str, Tensor]) -> bool:
        if not weights["head.classifier.bias"].any():
            return True
        return self.has_bias and shift_for_bias(weights) is not None

    def exported(self, run: RunConfig, tokenizer: Tokenizer, weights: Mapping[str, Tensor]) -> Exported:
        ours = dict(weights)
        if run.head.kind in SENTENCE_KINDS and ours["head.classifier.bias"].any():
            name, shift = "base.stack.final_norm.bias", shift_for_bias(weights)
            assert shift is not None, "an obstacle"
            ours[name] = (ours[name].double() + shift).to(ours[name].dtype)
        theirs = scattered(self.parts(run.model, run.head), ours)
        named = {self._full_name(name): tensor for name, tensor in theirs.items()}
        config = {
            **self.config_out(run.model), "architectures": [self.heads[run.head.kind]], **label_fields(run),
            "bos_token_id": tokenizer.roles["begin"], "eos_token_id": tokenizer.roles["end"],
            "pad_token_id": tokenizer.roles["pad"], "tie_word_embeddings": run.model.tied,
        }  # fmt: skip
        return Exported(config, named)

    def _full_name(self, name: str) -> str:
        return name if name.startswith(("score.", self.output)) else self.prefix + name

    def config_out(self, model: ModelConfig) -> dict[str, Any]:
        """The base in their words."""
        raise NotImplementedError


def rotary_base(fields: Fields, name: str = "rope_theta", share: tuple[str, float] = ("", 1.0)) -> float:
    """The base of rotary positions, from the field of old or from the table of today; any scaling is refused.

    `share` is the field that says how much of each head is turned, with its default: here it must be all of it.
    """
    tables = {key: _unscaled(fields, key) for key in ("rope_scaling", "rope_parameters")}
    field, usual = share
    shares = [table["partial_rotary_factor"] for table in tables.values() if "partial_rotary_factor" in table]
    shares += [fields.content[field]] if field in fields else []
    if any(turned != 1.0 for turned in shares or [usual]):
        told = field if field in fields or not any(tables.values()) else "rope_parameters"
        fields.refuse(told, "1.0: all of it", usual)
    given = [
        Fields(table, f"{fields.where}: {key}").number("rope_theta")
        for key, table in tables.items()
        if "rope_theta" in table
    ]
    given = given or [fields.number(name, 10_000.0)]
    given += [fields.number(key) for key in (name, "rope_theta") if fields.content.get(key) is not None]
    if len(set(given)) > 1:  # which of them counts differs from version to version
        raise UserError(
            f"gives the base of rotary positions more than once: {', '.join(f'{one:g}' for one in set(given))}",
            where=fields.where,
            fix=f"leave the one that it was trained with, as {name}",
        )
    return given[0]


def _unscaled(fields: Fields, key: str) -> dict[str, Any]:
    """A table of rotary positions, empty where there is none."""
    found = fields.content.get(key) or {}
    known = {"rope_theta", "rope_type", "type", "partial_rotary_factor"}
    if not isinstance(found, dict) or set(found) - known or _is_scaled(found):
        fields.refuse(key, "null, or of the type 'default'")
    return dict(found)


def _is_scaled(table: Mapping[str, Any]) -> bool:
    return any(table.get(name) not in (None, "default") for name in ("rope_type", "type"))
