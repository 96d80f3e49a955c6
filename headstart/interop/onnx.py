"""Out to ONNX: a run as graphs that onnxruntime computes alone, with its tokenizer and a word on how to use them.

    model.onnx                   labels, values or tokens (encoder.onnx and decoder.onnx of a translator)
    tokenizer.json               the run's own (tokenizer.source.json and tokenizer.target.json where they differ)
    frame.json                   special tokens around a text, padding, inputs and outputs, labels
    README.md                    the model card

Batch and length are open. Nothing gets its name before onnxruntime has said the same as the model.
"""

import contextlib
import copy
import importlib.util
import io
import logging
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from headstart.errors import RunFailed, UserError
from headstart.interop.model_card import write_card
from headstart.interop.new_directory import new_directory, refuse_taken
from headstart.interop.onnx_check import Agreement, check
from headstart.interop.onnx_parts import Part, parts_of
from headstart.interop.tokenizers_out import write_json
from headstart.model.model import Model
from headstart.text.frames import Frame, frame_of, target_frame_of
from headstart.text.tokenizer import FILE_NAME, Tokenizer
from headstart.training.loading import LoadedRun, load
from headstart.training.vocabularies import SOURCE_FILE, TARGET_FILE, Vocabularies

OPSET = 18
"""Read by onnxruntime 1.14 and later."""

TOLERANCE = 1e-4
FRAME_FILE = "frame.json"
# A file of protobuf ends at 2 GiB; where weights come near it they lie in a file beside the graph.
MOST_BYTES_INSIDE = 1_500_000_000
_PACKAGES = ("onnx", "onnxscript", "onnxruntime")

# What makes a prediction of the outputs.
_MEANING = {
    "classification": "softmax over labels",
    "multilabel": "sigmoid for each label; above 0.5 it is given",
    "regression": "the value itself",
    "lm": "softmax over the next token, after each token",
    "masked": "softmax over the token at each place",
    "masked-nsp": "softmax over the token at each place; next_sentence_logits: softmax, class 0 follows",
    "translation": "softmax over the next token of the target, after each token",
    "none": "the vector of each token",
}


@dataclass(frozen=True)
class OnnxExport:
    """What was written, and how well it agrees."""

    directory: Path
    files: tuple[str, ...]
    difference: float
    """The largest between onnxruntime and the model, as a share of the largest output where that is over 1."""

    batches: int
    """How many random batches were compared."""

    opset: int = OPSET


def export_onnx(run: LoadedRun | str | Path, directory: str | Path) -> OnnxExport:
    """Write a run as ONNX into a new directory, checked against onnxruntime; failing, nothing is left there."""
    refuse_without_packages()
    run = run if isinstance(run, LoadedRun) else load(run)
    directory = Path(directory)
    refuse_taken(directory)
    model = _on_cpu(run.model)
    needed = _weight_bytes(model)
    with new_directory(directory, needed) as aside:
        for part in parts_of(model):
            _write_graph(part, model, aside / part.file, is_large=needed > MOST_BYTES_INSIDE)
        agreement = _checked(model, aside, run)
        _for_others(run.vocabularies).save(aside)
        write_json(aside / FRAME_FILE, framing(run))
        write_card(run, aside, kind="onnx", agreement=agreement.difference)
        files = tuple(sorted(path.name for path in aside.iterdir()))
    return OnnxExport(directory, files, agreement.difference, agreement.batches)


def framing(run: LoadedRun) -> dict[str, Any]:
    """All that is needed to use the graphs: what stands around a text, what goes in and what comes out."""
    config, words = run.config, run.vocabularies
    source = frame_of(words.source, config.frame)
    sides = {"text": _side(run, words.source, source, FILE_NAME)}
    if config.objective == "translation":
        names = (FILE_NAME, FILE_NAME) if words.is_joint else (SOURCE_FILE, TARGET_FILE)
        target = target_frame_of(words.target, config.frame)
        sides = {
            "source": _side(run, words.source, source, names[0]),
            "target": _side(run, words.target, target, names[1]),
        }
    is_sentence = config.head.kind in ("classification", "multilabel", "regression")
    return {
        "format": 1,
        "objective": config.objective,
        "weights_sha256": run.digest,
        "opset": OPSET,
        "graphs": [
            {"file": part.file, "inputs": list(part.inputs), "outputs": list(part.outputs)}
            for part in parts_of(run.model)
        ],
        **sides,
        "pairs": config.pairs,
        "labels": config.labels,
        "pooling": config.head.pooling_for(config.model) if is_sentence else None,
        "output": _MEANING[config.head.kind],
        "longest": config.model.context if config.model.positions == "learned" else None,
    }


def _side(run: LoadedRun, tokenizer: Tokenizer, frame: Frame, file: str) -> dict[str, Any]:
    """How one text is read: `first text last` (a pair: `first a last b last`), in no more than `length` ids."""
    return {
        "tokenizer": file,
        "library": "sentencepiece" if "format" in tokenizer.spec else "tokenizers",
        "first": frame.first,
        "last": frame.last,
        "between": frame.between,  # so many of the last one part two texts
        "pad": tokenizer.roles["pad"] or 0,  # never looked at, so any token does where there is none
        "mask": tokenizer.roles["mask"],
        "unknown": tokenizer.roles["unknown"],
        "length": run.config.length,
    }


def _for_others(words: Vocabularies) -> Vocabularies:
    """The tokenizers without what is ours alone, which the `tokenizers` library refuses; frame.json has it."""
    sides = [
        Tokenizer({key: value for key, value in side.spec.items() if key != "roles"})
        for side in (words.source, words.target)
    ]
    return Vocabularies(*sides)


# ---- before anything is written -----------------------------------------------------------------------------


def refuse_without_packages() -> None:
    """Refuse where the extra is not installed."""
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(
            f"writing ONNX needs {', '.join(missing)}, not installed here",
            fix="pip install 'headstart[onnx]'",
        )


def _checked(model: Model, directory: Path, run: LoadedRun) -> Agreement:
    """How well the graphs agree with the model; refused where they do not."""
    fix = "use another version of torch, onnxscript or onnxruntime: pip install -U 'headstart[onnx]'"
    try:
        agreement = check(model, directory, run.config.length)
    except Exception as error:  # onnxruntime's own have no narrower kind in common
        raise RunFailed(
            f"onnxruntime cannot compute the graph ({type(error).__name__}); nothing was written",
            where=str(run.path),
            fix=fix,
        ) from error
    if not agreement.difference <= TOLERANCE:
        raise RunFailed(
            f"onnxruntime differs from the model by {agreement.difference:.1e}, more than {TOLERANCE:g}; "
            "nothing was written",
            where=str(run.path),
            fix=fix,
        )
    return agreement


def _on_cpu(model: Model) -> Model:
    """The model itself where it is on the CPU in single precision, else a copy that is."""
    one = next(model.parameters())
    if one.device.type == "cpu" and one.dtype == torch.float32:
        return model.eval()
    return copy.deepcopy(model).to("cpu", torch.float32).eval()


def _weight_bytes(model: Model) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


# ---- graphs -------------------------------------------------------------------------------------------------


def _write_graph(part: Part, model: Model, path: Path, is_large: bool) -> None:
    with _quiet():
        try:
            program = torch.onnx.export(
                part.module.eval(),
                part.examples(model.config.width),
                dynamo=True,
                opset_version=OPSET,
                input_names=list(part.inputs),
                output_names=list(part.outputs),
                dynamic_shapes=part.open_shapes(),
            )
        except torch.onnx.errors.OnnxExporterError as error:
            raise RunFailed(
                f"{part.file} could not be made: {type(error).__name__}",
                fix="--debug shows the whole message; another version of torch may do it",
            ) from error
        assert program is not None
        program.save(str(path), external_data=is_large)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's chatter, which goes to all the places that there are."""
    before, aside = logging.root.manager.disable, io.StringIO()
    logging.disable(logging.WARNING)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(aside),
            contextlib.redirect_stderr(aside),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
