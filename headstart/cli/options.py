"""The flags that verbs share: those that every verb takes, and the model's fields."""

import ast
import dataclasses
import inspect
import itertools
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter, Token

from headstart.model.presets import PRESETS, ModelConfig, preset

# A flag that is off unless given, and has no --no-form.
Switch = Annotated[bool, Parameter(negative="", show_default=False)]


def _split(kind: type[int] | type[float] | type[str]) -> Parameter:
    def converter(_: Any, tokens: Sequence[Token]) -> tuple[Any, ...]:
        return tuple(kind(part.strip()) for token in tokens for part in token.value.split(","))

    return Parameter(converter=converter, n_tokens=1, negative="")


# Lists are written with commas: 50,200,1600 or causal,masked or 1e-4,3e-4.
Numbers = Annotated[tuple[int, ...], _split(int)]
Rates = Annotated[tuple[float, ...], _split(float)]
Words = Annotated[tuple[str, ...], _split(str)]


@dataclass(frozen=True)
class Common:
    """Flags of every verb; a TOML file and variables named HEADSTART_VERB_FLAG can hold any flag too."""

    config: Path | None = None
    """A TOML file with flags; those on the command line win."""

    seed: int = 0
    """The seed that all randomness is derived from."""

    threads: int | None = None
    """CPU threads (default: all cores)."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute."""

    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Numbers to compute with; auto looks at the device first."""

    json: Switch = False
    """Print one JSON object instead of text."""

    debug: Switch = False
    """Show the traceback of an error."""


CommonFlags = Annotated[Common, Parameter(name="*", group=Group("Common", sort_key=90))]


# ---- how files are read -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TextReading:
    """How texts are read, one answer for each."""

    text_column: str | None = None
    """The column of the text: a name, or a number from 1 without a header (default: text, or as the run has it)."""

    encoding: str = "utf-8"
    """How the files are encoded."""

    errors: Literal["strict", "replace", "ignore"] = "strict"
    """What to do with bytes that are not text."""

    def given(self) -> dict[str, Any]:
        """What is not left to whoever reads."""
        return {key: value for key, value in dataclasses.asdict(self).items() if value is not None}


@dataclass(frozen=True)
class _RowReading(TextReading):
    skip_bad_rows: Switch = False
    """Count rows that cannot be used instead of stopping at the first."""


@dataclass(frozen=True)
class CorpusReading(_RowReading):
    """How unlabelled text is read."""

    documents: Literal["auto", "line", "blank", "file"] | None = None
    """What a document of a .txt is (default: auto, parted by blank lines or else a line, or as the run has it)."""


@dataclass(frozen=True)
class LabelledReading(_RowReading):
    """How labelled rows are read."""

    label_column: str | None = None
    """The column of the label: a name, or a number from 1 (default: label, or as the run has it)."""


@dataclass(frozen=True)
class ReadingOptions(CorpusReading, LabelledReading):
    """How data is read that may be either."""


_READING = Parameter(name="*", group=Group("Reading", sort_key=60))
TextReadingFlags = Annotated[TextReading, _READING]
CorpusReadingFlags = Annotated[CorpusReading, _READING]
LabelledReadingFlags = Annotated[LabelledReading, _READING]
ReadingFlags = Annotated[ReadingOptions, _READING]


# ---- the model's fields -------------------------------------------------------------------------------------


def _sentences(cls: type) -> dict[str, str]:
    """The sentence that stands under each field of a dataclass: the field's help."""
    body = ast.parse(inspect.getsource(cls)).body[0].body  # type: ignore[attr-defined]
    return {
        ast.unparse(field.target): ast.literal_eval(text.value)
        for field, text in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
    }


def _overrides() -> type:
    """A dataclass with every field of ModelConfig, None by default: what is not given stays as the preset has it."""
    hints, help_of = typing.get_type_hints(ModelConfig), _sentences(ModelConfig)
    fields = [
        (f.name, hints[f.name] | None, dataclasses.field(default=None, metadata={"help": help_of[f.name]}))
        for f in dataclasses.fields(ModelConfig)
        if f.name != "tokenizer"  # a fingerprint: the run knows it
    ]
    # Without a module of its own cyclopts takes the class for a built-in one, without fields.
    namespace = {"__module__": __name__}
    return dataclasses.make_dataclass("ModelOverrides", fields, frozen=True, namespace=namespace)


ModelOverrides = _overrides()
if typing.TYPE_CHECKING:
    ModelFlags = Any
    PresetName = str
else:
    ModelFlags = Annotated[
        ModelOverrides, Parameter(name="*", group=Group("Model: overrides the preset", sort_key=50))
    ]
    PresetName = Literal[tuple(PRESETS)]


def model_config(preset_name: str, overrides: ModelFlags) -> ModelConfig:
    """The preset with what was given on the command line in its place."""
    return preset(preset_name, **dataclasses.asdict(overrides))
