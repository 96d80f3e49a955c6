"""A run, or the best of an unfinished one, as a model to use or to start from."""

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from headstart.errors import IntegrityError, UserError
from headstart.model.model import Model
from headstart.text.tokenizer import Tokenizer
from headstart.training import checkpoint
from headstart.training.run_directory import RunConfig, RunDirectory

_PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle", ".joblib", ".npy", ".npz")


@dataclass(frozen=True)
class LoadedRun:
    """A run in memory."""

    path: Path
    config: RunConfig
    tokenizer: Tokenizer
    model: Model
    digest: str
    """The sha256 over the weights: which weights these are."""

    step: int
    finished: bool


def load(path: str | Path, device: torch.device | str = "cpu") -> LoadedRun:
    """Load a run's weights: the finished ones, else those of its last good checkpoint."""
    path = Path(path)
    if path.suffix in _PICKLES:
        raise UserError(
            "pickled weights can run code and are not read", where=str(path), fix="give a run's directory"
        )
    run = RunDirectory(path)
    config = run.read_config()
    tokenizer = Tokenizer.load(run.tokenizer_file)
    run.check_tokenizer(tokenizer)
    weights, step, finished = _weights(run)
    model = Model(config.model, config.head)
    checkpoint.copy_into(dict(model.named_parameters()), weights, str(path))
    return LoadedRun(
        path, config, tokenizer, model.to(device).eval(), checkpoint.weights_digest(weights), step, finished
    )


def _weights(run: RunDirectory) -> tuple[dict[str, Tensor], int, bool]:
    result = run.read_result()
    if result is None:
        found, _ = checkpoint.latest(run.path / "checkpoints")
        if found is None:
            raise UserError("has no weights yet", where=str(run.path), fix="train it first")
        return found.model, found.step, False
    try:
        weights = load_file(run.weights_file)
    except (SafetensorError, OSError) as error:
        raise IntegrityError(
            f"cannot be read ({error})", where=str(run.weights_file), fix="train the run again"
        ) from error
    if checkpoint.weights_digest(weights) != result["weights_sha256"]:
        raise IntegrityError(
            "the weights are not those that were written",
            where=str(run.weights_file),
            fix="train the run again",
        )
    return weights, int(result["step"]), True
