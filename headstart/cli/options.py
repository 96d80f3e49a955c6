"""Flags, made from the settings of headstart/config: a flag for each field, with its type and its sentence."""

import dataclasses
import typing
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter, Token

from headstart.config import training
from headstart.config.generation import BEAM_OF_FIVE, SAMPLED, GenerationConfig, Seed
from headstart.config.model import MOST_LENGTH, HeadConfig, ModelConfig
from headstart.config.presets import PRESETS
from headstart.config.reading import Reading
from headstart.config.schema import Bound, Setting, fields_of
from headstart.config.training import Device, MachineConfig, Precision, TrainingSettings
from headstart.errors import UserError

# A flag that is off unless given, and has no --no-form.
Switch = Annotated[bool, Parameter(negative="", show_default=False)]
# A flag that takes several paths.
_SEVERAL = Parameter(consume_multiple=True, negative="", show_default=False)
Files = Annotated[tuple[str, ...], _SEVERAL]
Paths = Annotated[tuple[Path, ...], _SEVERAL]


def _split(kind: type[int] | type[float] | type[str]) -> Parameter:
    def converter(_: Any, tokens: Sequence[Token]) -> tuple[Any, ...]:
        return tuple(kind(part.strip()) for token in tokens for part in token.value.split(","))

    return Parameter(converter=converter, n_tokens=1, negative="")


def in_bounds(name: str, bound: Bound) -> Parameter:
    """What a number may be that a flag gives, and that is no setting of a run."""

    def validate(_: Any, value: Any) -> None:
        if value is not None:
            bound.check(name, value)

    return Parameter(validator=validate)


def _named(_: Any, tokens: Sequence[Token]) -> Path:
    if not tokens[-1].value.strip():  # which pathlib takes for the current directory
        raise ValueError("give a name")
    return Path(tokens[-1].value)


OutPath = Annotated[Path, Parameter(converter=_named, n_tokens=1)]

# Lists are written with commas: 50,200,1600 or causal,masked or 1e-4,3e-4.
Numbers = Annotated[tuple[int, ...], _split(int)]
Rates = Annotated[tuple[float, ...], _split(float)]
Words = Annotated[tuple[str, ...], _split(str)]

if typing.TYPE_CHECKING:
    PresetName = str
    _Seed = int
    _Device = Device
    _Precision = Precision
else:
    PresetName = Literal[tuple(PRESETS)]
    _Seed, _Device, _Precision = int | None, Device | None, Precision | None  # None until __post_init__


# ---- flags from settings --------------------------------------------------------------------------------------


class GivenFlags:
    """A group of flags; those that were not given are None."""

    def given(self) -> dict[str, Any]:
        """What was given on the command line, in a file or in the environment."""
        return {name: value for name, value in vars(self).items() if value is not None}


def flags(settings: Iterable[Setting], title: str = "Parameters", sort_key: int = 0) -> Any:
    """A dataclass with a field for each setting, as a group of flags; its default is an object without any given."""
    fields = [
        (one.name, _flag_type(one) | None, dataclasses.field(default=None, metadata={"help": _help(one)}))
        for one in settings
    ]
    # Without a module of its own cyclopts takes the class for a built-in one, without fields.
    made = dataclasses.make_dataclass(
        title.replace(" ", ""), fields, bases=(GivenFlags,), frozen=True, namespace={"__module__": __name__}
    )
    panel = Parameter(name="*", group=Group(title, sort_key=sort_key)) if sort_key else Parameter(name="*")
    return Annotated[made, panel], made()


def _flag_type(setting: Setting) -> Any:
    if setting.name == "preset":
        return PresetName
    if setting.type is bool and setting.default is False:
        return Switch
    origin, arguments = typing.get_origin(setting.type), typing.get_args(setting.type)
    if origin is Literal:  # an empty word stands for "not given"
        return Literal[tuple(filter(None, arguments))]
    if origin in (list, tuple):
        return {int: Numbers, float: Rates}.get(arguments[0], Words)
    return setting.type


def _help(setting: Setting) -> str:
    """The sentence, and the default where it is a value and not said already."""
    default = setting.default
    if isinstance(default, bool) or not default or default == -1 or "default" in setting.sentence:
        return setting.sentence
    shown = ",".join(map(str, default)) if isinstance(default, list | tuple) else default
    return setting.sentence if default is dataclasses.MISSING else f"{setting.sentence} [default: {shown}]"


def settings_named(*names: str, of: type) -> list[Setting]:
    """These settings of a class, in this order."""
    return [fields_of(of)[name] for name in names]


def all_but(cls: type, *names: str) -> list[Setting]:
    """The settings of a class but these."""
    return [setting for name, setting in fields_of(cls).items() if name not in names]


def without_defaults(settings: Iterable[Setting], note: str = "") -> list[Setting]:
    """Settings whose default depends on something else, perhaps with a note about it."""
    return [one._replace(default=dataclasses.MISSING, sentence=one.sentence + note) for one in settings]


def generation_flags(*names: str, defaults: GenerationConfig) -> Any:
    """Flags for these fields of GenerationConfig; `defaults` appear in the help."""
    settings = settings_named(*names, of=GenerationConfig)
    return flags([one._replace(default=getattr(defaults, one.name)) for one in settings], "Generation", 45)


def conflict(what: str, fix: str) -> UserError:
    """The error of flags that exclude each other."""
    return UserError(what, fix=fix, code="conflict")


# ---- arguments and groups that several verbs have ---------------------------------------------------------------

RunPath = Annotated[Path, Parameter(help="A run's directory.")]
Length = Annotated[int | None, in_bounds("length", Bound(1, MOST_LENGTH))]
PicturePath = Annotated[Path, Parameter(help="The file to write: .svg or .png.")]
TextFile = Annotated[str, Parameter(help=(
    "A text a line, or .jsonl, .csv, .tsv or .parquet with a column of texts (text_a and text_b for pairs)."
))]  # fmt: skip


_COMMON = fields_of(Seed, MachineConfig)
_COMMON = {name: _COMMON[name] for name in ("seed", "threads", "device", "precision")}


@dataclass(frozen=True)
class Common:
    """Flags of every verb; a TOML file and variables named HEADSTART_VERB_FLAG can hold any flag too."""

    given: typing.ClassVar[dict[str, Any]]

    config: Path | None = None
    """A TOML file with flags; those on the command line win."""

    seed: Annotated[_Seed, Parameter(help=_help(_COMMON["seed"]))] = None  # type: ignore[assignment]
    threads: Annotated[int | None, Parameter(help=_help(_COMMON["threads"]))] = None
    device: Annotated[_Device, Parameter(help=_help(_COMMON["device"]))] = None  # type: ignore[assignment]
    precision: Annotated[_Precision, Parameter(help=_help(_COMMON["precision"]))] = None  # type: ignore[assignment]

    json: Switch = False
    """Print one JSON object instead of text."""

    debug: Switch = False
    """Show the traceback of an error."""

    def __post_init__(self) -> None:
        """What was not given has the setting's default; `given` has what was."""
        given = {name: getattr(self, name) for name in _COMMON if getattr(self, name) is not None}
        for name in given.keys() - {"device"}:  # a plan names more devices
            _COMMON[name].checked(given[name])
        object.__setattr__(self, "given", given)
        for name in _COMMON.keys() - self.given.keys() - {"threads"}:
            object.__setattr__(self, name, _COMMON[name].default)


CommonFlags = Annotated[Common, Parameter(name="*", group=Group("Common", sort_key=90))]
EncodingFlags, ENCODING = flags(settings_named("encoding", "errors", of=Reading), "Reading", 60)
_ROWS = ("text_column", "encoding", "errors", "skip_bad_rows")
_COLUMNS = ("text_column", "label_column")
_AS_TRAINED = " By default the one that the run was trained on."
_TEXT = without_defaults(settings_named("text_column", of=Reading), _AS_TRAINED)
TextReadingFlags, TEXT_READING = flags([*_TEXT, *settings_named("encoding", "errors", of=Reading)], "Reading", 60)
RunReadingFlags, RUN_READING = flags(
    [*without_defaults(settings_named(*_COLUMNS, of=Reading), _AS_TRAINED), *all_but(Reading, *_COLUMNS)], "Reading", 60
)
CorpusReadingFlags, CORPUS_READING = flags(settings_named(*_ROWS, "documents", of=Reading), "Reading", 60)
LabelledReadingFlags, LABELLED_READING = flags(settings_named(*_ROWS, "label_column", of=Reading), "Reading", 60)
ReadingFlags, READING = flags(all_but(Reading), "Reading", 60)
_SAMPLE, _BEAM = ("temperature", "top_k", "top_p"), ("beam", "length_penalty")
_LENGTHS = ("max_length_ratio", "max_length_extra")
GenerateFlags, GENERATE = generation_flags(
    *_SAMPLE, *_BEAM, "max_tokens", "min_tokens", "no_repeat", "count", defaults=SAMPLED
)
TranslateFlags, TRANSLATE = generation_flags(
    *_BEAM, "min_tokens", "max_tokens", *_LENGTHS, "no_repeat", *_SAMPLE, defaults=BEAM_OF_FIVE
)
BeamFlags, BEAM = generation_flags(*_BEAM, *_LENGTHS, defaults=BEAM_OF_FIVE)

# The tokenizer is a fingerprint, which the run knows.
ModelFlags, MODEL = flags(without_defaults(all_but(ModelConfig, "tokenizer")), "Model: overrides the preset", 50)
HeadFlags, HEAD = flags(settings_named("classes", "pooling", of=HeadConfig))
LoopFlags, LOOP = flags(settings_named("optimizer", "accumulate", "steps", "epochs", "keep", of=TrainingSettings))

# The trainings.
TrainingFlags, TRAINING = flags(
    [*all_but(TrainingSettings, "seed"), *settings_named("fast", "shard", of=MachineConfig)], "Training", 40
)
_TRANSLATION = [*all_but(training.BatchTokens), *all_but(training.TranslationOptions)]
_TRANSLATION += settings_named("valid_bleu", of=training.FinetuneSettings)
TranslationFlags, TRANSLATION = flags(_TRANSLATION, "Translation", 45)
_ELSEWHERE = {*TrainingSettings.names(), *Reading.names(), "vocab"}
PretrainFlags, PRETRAIN = flags([*all_but(training.ValidFile), *all_but(training.PretrainSettings, *_ELSEWHERE)])
_ELSEWHERE |= {one.name for one in _TRANSLATION}
FinetuneFlags, FINETUNE = flags(
    [*settings_named("valid", "test", of=training.LabelledFiles), *all_but(training.FinetuneSettings, *_ELSEWHERE)]
)
