"""`headstart plan`: what a run will cost, from its configuration alone."""

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter
from rich.console import Console

from headstart.cli import options, plan_tables
from headstart.cli.consoles import table_console
from headstart.cli.options import Common, Length, Paths, PresetName, Switch, conflict, in_bounds
from headstart.config.defaults import PRESET
from headstart.config.model import MOST_LENGTH, HeadConfig, HeadKind, usual_pooling
from headstart.config.presets import preset as preset_config
from headstart.config.schema import POSITIVE, Bound, settings
from headstart.config.training import MOST_BATCH, TokenizerConfig, TrainingSettings, seconds_in
from headstart.errors import UserError
from headstart.hardware import first_gpu
from headstart.planning import calibration, choice, machines
from headstart.planning.figures import figures
from headstart.planning.machines import Target
from headstart.planning.time import Prices, paper_prices
from headstart.planning.workload import (
    BYTES_A_TOKEN,
    ComputePrecision,
    Freeze,
    Lengths,
    TextLayout,
    Workload,
    reading_of,
)

DEFAULT_BATCH = 32

# "Attention is all you need": about 25,000 tokens of each language in a step, 100,000 steps; sentences of 32 tokens.
PAPER_PRESET, PAPER_TOKENS, PAPER_STEPS, PAPER_LENGTH = "transformer-base", 25_000, 100_000, 32
PLAIN = {"optimizer": "adamw", "accumulate": 1}  # what a budget is planned with


@dataclass(frozen=True)
class PlanCommon(Common):
    """The flags of every verb; any machine of the table can be named too."""

    device: str = "auto"  # type: ignore[assignment]
    """Where to compute: auto, cpu, cuda (this machine's), or h200, a100, rtx4090, t4, 1050ti …, cpu:2."""


Batch = Annotated[int | None, in_bounds("batch", Bound(1, MOST_BATCH))]
TargetLength = Annotated[int | None, in_bounds("target-length", Bound(1, MOST_LENGTH))]
Document = Annotated[int | None, in_bounds("document", Bound(1, MOST_LENGTH))]
Tokens = Annotated[int | None, in_bounds("tokens", POSITIVE)]

PlanFlags = Annotated[PlanCommon, Parameter(name="*", group=Group("Common", sort_key=90))]
_COMMON = PlanCommon()


def plan(
    *,
    preset: PresetName = PRESET,
    head: HeadKind | None = None,
    freeze: Freeze | None = None,
    batch: Batch = None,
    length: Length = None,
    target_length: TargetLength = None,
    reading: TextLayout | None = None,
    document: Document = None,
    average: Switch = False,
    corpus: Paths = (),
    tokens: Tokens = None,
    budget: str | None = None,
    utilisation: float | None = None,
    memory: float | None = None,
    tensors: Switch = False,
    calibrate: Switch = False,
    check: Paths = (),
    study: str | None = None,
    head_flags: options.HeadFlags = options.HEAD,
    training: options.LoopFlags = options.LOOP,
    overrides: options.ModelFlags = options.MODEL,
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

    Args:
        preset: The shape to start from.
        head: What stands on the base (default: lm, or translation on an encoder-decoder).
        freeze: What is not trained.
        batch: Texts in a step (default: 32; transformer-base: the paper's 25,000 tokens of each language).
        length: Tokens in a text (default: the context; transformer-base: sentences of 32).
        target_length: Tokens of a translation (default: as many as the source has).
        reading: Texts in a batch: packed (documents side by side), padded or whole (default: by the head).
        document: Tokens of a document in a packed block (default: as long as the block).
        average: Whether an average of the weights is kept.
        corpus: Text files, whose size gives the tokens (4 bytes each).
        tokens: Tokens of the corpus, where they are known.
        budget: A time such as 2h: choose the largest sensible model and its steps for the corpus.
        utilisation: Share of a named machine's peak that training reaches.
        memory: GB of a machine, instead of what it has.
        tensors: List every tensor.
        calibrate: Time this machine for some seconds, and plan by that from then on.
        check: Runs, or folders of them: what was planned beside what was measured.
        study: A STUDY.toml, or demo: the cost of all its trials.
    """
    if calibrate:
        return _calibrate(common)
    if check:
        return _check(check, common)
    target, prices = machine(common, utilisation, memory)
    if study is not None:
        return _study(study, target, prices, common)
    corpus_tokens = tokens or _tokens_in(corpus)
    precision, loop = precision_of(common, target), settings(TrainingSettings, training.given())
    if budget is not None:
        decided = {
            "batch": batch, "freeze": freeze, "average": average, "reading": reading, "document": document,
            **{**training.given(), "keep": None},
        }  # fmt: skip
        if beside := [name for name, value in decided.items() if value and value != PLAIN.get(name)]:
            fix = "leave it out: a budget chooses the batch and the steps, of a plain training with AdamW"
            raise conflict(f"--{beside[0]} beside --budget", fix)
        resources = choice.Resources(
            head=HeadConfig(kind=head or "lm"), target=target, prices=prices, precision=precision,
            budget_seconds=seconds_in(budget), corpus_tokens=corpus_tokens, length=length,
        )  # fmt: skip
        return _budget(preset, overrides.given(), resources, corpus, common)
    config = preset_config(preset, **overrides.given())
    kind = head or ("translation" if config.decoder_depth else "lm")
    is_paper = preset == PAPER_PRESET and kind == "translation"
    length = length or (PAPER_LENGTH if is_paper else config.context)
    batch = batch or (PAPER_TOKENS // length if is_paper else DEFAULT_BATCH)
    work = Workload(
        config=config, head=HeadConfig(kind=kind, **{"pooling": usual_pooling(config), **head_flags.given()}),
        batch=batch, lengths=Lengths(length, (target_length or length) if config.decoder_depth else 0),
        device=target.kind, precision=precision, reading=reading or reading_of(kind), document=document or 0,
        optimizer=loop.optimizer, accumulate=loop.accumulate, average=average, freeze=freeze,
    )  # fmt: skip
    steps = _steps(work, loop, corpus_tokens) or (PAPER_STEPS if is_paper else 0)
    planned = figures(work, target, prices, steps, round(corpus_tokens), loop.keep, tensors)
    _answer(common, {"preset": preset, **planned}, partial(plan_tables.show, is_here=_is_here(common)))
    return 0 if planned["answer"]["fits"] else 1


def _answer(common: PlanCommon, data: dict[str, Any], show: Callable[[Console, dict[str, Any]], None]) -> int:
    """Print the data as JSON or as tables."""
    if common.json:
        print(json.dumps(data, ensure_ascii=False, indent=1))
    else:
        show(table_console(), data)
    return 0


def _steps(work: Workload, loop: TrainingSettings, corpus_tokens: float) -> int:
    """The steps as given, or so many passes over the corpus; 0 where neither is known."""
    if loop.steps and loop.epochs:
        raise conflict("--steps and --epochs at once", "give one of them")
    if loop.epochs and not corpus_tokens:
        raise UserError("--epochs of no corpus", fix="give --corpus or --tokens", code="missing")
    if corpus_tokens and not loop.steps:
        return max(1, round((loop.epochs or 1.0) * corpus_tokens / (work.batch * work.lengths.source)))
    return loop.steps


def _tokens_in(corpus: tuple[Path, ...]) -> float:
    from headstart.study.recipes.costs import text_bytes

    return sum(text_bytes(str(path)) for path in corpus) / BYTES_A_TOKEN


# ---- the machine --------------------------------------------------------------------------------------------


def machine(common: PlanCommon, utilisation: float | None, memory: float | None) -> tuple[Target, Prices]:
    """What to plan for: this machine, as calibrated if it was, or one of the table."""
    if _is_here(common):
        is_gpu = common.device == "cuda" or (common.device == "auto" and first_gpu() is not None)
        asked: ComputePrecision | None = None if common.precision == "auto" else common.precision
        target, prices = calibration.this_machine("cuda" if is_gpu else "cpu", asked, common.threads)
        if utilisation is None:
            return machines.with_overrides(target, None, memory), prices
    else:
        target = machines.named(common.device)
    target = machines.with_overrides(target, utilisation, memory)
    return target, paper_prices(target, precision_of(common, target))


def _is_here(common: PlanCommon) -> bool:
    """Whether this machine is meant, and not one of the table."""
    return common.device in ("auto", "cpu", "cuda")


def precision_of(common: PlanCommon, target: Target) -> ComputePrecision:
    """The precision that was given, or that machine's own choice."""
    return target.precision if common.precision == "auto" else common.precision


# ---- the other questions ------------------------------------------------------------------------------------


def _budget(preset: str, given: dict[str, Any], resources: choice.Resources, corpus: Paths, common: PlanCommon) -> int:
    tokens, target, head = resources.corpus_tokens, resources.target, resources.head
    if not tokens:
        raise UserError("--budget without a corpus", fix="give --corpus FILE, or --tokens N", code="missing")
    given = {"vocab": TokenizerConfig.vocab, **given}
    asked = preset_config(preset, **given)
    if asked.decoder_depth:
        fix = "choose a single stack, such as --preset modern-small"
        raise UserError(f"--budget for the preset {preset}", fix=fix, code="unsupported")
    given |= plan_tables.fields_of_objective(head.kind, asked)
    chosen = choice.choose(choice.candidates(preset, given), resources)
    config = chosen.work.config
    planned = {
        "preset": preset,
        "chosen": {
            "width": config.width, "depth": config.depth, "heads": config.heads, "ffn": config.ffn,
            "steps": chosen.steps, "batch": chosen.work.batch, "accumulate": chosen.work.accumulate,
            "passes": chosen.passes, "bound": chosen.bound, "seconds": chosen.seconds, "corpus_tokens": tokens,
        },
        "command": plan_tables.pretrain_command(preset, chosen, corpus, target, common),
        **figures(chosen.work, target, resources.prices, chosen.steps, round(tokens)),
    }  # fmt: skip
    return _answer(common, planned, plan_tables.show_choice)


def _calibrate(common: PlanCommon) -> int:
    from headstart.machine import choose
    from headstart.training.calibration.calibrate import calibrate

    if not _is_here(common):
        raise conflict(f"--calibrate for {common.device}", "only this machine can be measured: leave --device out")
    console = Console(stderr=True, highlight=False)
    log = console.print if console.is_terminal else lambda line: None
    measured = calibrate(choose(common.device, common.precision, common.threads), log)  # type: ignore[arg-type]
    return _answer(common, dataclasses.asdict(measured), plan_tables.show_calibration)


def _check(paths: tuple[Path, ...], common: PlanCommon) -> int:
    from headstart.training.calibration.cost import read_costs

    costs = read_costs(paths)
    data = {"runs": [dataclasses.asdict(cost) for cost in costs], **plan_tables.summary(costs)}
    return _answer(common, data, plan_tables.show_check)


def _study(study: str, target: Target, prices: Prices, common: PlanCommon) -> int:
    from headstart.study.recipes.forecast import forecast

    planned = forecast(study, target, prices)
    data = {**dataclasses.asdict(planned), "seconds": planned.seconds, "disk": planned.disk._asdict()}
    data["assumptions"].append(planned.disk.sentence)
    return _answer(common, data, partial(plan_tables.show_forecast, target=target))
