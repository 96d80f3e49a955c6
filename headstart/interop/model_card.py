"""The model card: README.md of an exported directory, from what the run has written down.

It says what the model is, what it was made of and how well it does, with intervals where they are known. Names and
labels of the user are shown as code and never interpreted; of files only their base names are shown.
"""

import dataclasses
import re
from functools import cache
from pathlib import Path
from typing import Any, Literal

from headstart import __version__
from headstart.config.defaults import PRESET, TRANSLATION_PRESET
from headstart.config.presets import preset
from headstart.config.run import DataConfig, RunConfig
from headstart.config.schema import fields_of
from headstart.config.training import Duration, FinetuneSettings, PretrainSettings, Settings
from headstart.errors import visible
from headstart.inference.class_scores import wilson
from headstart.planning import parameters
from headstart.planning.operations import LEFT_OUT, per_text
from headstart.planning.parameters import SENTENCE_KINDS
from headstart.planning.workload import Lengths
from headstart.runs.directory import RunDirectory
from headstart.runs.load import LoadedRun
from headstart.storage import checksummed_json
from headstart.storage.atomic import atomic_write
from headstart.tokenizers.tokenizer import SOURCE_FILE, TARGET_FILE

MOST_LABELS, MOST_CHARACTERS = 50, 200
START = "START"
Kind = Literal["huggingface", "onnx"]
_LIBRARIES: dict[Kind, str] = {"huggingface": "transformers", "onnx": "onnx"}

# What the Hub calls it, and the class of `transformers` that loads it, by objective.
_KINDS = {
    "causal": ("text-generation", "AutoModelForCausalLM"),
    "masked": ("fill-mask", "AutoModelForMaskedLM"),
    "masked-nsp": ("fill-mask", "AutoModelForPreTraining"),
    **dict.fromkeys(SENTENCE_KINDS, ("text-classification", "AutoModelForSequenceClassification")),
    "translation": ("translation", "AutoModelForSeq2SeqLM"),
    "base": ("feature-extraction", "AutoModel"),
}


def write_card(run: LoadedRun, directory: Path, *, kind: Kind, agreement: float | None = None) -> None:
    """Write README.md into a directory; `agreement` is the largest difference between the export and the model."""
    atomic_write(directory / "README.md", card(run, kind=kind, agreement=agreement).encode())


def card(run: LoadedRun, *, kind: Kind, agreement: float | None = None) -> str:
    """The text of the card."""
    config, facts = run.config, machine_facts(run.path)
    result = (RunDirectory(run.path).read_result() or {}) if run.finished else {}
    counts, step = result.get("counts") or {}, int(result.get("step", run.step))
    text = _templates().get_template("README.md.jinja").render(
        run=run, config=config, version=__version__, library=_LIBRARIES[kind], agreement=agreement,
        pipeline_tag=_KINDS[config.objective][0], usage=usage(run, kind), meanings=parameters.MEANINGS,
        symbols=parameters.symbols(config.model, config.head), most_labels=MOST_LABELS,
        components=parameters.components(config.model, config.head), files=_files(config.data, counts),
        scores=_scores(config, result), signatures=result.get("signatures") or {}, study=_study(run.path),
        origin=result.get("imported"), step=step, operations=_operations(config, step), left_out=LEFT_OUT,
        machine=", ".join(f"{name} {value}" for name, value in facts.items()), start=START,
        call=call_of(run, facts, has_valid="valid" in counts or not counts), is_exact=is_exact(facts),
    )  # fmt: skip
    return f"{text}\n"


def usage(run: LoadedRun, kind: Kind) -> str:
    """Python that loads what lies in the directory and computes with it, without Headstart."""
    config, is_sentencepiece = run.config, "format" in run.tokenizer.spec
    is_separate = config.objective == "translation" and not run.vocabularies.is_joint
    return _templates().get_template(f"{_LIBRARIES[kind]}.py.jinja").render(
        objective=config.objective, auto_class=_KINDS[config.objective][1],
        target_file="tokenizer.target.json" if is_separate and not is_sentencepiece else "",
        is_sentencepiece=is_sentencepiece, pairs=config.pairs,
        text='("one text", "another")' if config.pairs else '"a text"',
    )  # fmt: skip


@cache
def _templates() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(Path(__file__).parent / "usage")
    templates = Environment(loader=loader, undefined=StrictUndefined, autoescape=False)
    templates.filters |= {"code": code, "code_block": code_block, "thousands": "{:,}".format}
    return templates


# ---- what the run has recorded ------------------------------------------------------------------------------


def _files(data: DataConfig, counts: dict[str, Any]) -> list[tuple[str, list[str], Any]]:
    """Of each part of the data that there is: its name, its files, and how much it holds, such as 1,600 rows."""
    paths = {"train": data.corpus or [data.train], "valid": [data.valid], "test": [data.test]}
    names = {part: [base_name(path) for path in some if path] for part, some in paths.items()}
    return [(part, names[part], counts.get(part)) for part in paths if names[part] or part in counts]


def _scores(config: RunConfig, result: dict[str, Any]) -> list[tuple[str, str, float, str]]:
    """Part, metric, value and interval."""
    return [
        (part, metric, value, _interval(config, result, part, metric))
        for part in ("valid", "test")
        for metric, value in (result.get(part) or {}).items()
        if isinstance(value, int | float)
    ]


def _interval(config: RunConfig, result: dict[str, Any], part: str, metric: str) -> str:
    """A binomial's, where it is a share of examples that are right or wrong each for itself."""
    counts = (result.get("counts") or {}).get(part)
    rows = counts.get("rows") if isinstance(counts, dict) else None
    is_share = metric == "accuracy" and config.objective in ("classification", "multilabel")
    if not is_share or not isinstance(rows, int) or rows < 1:
        return ""
    right = min(max(round(result[part][metric] * rows), 0), rows)
    low, high = wilson(right, rows)
    return f"{low:.4f} to {high:.4f}"


def _study(path: Path) -> dict[str, Any]:
    """What the study says of the arm that a run belongs to; empty where the run lies in none."""
    trial, study = path.resolve().parent, path.resolve().parent.parent.parent
    try:
        own = checksummed_json.parse((trial / "trial.json").read_bytes())
        scores = checksummed_json.parse((study / "study.json").read_bytes())["scores"]
        score = next(s for s in scores if (s["arm"], s["budget"]) == (own["arm"], own["budget"]))
        accuracy = {name: float(score["accuracy"][name]) for name in ("value", "low", "high")}
        numbers = {"budget": int(own["budget"]), "seed": int(own["seed"]), "seeds": int(score["seeds"])}
        return {"arm": own["arm"], **numbers, **accuracy}
    except (OSError, ValueError, KeyError, TypeError, StopIteration, RecursionError):
        return {}


def _operations(config: RunConfig, steps: int) -> float:
    """As if every text were as long as the longest."""
    length = config.length
    lengths = Lengths(length, length if config.translation is not None else 0)
    freeze: Literal["base"] | None = "base" if config.freeze == "base" else None
    totals = per_text(config.model, config.head, lengths, freeze, config.masking.mask_prob)
    texts = config.translation.batch_tokens / (2 * length) if config.translation else float(config.batch)
    return steps * (2 if config.r_drop else 1) * texts * (totals.forward + totals.backward)


def machine_facts(path: Path) -> dict[str, str]:
    """What the last checkpoint says that it was computed on; nothing where there is none."""
    manifests = sorted((path / "checkpoints").glob("step-*/manifest.json"))
    try:
        facts = checksummed_json.parse(manifests[-1].read_bytes())["machine"]
        return {str(name): str(value) for name, value in facts.items()}
    except (IndexError, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


# ---- the call that makes the run again: files without their directories, a start by its digest -------------


def base_name(path: str) -> str:
    """The file's own name, without the directories that it lies in, whichever way they are parted."""
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]


def is_exact(facts: dict[str, Any]) -> bool:
    """Whether the same call gives the same weights: not where the run gave that up, with `--fast`."""
    return not str(facts.get("exact", "")).startswith("no")


def call_of(run: LoadedRun, facts: dict[str, Any], *, has_valid: bool = True) -> str:
    """The call; empty for a run that was not trained here. `facts` are what it was computed on."""
    config, names = run.config, _trained_on(run.config.data)
    if not names:
        return ""
    function, cls = ("finetune", FinetuneSettings) if config.data.train else ("pretrain", PretrainSettings)
    arguments = {"out": f"{run.path.resolve().name}-again", **_settings(config, cls), **_model_fields(config)}
    if function == "finetune" and not has_valid:
        arguments["valid_share"] = 0.0
    if facts:
        threads = str(facts.get("threads", ""))
        arguments["device"] = "cpu" if facts.get("device") == "cpu" else "cuda"
        arguments["precision"] = str(facts.get("precision", "auto"))
        arguments |= {"threads": int(threads)} if threads.isdecimal() else {}
        arguments |= {} if is_exact(facts) else {"fast": True}
    lines = [f"    {names!r},", *(f"    {name}={value!r}," for name, value in arguments.items())]
    return "\n".join(["import headstart", "", f"headstart.{function}(", *lines, ")"])


def _settings(config: RunConfig, cls: type[Settings]) -> dict[str, Any]:
    """Every setting that is not the default; files by their names, and how long it trained in steps."""
    data = config.data
    own = {
        name: getattr(config, name) for name in ("length", "batch", "class_weights", "r_drop", "freeze", "initial_seed")
    }
    recorded = {
        **own, **vars(data), **vars(config.loop), **vars(config.optimizer), "pooling": config.head.pooling,
        **({"objective": config.objective} if cls is PretrainSettings else {"task": config.objective}),
        **(vars(config.masking) if config.objective in ("masked", "masked-nsp") else {}),
        **(vars(config.translation) if config.translation else {}),
        **({"batch_tokens": config.batch * config.length} if cls is PretrainSettings else {}),
        "tokenizer": "tokenizer.json" if config.start == "scratch" else "",
        "start": START if config.start != "scratch" else "scratch",
    }  # fmt: skip
    if config.translation:
        separate = bool(recorded.pop("target_tokenizer"))
        recorded |= {"tokenizer": SOURCE_FILE, "target_tokenizer": TARGET_FILE} if separate else {}
        del recorded["batch"]
    for name in (*(name for name in Duration.names() if name != "steps"), "normalise", "vocabularies"):
        recorded.pop(name, None)
    files = {name: base_name(getattr(data, name)) for name in ("valid", "test") if getattr(data, name)}
    known = fields_of(cls)
    given = {name for name, value in recorded.items() if name in known and value != known[name].default}
    return {**files, **{name: value for name, value in recorded.items() if name in given}}


def _model_fields(config: RunConfig) -> dict[str, Any]:
    """The preset and the fields that differ from it; over a start, whose fields are not known here, all of them."""
    usual = TRANSLATION_PRESET if config.objective == "translation" else PRESET
    default = dataclasses.asdict(preset(usual)) if config.start == "scratch" else {}
    left_out = ("vocab", "target_vocab", "tokenizer")
    fields = {name: value for name, value in dataclasses.asdict(config.model).items() if name not in left_out}
    given = {name: value for name, value in fields.items() if not default or value != default[name]}
    return {**({"preset": usual} if default else {}), **({"model": given} if given else {})}


def _trained_on(data: DataConfig) -> str | list[str]:
    """What it was trained on: one file, or those of a corpus with their weights; nothing where it was imported."""
    if data.train:
        return base_name(data.train)
    names = [base_name(path) for path in data.corpus]
    if not data.weights:
        return names
    return [f"{name}={weight!r}" for name, weight in zip(names, data.weights, strict=True)]


# ---- text of others in Markdown: shown as it is, never interpreted ------------------------------------------


def code(text: object, *, in_table: bool = False) -> str:
    """A text as a code span: no markup, link or HTML in it means anything, and line breaks are spelled."""
    text = visible(str(text)).replace("\n", "\\n")
    if len(text) > MOST_CHARACTERS:
        text = text[: MOST_CHARACTERS - 1] + "…"
    if in_table:
        text = text.replace("|", "\\|")  # a table is cut at bars before anything else is read
    if not text.strip():
        return "(empty)" if not text else "(blank)"
    fence = "`" * (_longest_run(text) + 1)
    # One space on either side is taken off again.
    edge = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{fence}{edge}{text}{edge}{fence}"


def code_block(source: str) -> str:
    """Lines of Python, fenced by more backticks than they hold."""
    fence = "`" * max(3, _longest_run(source) + 1)
    return f"{fence}python\n{source.rstrip()}\n{fence}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)
