"""The contract of a family of foreign models: its configuration as ours, its tensors under our names, and back.

A family is a class with the attributes and methods below; `huggingface.py` lists them. Everything that is the same
for all of them (files, tokenizers, what is written) stands in the modules around this one.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, get_type_hints

import torch
from torch import Tensor

from headstart.config.model import HeadConfig, ModelConfig, Pooling
from headstart.config.run import FrameName, ObjectiveName, RunConfig, TranslationConfig
from headstart.errors import IntegrityError
from headstart.interop.directory import ForeignDirectory
from headstart.interop.families.fields import ACTIVATIONS_OUT, Fields, label_fields
from headstart.interop.tokenizer_files import read_tokenizer, write_tokenizer
from headstart.planning.parameters import SENTENCE_KINDS
from headstart.runs.load import LoadedRun, refuse_other_shapes
from headstart.tokenizers.templates import template_of
from headstart.tokenizers.tokenizer import Vocabularies

MOST_NAMED = 10

ACTIVATIONS_IN = {"gelu": "gelu", "relu": "relu", "gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh",
                  "silu": "silu", "swish": "silu"}  # fmt: skip


class Part(NamedTuple):
    """One tensor of ours, and those of theirs that it is made of, one below the other."""

    ours: str
    theirs: tuple[str, ...]
    rows: tuple[int, ...] = ()  # how many each of theirs has; needed where there are several
    turned: bool = False  # whether theirs are stored as (in, out)


@dataclass(frozen=True, kw_only=True)
class Described:
    """A foreign checkpoint as a configuration of ours."""

    model: ModelConfig  # with their vocabulary's size; the tokenizer's fingerprint is filled in later
    head: HeadConfig
    objective: ObjectiveName
    frame: FrameName  # the special tokens around a text, unless its tokenizer puts others
    labels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what the user should know: what was dropped, what is missing
    translation: TranslationConfig | None = None


# What is written into config.json and model.safetensors.
Exported = tuple[dict[str, Any], dict[str, Tensor]]


class Family:
    """One family: the attributes and methods that a new one gives."""

    model_type: str
    # What the names of the base begin with in a checkpoint with a head ("bert."); many come without it.
    prefix: str = ""
    # Fields of our model, each with their name for it and its default there (None: it must be given).
    settings: ClassVar[dict[str, tuple[str, Any]]]
    # Other fields of config.json that `described` looks at, or that change nothing in this family.
    also_reads: str = ""
    # Fields of our model that must have one of these values; what has no setting comes in with the first.
    wants: ClassVar[dict[str, tuple[Any, ...]]]
    shares_keys: bool = False  # whether heads may share keys and values
    comes_with: ClassVar[dict[str, Any]] = {}  # fields of our model that every import has
    is_translator: bool = False  # whether its models are encoder-decoders
    heads: ClassVar[dict[str, str]] = {}  # the class of theirs that has each of our heads
    pooling: Pooling = "first"  # the token that its classifier reads
    classifier_wants: ClassVar[dict[str, tuple[Any, ...]]] = {}  # besides, where there is a classifier
    drops: str = r"(?!)"  # names of tensors that are not needed: buffers, copies that are computed

    @property
    def name(self) -> str:
        return self.model_type

    # ---- in ----

    @property
    def reads(self) -> frozenset[str]:
        """All fields of config.json that are known; others must be known to change nothing."""
        return frozenset({*(name for name, _ in self.settings.values()), *self.also_reads.split()})

    def described(self, fields: Fields, names: frozenset[str]) -> Described:
        """The configuration as ours; `names` are those of their tensors, `plain_name` applied.

        Unknown fields have been refused before; a value that we cannot compute with is refused here, by name.
        """
        raise NotImplementedError

    def read_model(self, fields: Fields, **given: Any) -> ModelConfig:
        """Our model by the table of settings, but for the fields that are given."""
        kinds = get_type_hints(ModelConfig)  # without the bounds of a field
        values = {ours: allowed[0] for ours, allowed in self.wants.items()} | self.comes_with
        for ours, (theirs, default) in self.settings.items():
            if ours in given:
                continue
            if ours == "activation":
                values[ours] = fields.one_of(theirs, ACTIVATIONS_IN, default)
            elif kinds[ours] is int:
                values[ours] = fields.integer(theirs, default)
            else:
                values[ours] = (fields.flag if kinds[ours] is bool else fields.number)(theirs, default)
        return ModelConfig(**{**values, **given})

    def architecture_in(self, fields: Fields) -> str | None:
        """Our kind of head for the class that config.json names, if it does; a class that we do not have is refused."""
        given = fields.content.get("architectures")
        if not given:
            return None
        known = {name: kind for kind, name in self.heads.items()}
        if not isinstance(given, list) or len(given) != 1 or given[0] not in tuple(known):
            fields.refuse("architectures", " or ".join(f"[{name!r}]" for name in known))
        return known[given[0]]

    def plain_name(self, name: str) -> str:
        """Their name without the prefix, and as it is written today."""
        return name.removeprefix(self.prefix)

    def parts(self, model: ModelConfig, head: HeadConfig) -> Iterator[Part]:
        """Our tensors and theirs, by their plain names."""
        raise NotImplementedError

    def copies(self, model: ModelConfig, head: HeadConfig) -> Mapping[str, str]:
        """Tensors of theirs that repeat one of ours, where a checkpoint has them at all: their plain name, our name."""
        return {}

    def completed(self, described: Described, ours: dict[str, Tensor]) -> dict[str, Tensor]:
        """What the table of parts cannot say: tensors of ours that theirs do without, another order of rows."""
        return ours

    def tensors_in(self, described: Described, theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Our tensors from theirs (float32, by their plain names): each used, each of its shape, or an error."""
        ours, used = gather(self.parts(described.model, described.head), theirs)
        ours = self.completed(described, ours)
        for name, mine in self.copies(described.model, described.head).items():
            if name in theirs:
                used.add(name)
                if mine in ours and not torch.equal(theirs[name], ours[mine]):
                    fix = "the checkpoint is not what its config.json says: set tie_word_embeddings to false there"
                    what = f"{name} should repeat {mine} and does not"
                    raise IntegrityError(what, fix=f"{fix} if it was trained so", code="mismatch")
        if unknown := [name for name in theirs if name not in used and not re.fullmatch(self.drops, name)]:
            what = "holds tensors that its config.json does not mention: " + listed(unknown)
            fix = "give the checkpoint's own config.json; another head than these cannot be imported"
            raise IntegrityError(what, fix=fix, code="mismatch")
        refuse_other_shapes(described.model, described.head, ours, "config.json")
        return ours

    def read_vocabularies(
        self, directory: ForeignDirectory, fields: Fields, described: Described
    ) -> tuple[Vocabularies, list[str]]:
        """The directory's tokenizer, and notes for the user."""
        tokenizer, notes = read_tokenizer(directory, fields, described.frame)
        return Vocabularies(tokenizer, tokenizer), notes

    # ---- out ----

    def obstacle(self, run: LoadedRun, weights: Mapping[str, Tensor]) -> str | None:
        """The option that keeps a run from being expressed as this family, "field is value" and why; or None."""
        config, kind = run.config, run.config.head.kind
        if obstacle := model_obstacle(config.model, self.wanted(config.model)) or self.head_obstacle(kind):
            return obstacle
        if kind not in SENTENCE_KINDS:
            return None
        if obstacle := model_obstacle(config.model, self.classifier_wants):
            return obstacle
        own, its = config.head.pooling_for(config.model), self.pooling
        return None if own == its else f"head.pooling is {own!r}, and its classifier reads the {its} token"

    def head_obstacle(self, kind: str) -> str | None:
        """Why a run's head is none of those that it has."""
        return None if kind in self.heads else f"head.kind is {kind!r}, and it has {', '.join(map(repr, self.heads))}"

    def wanted(self, model: ModelConfig) -> Mapping[str, tuple[Any, ...]]:
        """The fields of a model that must have one of these values, which also decide the nearest family."""
        return self.wants if self.shares_keys else {**self.wants, "kv_heads": (0, model.heads)}

    def exported(self, run: LoadedRun, weights: Mapping[str, Tensor]) -> Exported:
        """A run that nothing keeps from it, as this family writes it: config.json and tensors with full names."""
        raise NotImplementedError

    def model_out(self, model: ModelConfig) -> dict[str, Any]:
        """The base by the table of settings, as config.json has it."""
        values = {theirs: getattr(model, ours) for ours, (theirs, _) in self.settings.items()}
        if "activation" in self.settings:
            values[self.settings["activation"][0]] = ACTIVATIONS_OUT[model.activation]
        return {"model_type": self.model_type, **values}

    def head_out(self, run: RunConfig) -> dict[str, Any]:
        """The class of theirs that has the head, and its labels."""
        return {"architectures": [self.heads[run.head.kind]], **label_fields(run)}

    def special_ids(self, run: LoadedRun) -> dict[str, Any]:
        """The special tokens that a text is written with, as config.json and generation_config.json have them."""
        roles = run.tokenizer.roles
        return {"bos_token_id": roles["begin"], "eos_token_id": roles["end"], "pad_token_id": roles["pad"]}

    def generation_out(self, run: LoadedRun) -> dict[str, Any] | None:
        """What generation_config.json says, where there is something to generate."""
        if run.config.objective != "causal":
            return None
        # `headstart generate` never writes them either.
        never = sorted(run.tokenizer.special_ids - {run.tokenizer.roles["end"]})
        return {**self.special_ids(run), **({"suppress_tokens": never} if never else {})}

    def write_vocabularies(self, run: LoadedRun, directory: Path) -> None:
        """The tokenizer's files. A prompt has no end: it is continued, as `headstart generate` reads it."""
        frame = template_of(run.tokenizer, run.config.frame)
        if run.config.objective == "causal":
            frame = dataclasses.replace(frame, last=None)
        write_tokenizer(run.tokenizer, frame, run.config.length, run.config.model.segments > 1, directory)


def unmet(model: ModelConfig, wanted: Mapping[str, tuple[Any, ...]]) -> list[str]:
    """The fields whose value is none of those that a family has."""
    return [field for field, allowed in wanted.items() if getattr(model, field) not in allowed]


def model_obstacle(model: ModelConfig, wanted: Mapping[str, tuple[Any, ...]]) -> str | None:
    """Those fields as text, with what the family needs."""
    needed = {field: " or ".join(map(repr, dict.fromkeys(wanted[field]))) for field in unmet(model, wanted)}
    parts = [f"{field} is {getattr(model, field)!r} (it needs {values})" for field, values in needed.items()]
    return ", ".join(parts) or None


# ---- tables of parts ----------------------------------------------------------------------------------------


def linear(ours: str, *theirs: str, rows: tuple[int, ...] = (), bias: bool = True, turned: bool = False) -> list[Part]:
    """The weight of a layer, and its bias."""
    parts = [Part(f"{ours}.weight", tuple(f"{name}.weight" for name in theirs), rows, turned)]
    if bias:
        parts.append(Part(f"{ours}.bias", tuple(f"{name}.bias" for name in theirs), rows))
    return parts


def block_parts(
    model: ModelConfig, stack: str, depth: int, layer: str, block: Mapping[str, str], turned: bool = False
) -> Iterator[Part]:
    """The layers of a stack; `block` has theirs for each of ours: one, a gate and a layer, or query, key and value."""
    rows = {1: (), 2: (model.ffn,) * 2, 3: (model.width, model.kv_width, model.kv_width)}
    for index in range(depth):
        for ours, names in block.items():
            theirs = [f"{layer}.{index}.{name}" for name in names.split()]
            name, is_turned = f"{stack}.blocks.{index}.{ours}", turned and not ours.endswith("norm")
            yield from linear(name, *theirs, rows=rows[len(theirs)], bias=model.bias, turned=is_turned)


def gather(parts: Iterable[Part], theirs: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], set[str]]:
    """Our tensors by the table of parts, and which of theirs they used; what is missing is an error that names it."""
    ours, used, missing = dict[str, Tensor](), set[str](), list[str]()
    for part in parts:
        pieces = {name: theirs[name] for name in part.theirs if name in theirs}
        missing += [name for name in part.theirs if name not in theirs]
        for name, tensor in pieces.items():
            if not tensor.is_floating_point():
                what = f"{name} is of {str(tensor.dtype).removeprefix('torch.')}, and weights are of floating point"
                raise IntegrityError(what, fix="give a checkpoint that is not quantized", code="unsupported")
        if len(missing) >= MOST_NAMED:  # a configuration may have a billion layers
            break
        if len(pieces) == len(part.theirs):
            ours[part.ours] = _stacked(part, [_turned(part, tensor) for tensor in pieces.values()])
            used |= set(part.theirs)
    if missing:
        what = "lacks tensors that its config.json mentions: " + listed(missing)
        raise IntegrityError(what, fix="give the checkpoint's own config.json, or a whole checkpoint", code="mismatch")
    return ours, used


def _turned(part: Part, tensor: Tensor) -> Tensor:
    return tensor.T if part.turned and tensor.ndim == 2 else tensor


def _stacked(part: Part, pieces: Sequence[Tensor]) -> Tensor:
    if len(pieces) == 1:
        return pieces[0].contiguous()
    for name, tensor, rows in zip(part.theirs, pieces, part.rows, strict=True):
        if tensor.ndim == 0 or len(tensor) != rows or tensor.shape[1:] != pieces[0].shape[1:]:
            what = f"{name} is {tuple(tensor.shape)}: config.json asks for {rows} rows like its neighbours'"
            raise IntegrityError(what, fix="give the checkpoint's own config.json", code="mismatch")
    return torch.cat(list(pieces))


def scatter(parts: Iterable[Part], ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Their tensors by the table of parts: the way back."""
    theirs: dict[str, Tensor] = {}
    for part in parts:
        pieces = [ours[part.ours]] if len(part.theirs) == 1 else list(ours[part.ours].split(list(part.rows)))
        for name, piece in zip(part.theirs, pieces, strict=True):
            theirs[name] = _turned(part, piece).contiguous().clone()
    return theirs


def listed(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return ", ".join(sorted(names)[:MOST_NAMED]) + more
