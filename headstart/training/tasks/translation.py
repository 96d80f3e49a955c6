"""Training a translator: an encoder-decoder, from scratch, from a base or from another translator, on pairs."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

from headstart.config.defaults import TRANSLATION_PRESET
from headstart.config.generation import GenerationConfig
from headstart.config.model import ModelConfig
from headstart.config.presets import preset
from headstart.config.resolve import resolved
from headstart.config.run import DataConfig, FrameName, TranslationConfig
from headstart.config.training import FinetuneSettings, StartInto
from headstart.data.labelled import PairedSet, evenly_spread, read_pairs
from headstart.errors import UserError
from headstart.inference.evaluate import Scores, evaluate, score_pairs, with_corpus_metrics
from headstart.inference.metrics import TranslationScores
from headstart.inference.translate import Translator
from headstart.model.model import Model
from headstart.objectives.translation import translation_objective
from headstart.runs.load import LoadedRun, load
from headstart.tokenizers.tokenizer import SOURCE_FILE, TARGET_FILE, Tokenizer, Vocabularies, read_separate
from headstart.training.fit import Session, TrainingTask, run_config
from headstart.training.memory import first_model
from headstart.training.tasks.arguments import Call, Sources, read_sets, tokenizer_for

GPU_LENGTH_MULTIPLE = 4  # on Multi30k some 25 shapes of batches, and 84 % of them text

# As many pairs of valid are translated to score by, at the end and while training; the loss is over all of them.
SCORED_PAIRS, SAMPLED_PAIRS = 2_000, 200


def build(call: Call[FinetuneSettings], sources: Sources, session: Session) -> TrainingTask:
    """Everything that a translator needs: its pairs, tokenizers, model and objectives."""
    given, machine, console = call.settings, session.machine, session.console
    generation = GenerationConfig(beam=given.beam, length_penalty=given.length_penalty)
    start = load(given.start) if given.start != "scratch" else None
    into = start_into_of(start, given.start_into)
    seed = given.seed if given.labels_seed == -1 else given.labels_seed
    data = given.part(DataConfig, **{role: str(source) for role, source in sources.items()}, labels_seed=seed)
    read, keys = partial(read_pairs, reading=data), lambda pairs: (pairs.sources, [0.0] * len(pairs))
    sets = read_sets(sources, read, keys, given, console.log)
    shape = shape_of(call, start, into)
    frame: FrameName = start.config.frame if start else "causal"
    vocabularies = _vocabularies(call, session, sets["train"], start, frame)
    own_vocab = 0 if vocabularies.is_joint else vocabularies.target.size
    base = dataclasses.replace(
        shape, vocab=vocabularies.source.size, tokenizer=vocabularies.source.fingerprint,
        # Two tokenizers of a start may share their ids, and so one embedding.
        target_vocab=shape.target_vocab if start else own_vocab,
    )  # fmt: skip
    given = resolved(given, "translation", base, machine.device.type)
    multiple = 1 if machine.device.type == "cpu" else GPU_LENGTH_MULTIPLE
    batches = given.length, given.batch_tokens, given.label_smoothing, multiple, given.r_drop
    shared = vocabularies, frame, *batches
    train, valid = (translation_objective(sets[name], *shared) for name in ("train", "valid"))
    if truncated := train.truncated_share:
        console.log(f"{truncated:.1%} of the training pairs are truncated at {given.length} tokens")
    fingerprints = [sets[name].fingerprint[:16] for name in ("train", "valid")]
    config = run_config(
        given, start, train, objective="translation", frame=frame, model=base,
        data=dataclasses.replace(data, fingerprint="+".join(fingerprints)),
        translation=given.part(
            TranslationConfig, start_into=into, vocabularies="joint" if vocabularies.is_joint else "separate",
            target_tokenizer="" if vocabularies.is_joint else vocabularies.target.fingerprint,
        ),
    )  # fmt: skip
    model = first_model(config, machine, start, console.log, into or "stack")
    scored_pairs = evenly_spread(sets["valid"], SCORED_PAIRS)
    if len(scored_pairs) < len(sets["valid"]):
        console.log(
            f"BLEU and chrF on valid are over {len(scored_pairs):,} of its {len(sets['valid']):,} pairs, "
            "spread evenly; the loss is over all of them"
        )

    def scored(model: Model, pairs: PairedSet = scored_pairs) -> TranslationScores:
        return score_pairs(Translator(model, vocabularies, frame, given.length, machine), pairs, generation)

    def finish(model: Model, scores: Scores | None) -> dict[str, Any]:
        # Of the final weights, which need not be those that were evaluated last.
        losses, translations = evaluate(model, valid, machine.alone).values, scored(model)
        test_scores = {"test": scored(model, sets["test"]).values} if "test" in sets else {}
        return {
            "valid": {**losses, **translations.values}, **test_scores, "signatures": translations.signatures,
            "counts": {name: {"pairs": len(pairs)} for name, pairs in sets.items()},
        }  # fmt: skip

    measured = valid
    if given.valid_bleu or given.best_metric in ("bleu", "chrf"):
        sample = evenly_spread(scored_pairs, SAMPLED_PAIRS)
        if len(sample) < len(scored_pairs):
            console.log(f"BLEU and chrF are over {len(sample):,} pairs of valid while training")
        measured = with_corpus_metrics(valid, lambda model, machine: scored(model, sample).values)
    return TrainingTask(config, vocabularies, model, train, measured, finish)


def _vocabularies(
    call: Call[FinetuneSettings], session: Session, train: PairedSet, start: LoadedRun | None, frame: str
) -> Vocabularies:
    """One tokenizer for both sides, or one for each; a start brings its own."""
    given, run = call.settings, session.run
    is_separate = bool(given.vocabularies == "separate" or given.target_tokenizer or call.target_tokenizer)

    def made(texts: Sequence[str], in_memory: Tokenizer | None = None, path: str = "") -> Tokenizer:
        part = dataclasses.replace(given, tokenizer=path)
        return tokenizer_for(session, part, start, lambda: iter(texts), frame, in_memory)

    if start is not None and (is_separate or given.tokenizer or call.tokenizer):
        what = "--start with a tokenizer or with separate vocabularies"
        raise UserError(what, fix="a start brings its own tokenizer, for both sides: leave these out", code="conflict")
    if start is not None and not start.vocabularies.is_joint:
        return start.vocabularies
    if not is_separate:
        joint = made([*train.sources, *train.targets], call.tokenizer, given.tokenizer)
        return Vocabularies(joint, joint)
    source, target = call.tokenizer, call.target_tokenizer
    has_both = (source or given.tokenizer) and (target or given.target_tokenizer)
    if run.config_file.exists() and not has_both:
        before = run.read_config()
        has_own = all((run.path / name).exists() for name in (SOURCE_FILE, TARGET_FILE))
        if has_own and before.translation is not None and before.translation.target_tokenizer:
            own = read_separate(run.path, before.model.tokenizer, before.translation.target_tokenizer, run.fix_of)
            source = source or (None if given.tokenizer else own.source)
            target = target or (None if given.target_tokenizer else own.target)
    own_source = made(train.sources, source, given.tokenizer)
    return Vocabularies(own_source, made(train.targets, target, given.target_tokenizer))


def start_into_of(start: LoadedRun | None, given: StartInto) -> StartInto:
    """Which stack a single one becomes; another encoder-decoder is taken as it is."""
    is_single = start is not None and not start.config.model.decoder_depth
    if given and not is_single:
        what = f"--start-into={given} with a start from {'scratch' if start is None else 'a translation run'}"
        fix = "leave it out: it says which stack the single one of a pretrained base becomes"
        raise UserError(what, fix=fix, code="conflict")
    return (given or "encoder") if is_single else ""


def shape_of(call: Call[FinetuneSettings], start: LoadedRun | None, into: StartInto) -> ModelConfig:
    """The preset's encoder-decoder, or the start's; a single stack gets a decoder, or an encoder, of the same shape."""
    if start is None:
        config = preset(call.settings.preset or TRANSLATION_PRESET, **call.model)
    else:
        base = start.config.model
        own = {"decoder_depth": base.depth, "direction": "bidirectional"} if into else {}
        config = dataclasses.replace(base, **{**own, **call.model})
    if not config.decoder_depth:
        name = call.settings.preset
        what = f"the preset {name} is a single stack, and translation needs an encoder and a decoder"
        raise UserError(what, fix="--preset=transformer-tiny, or --decoder-depth N", code="conflict")
    return config
