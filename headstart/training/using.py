"""What can be done with a run: the verbs that it serves, and its scores on other data than it was trained with."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headstart.errors import UserError
from headstart.text.cache import cache_directory
from headstart.text.files import Reading
from headstart.text.frames import frame_of, masked_frame
from headstart.text.in_memory import Given, source_of
from headstart.text.labelled import LabelledSet, read_labelled
from headstart.text.labels import LabelMap
from headstart.text.store import TokenStore
from headstart.text.store_building import build_store
from headstart.training.evaluate import OnExamples, evaluate
from headstart.training.finetune import make_objective as labelled_objective
from headstart.training.finetune import outputs_of, refuse_other_pairs
from headstart.training.language_scores import batch_for, check_length, fitting_length, language_scores
from headstart.training.loading import LoadedRun, load
from headstart.training.machine import Machine
from headstart.training.pretrain import make_objective as text_objective
from headstart.training.run_directory import DataConfig, RunDirectory
from headstart.training.scores import SCORES

# The first that is named is what a run of this objective is for.
SERVES: dict[str, tuple[str, ...]] = {
    "causal": ("generate", "evaluate", "embed", "compare"),
    "masked": ("embed", "evaluate"),
    "masked-nsp": ("embed", "evaluate"),
    "classification": ("predict", "evaluate", "embed", "compare"),
    "multilabel": ("predict", "evaluate", "embed", "compare"),
    "regression": ("predict", "evaluate", "embed", "compare"),
    "translation": ("translate", "evaluate"),
    "base": ("embed",),  # imported without a head: it can be started from, and it predicts nothing
}

Tell = Callable[[str], None]
OnShare = Callable[[float], None]


def open_run(path: str | Path, verb: str, machine: Machine) -> LoadedRun:
    """Load a run for a verb; one that cannot serve it is refused before its weights are read."""
    if (Path(path) / "config.toml").exists():
        require(RunDirectory(path).read_config().objective, verb, str(path))
    return load(path, machine.device)


def require(objective: str, verb: str, where: str) -> None:
    """Refuse a verb that a run of this objective cannot serve, and name those that can."""
    if verb in SERVES[objective]:
        return
    *others, last = (name for name, verbs in SERVES.items() if verb in verbs)
    able = f"{', '.join(others)} or {last}" if others else last
    what = "base without a head" if objective == "base" else f"{objective} run"
    too = f" ({', '.join(SERVES[objective][1:])} too)" if SERVES[objective][1:] else ""
    raise UserError(
        f"is a {what}: it cannot serve `headstart {verb}`",
        where=where,
        fix=f"`headstart {SERVES[objective][0]}` serves it{too}; {verb} needs a {able} run",
    )


# ---- data as the run was trained with -----------------------------------------------------------------------


def corpus_store(
    run: LoadedRun, data: Given, reading: DataConfig | None = None, tell: Tell = lambda line: None
) -> TokenStore:
    """The store of a text under the run's tokenizer, from the cache where it is there."""
    how = reading or run.config.data
    segments = "sentences" if run.config.objective == "masked-nsp" else "lines"
    store = build_store(
        [source_of(data)], run.tokenizer, cache_directory() / "stores", segments=segments,  # type: ignore[arg-type]
        documents=how.documents, text_column=how.text_column,  # type: ignore[arg-type]
        encoding=how.encoding, errors=how.errors, skip_bad_rows=how.skip_bad_rows, on_note=tell,
    )  # fmt: skip
    _tell_unknown(run, store, tell)
    return store


def _tell_unknown(run: LoadedRun, store: TokenStore, tell: Tell) -> None:
    unknown = run.tokenizer.roles["unknown"]
    count = 0 if unknown is None else int((store.tokens == unknown).sum())
    if count:
        tell(
            f"{count:,} of {len(store):,} tokens are unknown to the tokenizer: what they hide is not predicted, "
            "which makes the scores look better than they are"
        )


def labelled_set(
    run: LoadedRun, data: Given, reading: DataConfig | None = None, tell: Tell = lambda line: None
) -> LabelledSet:
    """The rows of a file for a fine-tuned run; a label that the run does not know is refused."""
    how = reading or run.config.data
    labelled = read_labelled(
        source_of(data), task=run.config.objective,  # type: ignore[arg-type]
        text_column=how.text_column, label_column=how.label_column,
        reading=Reading(how.encoding, how.errors), skip_bad_rows=how.skip_bad_rows,
    )  # fmt: skip
    refuse_other_pairs(labelled, run.config.pairs, f"{run.path} was trained on")
    if labelled.skipped.counts:
        tell(labelled.skipped.summary())
    if run.config.labels:
        LabelMap(tuple(run.config.labels)).refuse_unseen(labelled)
    return labelled


def labelled_outputs(
    run: LoadedRun,
    labelled: LabelledSet,
    machine: Machine,
    length: int | None = None,
    tell: Tell = lambda line: None,
    on_share: OnShare = lambda share: None,
) -> tuple[np.ndarray, np.ndarray]:
    """What the run says about each row (probabilities, or values), and what is true, in the run's own numbers."""
    config, length = run.config, check_length(run, length)
    frame = frame_of(run.tokenizer, config.frame)
    label_map = LabelMap(tuple(config.labels)) if config.labels else None
    objective = labelled_objective(
        labelled, label_map, run.tokenizer, frame, length, config.head, config.batch
    )
    if objective.truncated_share:
        tell(f"{objective.truncated_share:.1%} of the texts are cut at {length} tokens")
    return outputs_of(run.model, objective, machine, _counted(len(labelled), on_share)), objective.targets


def _counted(total: int, on_share: OnShare) -> OnExamples:
    """From how many examples are done at a time to the share of all of them."""
    done = 0

    def more(count: int) -> None:
        nonlocal done
        done += count
        on_share(min(1.0, done / total))

    return more


# ---- scores -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Evaluation:
    """Scores over a set: shares as fractions; what was counted are tokens (hidden ones, if masked) or rows."""

    metrics: dict[str, float]
    count: int
    details: dict[str, Any] = dataclasses.field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {"metrics": self.metrics, "count": self.count, **self.details}


def evaluate_run(
    run: LoadedRun,
    data: Given,
    machine: Machine,
    *,
    length: int | None = None,
    beams: int = 5,
    length_penalty: float = 1.0,
    reading: DataConfig | None = None,
    tell: Tell = lambda line: None,
    on_share: OnShare = lambda share: None,
) -> Evaluation:
    """The scores of a run on a corpus, on labelled rows if it was fine-tuned, or on pairs if it translates.

    `length` is the number of tokens to read at once (default: the trained one); a causal run then also gives the
    loss by position. `beams` and `length_penalty` say how translations are searched for, `reading` how the file is
    read (default: as the run's own data). `on_share` hears what share of it is done, as it is done.
    """
    require(run.config.objective, "evaluate", str(run.path))
    check_length(run, length)
    if run.config.objective == "causal":
        return _causal_evaluation(
            run, corpus_store(run, data, reading, tell), machine, length, tell, on_share
        )
    if run.config.objective == "translation":
        # Made above this module, which says what a run can be used for.
        from headstart.training.translation_evaluation import evaluate_translation

        return evaluate_translation(run, data, machine, beams, length_penalty, length, reading, tell)
    if run.config.objective in ("masked", "masked-nsp"):
        return _masked_evaluation(run, corpus_store(run, data, reading, tell), machine, length, on_share)
    labelled = labelled_set(run, data, reading, tell)
    outputs, targets = labelled_outputs(run, labelled, machine, length, tell, on_share)
    return Evaluation(dict(SCORES[run.config.objective](outputs, targets)), len(labelled))


def _causal_evaluation(
    run: LoadedRun, store: TokenStore, machine: Machine, length: int | None, tell: Tell, on_share: OnShare
) -> Evaluation:
    scores = language_scores(run, store, machine, length, on_share)
    details: dict[str, Any] = {"text_bytes": scores.text_bytes, "documents": store.document_count}
    if length is not None:
        trained = run.config.length
        details |= {"trained_length": trained, "length": length, "buckets": scores.buckets(trained)}
        details |= {"loss_by_position": scores.by_position(), "count_by_position": scores.counts.tolist()}
        longest = int(np.flatnonzero(scores.counts)[-1]) + 1
        if longest <= trained < length:
            tell(
                f"no document goes beyond position {longest:,}: nothing here is longer than the {trained:,} "
                "tokens that were trained; `--documents file` takes a whole file for one document"
            )
    return Evaluation(scores.metrics(), scores.count, details)


def _masked_evaluation(
    run: LoadedRun, store: TokenStore, machine: Machine, length: int | None, on_share: OnShare
) -> Evaluation:
    config, size = run.config, check_length(run, length)
    if config.objective == "masked":
        size = fitting_length(store, masked_frame(run.tokenizer), size)
    objective = text_objective(
        config.objective,  # type: ignore[arg-type]
        [store], run.tokenizer, size, batch_for(run, size), config.corruption,
    )  # fmt: skip
    total = objective.steps_in(1.0, 0) * batch_for(run, size)
    scores = evaluate(run.model.to(machine.device), objective, machine, _counted(total, on_share))
    return Evaluation(scores.values, scores.count, {"documents": store.document_count})
