"""The model card: README.md of an exported directory, from what the run has written down.

It tells what the model is, what it was made of and how well it does, with intervals where they are known. Names and
labels of the user are shown as code and never obeyed; of files only their own names are told.
"""

import json
from pathlib import Path
from typing import Any, Literal

from headstart import __version__
from headstart.interop.card_usage import huggingface_usage, onnx_usage
from headstart.interop.make_again import START, base_name, call_of, is_exact
from headstart.interop.markdown import code, code_block, table
from headstart.plan import parameters
from headstart.plan.operations import LEFT_OUT, Lengths, per_text
from headstart.training.loading import LoadedRun, load
from headstart.training.run_directory import RunConfig, RunDirectory, write_whole

FILE_NAME = "README.md"
MOST_LABELS = 50
Kind = Literal["huggingface", "onnx"]

_LIBRARIES: dict[Kind, str] = {"huggingface": "transformers", "onnx": "onnx"}
_PIPELINES = {
    "causal": "text-generation",
    "masked": "fill-mask",
    "masked-nsp": "fill-mask",
    "classification": "text-classification",
    "multilabel": "text-classification",
    "regression": "text-classification",
    "translation": "translation",
    "base": "feature-extraction",
}
_OBJECTIVES = {
    "causal": "a language model: it predicts the next token",
    "masked": "a masked language model: it predicts hidden tokens",
    "masked-nsp": "a masked language model: it predicts hidden tokens, and whether a sentence follows another",
    "classification": "a classifier: it gives each text one of its labels",
    "multilabel": "a classifier: it gives each text any number of its labels",
    "regression": "a regression: it gives each text a number",
    "translation": "a translator: an encoder reads the source, a decoder writes the target",
    "base": "a base without a head: it gives each token a vector",
}
# Shares of examples that are right or wrong each for itself: those have a binomial's interval.
_COUNTED_SHARES = {"classification": ("accuracy",), "multilabel": ("accuracy",)}


def write_card(
    run: LoadedRun | str | Path,
    directory: str | Path,
    *,
    kind: Kind,
    agreement: float | None = None,
    usage: str = "",
) -> Path:
    """Write README.md into a directory; `usage` is Python that loads what lies there (default: by its kind).

    `agreement` is how far the export was found to be from the model at most.
    """
    run = run if isinstance(run, LoadedRun) else load(run)
    path = Path(directory) / FILE_NAME
    write_whole(path, card(run, kind=kind, agreement=agreement, usage=usage).encode())
    return path


def card(run: LoadedRun, *, kind: Kind, agreement: float | None = None, usage: str = "") -> str:
    """The text of the card."""
    result = (RunDirectory(run.path).read_result() or {}) if run.finished else {}
    usage = usage or (huggingface_usage(run) if kind == "huggingface" else onnx_usage(run))
    parts = [
        _front_matter(run.config, kind),
        f"# {code(run.path.resolve().name)}",
        _introduction(run, kind, agreement),
        "## Use",
        "In this directory:",
        code_block(usage, "python"),
        "## Model",
        _model(run.config),
        "## Data",
        _data(run.config, result),
        "## Scores",
        _scores(run, result),
        "## Training",
        _training(run, result),
        "## Make it again",
        _again(run, result),
    ]
    return "\n\n".join(parts) + "\n"


def _front_matter(config: RunConfig, kind: Kind) -> str:
    """What the Hub reads; all of it is ours, so nothing in it needs escaping."""
    return "\n".join([
        "---",
        f"library_name: {_LIBRARIES[kind]}",
        f"pipeline_tag: {_PIPELINES[config.objective]}",
        "tags:",
        "- headstart",
        f"- {kind if kind == 'onnx' else 'transformers'}",
        f"- {config.objective}",
        "# license: say under which one your data and you allow its use",
        "# language: say which one the texts are in",
        "---",
    ])  # fmt: skip


def _introduction(run: LoadedRun, kind: Kind, agreement: float | None) -> str:
    form = "ONNX" if kind == "onnx" else "the form of `transformers`"
    lines = [
        f"This is {_OBJECTIVES[run.config.objective]}. It was exported to {form} by Headstart {__version__}."
    ]
    if not run.finished:
        lines.append(f"The run was not finished: these are its weights at step {run.step:,}.")
    if agreement is not None:
        lines.append(f"The export differs from the run's own outputs by {agreement:.1e} at most.")
    lines.append(f"Weights: sha256 `{run.digest}`.")
    return " ".join(lines)


# ---- what it is ---------------------------------------------------------------------------------------------


def _model(config: RunConfig) -> str:
    model, head = config.model, config.head
    counted = parameters.components(model, head)
    values = parameters.symbols(model, head)
    letters = ", ".join(
        f"{name} = {values[name]:,} ({parameters.MEANINGS[name]})" for name in values if values[name]
    )
    rows = [[f"`{one.name}`", one.formula, f"{one.count:,}"] for one in counted]
    rows.append(["all", "", f"{sum(one.count for one in counted):,}"])
    about = (
        f"{model.shape}; {model.positions} positions; {model.norm} norm, {model.norm_place}; {model.activation}; "
        f"texts of up to {config.length:,} tokens."
    )
    parts = [about, f"Parameters, where {letters}:", table(["part", "formula", "parameters"], rows)]
    if config.labels:
        shown = "\n".join(
            f"{number}. {code(label)}" for number, label in enumerate(config.labels[:MOST_LABELS])
        )
        more = len(config.labels) - MOST_LABELS
        parts += ["Labels, by their number:", shown + (f"\n\nand {more:,} more." if more > 0 else "")]
    return "\n\n".join(parts)


def _data(config: RunConfig, result: dict[str, Any]) -> str:
    data, counts = config.data, result.get("counts") or {}
    files = {"train": data.corpus or [data.train], "valid": [data.valid], "test": [data.test]}
    rows = []
    for name, paths in files.items():
        named = ", ".join(code(base_name(path), in_table=True) for path in paths if path)
        if not named and name not in counts:
            continue
        rows.append([name, named or "held out of train", _counted(counts.get(name))])
    if not rows:
        return "No data is told of: the run was not trained here."
    lines = [table(["part", "files", "size"], rows)]
    if data.labels:
        lines.append(f"Of train, {data.labels:,} examples were chosen by seed {data.labels_seed}.")
    if data.shuffled:
        lines.append("The tokens of the corpus were shuffled: this is a control, which learns no language.")
    lines.append(f"Fingerprint of the content, train and then valid: {code(data.fingerprint)}.")
    lines.append(f"Fingerprint of the tokenizer: {code(config.model.tokenizer)}.")
    return "\n\n".join(lines)


def _counted(counts: Any) -> str:
    """Such as `1,600 rows`."""
    if not isinstance(counts, dict):
        return "not recorded"
    return ", ".join(f"{value:,} {name}" for name, value in counts.items() if isinstance(value, int))


# ---- how well it does ---------------------------------------------------------------------------------------


def _scores(run: LoadedRun, result: dict[str, Any]) -> str:
    rows = []
    for part in ("valid", "test"):
        for measure, value in (result.get(part) or {}).items():
            if isinstance(value, int | float):
                rows.append(
                    [part, f"`{measure}`", f"{value:.4f}", _interval(run.config, result, part, measure)]
                )
    parts = []
    if rows:
        parts.append(table(["part", "measure", "value", "95 % interval"], rows))
        parts.append(
            "An interval is Wilson's: it speaks of other texts like these, and not of other seeds. "
            "Where none is given, none is known. Valid may have been used to choose; test never is."
        )
    for name, signature in (result.get("signatures") or {}).items():
        parts.append(f"{code(str(name))}: {code(str(signature))}")
    if of_study := _study(run.path):
        parts.append(of_study)
    return "\n\n".join(parts) or "None are recorded."


def _interval(config: RunConfig, result: dict[str, Any], part: str, measure: str) -> str:
    """Of a share of independent examples whose number is known."""
    counts = (result.get("counts") or {}).get(part)
    rows = counts.get("rows") if isinstance(counts, dict) else None
    if measure not in _COUNTED_SHARES.get(config.objective, ()) or not isinstance(rows, int) or rows < 1:
        return ""
    from scipy.stats import binomtest

    right = min(max(round(result[part][measure] * rows), 0), rows)
    found = binomtest(right, rows).proportion_ci(method="wilson")
    return f"{found.low:.4f} to {found.high:.4f}"


def _study(path: Path) -> str:
    """What the study says of the arm that a run belongs to, where the run lies in one."""
    trial, study = path.resolve().parent, path.resolve().parent.parent.parent
    try:
        own = json.loads((trial / "trial.json").read_bytes())
        scores = json.loads((study / "study.json").read_bytes())["scores"]
        score = next(s for s in scores if (s["arm"], s["budget"]) == (own["arm"], own["budget"]))
        accuracy = score["accuracy"]
        return (
            f"The run is one of a study: arm {code(str(own['arm']))} at {int(own['budget']):,} labels, seed "
            f"{int(own['seed'])}. Over {int(score['seeds'])} seeds the arm's accuracy on test is "
            f"{float(accuracy['value']):.4f}, with 95 % confidence {float(accuracy['low']):.4f} to "
            f"{float(accuracy['high']):.4f}: for other seeds and other texts."
        )
    except (OSError, ValueError, KeyError, TypeError, StopIteration, RecursionError):
        return ""


# ---- how it was made ----------------------------------------------------------------------------------------


def _training(run: LoadedRun, result: dict[str, Any]) -> str:
    config, facts = run.config, machine_facts(run.path)
    if config.start == "imported":
        return _imported(result)
    step = int(result.get("step", run.step))
    start = "random weights" if config.start == "scratch" else f"the weights with sha256 `{config.start}`"
    lines = [f"- Start: {start}."]
    if config.freeze == "base":
        lines.append("- The base was frozen: only the head learned.")
    lines.append(f"- Steps: {step:,} of {config.loop.steps:,}{_batch(config)}; seed {config.loop.seed}.")
    rate = f"{config.optimizer.optimizer}, peak rate {config.optimizer.learning_rate:g}"
    lines.append(
        f"- Optimizer: {rate}, schedule {config.loop.schedule}, warm-up {config.loop.warmup:g} of the steps."
    )
    if operations := _operations(config, step):
        lines.append(f"- Operations: {operations:.3g} at most, forward and backward. Left out: {LEFT_OUT}.")
    told = ", ".join(f"{name} {value}" for name, value in facts.items())
    lines.append(f"- Computed on: {code(told) if told else 'not recorded'}.")
    return "\n".join(lines)


def _imported(result: dict[str, Any]) -> str:
    """Where weights came from that were not trained here."""
    origin = result.get("imported")
    if not isinstance(origin, dict):
        return "The weights were imported; from where is not recorded."
    family, digest = code(str(origin.get("model_type"))), code(str(origin.get("sha256")))
    return (
        f"The weights were imported from a checkpoint of the kind {family}; sha256 over its files: {digest}."
    )


def _batch(config: RunConfig) -> str:
    if config.translation is not None:
        return f" of {config.translation.batch_tokens:,} tokens"
    return f" of {config.batch:,} texts" if config.data.train else f" of {config.batch:,} blocks"


def _operations(config: RunConfig, steps: int) -> float:
    """As if every text were as long as the longest."""
    length = config.length
    lengths = Lengths(length, length if config.translation is not None else 0)
    freeze: Literal["base"] | None = "base" if config.freeze == "base" else None
    totals = per_text(config.model, config.head, lengths, freeze, config.corruption.share)
    texts = float(config.batch)
    if config.translation is not None:
        texts = config.translation.batch_tokens / (2 * length)
    readings = 2 if config.r_drop else 1
    return steps * readings * texts * (totals.forward + totals.backward)


def machine_facts(path: Path) -> dict[str, str]:
    """What the last checkpoint says that it was computed on; nothing where there is none."""
    found = sorted((path / "checkpoints").glob("step-*/manifest.json"))
    try:
        facts = json.loads(found[-1].read_bytes())["machine"]
        return {str(name): str(value) for name, value in facts.items()}
    except (IndexError, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _again(run: LoadedRun, result: dict[str, Any]) -> str:
    facts = machine_facts(run.path)
    call = call_of(run, facts, has_valid="valid" in (result.get("counts") or {"valid": {}}))
    if not call:
        return "The run was imported, and not trained here."
    said = [f"In a directory with the files above, with Headstart {__version__}:", code_block(call, "python")]
    if run.config.start != "scratch":
        said.insert(1, f"`{START}` is the directory of the run with the weights `{run.config.start}`.")
    elif "tokenizer=" in call:
        said.insert(1, "The tokenizer is the run's own, which lies in its directory.")
    said.append(
        "On the same kind of device, with the same precision, threads and versions, the weights are the same."
        if is_exact(facts)
        else "It was trained with `--fast`, which gives up exact repetition: the weights need not be the same."
    )
    return "\n\n".join(said)
