"""`headstart import`: a checkpoint from elsewhere becomes a run."""

import json
from pathlib import Path

from headstart.cli.evaluate import note
from headstart.cli.options import Common, CommonFlags, Switch
from headstart.errors import visible


def import_(
    directory: Path,
    *,
    out: Path,
    pairs: Switch = False,
    length: int | None = None,
    common: CommonFlags = Common(),
) -> None:
    """Make a run of a Hugging Face checkpoint in a local directory: fine-tune, study, generate, serve it.

    BERT, RoBERTa, CamemBERT, XLM-RoBERTa, DistilBERT, GPT-2, GPT-NeoX, Llama, Mistral and Marian, from config.json,
    model.safetensors and the tokenizer's files. No code of a checkpoint is run, nor what could hold some; a field of
    config.json that would change what the model computes, and that Headstart has not, is an error that names it.

    For example:

        headstart import downloads/bert-base-uncased --out runs/bert

        headstart import downloads/mnli-classifier --pairs --out runs/mnli

    Parameters
    ----------
    directory
        The checkpoint's directory.
    out
        The run's directory, a new one.
    pairs
        A classifier that was trained on pairs of texts: no checkpoint says so itself.
    length
        Tokens of the longest text; a longer one is cut (default: the context).
    """
    from headstart.interop.importing import import_huggingface

    result = import_huggingface(directory, out, pairs=pairs, length=length, tell=note)
    if common.json:
        print(json.dumps({"run": str(out), **result}))
        return
    origin = result["imported"]
    named = (origin["architectures"] or [origin["model_type"]])[0]
    print(visible(f"{out}: {named}, {result['parameters']:,} parameters, as a {result['objective']} run"))
