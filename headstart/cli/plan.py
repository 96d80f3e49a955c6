"""`headstart plan`: what a run will cost, from its configuration alone."""

import dataclasses
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter
from rich.console import Console

from headstart.cli import plan_tables
from headstart.cli.consoles import table_console
from headstart.cli.options import (
    Common,
    ModelFlags,
    ModelOverrides,
    PresetName,
    Switch,
    model_config,
)
from headstart.cli.plan_command import fields_of_objective, pretrain_command
from headstart.errors import UserError
from headstart.model.presets import HeadConfig, HeadKind, ModelConfig, Pooling, usual_pooling
from headstart.plan import calibration, choice, machines, parameters
from headstart.plan.figures import Run, figures
from headstart.plan.machines import Target
from headstart.plan.operations import Lengths
from headstart.plan.time import Prices, paper_prices
from headstart.plan.workload import OptimizerName, Precision, Reading, Workload, reading_of

DEFAULT_VOCAB = 8_000  # of a tokenizer that a verb trains by itself
DEFAULT_BATCH = 32
# "Attention is all you need": about 25,000 tokens of each language in a step, 100,000 steps; sentences of 32 tokens.
PAPER_PRESET, PAPER_TOKENS, PAPER_STEPS, PAPER_LENGTH = "transformer-base", 25_000, 100_000, 32


@dataclass(frozen=True)
class PlanCommon(Common):
    """The flags of every verb; machines that one does not have can be named too."""

    device: str = "auto"  # type: ignore[assignment]
    """Where to compute: auto, cpu, cuda (this machine's), or h200, a100, rtx4090, t4, 1050ti …, cpu:2."""


PlanFlags = Annotated[PlanCommon, Parameter(name="*", group=Group("Common", sort_key=90))]
Paths = Annotated[tuple[Path, ...], Parameter(consume_multiple=True, negative="", show_default=False)]
_COMMON = PlanCommon()


def plan(
    *,
    preset: PresetName = "tiny",
    head: HeadKind | None = None,
    classes: int = 2,
    pooling: Pooling | None = None,
    freeze: parameters.Freeze | None = None,
    batch: int | None = None,
    length: int | None = None,
    target_length: int | None = None,
    reading: Reading | None = None,
    document: int | None = None,
    optimizer: OptimizerName = "adamw",
    accumulate: int = 1,
    average: Switch = False,
    steps: int | None = None,
    epochs: float | None = None,
    keep: int = 2,
    corpus: Paths = (),
    tokens: int | None = None,
    budget: str | None = None,
    utilisation: float | None = None,
    memory: float | None = None,
    tensors: Switch = False,
    calibrate: Switch = False,
    check: Paths = (),
    study: str | None = None,
    overrides: ModelFlags = ModelOverrides(),
    common: PlanFlags = _COMMON,
) -> int:
    """What a run will cost, from its configuration alone: parameters with formulas, operations, memory, time, disk.

    Ends with a sentence that says whether it fits, and how long it takes; exit 1 when it does not fit.

    For example:

        headstart plan --preset lab --vocab 100 --head lm

        headstart plan --preset transformer-base --vocab 37000 --device 1050ti

        headstart plan --preset modern-small --vocab 16000 --length 512 --batch 64 --steps 20000 --device rtx4090

        headstart plan --budget 2h --corpus novels.txt --vocab 8000

        headstart plan --calibrate

        headstart plan --study demo

        headstart plan --check runs

    Parameters
    ----------
    preset
        The shape to start from.
    head
        What stands on the base (default: lm, or translation on an encoder-decoder).
    classes
        Outputs of a classification head.
    pooling
        How a classification head makes one vector of a text.
    freeze
        What does not learn.
    batch
        Texts in a step (default: 32; transformer-base: the paper's 25,000 tokens of each language).
    length
        Tokens in a text (default: the context; transformer-base: sentences of 32).
    target_length
        Tokens of a translation (default: as many as the source has).
    reading
        How texts stand in a batch: packed (documents side by side), padded or whole (default: by the head).
    document
        Tokens of a document in a packed block (default: as long as the block).
    optimizer
        What remembers of the weights' past.
    accumulate
        Micro-batches that a batch is cut into.
    average
        Whether an average of the weights is kept.
    steps
        Updates of the weights.
    epochs
        Passes over the corpus, instead of steps.
    keep
        Checkpoints that stay on disk.
    corpus
        Text files, whose size gives the tokens (4 bytes each).
    tokens
        Tokens of the corpus, where they are known.
    budget
        A time such as 2h: choose the largest sensible model and its steps for the corpus.
    utilisation
        Share of a named machine's peak that is reached.
    memory
        GB of a machine, instead of what it has.
    tensors
        Every tensor on a line of its own.
    calibrate
        Measure this machine for some seconds, and plan by that from then on.
    check
        Runs, or folders of them: what was planned beside what was measured.
    study
        A STUDY.toml, or demo: the cost of all its trials.
    """
    if calibrate:
        return _calibrate(common)
    if check:
        return _check(check, common)
    target, prices = machine(common, utilisation, memory)
    if study is not None:
        return _study(study, target, prices, common)
    corpus_tokens = tokens or _tokens_in(corpus)
    number = precision_of(common, target)
    if budget is not None:
        decided = {
            "batch": batch, "steps": steps, "epochs": epochs, "accumulate": accumulate > 1, "freeze": freeze,
            "optimizer": optimizer != "adamw", "average": average, "reading": reading, "document": document,
        }  # fmt: skip
        _refuse_beside_budget([name for name, value in decided.items() if value])
        means = choice.Means(
            head=HeadConfig(kind=head or "lm"), target=target, prices=prices, precision=number,
            budget_seconds=choice.seconds_in(budget), corpus_tokens=corpus_tokens, length=length,
        )  # fmt: skip
        return _budget(preset, overrides, means, corpus, common)
    config = model_config(preset, overrides)
    pooling = pooling or usual_pooling(config)
    work = workload(
        preset, config, HeadConfig(kind=_head_of(config, head), classes=classes, pooling=pooling), target, number,
        batch=batch, length=length, target_length=target_length, reading=reading, document=document,
        optimizer=optimizer, accumulate=accumulate, average=average, freeze=freeze,
    )  # fmt: skip
    run = Run(_steps(preset, work, steps, epochs, corpus_tokens), keep, round(corpus_tokens))
    planned = {"preset": preset, **figures(work, target, prices, run, tensors)}
    if common.json:
        print(json.dumps(planned, ensure_ascii=False, indent=1))
    else:
        plan_tables.show(table_console(), planned, is_here=_is_here(common))
    return 0 if planned["answer"]["fits"] else 1


# ---- what is planned ------------------------------------------------------------------------------------------


def _head_of(config: ModelConfig, given: HeadKind | None) -> HeadKind:
    return given or ("translation" if config.decoder_depth else "lm")


def workload(
    preset: str,
    config: ModelConfig,
    head: HeadConfig,
    target: Target,
    number: Precision,
    *,
    batch: int | None,
    length: int | None,
    target_length: int | None,
    reading: Reading | None,
    document: int | None,
    **rest: Any,
) -> Workload:
    """A training from flags; what the paper says for its own preset."""
    is_paper = preset == PAPER_PRESET and head.kind == "translation"
    source = length or (PAPER_LENGTH if is_paper else config.context)
    texts = batch or (PAPER_TOKENS // source if is_paper else DEFAULT_BATCH)
    for name, value in (("batch", texts), ("length", source), ("accumulate", rest["accumulate"])):
        if value < 1:
            raise UserError(f"{name} is {value}", fix=f"give --{name} of at least 1")
    return Workload(
        config=config, head=head, batch=texts, device=target.kind, precision=number,
        lengths=Lengths(source, (target_length or source) if config.decoder_depth else 0),
        reading=reading or reading_of(head.kind), document=document or 0, **rest,
    )  # fmt: skip


def _steps(preset: str, work: Workload, steps: int | None, epochs: float | None, corpus_tokens: float) -> int:
    if steps is not None and epochs is not None:
        raise UserError("--steps and --epochs at once", fix="give one of them")
    if epochs is not None and not corpus_tokens:
        raise UserError("--epochs of no corpus", fix="give --corpus or --tokens")
    if corpus_tokens and steps is None:
        return max(1, round((epochs or 1.0) * corpus_tokens / (work.batch * work.lengths.source)))
    return steps or (PAPER_STEPS if preset == PAPER_PRESET and work.head.kind == "translation" else 0)


def _tokens_in(corpus: tuple[Path, ...]) -> float:
    try:
        return sum(path.stat().st_size for path in corpus) / choice.BYTES_A_TOKEN
    except OSError as error:
        raise UserError(
            f"cannot be read ({error.strerror})", where=str(error.filename), fix="check the path"
        ) from error


# ---- the machine --------------------------------------------------------------------------------------------


def machine(common: PlanCommon, utilisation: float | None, memory: float | None) -> tuple[Target, Prices]:
    """What to plan for: this machine, as calibrated if it was, or one of the table."""
    asked: Precision | None = None if common.precision == "auto" else common.precision
    if _is_here(common):
        is_gpu = common.device == "cuda" or (common.device == "auto" and calibration.gpu_here() is not None)
        target, prices = calibration.this_machine("cuda" if is_gpu else "cpu", asked, common.threads)
        if utilisation is None:
            return machines.with_overrides(target, None, memory), prices
    else:
        target = machines.named(common.device)
    target = machines.with_overrides(target, utilisation, memory)
    return target, paper_prices(target, precision_of(common, target))


def _is_here(common: PlanCommon) -> bool:
    """Whether it is this machine that is meant, and not one of the table."""
    return common.device in ("auto", "cpu", "cuda")


def precision_of(common: PlanCommon, target: Target) -> Precision:
    """What is asked for, or what that machine would choose."""
    return target.precision if common.precision == "auto" else common.precision


# ---- the other questions ------------------------------------------------------------------------------------


def _refuse_beside_budget(names: list[str]) -> None:
    if names:
        raise UserError(
            f"--{names[0]} beside --budget",
            fix="leave it out: a budget chooses the batch and the steps, of a plain training with AdamW",
        )


def _budget(
    preset: str, overrides: ModelFlags, means: choice.Means, corpus: tuple[Path, ...], common: PlanCommon
) -> int:
    if not means.corpus_tokens:
        raise UserError("--budget without a corpus", fix="give --corpus FILE, or --tokens N")
    given = {key: value for key, value in dataclasses.asdict(overrides).items() if value is not None}
    given.setdefault("vocab", DEFAULT_VOCAB)
    asked = model_config(preset, overrides)
    if asked.decoder_depth:
        raise UserError(
            f"--budget for the preset {preset}", fix="choose a single stack, such as --preset modern-small"
        )
    given |= fields_of_objective(means.head.kind, asked)
    chosen = choice.choose(choice.candidates(preset, given), means)
    planned = {
        "preset": preset,
        "chosen": {
            "width": chosen.work.config.width, "depth": chosen.work.config.depth, "heads": chosen.work.config.heads,
            "ffn": chosen.work.config.ffn, "steps": chosen.steps, "batch": chosen.work.batch,
            "accumulate": chosen.work.accumulate, "passes": chosen.passes, "bound": chosen.bound,
            "seconds": chosen.seconds, "corpus_tokens": means.corpus_tokens,
        },
        "command": pretrain_command(preset, chosen, corpus, means.target, common),
        **figures(
            chosen.work, means.target, means.prices, Run(chosen.steps, corpus_tokens=round(means.corpus_tokens))
        ),
    }  # fmt: skip
    if common.json:
        print(json.dumps(planned, ensure_ascii=False, indent=1))
    else:
        plan_tables.show_choice(table_console(), planned)
    return 0


def _calibrate(common: PlanCommon) -> int:
    from headstart.training.calibrating import calibrate
    from headstart.training.machine import choose

    if not _is_here(common):
        raise UserError(
            f"--calibrate for {common.device}", fix="only this machine can be measured: leave --device out"
        )
    console = Console(stderr=True, highlight=False)
    tell = console.print if console.is_terminal else lambda line: None
    found = calibrate(choose(common.device, common.precision, common.threads), tell)  # type: ignore[arg-type]
    if common.json:
        print(json.dumps(dataclasses.asdict(found), indent=1))
    else:
        plan_tables.show_calibration(table_console(), found)
    return 0


def _check(paths: tuple[Path, ...], common: PlanCommon) -> int:
    from headstart.training.cost import as_data, checked

    rows = checked(paths)
    if common.json:
        print(json.dumps({"runs": as_data(rows), **plan_tables.summary(rows)}, indent=1))
    else:
        plan_tables.show_check(table_console(), rows)
    return 0


def _study(study: str, target: Target, prices: Prices, common: PlanCommon) -> int:
    from headstart.study.forecast import forecast

    found = forecast(study, target, prices)
    seconds = sum(part.seconds for part in found.parts)
    assert math.isfinite(seconds)
    if common.json:
        print(json.dumps({**dataclasses.asdict(found), "seconds": seconds}, ensure_ascii=False))
    else:
        plan_tables.show_forecast(table_console(), found, target)
    return 0
