"""Pretraining: from files of text to a run."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from headstart.errors import UserError
from headstart.model.model import Model, transfer
from headstart.model.presets import ModelConfig, preset
from headstart.objectives.causal import Causal
from headstart.objectives.masked import Corruption, Corruptor, Masked
from headstart.objectives.next_sentence import MaskedNextSentence
from headstart.objectives.objective import Objective
from headstart.text.cache import cache_directory
from headstart.text.documents import Documents, pieces
from headstart.text.frames import FrameName, causal_frame, masked_frame
from headstart.text.holdout import Part
from headstart.text.in_memory import Given, is_one, split_for
from headstart.text.mixture import MixedBlocks, MixedPairs, by_weight, weighted_path
from headstart.text.normalising import Normalisation
from headstart.text.packing import PackedBlocks
from headstart.text.rows import Columns
from headstart.text.sentence_pairs import SentencePairs
from headstart.text.sources import Source, Table
from headstart.text.store import TokenStore
from headstart.text.store_building import build_store
from headstart.text.tokenizer import Tokenizer
from headstart.training.budget import Budget
from headstart.training.choosing import check_choice
from headstart.training.evaluate import Scores
from headstart.training.execute import Console, execute, held
from headstart.training.loading import LoadedRun, load
from headstart.training.loop import LoopConfig
from headstart.training.machine import Machine, choose
from headstart.training.memory import first_model
from headstart.training.optimizer import OptimizerConfig
from headstart.training.run_directory import DataConfig, RunConfig, RunDirectory
from headstart.training.tokenizing import DEFAULT_VOCAB, FRAME_ROLES, tokenizer_for

PretrainObjective = Literal["causal", "masked", "masked-nsp"]
CPU_BATCH_TOKENS, GPU_BATCH_TOKENS = 1_024, 65_536


def default_rate(config: ModelConfig) -> float:
    """A peak rate by width: 3e-3 at 128, 8e-4 at 768; a third of it where norms come after the residual sum.

    At a third of it, the base of the embedded corpus learned its grammar but not its sentiment (docs/findings.md).
    """
    return 3e-3 * (128 / config.width) ** 0.75 / (3 if config.norm_place == "post" else 1)


def pretrain(
    corpus: Given | Sequence[Given],
    *,
    out: str | Path,
    objective: PretrainObjective = "causal",
    valid: Given | None = None,
    preset_name: str = "tiny",
    overrides: dict[str, Any] | None = None,
    tokenizer: str | Path | Tokenizer | None = None,
    vocab: int = DEFAULT_VOCAB,
    normalise: Sequence[Normalisation] = (),
    start: str | Path | None = None,
    budget: Budget | None = None,
    length: int | None = None,
    batch_tokens: int | None = None,
    documents: Documents = "auto",
    text_column: str = "text",
    encoding: str = "utf-8",
    errors: str = "strict",
    skip_bad_rows: bool = False,
    optimizer: OptimizerConfig | None = None,
    learning_rate: float | None = None,
    loop: LoopConfig | None = None,
    corruption: Corruption | None = None,
    shuffled: bool = False,
    machine: Machine | None = None,
    override_resume: bool = False,
    console: Console | None = None,
) -> dict[str, Any]:
    """Train a base on unlabelled text; calling it again goes on, or finds it finished. Returns the result.

    The corpus is one thing to read from or a list of them: paths, frames, datasets (text/in_memory.py); of a folder
    or DatasetDict with several splits, its train. With `shuffled` the tokens come in an order that means nothing: a
    control, which learns no language. `normalise` is for a tokenizer that is trained now (text/normalising.py).
    """
    machine, console, budget = machine or choose(), console or Console(), budget or Budget()
    loop, optimizer = loop or LoopConfig(schedule="cosine", warmup=0.05), optimizer or OptimizerConfig()
    corruption = corruption or Corruption()
    check_choice(objective, loop.choose_by, loop.patience, loop.evaluate_every)
    if loop.unfreeze_every:
        raise UserError("--unfreeze-every in pretraining", fix="leave it out: it is for fine-tuning a base")
    run = RunDirectory(out)
    # Before anything is read: a place that cannot be written is known at once.
    with held(run, machine, console) as console:
        begun = load(start) if start is not None else None
        texts = Texts.given(corpus, valid, text_column)
        data = DataConfig(
            corpus=[str(source) for source in texts.sources],
            weights=list(texts.weights) if set(texts.weights) - {1.0} else [],
            valid=str(texts.valid or ""), documents=documents, text_column=text_column, encoding=encoding,
            errors=errors, skip_bad_rows=skip_bad_rows, shuffled=shuffled,
        )  # fmt: skip
        frame: FrameName = "causal" if objective == "causal" else "masked"
        if frame == "masked" and begun is not None and begun.config.frame == "roberta":
            frame = "roberta"
        roles = (*FRAME_ROLES[frame], *(() if objective == "causal" else ("mask",)))
        words = tokenizer_for(
            run, tokenizer, vocab, begun, lambda: (piece.text for piece in _pieces(texts, data)), roles,
            console.tell, machine.ranks, normalise,
        )  # fmt: skip
        stores = machine.ranks.first_then_others(lambda: _stores(texts, data, words, objective, console))
        if shuffled:
            stores = [store.shuffled(loop.seed) for store in stores]
        config = _model_config(preset_name, overrides or {}, words, begun, objective)
        rate = learning_rate or default_rate(config)
        length = min(length or config.context, config.context)
        size = (
            batch_tokens or (CPU_BATCH_TOKENS if machine.device.type == "cpu" else GPU_BATCH_TOKENS)
        ) // length
        shape = (words, length, max(1, size), corruption)
        goals = [
            make_objective(
                objective, stores[:-1], *shape, weights=list(by_weight(texts.sources, texts.weights))
            ),
            make_objective(objective, stores[-1:], *shape),
        ]
        loop = dataclasses.replace(loop, steps=budget.steps_for(goals[0], loop.seed, default_epochs=1.0))
        settings = RunConfig(
            objective=objective,
            start=begun.digest if begun else "scratch",
            frame=frame,
            length=length,
            batch=max(1, size),
            minutes=budget.minutes or 0.0,
            initial_seed=loop.seed,
            data=dataclasses.replace(
                data, fingerprint="+".join(store.header.sha256[:16] for store in stores)
            ),
            model=config,
            head=goals[0].head,
            optimizer=dataclasses.replace(optimizer, learning_rate=rate),
            loop=loop,
            corruption=corruption,
        )
        model = first_model(settings, machine)
        if begun is not None:
            audit = transfer(dict(begun.model.named_parameters()), begun.config.model, model)
            console.tell(f"started from {begun.path}\n{audit}")
        text_bytes = stores[-1].header.text_bytes

        def finish(model: Model, scores: Scores | None) -> dict[str, Any]:
            counts = {"train": _counts(stores[:-1]), "valid": _counts(stores[-1:])}
            if scores is None or objective != "causal" or not text_bytes:
                return {"counts": counts}
            nats = scores.values["loss"] * scores.count
            valid = {**scores.values, "bits_per_byte": nats / math.log(2) / text_bytes}
            return {"valid": valid, "counts": counts}

        return execute(
            run, settings, words, model, goals[0], goals[1], machine, console,
            override=override_resume, finish=finish,
        )  # fmt: skip


def _counts(stores: Sequence[TokenStore]) -> dict[str, int]:
    """How much text there is."""
    return {
        "documents": sum(store.document_count for store in stores),
        "tokens": sum(len(store) for store in stores),
    }


def make_objective(
    name: PretrainObjective,
    stores: Sequence[TokenStore],
    tokenizer: Tokenizer,
    length: int,
    batch: int,
    corruption: Corruption,
    *,
    weights: Sequence[float] = (1.0,),
) -> Objective:
    """The objective over a store, or several of different weight; the cuts between blocks move in every epoch."""
    frame = (causal_frame if name == "causal" else masked_frame)(tokenizer)
    is_mixed = list(weights) != [1.0]
    if name == "masked-nsp":
        pairs = [SentencePairs(store, length, frame) for store in stores]
        chosen = MixedPairs(pairs, weights) if is_mixed else pairs[0]
        return MaskedNextSentence(chosen, batch, Corruptor(tokenizer, corruption), tokenizer.id_of("pad"))
    sources = [PackedBlocks(store, length, frame, shift=True) for store in stores]
    blocks = MixedBlocks(sources, weights) if is_mixed else sources[0]
    return (
        Causal(blocks, batch) if name == "causal" else Masked(blocks, batch, Corruptor(tokenizer, corruption))
    )


def planned_steps(
    data: DataConfig,
    objective: PretrainObjective,
    tokenizer: Tokenizer,
    *,
    epochs: float,
    length: int,
    batch_tokens: int,
    console: Console,
) -> tuple[int, list[TokenStore]]:
    """The steps that so many epochs are, and the stores to train on and to measure by: known before a run."""
    stores = _stores(Texts.named(data), data, tokenizer, objective, console)
    goal = make_objective(
        objective, stores[:-1], tokenizer, length, max(1, batch_tokens // length), Corruption(),
        weights=list(by_weight(data.corpus, data.weights)),
    )  # fmt: skip
    return goal.steps_in(epochs, seed=0), stores


@dataclasses.dataclass(frozen=True)
class Texts:
    """What to pretrain on, with its weights, and what to measure by."""

    sources: Sequence[Source]
    weights: Sequence[float]
    valid: Source | None

    @classmethod
    def given(cls, corpus: Given | Sequence[Given], valid: Given | None, text_column: str) -> "Texts":
        """From what a caller gives: one source or several, `FILE=WEIGHT` or (source, weight) for a weighted one."""
        pairs = [_weighted(one) for one in ([corpus] if is_one(corpus) else corpus)]
        sources = [_with_text(split_for(one, "train"), text_column) for one, _ in pairs]
        measured = None if valid is None else _with_text(split_for(valid, "valid"), text_column)
        return cls(sources, [weight for _, weight in pairs], measured)

    @classmethod
    def named(cls, data: DataConfig) -> "Texts":
        """From the files that a run's settings name."""
        return cls(data.corpus, data.weights or [1.0] * len(data.corpus), data.valid or None)


def _weighted(given: Given) -> tuple[Given, float]:
    if isinstance(given, tuple):
        source, weight = given
        if not (math.isfinite(weight) and weight > 0):
            raise UserError(f"a weight of {weight}", fix="give a number over 0, or leave the source out")
        return source, float(weight)
    return weighted_path(str(given)) if isinstance(given, str | Path) else (given, 1.0)


def _with_text(source: Source, text_column: str) -> Source:
    return source.narrowed(Columns(text_column)) if isinstance(source, Table) else source


def _pieces(texts: Texts, data: DataConfig) -> Any:
    return pieces(
        texts.sources, documents=data.documents, text_column=data.text_column,  # type: ignore[arg-type]
        encoding=data.encoding, errors=data.errors, skip_bad_rows=data.skip_bad_rows,
    )  # fmt: skip


def _stores(
    texts: Texts, data: DataConfig, tokenizer: Tokenizer, objective: PretrainObjective, console: Console
) -> list[TokenStore]:
    """A store for each weight to train on, and at last the one to measure by.

    That is --valid, else a tenth of the documents by their hash.
    """

    def built(sources: Sequence[Source], part: Part) -> TokenStore:
        return build_store(
            sources, tokenizer, cache_directory() / "stores",
            segments="sentences" if objective == "masked-nsp" else "lines", part=part,
            documents=data.documents, text_column=data.text_column,  # type: ignore[arg-type]
            encoding=data.encoding, errors=data.errors, skip_bad_rows=data.skip_bad_rows, on_note=console.tell,
        )  # fmt: skip

    groups = list(by_weight(texts.sources, texts.weights).values())
    if texts.valid:
        return [*(built(sources, "all") for sources in groups), built([texts.valid], "all")]
    everything = built(texts.sources, "all")
    if everything.document_count >= 20:
        return [*(built(sources, "kept") for sources in groups), built(texts.sources, "held out")]
    if len(groups) > 1:
        raise UserError(
            f"{everything.document_count} documents of different weight are too few to hold some out",
            fix="give --valid",
        )
    return list(everything.cut_at(0.9))  # too few to part by their hash: the end of the text is held out


def _model_config(
    preset_name: str,
    overrides: dict[str, Any],
    tokenizer: Tokenizer,
    begun: LoadedRun | None,
    objective: PretrainObjective,
) -> ModelConfig:
    """The base for this objective: its direction is the objective's, its vocabulary the tokenizer's."""
    own: dict[str, Any] = {
        "vocab": tokenizer.size,
        "tokenizer": tokenizer.fingerprint,
        "direction": "causal" if objective == "causal" else "bidirectional",
    }
    if begun is not None:
        given = {key: value for key, value in overrides.items() if value is not None}
        base = dataclasses.replace(begun.config.model, **{**given, **own})
    else:
        base = preset(preset_name, **{**overrides, **own})
    if objective == "masked-nsp" and base.segments < 2:
        base = dataclasses.replace(base, segments=2)
    return base
