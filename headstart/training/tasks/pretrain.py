"""Pretraining: from files of text to a run."""

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from headstart.config.defaults import PRESET, STUDY_EPOCHS
from headstart.config.model import ModelConfig
from headstart.config.presets import preset
from headstart.config.resolve import resolved
from headstart.config.run import DataConfig, FrameName
from headstart.config.schema import takes
from headstart.config.study import PretrainPart
from headstart.config.training import MachineConfig, Masking, PretrainObjective, PretrainSettings
from headstart.data.cooccurrence import token_vectors
from headstart.data.in_memory import Given, is_one, split_for
from headstart.data.readers.documents import pieces
from headstart.data.readers.rows import Columns
from headstart.data.readers.sources import Source, Table, by_weight, checked_weight, weighted_path
from headstart.data.store_building import training_stores
from headstart.data.token_store import TokenStore
from headstart.errors import UserError
from headstart.inference.evaluate import Scores
from headstart.inference.perplexity import ngram_entropies
from headstart.machine import Machine
from headstart.model.initialise import take_token_vectors
from headstart.model.model import Model
from headstart.objectives.pretraining import pretraining_objective
from headstart.runs.directory import RunDirectory, RunResult
from headstart.runs.load import LoadedRun, load
from headstart.storage.cache import cache_directory
from headstart.tokenizers.tokenizer import Tokenizer
from headstart.training.early_stopping import check_best_metric
from headstart.training.fit import Console, Session, TrainingTask, fit, has_weights, run_config, run_session
from headstart.training.memory import first_model
from headstart.training.tasks.arguments import Call, call_of, default_out, settings_of_call, tokenizer_for
from headstart.training.tasks.default_base import with_default_base


@takes(settings_of_call(PretrainSettings, MachineConfig))
def pretrain(
    corpus: Given | Sequence[Given],
    *,
    valid: Given | None = None,
    out: str | Path | None = None,
    machine: Machine | None = None,
    console: Console | None = None,
    override_resume: bool = False,
    **given: Any,
) -> RunResult:
    """Pretrain a base on unlabelled text; calling it again resumes, or finds it finished. Returns the result.

    The corpus is one source or a list of them: paths, frames, datasets (data/in_memory.py); of a folder or DatasetDict
    with several splits, its train. Every setting of PretrainSettings, field of ModelConfig and setting of the machine
    is a keyword, as on the command line: `epochs=3, width=128, device="cpu"`.
    """
    call = call_of(PretrainSettings, given, machine)
    check_best_metric(call.settings.objective, call.settings)
    if call.settings.embedding_init != "random" and call.settings.start != "scratch":
        fix = "leave it out: the start brings its token vectors"
        raise UserError("--embedding-init with --start", fix=fix, code="conflict")
    if call.settings.unfreeze_every:
        fix = "leave it out: it is for fine-tuning a base"
        raise UserError("--unfreeze-every in pretraining", fix=fix, code="conflict")
    texts = PretrainTexts.given(corpus, valid, call.settings.text_column)
    sources = [*texts.sources, *([texts.valid] if texts.valid else [])]
    out = out or default_out("pretrain", call, sources)
    with run_session(out, call.machine, console or Console()) as session:
        return fit(build(call, texts, session), session, override_resume)


def build(call: Call[PretrainSettings], texts: "PretrainTexts", session: Session) -> TrainingTask:
    """Everything that a pretraining needs: its data, tokenizer, model and objectives."""
    given, machine, console = call.settings, session.machine, session.console
    start = load(given.start) if given.start != "scratch" else None
    data = given.part(
        DataConfig,
        corpus=[str(source) for source in texts.sources],
        weights=list(texts.weights) if set(texts.weights) - {1.0} else [],
        valid=str(texts.valid or ""),
    )
    frame: FrameName = "causal" if given.objective == "causal" else "masked"
    if frame == "masked" and start is not None and start.config.frame == "roberta":
        frame = "roberta"

    def read() -> Iterator[str]:
        return (piece.text for piece in pieces(texts.sources, data))

    tokenizer = tokenizer_for(session, given, start, read, frame, call.tokenizer, masks=given.objective != "causal")
    about = texts, data, tokenizer, given.objective, console
    stores = machine.ranks.first_then_others(lambda: _stores(*about))
    call = with_default_base(call, tokenizer.size, stores[:-1], session)
    given = call.settings
    if given.shuffled:
        stores = [store.shuffled(given.seed) for store in stores]
    model_config = _model_config(call, tokenizer, start)
    given = resolved(given, "pretraining", model_config, machine.device.type)
    batch = max(1, given.batch_tokens // given.length)
    shape = (tokenizer, given.length, batch, given.part(Masking))
    weights = list(by_weight(texts.sources, texts.weights))
    with _too_small(", ".join(data.corpus)):
        objective = pretraining_objective(given.objective, stores[:-1], *shape, weights=weights)
    with _too_small(data.valid or f"the tenth held out of {', '.join(data.corpus)}"):
        valid = pretraining_objective(given.objective, stores[-1:], *shape)
    config = run_config(
        given, start, objective, frame=frame, batch=batch, initial_seed=given.seed, model=model_config,
        data=dataclasses.replace(data, fingerprint="+".join(store.header.sha256[:16] for store in stores)),
    )  # fmt: skip
    model = first_model(config, machine, start, console.log)
    is_fresh = machine.ranks.first(lambda: _is_fresh(session.run, config.loop.steps))
    if given.embedding_init == "cooccurrence" and is_fresh:
        console.log("counting which tokens occur near each other, for their first vectors")
        vectors = token_vectors(stores[:-1], tokenizer.size, model_config.width, machine.threads)
        take_token_vectors(model, torch.from_numpy(vectors))
    text_bytes = stores[-1].header.text_bytes

    def finish(model: Model, scores: Scores | None) -> dict[str, Any]:
        found = {
            "counts": {"train": _counts(stores[:-1]), "valid": _counts(stores[-1:])},
            "entropies": ngram_entropies(stores[:-1], stores[-1], given.objective, given.part(Masking)),
        }
        if scores is None or given.objective != "causal" or not text_bytes:
            return found
        nats = scores.values["loss"] * scores.count
        return {"valid": {**scores.values, "bits_per_byte": nats / math.log(2) / text_bytes}, **found}

    def check_data() -> None:
        for store in stores:
            store.check()

    return TrainingTask(config, tokenizer, model, objective, valid, finish, check_data)


def _is_fresh(run: RunDirectory, steps: int) -> bool:
    """Whether it trains from its first weights on: without a checkpoint, and not finished."""
    if any(run.path.glob("checkpoints/step-*")):
        return False
    result = run.read_result()
    return result is None or result["steps"] < steps or not has_weights(run, result)


@contextlib.contextmanager
def _too_small(where: str) -> Iterator[None]:
    """Name the text that is not enough for one block."""
    try:
        yield
    except UserError as error:
        raise UserError(error.what, where=error.where or where, fix=error.fix, code=error.code) from error


def _counts(stores: Sequence[TokenStore]) -> dict[str, int]:
    """How much text there is."""
    return {"documents": sum(one.document_count for one in stores), "tokens": sum(map(len, stores))}


def planned_steps(
    phase: PretrainPart, data: DataConfig, objective: PretrainObjective, tokenizer: Tokenizer, console: Console
) -> tuple[int, list[TokenStore]]:
    """The steps that a phase's epochs are, and the stores to train on and to measure by: known before a run."""
    texts = PretrainTexts(data.corpus, data.weights or [1.0] * len(data.corpus), data.valid or None)
    stores = _stores(texts, data, tokenizer, objective, console)
    shape = phase.length, max(1, phase.batch_tokens // phase.length), Masking()
    weights = list(by_weight(data.corpus, data.weights))
    planned = pretraining_objective(objective, stores[:-1], tokenizer, *shape, weights=weights)
    return planned.steps_in(phase.epochs or STUDY_EPOCHS, seed=0), stores


@dataclasses.dataclass(frozen=True)
class PretrainTexts:
    """What to pretrain on, with its weights, and what to measure by."""

    sources: Sequence[Source]
    weights: Sequence[float]
    valid: Source | None

    @classmethod
    def given(cls, corpus: Given | Sequence[Given], valid: Given | None, text_column: str) -> "PretrainTexts":
        """From what a caller gives: one source or several, `FILE=WEIGHT` or (source, weight) for a weighted one."""
        several: Any = [corpus] if is_one(corpus) else corpus
        pairs = [_weighted(one) for one in several]
        sources = [_with_text(split_for(one, "train"), text_column) for one, _ in pairs]
        measured = None if valid is None else _with_text(split_for(valid, "valid"), text_column)
        return cls(sources, [weight for _, weight in pairs], measured)


def _weighted(given: Given) -> tuple[Given, float]:
    if isinstance(given, tuple):
        source, weight = given
        return source, checked_weight(weight, "")
    return weighted_path(str(given)) if isinstance(given, str | Path) else (given, 1.0)


def _with_text(source: Source, text_column: str) -> Source:
    return source.narrowed(Columns(text_column).choose) if isinstance(source, Table) else source


def _stores(
    texts: PretrainTexts, data: DataConfig, tokenizer: Tokenizer, objective: PretrainObjective, console: Console
) -> list[TokenStore]:
    """A store for each weight to train on, and at last the one to evaluate on."""
    return training_stores(
        texts.sources, texts.weights, texts.valid, tokenizer, cache_directory() / "stores", data,
        segments="sentences" if objective == "masked-nsp" else "lines", log=console.log,
    )  # fmt: skip


def _model_config(call: Call[PretrainSettings], tokenizer: Tokenizer, start: LoadedRun | None) -> ModelConfig:
    """The base for this objective: its direction is the objective's, its vocabulary the tokenizer's."""
    objective = call.settings.objective
    fields: dict[str, Any] = {
        **call.model,
        "vocab": tokenizer.size,
        "tokenizer": tokenizer.fingerprint,
        "direction": "causal" if objective == "causal" else "bidirectional",
    }
    if start is not None:
        base = dataclasses.replace(start.config.model, **fields)
    else:
        base = preset(call.settings.preset or PRESET, **fields)
    if objective == "masked-nsp" and base.segments < 2:
        base = dataclasses.replace(base, segments=2)
    return base
