"""Load a run, or the last checkpoint of an unfinished one; and which verbs it serves."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from headstart.config.model import HeadConfig, ModelConfig
from headstart.config.run import RunConfig
from headstart.data.readers.files import foreign_form
from headstart.errors import IntegrityError, UserError
from headstart.model.model import Model
from headstart.planning.parameters import shape, symbols, tensors
from headstart.runs import checkpoint
from headstart.runs.directory import RunDirectory, identity_of
from headstart.tokenizers.tokenizer import Tokenizer, Vocabularies, read_separate

_PREDICTS = ("predict", "evaluate", "embed", "compare")

# The verbs that a run of each objective serves; the first is what it is for.
SERVES: dict[str, tuple[str, ...]] = {
    "causal": ("generate", "evaluate", "embed", "compare"),
    "masked": ("embed", "evaluate"),
    "masked-nsp": ("embed", "evaluate"),
    **dict.fromkeys(("classification", "multilabel", "regression"), _PREDICTS),
    "translation": ("translate", "evaluate", "compare"),
    "base": ("embed",),  # imported without a head
}

_PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle", ".joblib", ".npy", ".npz")


@dataclass(frozen=True)
class LoadedRun:
    """A run in memory."""

    path: Path
    config: RunConfig
    tokenizer: Tokenizer
    model: Model
    digest: str  # the sha256 over the weights: which weights these are
    step: int
    finished: bool
    target_tokenizer: Tokenizer | None = None  # of a translation run whose two sides do not share one

    @property
    def vocabularies(self) -> Vocabularies:
        """What a translation run reads and writes with."""
        return Vocabularies(self.tokenizer, self.target_tokenizer or self.tokenizer)


def load(path: str | Path, device: torch.device | str = "cpu") -> LoadedRun:
    """Load a run's weights: the finished ones, else those of its last good checkpoint."""
    path = Path(path)
    if path.suffix in _PICKLES or path.is_file():
        what = f"is {foreign_form(path) or 'a file, and no run'}: it is not read"
        if path.suffix in _PICKLES:
            what = "pickled weights can run code and are not read"
        raise UserError(what, where=path, fix="give a run's directory", code="not-a-run")
    run = RunDirectory(path)
    config = run.read_config()
    if config.translation is not None and (target := config.translation.target_tokenizer):
        vocabularies = read_separate(path, config.model.tokenizer, target, run.fix_of)
    else:
        tokenizer = run.read_tokenizer()
        vocabularies = Vocabularies(tokenizer, tokenizer)
    weights, step, finished = _weights(run, config)
    refuse_other_shapes(config.model, config.head, weights, "config.toml", path)
    model = Model(config.model, config.head)
    checkpoint.copy_into(dict(model.named_parameters()), weights, str(path))
    return LoadedRun(
        path, config, vocabularies.source, model.to(device).eval(), checkpoint.weights_digest(weights), step, finished,
        None if vocabularies.is_joint else vocabularies.target,
    )  # fmt: skip


def open_run(path: str | Path, verb: str, device: torch.device | str) -> LoadedRun:
    """Load a run for a verb; one that cannot serve it is refused before its weights are read."""
    if (Path(path) / "config.toml").exists():
        require(RunDirectory(path).read_config().objective, verb, str(path))
    return load(path, device)


def require(objective: str, verb: str, where: str) -> None:
    """Refuse a verb that a run of this objective cannot serve, and name those that can."""
    if verb in SERVES[objective]:
        return
    *others, last = (name for name, verbs in SERVES.items() if verb in verbs)
    able = f"{', '.join(others)} or {last}" if others else last
    what = "base without a head" if objective == "base" else f"{objective} run"
    too = f" ({', '.join(SERVES[objective][1:])} too)" if SERVES[objective][1:] else ""
    fix = f"`headstart {SERVES[objective][0]}` serves it{too}; {verb} needs a {able} run"
    raise UserError(f"is a {what}: it cannot serve `headstart {verb}`", where=where, fix=fix, code="wrong-run")


def refuse_other_shapes(
    model: ModelConfig, head: HeadConfig, weights: Mapping[str, Tensor], file: str, where: str | Path = ""
) -> None:
    """Check the shapes that a file gives before anything is built: a foreign configuration may name any size."""
    values, wrong = symbols(model, head), list[str]()
    for planned in tensors(model, head):
        tensor, expected = weights.get(planned.name), shape(planned, values)
        if tensor is None or tuple(tensor.shape) != expected:
            is_now = "missing" if tensor is None else tuple(tensor.shape)
            wrong.append(f"{planned.name} is {is_now}, not {expected}")
        if len(wrong) == 10:  # there may be a billion layers
            break
    if wrong:
        what = "\n  ".join([f"the weights do not fit {file}:", *wrong])
        fix = f"bring back the {file} that belongs to these weights"
        raise IntegrityError(what, where=where, fix=fix, code="mismatch")


def _weights(run: RunDirectory, config: RunConfig) -> tuple[dict[str, Tensor], int, bool]:
    result = run.read_result()
    if result is None and run.weights_file.exists():  # the last checkpoint's need not be those
        what = "has its final weights and no result.json"
        raise IntegrityError(what, where=run.path, fix=run.fix_of(run.result_file), code="missing")
    if result is None:
        latest, _ = checkpoint.latest(run.path / "checkpoints", identity_of(config))
        if latest is None:
            raise UserError("has no weights yet", where=run.path, fix="train it first", code="missing")
        return latest.model, latest.step, False
    fix = f"run the command that trained it again; where a study did, delete {run.path} before"
    if "imported" in result:
        fix = run.fix_of(run.weights_file)
    try:
        weights = load_file(run.weights_file)
    except (SafetensorError, OSError) as error:
        form = foreign_form(run.weights_file)
        what = f"cannot be read ({f'it is {form}' if form else error})"
        raise IntegrityError(what, where=run.weights_file, fix=fix) from error
    if checkpoint.weights_digest(weights) != result["weights_sha256"]:
        what = "the weights differ from those that were written"
        raise IntegrityError(what, where=run.weights_file, fix=fix)
    return weights, int(result["step"]), True
