"""Training a translator: an encoder-decoder, from scratch, from a base or from another translator, on pairs."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from headstart.errors import UserError
from headstart.model.model import Model, transfer
from headstart.model.presets import ModelConfig
from headstart.objectives.masked import Corruption
from headstart.objectives.translation import Translation, framed_side
from headstart.objectives.twice import check_weight
from headstart.text.files import Reading
from headstart.text.frames import FrameName, frame_of, target_frame_of
from headstart.text.pairs import PairedSet, read_pairs
from headstart.text.splits import label_subset, split_by_hash
from headstart.text.tokenizer import Tokenizer
from headstart.training.budget import Budget
from headstart.training.choosing import check_choice
from headstart.training.evaluate import Scores, evaluate
from headstart.training.execute import Console, execute, held
from headstart.training.loading import LoadedRun, load
from headstart.training.loop import LoopConfig
from headstart.training.machine import Machine, choose
from headstart.training.memory import first_model
from headstart.training.optimizer import OptimizerConfig
from headstart.training.ranks import ALONE, Ranks
from headstart.training.run_directory import DataConfig, RunConfig, RunDirectory, TranslationConfig
from headstart.training.tokenizing import DEFAULT_VOCAB, FRAME_ROLES, tokenizer_for
from headstart.training.translating import Search, Translator
from headstart.training.translation_scores import MeasuredTranslation, TranslationScores, score_pairs
from headstart.training.translation_start import StartInto, audit_by_part, shape_of, start_into_of
from headstart.training.vocabularies import Vocabularies, read_separate

VALID_SHARE = 0.1
DEFAULT_EPOCHS = 10.0
CPU_BATCH_TOKENS, GPU_BATCH_TOKENS = 2_048, 16_384
GPU_LENGTH_MULTIPLE = 4  # on Multi30k some 25 shapes of batches, and 84 % of them text
DEFAULT_SMOOTHING = 0.1
DEFAULT_PRESET = "transformer-tiny"
DEFAULT_LOOP = LoopConfig(schedule="inverse-sqrt", warmup=0.1)
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
    preset_name: str = DEFAULT_PRESET,
    overrides: dict[str, Any] | None = None,
    tokenizer: str | Path | Tokenizer | None = None,
    target_tokenizer: str | Path | Tokenizer | None = None,
    vocabularies: Literal["joint", "separate"] = "joint",
    vocab: int = DEFAULT_VOCAB,
    budget: Budget | None = None,
    length: int | None = None,
    batch_tokens: int | None = None,
    smoothing: float = DEFAULT_SMOOTHING,
    r_drop: float = 0.0,
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
    so that they can choose; at the end both are measured on valid and on test in any case, by `search`. With `r_drop`
    each pair is read twice with different dropout, and their disagreement added so many times to the loss.
    """
    machine, console, budget = machine or choose(), console or Console(), budget or Budget()
    optimizer, loop, search = optimizer or OptimizerConfig(), loop or DEFAULT_LOOP, search or Search()
    check_weight(r_drop)
    check_choice("translation", loop.choose_by, loop.patience, loop.evaluate_every)
    if loop.unfreeze_every:
        raise UserError("--unfreeze-every in translation", fix="leave it out: it is for a single stack")
    run = RunDirectory(out)
    # Before anything is read: a place that cannot be written is known at once.
    with held(run, machine, console) as console:
        begun = load(start) if start is not None else None
        into = start_into_of(begun, start_into)
        data = DataConfig(
            train=str(train), valid=str(valid or ""), test=str(test or ""), labels=pairs or 0, labels_seed=loop.seed,
            encoding=encoding, errors=errors, skip_bad_rows=skip_bad_rows,
        )  # fmt: skip
        sets = read_sets(data, loop.seed, console)
        shape = shape_of(preset_name, overrides or {}, begun, into)
        frame: FrameName = begun.config.frame if begun else "causal"
        words = _vocabularies(
            run, sets["train"], begun, frame, console, vocab=vocab, given=tokenizer, target=target_tokenizer,
            is_separate=vocabularies == "separate" or target_tokenizer is not None, ranks=machine.ranks,
        )  # fmt: skip
        config = dataclasses.replace(
            shape,
            vocab=words.source.size,
            # Two tokenizers of a start may share their ids, and so one embedding.
            target_vocab=shape.target_vocab if begun else 0 if words.is_joint else words.target.size,
            tokenizer=words.source.fingerprint,
        )
        length = min(length or config.context, config.context)
        size = batch_tokens or (CPU_BATCH_TOKENS if machine.device.type == "cpu" else GPU_BATCH_TOKENS)
        multiple = 1 if machine.device.type == "cpu" else GPU_LENGTH_MULTIPLE
        goals = {
            name: _objective(sets[name], words, frame, length, size, smoothing, multiple, r_drop)
            for name in ("train", "valid")
        }
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
            r_drop=r_drop,
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
                beam=search.beam.beams,
                length_penalty=search.beam.length_penalty,
            ),
        )
        model = first_model(settings, machine)
        if begun is not None:
            tensors = dict(begun.model.named_parameters())
            audit = transfer(tensors, begun.config.model, model, into or "stack")
            console.tell(f"started from {begun.path}\n{audit_by_part(audit)}\n{audit}")

        measured_pairs = spread(sets["valid"], MEASURED_PAIRS)
        if len(measured_pairs) < len(sets["valid"]):
            console.tell(
                f"BLEU and chrF on valid are over {len(measured_pairs):,} of its {len(sets['valid']):,} pairs, "
                "spread evenly; the loss is over all of them"
            )

        def measure(model: Model, pairs: PairedSet = measured_pairs) -> TranslationScores:
            return score_pairs(Translator(model, words, frame, length, machine), pairs, search)

        def finish(model: Model, scores: Scores | None) -> dict[str, Any]:
            # Of the weights that it ends with, which need not be those that were evaluated last.
            losses, found = evaluate(model, goals["valid"], machine.alone).values, measure(model)
            test_scores = {"test": measure(model, sets["test"]).values} if "test" in sets else {}
            return {
                "valid": {**losses, **found.values}, **test_scores, "signatures": found.signatures,
                "counts": {name: {"pairs": len(pairs)} for name, pairs in sets.items()},
            }  # fmt: skip

        by_translations = valid_bleu or loop.choose_by in ("bleu", "chrf")
        return execute(
            run, settings, words, model, goals["train"],
            MeasuredTranslation(goals["valid"], measure) if by_translations else goals["valid"],
            machine, console, override=override_resume, finish=finish,
        )  # fmt: skip


def spread(pairs: PairedSet, count: int) -> PairedSet:
    """So many pairs, evenly over the set: files are often in an order."""
    count = min(count, len(pairs))
    return pairs.subset([row * len(pairs) // count for row in range(count)])


def _objective(
    pairs: PairedSet,
    words: Vocabularies,
    frame: FrameName,
    length: int,
    batch_tokens: int,
    smoothing: float,
    multiple: int = 1,
    r_drop: float = 0.0,
) -> Translation:
    sources = framed_side(pairs.sources, words.source, frame_of(words.source, frame), length)
    targets = framed_side(pairs.targets, words.target, target_frame_of(words.target, frame), length)
    pads = words.source.id_of("pad"), words.target.id_of("pad")
    return Translation(sources, targets, batch_tokens, *pads, smoothing, multiple, r_drop)


def objective_over(run: LoadedRun, pairs: PairedSet, length: int) -> Translation:
    """The objective of a run over other pairs, which may be longer than those that it was trained on."""
    settings = run.config.translation
    assert settings is not None
    batch_tokens = max(settings.batch_tokens, 2 * length)
    return _objective(pairs, run.vocabularies, run.config.frame, length, batch_tokens, settings.smoothing)


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
    ranks: Ranks = ALONE,
) -> Vocabularies:
    """One tokenizer for both sides, or one for each; a start brings its own."""
    roles = FRAME_ROLES[frame]

    def made(given: str | Path | Tokenizer | None, texts: Sequence[str], vocab: int) -> Tokenizer:
        return tokenizer_for(run, given, vocab, begun, lambda: iter(texts), roles, console.tell, ranks)

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
    if run.config_file.exists() and (given is None or target is None):
        before = run.read_config()
        if before.translation is not None and before.translation.target_tokenizer:
            own = read_separate(run.path, before.model.tokenizer, before.translation.target_tokenizer)
            given, target = given or own.source, target or own.target
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
        if not split.held_out:
            raise UserError(
                "no pair can be held out for valid: all of them have the same source",
                where=data.train,
                fix="give --valid, or more pairs",
            )
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
