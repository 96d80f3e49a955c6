"""The plan of a training as data: parameters, operations, memory, time, disk, and the answer."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from headstart.plan import answer, memory, operations, parameters, time
from headstart.plan.machines import Target
from headstart.plan.time import Prices
from headstart.plan.workload import Workload

EVALUATED_TEXTS, WRITTEN_TOKENS = 1_000, 100


@dataclass(frozen=True)
class Run:
    """How long, and what is kept of it."""

    steps: int = 0
    """Updates (0: not said)."""

    keep: int = 2
    corpus_tokens: int = 0


def figures(
    work: Workload, target: Target, prices: Prices, run: Run, tensor_by_tensor: bool = False
) -> dict[str, Any]:
    """All that can be known before a training starts."""
    config, head = work.config, work.head
    values = parameters.symbols(config, head)
    groups = parameters.components(config, head)
    return {
        "config": dataclasses.asdict(config),
        "head": dataclasses.asdict(head),
        "symbols": {letter: value for letter, value in values.items() if value},
        "parameters": {
            "total": sum(group.count for group in groups),
            "trainable": sum(group.count for group in groups if parameters.trainable(group, work.freeze)),
            "components": [
                dataclasses.asdict(component)
                for component in (_by_tensor(work) if tensor_by_tensor else groups)
            ],
        },
        "operations": _operations(work),
        "memory": _memory(work, target),
        "time": _time(work, target, prices, run),
        "disk": memory.disk_bytes(work, run.keep, run.corpus_tokens),
        "answer": _answer(work, target, prices, run),
    }


def _by_tensor(work: Workload) -> list[parameters.Component]:
    values = parameters.symbols(work.config, work.head)
    return [
        parameters.Component(t.name, parameters.term(t.dimensions), parameters.count(t, values))
        for t in parameters.tensors(work.config, work.head)
    ]


def _operations(work: Workload) -> dict[str, Any]:
    text = operations.per_text(work.config, work.head, work.lengths, work.freeze, work.masked_share)
    tokens = work.lengths.source + work.lengths.target
    return {
        "length": dataclasses.asdict(work.lengths),
        "components": [
            {"name": w.name, "formula": w.formula, "forward": w.forward, "per": w.unit}
            for w in operations.components(work.config, work.head, work.lengths)
        ],
        "per_token": {
            "forward": text.forward / tokens,
            "backward": text.backward / tokens,
            "forward_over_length": text.forward_over_length / tokens,
            "backward_over_length": text.backward_over_length / tokens,
        },
        "per_step": work.batch * (text.forward + text.backward),
        "left_out": operations.LEFT_OUT,
    }


def _memory(work: Workload, target: Target) -> dict[str, Any]:
    training = memory.training_memory(work)
    writes = work.head.kind in ("lm", "translation")
    return {
        "batch": work.micro_batch,
        "precision": work.precision,
        "kinds": training.kinds,
        "total": training.total,
        "moment": training.moment,
        "beside": memory.CONTEXT[target.kind],
        "available": target.memory,
        "activations": [row._asdict() for row in training.saved],
        "evaluation": memory.evaluation_memory(work).total,
        "decoding": memory.decoding_memory(work).kinds if writes else None,
    }


def _time(work: Workload, target: Target, prices: Prices, run: Run) -> dict[str, Any]:
    read = time.with_padding(work)
    step = time.step_seconds(read, prices)
    writes = work.head.kind in ("lm", "translation")
    return {
        "device": target.title,
        "source": prices.source,
        "is_calibrated": prices.is_calibrated,
        "step": step.total,
        "kinds": step.kinds,
        "steps": run.steps or None,
        "training": run.steps * step.total if run.steps else None,
        f"evaluation_of_{EVALUATED_TEXTS}_texts": time.evaluation_seconds(read, prices, EVALUATED_TEXTS),
        f"decoding_of_{WRITTEN_TOKENS}_tokens": (
            time.decoding_seconds(dataclasses.replace(work, batch=1, accumulate=1), prices, WRITTEN_TOKENS)
            if writes
            else None
        ),
    }


def _answer(work: Workload, target: Target, prices: Prices, run: Run) -> dict[str, Any]:
    def seconds(parts: int) -> float | None:
        if not run.steps:
            return None
        cut = dataclasses.replace(time.with_padding(work), accumulate=parts)
        return run.steps * time.step_seconds(cut, prices).total

    what = f" for {run.steps:,} steps" if run.steps else ""
    found = answer.answer(work, target, seconds(work.accumulate), what)
    if not found.fits and found.accumulate:
        found = answer.answer(work, target, seconds(found.accumulate), what)
    return dataclasses.asdict(found)
