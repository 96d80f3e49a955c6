"""Training a translator: an encoder-decoder, from scratch, from a base or from another translator, on pairs."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from headstart.errors import UserError
from headstart.model.model import Model, build, transfer
from headstart.model.presets import ModelConfig
from headstart.objectives.masked import Corruption
from headstart.objectives.translation import Translation, framed_side
from headstart.text.files import Reading
from headstart.text.pairs import PairedSet, read_pairs
from headstart.text.splits import label_subset, split_by_hash
from headstart.text.tokenizer import Tokenizer
from headstart.training.budget import Budget
from headstart.training.choosing import check_choice
from headstart.training.evaluate import Scores, evaluate
from headstart.training.execute import Console, execute
from headstart.training.loading import LoadedRun, load
from headstart.training.lock import RunLock
from headstart.training.loop import LoopConfig
from headstart.training.machine import Machine, choose
from headstart.training.optimizer import OptimizerConfig
from headstart.training.run_directory import DataConfig, RunConfig, RunDirectory, TranslationConfig
from headstart.training.tokenizing import DEFAULT_VOCAB, FRAME_ROLES, tokenizer_for
from headstart.training.translating import Search, Translator
from headstart.training.translation_scores import MeasuredTranslation, TranslationScores, score_pairs
from headstart.training.translation_start import StartInto, audit_by_part, shape_of, start_into_of
from headstart.training.vocabularies import Vocabularies, read_separate

VALID_SHARE = 0.1
DEFAULT_EPOCHS = 10.0
CPU_BATCH_TOKENS, GPU_BATCH_TOKENS = 2_048, 16_384
DEFAULT_SMOOTHING = 0.1
DEFAULT_WARMUP = 0.1
# As many pairs of valid are translated to measure by; the loss is over all of them.
MEASURED_PAIRS = 2_000


def default_rate(config: ModelConfig) -> float:
    """A peak rate by width: 1e-3 at 256, as the schedule of 2017 has it after 4,000 steps of warm-up."""
    return 1e-3 * (256 / config.width) ** 0.5


def train_translator(
    train: str | Path,
    *,
    out: str | Path,
    valid: str | Path | None = None,
    test: str | Path | None = None,
    pairs: int | None = None,
    start: str | Path | None = None,
    start_into: StartInto | None = None,
    preset_name: str = "transformer-tiny",
    overrides: dict[str, Any] | None = None,
    tokenizer: str | Path | Tokenizer | None = None,
    target_tokenizer: str | Path | Tokenizer | None = None,
    vocabularies: Literal["joint", "separate"] = "joint",
    vocab: int = DEFAULT_VOCAB,
    budget: Budget | None = None,
    length: int | None = None,
    batch_tokens: int | None = None,
    smoothing: float = DEFAULT_SMOOTHING,
    valid_bleu: bool = False,
    search: Search | None = None,
    encoding: str = "utf-8",
    errors: str = "strict",
    skip_bad_rows: bool = False,
    optimizer: OptimizerConfig | None = None,
    learning_rate: float | None = None,
    loop: LoopConfig | None = None,
    machine: Machine | None = None,
    override_resume: bool = False,
    console: Console | None = None,
) -> dict[str, Any]:
    """Train an encoder-decoder on pairs; calling it again goes on, or finds it finished. Returns the result.

    `pairs` trains on so many of them alone. With `valid_bleu` every evaluation on valid measures BLEU and chrF too,
    so that they can choose; at the end both are measured on valid and on test in any case, by `search`.
    """
    machine, console, budget = machine or choose(), console or Console(), budget or Budget()
    loop = loop or LoopConfig(schedule="inverse-sqrt", warmup=DEFAULT_WARMUP)
    optimizer, search = optimizer or OptimizerConfig(), search or Search()
    check_choice("translation", loop.choose_by, loop.patience)
    if loop.unfreeze_every:
        raise UserError("--unfreeze-every in translation", fix="leave it out: it is for a single stack")
    run = RunDirectory(out)
    with RunLock(run.path):  # before anything is read: a place that cannot be written is known at once
        begun = load(start) if start is not None else None
        into = start_into_of(begun, start_into)
        data = DataConfig(
            train=str(train), valid=str(valid or ""), test=str(test or ""), labels=pairs or 0, labels_seed=loop.seed,
            encoding=encoding, errors=errors, skip_bad_rows=skip_bad_rows,
        )  # fmt: skip
        sets = read_sets(data, loop.seed, console)
        shape = shape_of(preset_name, overrides or {}, begun, into)
        frame: Literal["causal", "masked"] = begun.config.frame if begun else "causal"
        words = _vocabularies(
            run, sets["train"], begun, frame, console, vocab=vocab, given=tokenizer, target=target_tokenizer,
            is_separate=vocabularies == "separate" or target_tokenizer is not None,
        )  # fmt: skip
        config = dataclasses.replace(
            shape,
            vocab=words.source.size,
            target_vocab=0 if words.is_joint else words.target.size,
            tokenizer=words.source.fingerprint,
        )
        length = min(length or config.context, config.context)
        size = batch_tokens or (CPU_BATCH_TOKENS if machine.device.type == "cpu" else GPU_BATCH_TOKENS)
        model = build(config, Translation.head, seed=loop.seed)
        translator = Translator(model, words, frame, length, machine)
        goals = {name: _objective(found, translator, size, smoothing) for name, found in sets.items()}
        measured = goals["valid"]
        if valid_bleu or loop.choose_by != "loss":
            measured = _objective(sets["valid"], translator, size, smoothing, search)
        if share := goals["train"].truncated_share:
            console.tell(f"{share:.1%} of the training pairs are cut at {length} tokens")
        settings = RunConfig(
            objective="translation",
            start=begun.digest if begun else "scratch",
            frame=frame,
            length=length,
            batch=0,
            minutes=budget.minutes or 0.0,
            initial_seed=loop.seed,
            data=dataclasses.replace(
                data, fingerprint="+".join(sets[name].fingerprint[:16] for name in ("train", "valid"))
            ),
            model=config,
            head=Translation.head,
            optimizer=dataclasses.replace(optimizer, learning_rate=learning_rate or default_rate(config)),
            loop=dataclasses.replace(loop, steps=budget.steps_for(goals["train"], loop.seed, DEFAULT_EPOCHS)),
            corruption=Corruption(),
            translation=TranslationConfig(
                batch_tokens=size,
                smoothing=smoothing,
                start_into=into or "",
                target_tokenizer="" if words.is_joint else words.target.fingerprint,
            ),
        )
        if begun is not None:
            tensors = dict(begun.model.named_parameters())
            audit = transfer(tensors, begun.config.model, model, into or "stack")
            console.tell(f"started from {begun.path}\n{audit_by_part(audit)}\n{audit}")

        def finish(model: Model, scores: Scores | None) -> dict[str, Any]:
            # Of the weights that it ends with, which need not be those that were evaluated last.
            losses = evaluate(model, goals["valid"], machine).values
            return _final_scores(translator, sets, losses, search)

        return execute(
            run, settings, words.source if words.is_joint else words, model, goals["train"], measured,
            machine, console, override=override_resume, finish=finish,
        )  # fmt: skip


def _final_scores(
    translator: Translator, sets: dict[str, PairedSet], losses: dict[str, float], search: Search
) -> dict[str, Any]:
    """BLEU and chrF on valid, and on test where there is one, with their signatures."""
    result: dict[str, Any] = {}
    for name in ("valid", "test"):
        if name in sets:
            chosen = _measured(sets[name]) if name == "valid" else sets[name]
            found = score_pairs(translator, chosen, search)
            result[name] = {**(losses if name == "valid" else {}), **found.values}
            result["signatures"] = found.signatures
    return result


def _measured(valid: PairedSet) -> PairedSet:
    return valid.subset(range(min(len(valid), MEASURED_PAIRS)))


def _objective(
    pairs: PairedSet,
    translator: Translator,
    batch_tokens: int,
    smoothing: float,
    search: Search | None = None,
) -> Translation:
    """The objective over a set; with a search it is measured by its translations too."""
    (frame, target_frame), words, length = translator.frames, translator.words, translator.length
    sources = framed_side(pairs.sources, words.source, frame, length)
    targets = framed_side(pairs.targets, words.target, target_frame, length)
    pads = (words.source.id_of("pad"), words.target.id_of("pad"))
    if search is None:
        return Translation(sources, targets, batch_tokens, *pads, smoothing)
    chosen, wanted = _measured(pairs), search

    def measure(model: Model) -> TranslationScores:
        return score_pairs(dataclasses.replace(translator, model=model), chosen, wanted)

    return MeasuredTranslation(measure, sources, targets, batch_tokens, *pads, smoothing)


def objective_over(
    run: LoadedRun, pairs: PairedSet, machine: Machine, length: int | None = None
) -> Translation:
    """The objective of a run over other pairs."""
    settings = run.config.translation
    assert settings is not None
    translator = dataclasses.replace(Translator.of(run, machine), length=length or run.config.length)
    return _objective(pairs, translator, settings.batch_tokens, settings.smoothing)


# ---- what it is made of -------------------------------------------------------------------------------------


def _vocabularies(
    run: RunDirectory,
    train: PairedSet,
    begun: LoadedRun | None,
    frame: str,
    console: Console,
    *,
    vocab: int,
    given: str | Path | Tokenizer | None,
    target: str | Path | Tokenizer | None,
    is_separate: bool,
) -> Vocabularies:
    """One tokenizer for both sides, or one for each; a start brings its own."""
    roles = FRAME_ROLES[frame]

    def made(given: str | Path | Tokenizer | None, texts: Sequence[str], vocab: int) -> Tokenizer:
        return tokenizer_for(run, given, vocab, begun, lambda: iter(texts), roles, console.tell)

    if begun is not None and (is_separate or given is not None):
        raise UserError(
            "--start with a tokenizer or with separate vocabularies",
            fix="a start brings its own tokenizer, for both sides: leave these out",
        )
    if begun is not None and not begun.vocabularies.is_joint:
        return begun.vocabularies
    if not is_separate:
        whole = made(given, [*train.sources, *train.targets], vocab)
        return Vocabularies(whole, whole)
    if run.config_file.exists() and given is None and target is None:
        before = run.read_config()
        if before.translation is not None and before.translation.target_tokenizer:
            return read_separate(run.path, before.model.tokenizer, before.translation.target_tokenizer)
    return Vocabularies(made(given, train.sources, vocab), made(target, train.targets, vocab))


def read_sets(data: DataConfig, seed: int, console: Console) -> dict[str, PairedSet]:
    """Train, valid and perhaps test; without --valid a tenth of train is split off by the hash of the source."""

    def read(path: str) -> PairedSet:
        reading = Reading(data.encoding, data.errors)
        return read_pairs(path, reading=reading, skip_bad_rows=data.skip_bad_rows)

    whole = read(data.train)
    if data.valid:
        sets = {"train": whole, "valid": read(data.valid)}
    else:
        split = split_by_hash(whole.sources, [0.0] * len(whole), VALID_SHARE, seed)
        sets = {"train": whole.subset(split.kept), "valid": whole.subset(split.held_out)}
    if data.labels:
        train = sets["train"]
        chosen = label_subset([0.0] * len(train), train.sources, data.labels, data.labels_seed)
        sets["train"] = train.subset(chosen)
    if data.test:
        sets["test"] = read(data.test)
    for name, pairs in sets.items():
        if pairs.skipped.counts:
            console.tell(f"{name}: {pairs.skipped.summary()}")
    return sets
