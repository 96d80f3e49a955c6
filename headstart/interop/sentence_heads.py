"""Heads over whole texts, as config.json tells of them: how many labels, which names, or a number."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from headstart.errors import UserError
from headstart.interop.fields import Fields
from headstart.model.presets import HeadConfig, HeadKind, Pooling
from headstart.training.run_directory import RunConfig

_KINDS: dict[str, HeadKind] = {
    "regression": "regression",
    "single_label_classification": "classification",
    "multi_label_classification": "multilabel",
}
SENTENCE_KINDS = tuple(_KINDS.values())
FOLDED_TO = 1e-6  # how near a bias that was folded away must come to itself


def sentence_head(fields: Fields, pooling: Pooling) -> tuple[HeadConfig, tuple[str, ...]]:
    """The head of a …ForSequenceClassification, and its labels in their order."""
    names = _labels(fields)
    problem = fields.content.get("problem_type")
    if problem is None:
        problem = "regression" if len(names) == 1 else "single_label_classification"
    elif problem not in _KINDS:
        fields.refuse("problem_type", " or ".join(_KINDS))
    kind = _KINDS[str(problem)]
    head = HeadConfig(kind=kind, classes=len(names), pooling=pooling)
    return head, () if kind == "regression" else names


def _labels(fields: Fields) -> tuple[str, ...]:
    given = fields.content.get("id2label")
    if given is None:
        count = fields.integer("num_labels", 2)
        return tuple(f"LABEL_{number}" for number in range(min(count, 10**6)))
    count = len(given) if isinstance(given, dict) else 0
    names = [name for number in range(count) if isinstance(name := given.get(str(number)), str) and name]
    if not names or len(set(names)) < count:
        raise UserError(
            f"id2label is no table of different names by number: {str(given)[:200]}",
            where=fields.where,
            fix='id2label = {"0": "…", "1": "…"}',
        )
    return tuple(names)


def label_fields(run: RunConfig) -> dict[str, Any]:
    """What config.json says of the labels; nothing where the head is not over whole texts."""
    if run.head.kind not in SENTENCE_KINDS:
        return {}
    names = run.labels or [f"LABEL_{number}" for number in range(run.head.classes)]
    problem = next(problem for problem, kind in _KINDS.items() if kind == run.head.kind)
    return {
        "id2label": {str(number): name for number, name in enumerate(names)},
        "label2id": {name: number for number, name in enumerate(names)},
        "problem_type": problem,
    }


def shift_for_bias(weights: Mapping[str, Tensor]) -> Tensor | None:
    """What added to the pooled vector does what the classifier's bias does; None where nothing does.

    Classifiers over a causal stack have no bias elsewhere. With W·δ = b the last norm's own bias takes δ up.
    """
    matrix, bias = (weights[f"head.classifier.{name}"].double() for name in ("weight", "bias"))
    shift = torch.linalg.lstsq(matrix, bias[:, None], driver="gelsd").solution[:, 0]
    is_near = bool((matrix @ shift - bias).abs().max() <= FOLDED_TO * (1 + bias.abs().max()))
    return shift if is_near else None
