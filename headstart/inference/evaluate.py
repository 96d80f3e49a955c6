"""Scores of a model over a set, and of a run on other data than it was trained on."""

import copy
import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from headstart.config.generation import BEAM_OF_FIVE, GenerationConfig
from headstart.config.reading import Reading
from headstart.data.in_memory import Given, source_of
from headstart.data.labelled import LabelledSet, PairedSet, read_labelled, read_pairs, refuse_other_pairs
from headstart.data.labels import LabelMap
from headstart.data.store_building import build_stores
from headstart.data.token_store import TokenStore
from headstart.errors import Log
from headstart.inference.class_scores import LabelReport, report_of
from headstart.inference.metrics import SCORES, TranslationScores, bleu_and_chrf
from headstart.inference.mistakes import Mistake, mistakes_in
from headstart.inference.perplexity import LARGEST_LOSS, batch_for, check_length, fitting_length, language_scores
from headstart.inference.predict import OnShare, outputs_of
from headstart.inference.translate import Translator, texts_of
from headstart.machine import Machine
from headstart.model.model import Model
from headstart.objectives.batches import to_device
from headstart.objectives.classification import Classification, classification_objective, evaluation_batch
from headstart.objectives.objective import LossModule, Objective
from headstart.objectives.pretraining import pretraining_objective
from headstart.objectives.translation import translation_objective
from headstart.runs.load import LoadedRun, require
from headstart.runs.shards import is_shard, whole_model
from headstart.runs.study_model import StudyModel
from headstart.storage.cache import cache_directory
from headstart.tokenizers.templates import template_of

OnExamples = Callable[[int], None]
WORST = 10  # of the mistakes, in an answer


@dataclass(frozen=True)
class Scores:
    """Means over the whole set."""

    values: dict[str, float]
    count: int


def evaluate(
    model: Model, objective: Objective, machine: Machine, on_examples: OnExamples = lambda done: None,
    losses: nn.Module | None = None,
) -> Scores:  # fmt: skip
    """Every example once; `on_examples` gets how many are done, `losses` is the model of several ranks."""
    was_training, ranks = model.training, machine.ranks
    model.eval()
    losses = LossModule(model) if losses is None else getattr(losses, "module", losses)
    is_sharded = any(is_shard(parameter) for parameter in model.parameters())
    sums, done = dict[str, tuple[float, float]](), 0
    # What is gathered in inference mode could never be trained again.
    with torch.no_grad() if is_sharded else torch.inference_mode():
        for batch, is_counted in ranks.shared(objective.evaluation()):
            with machine.autocast():
                _, log = losses(objective, to_device(batch, machine.device))
            for key, (total, count) in log.items():
                before = sums.setdefault(key, (0.0, 0.0))
                if is_counted:
                    sums[key] = before[0] + float(total), before[1] + float(count)
            done += len(batch["tokens"])
            on_examples(done)
    if ranks.is_joined:
        flat = ranks.sum(torch.tensor(list(sums.values()), dtype=torch.float64))
        sums = {key: (total, count) for key, (total, count) in zip(sums, flat.tolist(), strict=True)}
    values = {key: total / max(count, 1.0) for key, (total, count) in sums.items()}
    if objective.corpus_metrics is not None:  # ranks cannot share these: the first computes them for all
        alone, measure = whole_model(model, machine), torch.inference_mode()(objective.corpus_metrics)
        values |= ranks.first(lambda: measure(alone, machine.alone))
    model.train(was_training)
    return Scores(values, int(sums["loss"][1]))


AnyObjective = TypeVar("AnyObjective", bound=Objective)


def with_corpus_metrics(objective: AnyObjective, measure: Callable[[Model, Machine], dict[str, float]]) -> AnyObjective:
    """The same objective with more metrics in its evaluation, to choose the best weights by one of them."""
    measured = copy.copy(objective)
    measured.corpus_metrics = measure
    return measured


def labelled_scores(model: Model, objective: Classification, machine: Machine) -> dict[str, float]:
    """The metrics of the task over a labelled set."""
    return dict(SCORES[objective.head.kind](outputs_of(model, objective, machine), objective.targets))


def score_pairs(translator: Translator, pairs: PairedSet, config: GenerationConfig) -> TranslationScores:
    """Translate the sources of a set and compare with its targets."""
    return bleu_and_chrf(texts_of(translator.translate(pairs.sources, config)), pairs.targets)


# ---- a run on other data ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Evaluation:
    """Scores over a set, shares as fractions; `count` is of predicted tokens, or of rows."""

    metrics: dict[str, float]
    count: int
    details: dict[str, Any] = dataclasses.field(default_factory=dict, repr=False)
    labels: list[str] = dataclasses.field(default_factory=list)
    report: LabelReport = dataclasses.field(default_factory=lambda: LabelReport({}), repr=False)
    mistakes: list[Mistake] = dataclasses.field(default_factory=list, repr=False)
    """The wrong answers of a fine-tuned run, those that it was surest of first."""

    def as_json(self) -> dict[str, Any]:
        """As plain values, with the worst of the mistakes."""
        known: dict[str, Any] = {"metrics": self.metrics, "count": self.count, **self.details}
        if self.report.intervals:
            known["intervals"] = self.report.intervals
            known["mistakes"] = [one._asdict() for one in self.mistakes[:WORST]]
        if self.report.classes:
            known["classes"] = [one._asdict() for one in self.report.classes]
        if self.report.confusion:
            known["confusion"] = {"labels": self.labels, "counts": self.report.confusion}
        return known


def evaluate_run(
    run: LoadedRun | StudyModel, data: Given, machine: Machine, *, length: int | None = None,
    generation: GenerationConfig = BEAM_OF_FIVE, reading: Reading | None = None,
    log: Log = lambda line: None, on_share: OnShare = lambda share: None,
) -> Evaluation:  # fmt: skip
    """The scores of a run on a corpus, on labelled rows if it was fine-tuned, or on pairs if it translates.

    `length` is the number of tokens to read at once (default: the trained one); a causal run then also gives the
    loss by position. `generation` says how to translate, `reading` how to read the file (default: as the run's own
    data). `on_share` is called with the share that is done.
    """
    objective = run.config.objective
    require(objective, "evaluate", str(run.path))
    if isinstance(run, StudyModel):
        rows = labelled_set(run, data, reading, log)
        targets = LabelMap(tuple(run.config.label_names)).ids(rows)
        found = []
        for number, network in enumerate(run.networks):

            def share(of_one: float, number: int = number) -> None:
                on_share((number + of_one) / len(run.networks))

            found.append(labelled_outputs(network, rows, machine, length, log, share)[0])
        return _labelled_evaluation(run, rows, run.mixed(found, rows.whole_texts), targets)
    check_length(run, length)
    if objective == "translation":
        pairs = read_pairs(source_of(data), reading or run.config.data)
        return _evaluate_translation(run, pairs, machine, generation, check_length(run, length), log)
    if objective in ("causal", "masked", "masked-nsp"):
        store = corpus_store(run, data, reading, log)
        if objective == "causal":
            return _evaluate_causal(run, store, machine, length, log, on_share)
        return _evaluate_masked(run, store, machine, length, on_share)
    rows = labelled_set(run, data, reading, log)
    outputs, targets = labelled_outputs(run, rows, machine, length, log, on_share)
    return _labelled_evaluation(run, rows, outputs, targets)


def _labelled_evaluation(
    run: LoadedRun | StudyModel, rows: LabelledSet, outputs: np.ndarray, targets: np.ndarray
) -> Evaluation:
    objective, labels = run.config.objective, list(run.config.label_names)
    metrics, report = dict(SCORES[objective](outputs, targets)), report_of(objective, outputs, targets, labels)
    return Evaluation(metrics, len(rows), {}, labels, report, mistakes_in(rows, outputs, labels))


def _evaluate_causal(
    run: LoadedRun, store: TokenStore, machine: Machine, length: int | None, log: Log, on_share: OnShare
) -> Evaluation:
    scores = language_scores(run, store, machine, length, on_share)
    details: dict[str, Any] = {"text_bytes": scores.text_bytes, "documents": store.document_count}
    if length is not None:
        trained = run.config.length
        details |= {"trained_length": trained, "length": length, "buckets": scores.buckets(trained)}
        details |= {"loss_by_position": scores.by_position(), "count_by_position": scores.counts.tolist()}
        longest = int(np.flatnonzero(scores.counts)[-1]) + 1
        if longest <= trained < length:
            log(
                f"no document goes beyond position {longest:,}: nothing here is longer than the {trained:,} "
                "trained tokens; `--documents file` reads a whole file as one document"
            )
    return Evaluation(scores.metrics(), scores.count, details)


def _evaluate_masked(
    run: LoadedRun, store: TokenStore, machine: Machine, length: int | None, on_share: OnShare
) -> Evaluation:
    config, size = run.config, check_length(run, length)
    if config.objective == "masked":
        size = fitting_length(store, template_of(run.tokenizer, "masked"), size)
    kind, batch = config.objective, batch_for(run, size)
    objective = pretraining_objective(kind, [store], run.tokenizer, size, batch, config.masking)  # type: ignore[arg-type]
    total = objective.steps_in(1.0, 0) * batch
    scores = evaluate(run.model.to(machine.device), objective, machine, lambda done: on_share(min(1.0, done / total)))
    return Evaluation(scores.values, scores.count, {"documents": store.document_count})


def _evaluate_translation(
    run: LoadedRun, pairs: PairedSet, machine: Machine, generation: GenerationConfig, length: int, log: Log
) -> Evaluation:
    """The loss over pairs, and the BLEU and chrF of the run's translations of their sources."""
    settings = run.config.translation
    assert settings is not None
    if pairs.skipped.counts:
        log(pairs.skipped.summary())
    batch_tokens = max(settings.batch_tokens, 2 * length)  # these pairs may be longer than the trained ones
    objective = translation_objective(
        pairs, run.vocabularies, run.config.frame, length, batch_tokens, settings.label_smoothing
    )
    if objective.truncated_share:
        log(f"{objective.truncated_share:.1%} of the pairs are cut at {length} tokens")
    values = evaluate(run.model.to(machine.device), objective, machine).values
    plain = values["cross_entropy"]
    perplexity = {"perplexity": math.exp(plain)} if plain < LARGEST_LOSS else {}
    scores = score_pairs(dataclasses.replace(Translator.of(run, machine), length=length), pairs, generation)
    how = {"beam": generation.beam, "length_penalty": generation.length_penalty}
    return Evaluation({**values, **perplexity, **scores.values}, len(pairs), {"signatures": scores.signatures, **how})


# ---- data as the run was trained with -----------------------------------------------------------------------


def corpus_store(
    run: LoadedRun, data: Given, reading: Reading | None = None, log: Log = lambda line: None
) -> TokenStore:
    """The token store of a text under the run's tokenizer, from the cache where it is there."""
    segments = "sentences" if run.config.objective == "masked-nsp" else "lines"
    store = build_stores(
        [source_of(data)], run.tokenizer, cache_directory() / "stores", reading or run.config.data,
        segments=segments, log=log,  # type: ignore[arg-type]
    )[0]  # fmt: skip
    unknown = run.tokenizer.roles["unknown"]
    if count := 0 if unknown is None else int((store.tokens == unknown).sum()):
        log(
            f"{count:,} of {len(store):,} tokens are unknown to the tokenizer: the text behind them is not "
            "predicted, which makes the scores look better than they are"
        )
    return store


def labelled_set(
    run: LoadedRun | StudyModel, data: Given, reading: Reading | None = None, log: Log = lambda line: None
) -> LabelledSet:
    """The rows of a file for a fine-tuned run; a label that the run does not know is refused."""
    how = reading or run.config.data
    rows = read_labelled(source_of(data), how, task=run.config.objective)  # type: ignore[arg-type]
    refuse_other_pairs(rows, run.config.pairs, f"{run.path} was trained on")
    if rows.skipped.counts:
        log(rows.skipped.summary())
    if run.config.label_names:
        LabelMap(tuple(run.config.label_names)).refuse_unseen(rows)
    return rows


def labelled_outputs(
    run: LoadedRun, rows: LabelledSet, machine: Machine, length: int | None = None,
    log: Log = lambda line: None, on_share: OnShare = lambda share: None,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """The run's output for each row (probabilities, or values), and the true targets by the run's label map."""
    config, length = run.config, check_length(run, length)
    frame = template_of(run.tokenizer, config.frame)
    labels = LabelMap(tuple(config.label_names)) if config.label_names else None
    batch = evaluation_batch(config.batch, machine.device.type)
    objective = classification_objective(rows, labels, run.tokenizer, frame, length, config.head, batch)
    if objective.truncated_share:
        log(f"{objective.truncated_share:.1%} of the texts are cut at {length} tokens")
    return outputs_of(run.model, objective, machine, on_share), objective.targets
