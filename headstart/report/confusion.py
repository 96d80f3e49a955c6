"""A confusion matrix as a picture: a row for each true class, a column for each predicted one."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from headstart.report import figures as f
from headstart.report.wording import one_line

_LONGEST_LABEL, _MOST_NUMBERED = 24, 20


@f.styled
def confusion_picture(labels: Sequence[str], confusion: Sequence[Sequence[int]], form: str) -> bytes:
    """The bytes of an .svg or .png: each cell shaded by its share of the row, with its count."""
    counts = np.array(confusion)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    side = max(3.2, min(14.0, 1.8 + 0.42 * len(labels)))
    figure = f.new_figure(side, 0.9 * side, 1)
    draw_confusion(figure, labels, counts, shares)
    return f.picture(figure, form)


def draw_confusion(figure: Figure, labels: Sequence[str], counts: np.ndarray, shares: np.ndarray) -> None:
    (axes,) = figure.axes
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    names = [one_line(label, _LONGEST_LABEL).replace("$", r"\$") for label in labels]
    places = range(len(labels))
    is_long = max(map(len, names)) > 6
    axes.set_xticks(places, names, rotation=45 if is_long else 0, ha="right" if is_long else "center")
    axes.set_yticks(places, names)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    axes.grid(False)
    axes.tick_params(length=0)
    for row, column in np.ndindex(counts.shape) if len(labels) <= _MOST_NUMBERED else ():
        colour = "white" if shares[row, column] > 0.55 else f.INK
        axes.text(column, row, f"{counts[row, column]:,}", ha="center", va="center", color=colour)
