"""Pictures: data in, SVG out. Every chart of the project is drawn here, in one hand."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

# Okabe and Ito's colours, which people with any colour vision can tell apart.
BLUE, ORANGE, GREEN, PINK, GREY, INK = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8A8A8A", "#222222"
STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "svg.fonttype": "path",  # looks the same on a machine without our font
    "svg.hashsalt": "headstart",  # the same data give the same bytes
}


def _new_figure(
    width: float, height: float, panels: int = 1, ratios: Sequence[float] | None = None
) -> Figure:
    with plt.rc_context(STYLE):
        figure, _ = plt.subplots(
            1, panels, figsize=(width, height), layout="constrained", width_ratios=ratios, squeeze=False
        )
    return figure


def _svg(figure: Figure) -> str:
    with plt.rc_context(STYLE):
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
        plt.close(figure)
    return buffer.getvalue()


def mask_chart(allowed: np.ndarray, labels: Sequence[str], title: str, padding: np.ndarray) -> str:
    """The mask as a grid: a row for each position, filled where it may look; padding is hatched out."""
    length = len(labels)
    size = min(max(0.42 * length, 3.5), 11)
    with plt.rc_context(STYLE):
        figure = _new_figure(size + 2.2, size + 0.9)
        axes = figure.axes[0]
        axes.imshow(allowed, cmap=ListedColormap(["#F1F1F1", BLUE]), vmin=0, vmax=1, aspect="equal")
        axes.set_xticks(np.arange(length + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(length + 1) - 0.5, minor=True)
        axes.grid(which="minor", color="white", linewidth=1.5 if length <= 40 else 0.5)
        axes.tick_params(which="both", length=0)
        axes.spines[:].set_visible(False)
        _label_positions(axes, labels)
        for place in np.flatnonzero(padding):
            box: Any = {"facecolor": "none", "edgecolor": GREY, "hatch": "////", "linewidth": 0}
            axes.axvspan(place - 0.5, place + 0.5, **box)
            axes.axhspan(place - 0.5, place + 0.5, **box)
        if length <= 40:
            for row, seen in enumerate(allowed.sum(axis=1)):
                text = "padding" if padding[row] else f"sees {seen}"
                axes.text(length - 0.3, row, text, va="center", ha="left", fontsize=8, color=GREY)
        axes.set_xlabel("… may look at this position (key)")
        axes.set_ylabel("this position (query) …")
        axes.set_title(title)
    return _svg(figure)


def _label_positions(axes: Axes, labels: Sequence[str]) -> None:
    step = max(1, len(labels) // 24)
    places = range(0, len(labels), step)
    is_long = max(len(label) for label in labels) > 3
    labels = [label.replace("$", r"\$") for label in labels]  # not the beginning of a formula
    axes.set_xticks(
        places,
        [labels[p] for p in places],
        rotation=60 if is_long else 0,
        ha="right" if is_long else "center",
    )
    axes.set_yticks(places, [labels[p] for p in places])


def positions_chart(table: np.ndarray) -> str:
    """The positional encoding as a heat map, and how similar the positions are to each other."""
    width = table.shape[1]
    similarity = table @ table.T / np.maximum(1e-12, (table**2).sum(axis=1).mean())
    with plt.rc_context(STYLE):
        figure = _new_figure(12.5, 5.2, panels=2, ratios=[1.25, 1])
        left, right = figure.axes
        picture = left.imshow(table, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
        left.set_title("What is added at each position")
        left.set_xlabel(f"column of the {width}: sines in the even, cosines in the odd; slower to the right")
        left.set_ylabel("position")
        figure.colorbar(picture, ax=left, fraction=0.04, pad=0.02)
        picture = right.imshow(similarity, cmap="viridis", vmax=1, aspect="equal", interpolation="nearest")
        right.set_title("How alike two positions are")
        right.set_xlabel("position")
        right.set_ylabel("position")
        figure.colorbar(picture, ax=right, fraction=0.046, pad=0.02, label="scalar product (itself = 1)")
    return _svg(figure)


def cost_chart(
    lengths: Sequence[int],
    operations: Mapping[str, Sequence[float]],
    seconds: Mapping[str, Sequence[float]],
    width: int,
    crossings: Sequence[tuple[float, float]],
    machine: str,
) -> str:
    """Cost of a layer over the length, log-log: on paper to the left, measured to the right, where lines cross."""
    colours = [BLUE, ORANGE, GREEN, GREY]
    with plt.rc_context(STYLE):
        figure = _new_figure(12.5, 5.2, panels=2)
        left, right = figure.axes
        left.set_title("On paper")
        left.set_ylabel("multiplications for one text")
        right.set_title(f"Measured: {machine}")
        right.set_ylabel("milliseconds for one text, forward")
        milliseconds = {name: np.multiply(values, 1e3) for name, values in seconds.items()}
        for axes, lines in ((left, operations), (right, milliseconds)):
            for colour, (name, values) in zip(colours, lines.items(), strict=False):
                axes.plot(lengths, values, marker="o", color=colour, label=name)
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.set_xticks(lengths, [f"{n:,}" for n in lengths], minor=False)
            axes.grid(color="#E6E6E6")
            axes.set_axisbelow(True)
            axes.set_xlabel("length n of the text")
            axes.axvline(width, color=GREY, linestyle=":", linewidth=1)
            top = axes.get_xaxis_transform()
            axes.text(width, 0.985, f" n = d = {width}", transform=top, va="top", color=GREY)
            axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(0, 0.93))
        for index, (place, value) in enumerate(crossings):
            ring: Any = {"markersize": 10, "markerfacecolor": "none", "markeredgecolor": INK}
            right.plot(place, 1e3 * value, "o", **ring)
            offset, side = ((10, -12), "left") if index % 2 == 0 else ((-10, 8), "right")
            right.annotate(
                f"n ≈ {place:,.0f}", (place, 1e3 * value), xytext=offset, textcoords="offset points", ha=side
            )
    return _svg(figure)


def longer_chart(
    lines: Mapping[str, Sequence[tuple[float, float]]],
    trained_length: int,
    length: int,
    ends: Mapping[str, str],
) -> str:
    """The loss by how much was read, for each kind of positions; beyond the trained length the ground is grey.

    `ends` has a word for each kind that stops there.
    """
    marks = zip([BLUE, ORANGE, GREEN, PINK], ["o", "s", "^", "D"], strict=True)
    with plt.rc_context(STYLE):
        figure = _new_figure(8.5, 4.8)
        axes = figure.axes[0]
        axes.axvspan(trained_length, length, color="#F1F1F1", zorder=0)
        axes.axvline(trained_length, color=GREY, linestyle=":", linewidth=1.2)
        top = axes.get_xaxis_transform()
        axes.text(trained_length, 1.0, f"trained with {trained_length:,} tokens ", transform=top, ha="right",
                  va="top", color=GREY)  # fmt: skip
        axes.text(trained_length, 1.0, " longer than trained", transform=top, va="top", color=GREY)
        for (name, points), (colour, marker) in zip(lines.items(), marks, strict=False):
            places, losses = zip(*points, strict=True)
            label = f"{name} ({ends[name]})" if name in ends else name
            axes.plot(places, losses, marker=marker, markersize=5, color=colour, label=label)
            if name in ends:
                axes.plot(places[-1], losses[-1], "x", markersize=11, markeredgewidth=2, color=colour)
        axes.set_xlim(0, length)
        axes.set_xticks(range(0, length + 1, trained_length))
        axes.grid(axis="y", color="#E6E6E6")
        axes.set_axisbelow(True)
        axes.margins(y=0.12)
        axes.set_xlabel("tokens read before the one that is predicted")
        axes.set_ylabel("loss (nats a token)")
        axes.set_title("Positions beyond the trained length")
        axes.legend(frameon=False, loc="lower right")
    return _svg(figure)
