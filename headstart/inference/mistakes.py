"""The wrong answers of a run on a labelled set, those that it was surest of first."""

from typing import Any, NamedTuple

import numpy as np

from headstart.data.labelled import Label, LabelledSet


class Mistake(NamedTuple):
    """A row that the run got wrong; of numbers, by how much."""

    where: str  # the file and the row
    label: Label
    predicted: Label
    confidence: float  # the probability of the wrong answer; of numbers the absolute error
    text: str
    text_b: str | None
    probabilities: dict[str, float]

    def as_row(self) -> dict[str, Any]:
        """As plain values, for a table: a column for each probability."""
        row = self._asdict()
        del row["probabilities"]
        if self.text_b is None:
            del row["text_b"]
        return {**row, **{f"p_{label}": p for label, p in self.probabilities.items()}}


def mistakes_in(rows: LabelledSet, outputs: np.ndarray, labels: list[str]) -> list[Mistake]:
    """Of probabilities (rows, labels), or of values where there are no labels."""
    found = []
    for number, (label, output) in enumerate(zip(rows.labels, outputs.tolist(), strict=True)):
        predicted, confidence = _answer(rows.task, label, output, labels)
        if confidence is not None:
            second = rows.texts_b[number] if rows.texts_b is not None else None
            named = dict(zip(labels, (round(p, 6) for p in output), strict=True)) if labels else {}
            found.append(
                Mistake(rows.locations[number], label, predicted, confidence, rows.texts[number], second, named)
            )
    return sorted(found, key=lambda one: -one.confidence)


def _answer(task: str, label: Label, output: list[float], labels: list[str]) -> tuple[Label, float | None]:
    """What was predicted, and how sure the run was of what is wrong; None where nothing is."""
    if task == "regression":
        return output[0], abs(output[0] - float(label)) or None  # type: ignore[arg-type]
    if task == "classification":
        best = max(range(len(labels)), key=output.__getitem__)
        return labels[best], None if labels[best] == label else output[best]
    true = set(label)  # type: ignore[arg-type]
    predicted = tuple(name for name, p in zip(labels, output, strict=True) if p > 0.5)
    wrong = [max(p, 1 - p) for name, p in zip(labels, output, strict=True) if (p > 0.5) != (name in true)]
    return predicted, max(wrong, default=None)
