"""What a family of models elsewhere is to us: its configuration in our words, its tensors under our names, and back.

A family is a class with the methods below; `table.py` lists one of each. Everything that
is the same for all of them (files, tokenizers, what is written) stands in the modules around this one.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from headstart.errors import IntegrityError
from headstart.interop.fields import Fields
from headstart.interop.reading import ForeignDirectory
from headstart.interop.tokenizers_in import read_tokenizer
from headstart.interop.tokenizers_out import write_tokenizer
from headstart.model.presets import HeadConfig, ModelConfig
from headstart.plan.parameters import shape, symbols, tensors
from headstart.text.frames import FrameName, frame_of
from headstart.text.tokenizer import Tokenizer
from headstart.training.loading import LoadedRun
from headstart.training.run_directory import ObjectiveName, RunConfig, TranslationConfig
from headstart.training.vocabularies import Vocabularies

MOST_NAMED = 10


class Part(NamedTuple):
    """One tensor of ours, and those of theirs that it is made of, one below the other."""

    ours: str
    theirs: tuple[str, ...]
    rows: tuple[int, ...] = ()
    """How many rows each of theirs has; needed where there are several."""

    turned: bool = False
    """Whether theirs are stored as (in, out)."""


@dataclass(frozen=True, kw_only=True)
class Described:
    """A foreign checkpoint in our words."""

    model: ModelConfig
    """With their vocabulary's size; the tokenizer's fingerprint is filled in later."""

    head: HeadConfig
    objective: ObjectiveName
    frame: FrameName
    """The special tokens around a text, unless its tokenizer tells another."""

    labels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What the user should know: what was dropped, what is missing."""

    translation: TranslationConfig | None = None


class Exported(NamedTuple):
    """What is written into config.json and model.safetensors."""

    config: dict[str, Any]
    tensors: dict[str, Tensor]


class Family:
    """One family: the attributes and methods that a new one gives."""

    name: str
    model_types: tuple[str, ...]
    prefix: str = ""
    """What the names of the base begin with in a checkpoint with a head ("bert."); many come without it."""

    reads: frozenset[str] = frozenset()
    """The fields of config.json that `described` reads; others must be known to change nothing."""

    is_translator: bool = False
    """Whether its models are encoder-decoders."""

    heads: ClassVar[dict[str, str]] = {}
    """The class of theirs that has each of our heads."""

    drops: str = r"(?!)"
    """A pattern of the names of tensors that are not needed: buffers, copies that are computed."""

    # ---- in ----

    def described(self, fields: Fields, names: frozenset[str]) -> Described:
        """The configuration in our words; `names` are those of their tensors, `plain_name` applied.

        Unknown fields have been refused before; a value that we cannot compute with is refused here, by name.
        """
        raise NotImplementedError

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

    def completed(self, found: Described, ours: dict[str, Tensor]) -> dict[str, Tensor]:
        """What the table of parts cannot say: tensors of ours that theirs do without, another order of rows."""
        return ours

    def tensors_in(self, found: Described, theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Our tensors from theirs (float32, by their plain names): each used, each of its shape, or an error."""
        ours, used = gathered(self.parts(found.model, found.head), theirs)
        ours = self.completed(found, ours)
        for name, mine in self.copies(found.model, found.head).items():
            if name in theirs:
                used.add(name)
                if mine in ours and not torch.equal(theirs[name], ours[mine]):
                    raise IntegrityError(
                        f"{name} should repeat {mine} and does not",
                        fix="the checkpoint is not what its config.json says: set tie_word_embeddings to false there "
                        "if it was trained so",
                    )
        unknown = [name for name in theirs if name not in used and not re.fullmatch(self.drops, name)]
        if unknown:
            raise IntegrityError(
                "holds tensors that its config.json does not tell of: " + listed(unknown),
                fix="give the checkpoint's own config.json; another head than these cannot be imported",
            )
        refuse_other_shapes(found, ours)
        return ours

    def read_vocabularies(
        self, directory: ForeignDirectory, fields: Fields, found: Described
    ) -> tuple[Vocabularies, list[str]]:
        """The directory's tokenizer, and what should be told about it."""
        tokenizer, notes = read_tokenizer(directory, fields, found.frame)
        return Vocabularies(tokenizer, tokenizer), notes

    # ---- out ----

    def obstacle(self, run: RunConfig, tokenizer: Tokenizer, weights: Mapping[str, Tensor]) -> str | None:
        """The option that keeps a run from being expressed as this family, "field is value" and why; or None."""
        raise NotImplementedError

    def wanted(self, model: ModelConfig) -> Mapping[str, tuple[Any, ...]]:
        """The fields of a model that have to have one of these values, to find the nearest family by."""
        return {}

    def exported(self, run: RunConfig, tokenizer: Tokenizer, weights: Mapping[str, Tensor]) -> Exported:
        """A run that nothing keeps from it, as this family writes it: config.json and tensors with full names."""
        raise NotImplementedError

    def generation_out(self, run: LoadedRun, tokenizer: Tokenizer) -> dict[str, Any] | None:
        """What generation_config.json says, where there is something to generate."""
        if run.config.objective != "causal":
            return None
        roles = tokenizer.roles
        never = sorted(tokenizer.special_ids - {roles["end"]})  # as `headstart generate` never writes them
        return {
            "bos_token_id": roles["begin"], "eos_token_id": roles["end"], "pad_token_id": roles["pad"],
            **({"suppress_tokens": never} if never else {}),
        }  # fmt: skip

    def write_vocabularies(self, run: LoadedRun, directory: Path) -> None:
        """The tokenizer's files."""
        frame = frame_of(run.tokenizer, run.config.frame)
        if (
            run.config.objective == "causal"
        ):  # a prompt goes on: as `headstart generate` reads it, it has no end
            frame = dataclasses.replace(frame, last=None)
        write_tokenizer(run.tokenizer, frame, run.config.length, run.config.model.segments > 1, directory)


def gathered(parts: Iterable[Part], theirs: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], set[str]]:
    """Our tensors by the table of parts, and which of theirs they used; what is missing is an error that names it."""
    ours: dict[str, Tensor] = {}
    used: set[str] = set()
    missing: list[str] = []
    for part in parts:
        found = [theirs[name].T if part.turned and theirs[name].ndim == 2 else theirs[name]
                 for name in part.theirs if name in theirs]  # fmt: skip
        missing += [name for name in part.theirs if name not in theirs]
        for name, tensor in zip(part.theirs, found, strict=False):
            if not tensor.is_floating_point():
                raise IntegrityError(
                    f"{name} is of {str(tensor.dtype).removeprefix('torch.')}, and weights are of floating point",
                    fix="give a checkpoint that is not quantized",
                )
        if len(missing) >= MOST_NAMED:  # a configuration may tell of a billion layers
            break
        if len(found) == len(part.theirs):
            ours[part.ours] = _stacked(part, found)
            used |= set(part.theirs)
    if missing:
        raise IntegrityError(
            "lacks tensors that its config.json tells of: " + listed(missing),
            fix="give the checkpoint's own config.json, or a whole checkpoint",
        )
    return ours, used


def _stacked(part: Part, found: Sequence[Tensor]) -> Tensor:
    if len(found) == 1:
        return found[0].contiguous()
    for name, tensor, rows in zip(part.theirs, found, part.rows, strict=True):
        if tensor.ndim == 0 or len(tensor) != rows or tensor.shape[1:] != found[0].shape[1:]:
            raise IntegrityError(
                f"{name} is {tuple(tensor.shape)}, and config.json tells of {rows} rows like those of its neighbours",
                fix="give the checkpoint's own config.json",
            )
    return torch.cat(list(found))


def scattered(parts: Iterable[Part], ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Their tensors by the table of parts: the way back."""
    theirs: dict[str, Tensor] = {}
    for part in parts:
        pieces = [ours[part.ours]] if len(part.theirs) == 1 else list(ours[part.ours].split(list(part.rows)))
        for name, piece in zip(part.theirs, pieces, strict=True):
            theirs[name] = (piece.T if part.turned and piece.ndim == 2 else piece).contiguous().clone()
    return theirs


def linear(
    ours: str, *theirs: str, rows: tuple[int, ...] = (), bias: bool = True, turned: bool = False
) -> list[Part]:
    """The weight of a layer, and its bias."""
    parts = [Part(f"{ours}.weight", tuple(f"{name}.weight" for name in theirs), rows, turned)]
    if bias:
        parts.append(Part(f"{ours}.bias", tuple(f"{name}.bias" for name in theirs), rows))
    return parts


def refuse_other_shapes(found: Described, ours: Mapping[str, Tensor]) -> None:
    """Refuse tensors that the model described would not have, before anything is built."""
    values, wrong = symbols(found.model, found.head), list[str]()
    for planned in tensors(found.model, found.head):
        wanted, tensor = shape(planned, values), ours.get(planned.name)
        if tensor is None or tuple(tensor.shape) != wanted:
            is_now = "missing" if tensor is None else str(tuple(tensor.shape))
            wrong.append(f"{planned.name} is {is_now}, not {wanted}")
        if len(wrong) == MOST_NAMED:
            break
    if wrong:
        raise IntegrityError(
            "the weights do not fit config.json:\n  " + "\n  ".join(wrong),
            fix="give the checkpoint's own config.json",
        )


def listed(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return ", ".join(sorted(names)[:MOST_NAMED]) + more
