"""Requests and answers: the JSON with its bounds, for validation and for OpenAPI."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from headstart.config.generation import BEAM, LEAST_TEMPERATURE, LEAST_TOP_P, SAMPLED, GenerationConfig

MOST_CHARACTERS = 20_000
MOST_TOKENS = 512
MOST_ALTERNATIVES = 20
MOST_TEXTS = 64  # at once
MOST_BEAMS = 10
ATTENTION_TOKENS = 64
Text = Annotated[str, Field(max_length=MOST_CHARACTERS)]
Texts = Annotated[list[Text], Field(min_length=1, max_length=MOST_TEXTS)]
RunName = Annotated[str | None, Field(max_length=255, description="Optional where only one run can do it.")]


def _strict(**example: Any) -> ConfigDict:
    """No conversion between types, no unknown key, no infinite number."""
    return ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, json_schema_extra={"examples": [example]})


def _zero_or_enough(temperature: float) -> float:
    if 0 < temperature < LEAST_TEMPERATURE:
        raise PydanticCustomError("neither_zero_nor_enough", "0, or {ge} or more", {"ge": LEAST_TEMPERATURE})
    return temperature


class ScoreRequest(BaseModel):
    model_config = _strict(run="base", text="Il était une fois")

    run: RunName = None
    text: Text


class ClassifyRequest(ScoreRequest):
    model_config = _strict(run="tuned", text="Un roman magnifique", attribution="leave-one-out")

    text_b: Text | None = None
    attribution: Literal["none", "leave-one-out", "gradient"] = "none"


class TextList(BaseModel):
    run: RunName = None
    texts: Texts


class ClassifyBatchRequest(TextList):
    model_config = _strict(run="tuned", texts=["Un roman magnifique", "Un livre médiocre"])

    texts_b: Annotated[Texts | None, Field(description="Of a run that reads pairs: as many.")] = None


class GenerateRequest(BaseModel):
    model_config = _strict(run="base", prompt="Il était une fois", max_tokens=40, temperature=0.8)

    run: RunName = None
    prompt: Text = ""
    max_tokens: Annotated[int, Field(ge=1, le=MOST_TOKENS)] = 100
    temperature: Annotated[
        float, Field(ge=0, le=100, description=f"0, or {LEAST_TEMPERATURE:g} or more."), AfterValidator(_zero_or_enough)
    ] = SAMPLED.temperature
    top_k: Annotated[int, Field(ge=0, le=1_000_000, description="0: all tokens.")] = 0
    top_p: Annotated[float, Field(ge=LEAST_TOP_P, le=1)] = SAMPLED.top_p or 1.0
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    alternatives: Annotated[int, Field(ge=0, le=MOST_ALTERNATIVES)] = 5
    stream: bool = True

    @property
    def generation(self) -> GenerationConfig:
        same = self.model_dump(include={"temperature", "top_p", "max_tokens", "seed"})
        return GenerationConfig(**same, top_k=self.top_k or None)


class BeamOptions(BaseModel):
    """How a translation is searched for."""

    beam: Annotated[int, Field(ge=1, le=MOST_BEAMS)] = BEAM
    length_penalty: Annotated[float, Field(ge=-10, le=10)] = 1.0

    @property
    def generation(self) -> GenerationConfig:
        return GenerationConfig(beam=self.beam, length_penalty=self.length_penalty)


class TranslateRequest(BeamOptions, ScoreRequest):
    model_config = _strict(run="french", text="A beautiful novel.", beam=5)


class TranslateBatchRequest(BeamOptions, TextList):
    model_config = _strict(run="french", texts=["A beautiful novel.", "The end."], beam=5)


class AttentionRequest(ScoreRequest):
    model_config = _strict(run="tuned", text="Un roman magnifique")

    text_b: Text | None = None
    target: Text | None = Field(None, description="Of a translation run (default: its own translation).")


class ErrorDetail(BaseModel):
    what: str
    fix: str


class ErrorAnswer(BaseModel):
    """Every error answer."""

    error: ErrorDetail


class Health(BaseModel):
    status: Literal["ok"] = "ok"


class RunAbout(BaseModel):
    name: str
    objective: str
    can: list[str]
    labels: list[str]
    pairs: bool
    length: int
    parameters: int
    start: str
    start_run: str | None
    loaded: bool


class StudyAbout(BaseModel):
    name: str


class LimitsAbout(BaseModel):
    text_characters: int = MOST_CHARACTERS
    max_tokens: int = MOST_TOKENS
    attention_tokens: int = ATTENTION_TOKENS


class RunsAnswer(BaseModel):
    version: str
    runs: list[RunAbout]
    studies: list[StudyAbout]
    limits: LimitsAbout


class TargetToken(BaseModel):
    text: str


class ShownToken(TargetToken):
    is_special: bool


class AttributedToken(ShownToken):
    attribution: float


class AttributionAnswer(BaseModel):
    method: Literal["leave-one-out", "gradient"]
    of: str
    unit: str
    tokens: list[AttributedToken]
    is_cut: bool


class ClassifyAnswer(BaseModel):
    """`label` of a classification run, `labels` of a multilabel run, `value` of a regression run."""

    run: str
    label: str | None = None
    labels: list[str] | None = None
    probabilities: dict[str, float] | None = None
    value: float | None = None
    is_cut: bool
    attribution: AttributionAnswer | None


class ClassifiedText(BaseModel):
    """As the answer for one text."""

    label: str | None = None
    labels: list[str] | None = None
    probabilities: dict[str, float] | None = None
    value: float | None = None
    is_cut: bool


class ClassifyBatchAnswer(BaseModel):
    """An answer for each text, in their order."""

    run: str
    answers: list[ClassifiedText]


class TranslatedText(BaseModel):
    text: str
    score: float
    is_cut: bool
    notes: list[str]


class TranslateBatchAnswer(BaseModel):
    """A translation of each text, in their order."""

    run: str
    answers: list[TranslatedText]


class Alternative(TargetToken):
    probability: float


class TokenLine(Alternative):
    """A line of a stream; the probability is under the model at temperature 1."""

    token: int
    alternatives: list[Alternative]


class LastLine(BaseModel):
    """The last line of a stream."""

    stop: Literal["end", "max-tokens", "context", "time"]
    token_count: int
    notes: list[str]


class GenerateAnswer(LastLine):
    """The whole answer, where `stream` is false."""

    run: str
    text: str
    tokens: list[TokenLine]


class ScoredToken(ShownToken):
    probability: float
    rank: int


class ScoreAnswer(BaseModel):
    run: str
    tokens: list[ScoredToken]
    loss: float
    perplexity: float | None
    is_cut: bool


class AlignedTokens(BaseModel):
    source: int
    target: int
    weight: float


class TranslateAnswer(BaseModel):
    run: str
    text: str
    score: float
    source: list[ShownToken]
    target: list[TargetToken]
    weights: list[list[float]]
    alignment: list[AlignedTokens]
    is_cut: bool
    notes: list[str]


class MapAnswer(BaseModel):
    kind: Literal["self", "encoder", "decoder", "cross"]
    rows: list[ShownToken]
    columns: list[ShownToken]
    weights: list[list[list[list[float]]]]
    mask: list[list[bool]]


class PositionsAnswer(BaseModel):
    kind: str
    values: list[list[float]]
    columns: list[int]


class AttentionAnswer(BaseModel):
    run: str
    maps: list[MapAnswer]
    positions: PositionsAnswer
    is_cut: bool
