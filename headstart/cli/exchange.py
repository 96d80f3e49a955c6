"""`headstart export` and `headstart import`: runs for other libraries, and checkpoints of other libraries as runs."""

import json
from pathlib import Path
from typing import Literal

from headstart.cli.consoles import log
from headstart.cli.options import Common, CommonFlags, Length, OutPath, RunPath, Switch, conflict
from headstart.errors import visible

FamilyName = Literal[
    "bert", "roberta", "camembert", "xlm-roberta", "distilbert", "gpt2", "gpt_neox", "llama", "mistral", "marian",
]  # fmt: skip


def export(
    run: RunPath,
    directory: OutPath,
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

    Args:
        directory: The directory to write, a new one.
        to: huggingface or onnx.
        family: The family to write it as (default: the one it was imported from, else the first that fits).
    """
    if to == "onnx":
        if family is not None:
            raise conflict("--family with --to onnx", "leave --family out: a graph is of no family")
        from headstart.interop.onnx import export_onnx

        done = export_onnx(run, directory)
        data = {"directory": str(directory), "files": list(done.files), "difference": done.difference}
        line = f"{directory}: {', '.join(done.files)}; within {done.difference:.1e} of the run"
    else:
        from headstart.interop.huggingface import export_huggingface

        written = export_huggingface(run, directory, family=family, log=log)
        data = {"directory": str(directory), "files": list(written.files), "family": written.family,
                "architecture": written.architecture}  # fmt: skip
        line = f"{directory}: {written.architecture}; {', '.join(written.files)}"
    print(json.dumps(data) if common.json else visible(line))


def import_(
    directory: Path, *, out: OutPath, pairs: Switch = False, length: Length = None, common: CommonFlags = Common()
) -> None:
    """Make a run of a Hugging Face checkpoint in a local directory: fine-tune, study, generate, serve it.

    BERT, RoBERTa, CamemBERT, XLM-RoBERTa, DistilBERT, GPT-2, GPT-NeoX, Llama, Mistral and Marian, from config.json,
    model.safetensors and the tokenizer's files. No code of a checkpoint is run, nor what could hold some; a field of
    config.json that would change what the model computes, and that Headstart has not, is an error that names it.

    For example:

        headstart import downloads/bert-base-uncased --out runs/bert
        headstart import downloads/mnli-classifier --pairs --out runs/mnli

    Args:
        directory: The checkpoint's directory.
        out: The run's directory, a new one.
        pairs: A classifier that was trained on pairs of texts: no checkpoint says so itself.
        length: Tokens of the longest text; a longer one is cut (default: the context).
    """
    from headstart.interop.huggingface import import_huggingface

    result = import_huggingface(directory, out, pairs=pairs, length=length, log=log)
    if common.json:
        print(json.dumps({"run": str(out), **result}))
        return
    origin = result["imported"]
    named = (origin["architectures"] or [origin["model_type"]])[0]
    print(visible(f"{out}: {named}, {result['parameters']:,} parameters, as a {result['objective']} run"))
