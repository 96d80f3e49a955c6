"""The pictures of `headstart explain`: the mask, the positional encoding, the cost of a layer."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap

from headstart.report.figures import BLUE, GREEN, GREY, INK, ORANGE, RULE, new_figure, picture, styled

Lines = Mapping[str, Sequence[float]]


@styled
def mask_chart(allowed: np.ndarray, labels: Sequence[str], title: str, padding: np.ndarray, form: str = "svg") -> bytes:
    """The mask as a grid: a row for each position, filled where it may look; padding is hatched out."""
    length = len(labels)
    size = min(max(0.42 * length, 3.5), 11)
    figure = new_figure(size + 2.2, size + 0.9, panels=1)
    axes = figure.axes[0]
    axes.imshow(allowed, cmap=ListedColormap(["#F1F1F1", BLUE]), vmin=0, vmax=1, aspect="equal")
    axes.set_xticks(np.arange(length + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(length + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=1.5 if length <= 40 else 0.5)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)
    _label_positions(axes, labels)
    for position in np.flatnonzero(padding):
        box: Any = {"facecolor": "none", "edgecolor": GREY, "hatch": "////", "linewidth": 0}
        axes.axvspan(position - 0.5, position + 0.5, **box)
        axes.axhspan(position - 0.5, position + 0.5, **box)
    if length <= 40:
        for row, seen in enumerate(allowed.sum(axis=1)):
            text = "padding" if padding[row] else f"sees {seen}"
            axes.text(length - 0.3, row, text, va="center", ha="left", fontsize=8, color=GREY)
    axes.set(title=title, xlabel="… may look at this position (key)", ylabel="this position (query) …")
    return picture(figure, form)


def _label_positions(axes: Axes, labels: Sequence[str]) -> None:
    positions = range(0, len(labels), max(1, len(labels) // 24))
    shown = [labels[position].replace("$", r"\$") for position in positions]  # not the beginning of a formula
    is_long = max(len(label) for label in labels) > 3
    axes.set_xticks(positions, shown, rotation=60 if is_long else 0, ha="right" if is_long else "center")
    axes.set_yticks(positions, shown)


@styled
def positions_chart(table: np.ndarray, form: str = "svg") -> bytes:
    """The positional encoding as a heat map, and how similar the positions are to each other."""
    width = table.shape[1]
    similarity = table @ table.T / np.maximum(1e-12, (table**2).sum(axis=1).mean())
    figure = new_figure(12.5, 5.2, panels=2, ratios=[1.25, 1])
    left, right = figure.axes
    image = left.imshow(table, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
    columns = f"column of the {width}: sines in the even, cosines in the odd; slower to the right"
    left.set(title="What is added at each position", xlabel=columns, ylabel="position")
    figure.colorbar(image, ax=left, fraction=0.04, pad=0.02)
    image = right.imshow(similarity, cmap="viridis", vmax=1, aspect="equal", interpolation="nearest")
    right.set(title="How alike two positions are", xlabel="position", ylabel="position")
    figure.colorbar(image, ax=right, fraction=0.046, pad=0.02, label="scalar product (itself = 1)")
    return picture(figure, form)


@styled
def cost_chart(
    lengths: Sequence[int], operations: Lines, seconds: Lines, width: int, crossings: Sequence[tuple[float, float]],
    machine: str, form: str = "svg",
) -> bytes:  # fmt: skip
    """Cost of a layer over the length, log-log: on paper to the left, measured to the right, where lines cross."""
    figure = new_figure(12.5, 5.2, panels=2)
    left, right = figure.axes
    left.set(title="On paper", ylabel="multiplications for one text")
    right.set(title=f"Measured: {machine}", ylabel="milliseconds for one text, forward")
    milliseconds = {name: np.multiply(values, 1e3) for name, values in seconds.items()}
    for axes, lines in ((left, operations), (right, milliseconds)):
        for colour, (name, values) in zip([BLUE, ORANGE, GREEN, GREY], lines.items(), strict=False):
            axes.plot(lengths, values, marker="o", color=colour, label=name)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(lengths, [f"{n:,}" for n in lengths], minor=False)
        axes.grid(color=RULE)
        axes.set_axisbelow(True)
        axes.set_xlabel("length n of the text")
        axes.axvline(width, color=GREY, linestyle=":", linewidth=1)
        axes.text(width, 0.985, f" n = d = {width}", transform=axes.get_xaxis_transform(), va="top", color=GREY)
        axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(0, 0.93))
    for index, (length, value) in enumerate(crossings):
        ring: Any = {"markersize": 10, "markerfacecolor": "none", "markeredgecolor": INK}
        right.plot(length, 1e3 * value, "o", **ring)
        offset, side = ((10, -12), "left") if index % 2 == 0 else ((-10, 8), "right")
        where: Any = {"xytext": offset, "textcoords": "offset points", "ha": side}
        right.annotate(f"n ≈ {length:,.0f}", (length, 1e3 * value), **where)
    return picture(figure, form)
