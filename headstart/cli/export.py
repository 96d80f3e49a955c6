"""`headstart export`: a run as others read it."""

import json
from pathlib import Path
from typing import Literal

from headstart.cli.evaluate import note
from headstart.cli.options import Common, CommonFlags
from headstart.errors import UserError, visible

FamilyName = Literal[
    "bert",
    "roberta",
    "camembert",
    "xlm-roberta",
    "distilbert",
    "gpt2",
    "gpt_neox",
    "llama",
    "mistral",
    "marian",
]


def export(
    run: Path,
    directory: Path,
    *,
    to: Literal["huggingface", "onnx"],
    family: FamilyName | None = None,
    common: CommonFlags = Common(),
) -> None:
    """Write a run for others: a directory that `transformers` loads alone, or ONNX, with a model card.

    To Hugging Face where one of its families computes the same, else the option that prevents it is named; to ONNX
    always, checked against onnxruntime.

    For example:

        headstart export runs/tuned --to huggingface tuned-hf

        headstart export runs/tuned --to onnx tuned-onnx

    Parameters
    ----------
    run
        A run's directory.
    directory
        The directory to write, a new one.
    to
        huggingface or onnx.
    family
        The family to write it as (default: the one that it was imported from, else the first that can express it).
    """
    if to == "onnx":
        if family is not None:
            raise UserError("--family with --to onnx", fix="leave --family out: a graph is of no family")
        from headstart.interop.onnx import export_onnx

        done = export_onnx(run, directory)
        told = {"directory": str(directory), "files": list(done.files), "difference": done.difference}
        line = f"{directory}: {', '.join(done.files)}; within {done.difference:.1e} of the run"
    else:
        from headstart.interop.exporting import export_huggingface

        written = export_huggingface(run, directory, family=family, tell=note)
        told = {"directory": str(directory), "files": list(written.files), "family": written.family,
                "architecture": written.architecture}  # fmt: skip
        line = f"{directory}: {written.architecture}; {', '.join(written.files)}"
    print(json.dumps(told) if common.json else visible(line))
