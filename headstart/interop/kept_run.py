"""A run as plain bytes: what an estimator holds, so that it can be stored without a model in what is stored.

The bytes are the files of a run's directory; whoever opens them has them checked as those of any other run.
"""

import dataclasses
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save

from headstart.config import to_toml
from headstart.errors import IntegrityError, UserError
from headstart.training.loading import LoadedRun, load
from headstart.training.run_directory import RunDirectory

Files = dict[str, bytes]


def kept(run: LoadedRun) -> Files:
    """The files of a run with one tokenizer, finished or not, by their names."""
    if run.target_tokenizer is not None:
        raise UserError(
            "has two tokenizers: it translates", where=str(run.path), fix="give a run of one text"
        )
    weights = {name: p.detach().cpu().contiguous() for name, p in run.model.named_parameters()}
    result = {
        "objective": run.config.objective,
        "step": run.step,
        "steps": run.step,
        "weights_sha256": run.digest,
    }
    names = RunDirectory(".")
    return {
        names.config_file.name: to_toml(dataclasses.asdict(run.config)).encode(),
        names.tokenizer_file.name: json.dumps(run.tokenizer.spec, ensure_ascii=False).encode(),
        names.weights_file.name: save(weights),
        names.result_file.name: json.dumps(result).encode(),
    }


def opened(files: Mapping[str, bytes], name: str) -> LoadedRun:
    """The run of these files; messages call it by this name."""
    with tempfile.TemporaryDirectory(prefix="headstart-") as folder:
        place = RunDirectory(folder)
        for path in (place.config_file, place.tokenizer_file, place.weights_file, place.result_file):
            if path.name not in files:
                raise IntegrityError(f"{path.name} is missing", where=name, fix="fit it again")
            path.write_bytes(files[path.name])
        return dataclasses.replace(load(folder), path=Path(name))
