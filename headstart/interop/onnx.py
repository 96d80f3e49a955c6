"""Out to ONNX: a run as graphs that onnxruntime computes alone, with its tokenizer and a word on how to use them.

    model.onnx                   labels, values or tokens (encoder.onnx and decoder.onnx of a translator)
    tokenizer.json               the run's own (tokenizer.source.json and tokenizer.target.json where they differ)
    frame.json                   special tokens around a text, padding, inputs and outputs, labels
    README.md                    the model card

Batch and length are open. No file gets its name before onnxruntime agrees with the model.
"""

import contextlib
import copy
import importlib.util
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from headstart.errors import RunFailed, UserError
from headstart.interop.model_card import write_card
from headstart.interop.onnx_graphs import Agreement, Graph, check, graphs_of
from headstart.interop.tokenizer_files import plain_spec, write_json
from headstart.model.model import Model
from headstart.runs.load import LoadedRun, load
from headstart.runs.study_model import run_of
from headstart.storage.atomic import atomic_directory, refuse_existing
from headstart.tokenizers.templates import Template, target_template_of, template_of
from headstart.tokenizers.tokenizer import FILE_NAME, SOURCE_FILE, TARGET_FILE, Tokenizer, Vocabularies

OPSET = 18  # read by onnxruntime 1.14 and later
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
    "masked": "softmax over the token at each position",
    "masked-nsp": "softmax over the token at each position; next_sentence_logits: softmax, class 0 follows",
    "translation": "softmax over the next token of the target, after each token",
    "none": "the vector of each token",
}


class OnnxExport(NamedTuple):
    """What was written, and how well it agrees."""

    directory: Path
    files: tuple[str, ...]
    difference: float  # the largest from the model's, as a share of the largest output where that is over 1
    batches: int  # how many random ones were compared
    opset: int = OPSET


def export_onnx(run: LoadedRun | str | Path, directory: str | Path) -> OnnxExport:
    """Write a run as ONNX into a new directory, checked against onnxruntime; failing, nothing is left there."""
    refuse_without_packages()
    run = run if isinstance(run, LoadedRun) else load(run_of(run))
    directory = Path(directory)
    refuse_existing(directory)
    model = _on_cpu(run.model)
    needed = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    with atomic_directory(directory, needed) as temporary:
        for graph in graphs_of(model):
            _write_graph(graph, model, temporary / graph.file, is_large=needed > MOST_BYTES_INSIDE)
        agreement = _checked(model, temporary, run)
        sides = (run.vocabularies.source, run.vocabularies.target)
        Vocabularies(*(Tokenizer(plain_spec(side)) for side in sides)).save(temporary)  # frame.json has the roles
        write_json(temporary / FRAME_FILE, framing(run))
        write_card(run, temporary, kind="onnx", agreement=agreement.difference)
        files = tuple(sorted(path.name for path in temporary.iterdir()))
    return OnnxExport(directory, files, *agreement)


def framing(run: LoadedRun) -> dict[str, Any]:
    """All that is needed to use the graphs: what stands around a text, what goes in and what comes out."""
    config, vocabularies = run.config, run.vocabularies
    source = template_of(vocabularies.source, config.frame)
    sides = {"text": _side(run, vocabularies.source, source, FILE_NAME)}
    if config.objective == "translation":
        names = (FILE_NAME, FILE_NAME) if vocabularies.is_joint else (SOURCE_FILE, TARGET_FILE)
        sides = {
            "source": _side(run, vocabularies.source, source, names[0]),
            "target": _side(run, vocabularies.target, target_template_of(vocabularies.target, config.frame), names[1]),
        }
    is_sentence = config.head.kind in ("classification", "multilabel", "regression")
    return {
        "format": 1, "objective": config.objective, "weights_sha256": run.digest, "opset": OPSET,
        "graphs": [
            {"file": graph.file, "inputs": list(graph.inputs), "outputs": list(graph.outputs)}
            for graph in graphs_of(run.model)
        ],
        **sides, "pairs": config.pairs, "labels": config.label_names,
        "pooling": config.head.pooling_for(config.model) if is_sentence else None,
        "output": _MEANING[config.head.kind],
        "longest": config.model.context if config.model.positions == "learned" else None,
    }  # fmt: skip


def _side(run: LoadedRun, tokenizer: Tokenizer, frame: Template, file: str) -> dict[str, Any]:
    """How one text is read: `first text last` (a pair: `first a last b last`), in no more than `length` ids."""
    return {
        "tokenizer": file,
        "library": "sentencepiece" if "format" in tokenizer.spec else "tokenizers",
        "first": frame.first,
        "last": frame.last,
        "between": frame.between,  # so many of the last one graph two texts
        "pad": tokenizer.roles["pad"] or 0,  # never looked at, so any token does where there is none
        "mask": tokenizer.roles["mask"],
        "unknown": tokenizer.roles["unknown"],
        "length": run.config.length,
    }


# ---- before anything is written -----------------------------------------------------------------------------


def refuse_without_packages() -> None:
    """Refuse where the extra is not installed."""
    if missing := [name for name in _PACKAGES if importlib.util.find_spec(name) is None]:
        what = f"writing ONNX needs {', '.join(missing)}, not installed here"
        raise UserError(what, fix="pip install 'headstart[onnx]'", code="no-package")


def _checked(model: Model, directory: Path, run: LoadedRun) -> Agreement:
    """How well the graphs agree with the model; refused where they do not."""
    fix = "use another version of torch, onnxscript or onnxruntime: pip install -U 'headstart[onnx]'"
    try:
        agreement = check(model, directory, run.config.length)
    except Exception as error:  # onnxruntime's own have no narrower kind in common
        what = f"onnxruntime cannot compute the graph ({type(error).__name__}); nothing was written"
        raise RunFailed(what, where=run.path, fix=fix) from error
    if not agreement.difference <= TOLERANCE:
        what = f"onnxruntime differs from the model by {agreement.difference:.1e}, more than {TOLERANCE:g}"
        raise RunFailed(f"{what}; nothing was written", where=run.path, fix=fix, code="mismatch")
    return agreement


def _on_cpu(model: Model) -> Model:
    """The model itself where it is on the CPU in single precision, else a copy that is."""
    one = next(model.parameters())
    if one.device.type == "cpu" and one.dtype == torch.float32:
        return model.eval()
    return copy.deepcopy(model).to("cpu", torch.float32).eval()


# ---- graphs -------------------------------------------------------------------------------------------------


def _write_graph(graph: Graph, model: Model, path: Path, is_large: bool) -> None:
    with _quiet():
        try:
            program = torch.onnx.export(
                graph.module.eval(), graph.examples(model.config.width), dynamo=True, opset_version=OPSET,
                input_names=list(graph.inputs), output_names=list(graph.outputs),
                dynamic_shapes=graph.open_shapes(),
            )  # fmt: skip
        except torch.onnx.errors.OnnxExporterError as error:
            fix = "--debug shows the whole message; another version of torch may do it"
            raise RunFailed(f"{graph.file} could not be made: {type(error).__name__}", fix=fix) from error
        assert program is not None
        program.save(str(path), external_data=is_large)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's chatter, which goes to logs, warnings, stdout and stderr."""
    before, output = logging.root.manager.disable, io.StringIO()
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
