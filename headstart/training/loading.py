"""A run, or the best of an unfinished one, as a model to use or to start from."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from headstart.errors import IntegrityError, UserError
from headstart.model.model import Model
from headstart.plan.parameters import shape, symbols, tensors
from headstart.text.files import foreign_form
from headstart.text.tokenizer import Tokenizer
from headstart.training import checkpoint
from headstart.training.run_directory import RunConfig, RunDirectory
from headstart.training.vocabularies import Vocabularies, read_separate

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
    target_tokenizer: Tokenizer | None = None
    """Of a translation run whose two sides do not share one."""

    @property
    def vocabularies(self) -> Vocabularies:
        """What a translation run reads and writes with."""
        return Vocabularies(self.tokenizer, self.target_tokenizer or self.tokenizer)


def load(path: str | Path, device: torch.device | str = "cpu") -> LoadedRun:
    """Load a run's weights: the finished ones, else those of its last good checkpoint."""
    path = Path(path)
    if path.suffix in _PICKLES:
        raise UserError(
            "pickled weights can run code and are not read", where=str(path), fix="give a run's directory"
        )
    if path.is_file():
        what = foreign_form(path) or "a file, and no run"
        raise UserError(f"is {what}: it is not read", where=str(path), fix="give a run's directory")
    run = RunDirectory(path)
    config = run.read_config()
    words = _tokenizers(run, config)
    weights, step, finished = _weights(run)
    _refuse_other_shapes(config, weights, str(path))
    model = Model(config.model, config.head)
    checkpoint.copy_into(dict(model.named_parameters()), weights, str(path))
    return LoadedRun(
        path, config, words.source, model.to(device).eval(), checkpoint.weights_digest(weights), step, finished,
        None if words.is_joint else words.target,
    )  # fmt: skip


def _tokenizers(run: RunDirectory, config: RunConfig) -> Vocabularies:
    if config.translation is not None and config.translation.target_tokenizer:
        return read_separate(run.path, config.model.tokenizer, config.translation.target_tokenizer)
    tokenizer = Tokenizer.load(run.tokenizer_file)
    run.check_tokenizer(tokenizer)
    return Vocabularies(tokenizer, tokenizer)


def _refuse_other_shapes(config: RunConfig, weights: Mapping[str, Tensor], where: str) -> None:
    """Before anything is built: a configuration that came from elsewhere may tell of any size."""
    values, wrong = symbols(config.model, config.head), list[str]()
    for planned in tensors(config.model, config.head):
        found, wanted = weights.get(planned.name), shape(planned, values)
        if found is None:
            wrong.append(f"{planned.name} is missing")
        elif tuple(found.shape) != wanted:
            wrong.append(f"{planned.name} is {tuple(found.shape)}, not {wanted}")
        if len(wrong) == 10:  # it may tell of a billion layers
            break
    if wrong:
        raise IntegrityError(
            "the weights do not fit config.toml:\n  " + "\n  ".join(wrong),
            where=where,
            fix="bring the run's own config.toml back",
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
        what = foreign_form(run.weights_file)
        raise IntegrityError(
            f"cannot be read ({f'it is {what}' if what else error})",
            where=str(run.weights_file),
            fix="train the run again",
        ) from error
    if checkpoint.weights_digest(weights) != result["weights_sha256"]:
        raise IntegrityError(
            "the weights are not those that were written",
            where=str(run.weights_file),
            fix="train the run again",
        )
    return weights, int(result["step"]), True
