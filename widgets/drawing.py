"""What the figures share: a styled figure, honest columns, safe labels, distributions. Pure.

Every colour is set on the object, so that a notebook's own matplotlib style changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from widgets import theme

Floats = NDArray[np.float64]

FONT = "DejaVu Sans"
"""Ships with matplotlib, so that a picture is the same on every machine."""

MAX_LEVELS = 12
"""Up to so many different values are drawn as they are; more are put into bins."""
MAX_TICKS = 16
"""Labels on an axis of batches; of more batches only every n-th is labelled."""
LABEL_LENGTH = 28
"""Characters of a replica's or batch's name that a picture has room for."""


def new_figure(width_in: float, height_in: float) -> Figure:
    """An empty opaque figure that belongs to no pyplot state."""
    return Figure(
        figsize=(width_in, height_in),
        facecolor=theme.PAPER,
        edgecolor=theme.PAPER,
        layout="constrained",
    )


def style_axes(axes: Axes, *, x: str = "", y: str = "", title: str = "") -> None:
    """Axis labels, which name their units, and the shared look."""
    axes.set_facecolor(theme.PAPER)
    axes.set_xlabel(x, color=theme.INK, fontsize=9, fontfamily=FONT)
    axes.set_ylabel(y, color=theme.INK, fontsize=9, fontfamily=FONT)
    axes.set_title(title, loc="left", color=theme.INK, fontsize=10, fontfamily=FONT)
    axes.tick_params(
        colors=theme.MUTED, labelcolor=theme.INK, labelsize=8.5, labelfontfamily=FONT, length=3
    )
    axes.grid(visible=True, color=theme.GRID, linewidth=0.7, linestyle="-", alpha=1.0)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in {"left", "bottom"})
        spine.set_edgecolor(theme.MUTED)


def set_title(figure: Figure, title: str, words: str) -> None:
    """The title on top, and what the picture shows in words, as the figure's label."""
    figure.suptitle(
        title, x=0.008, ha="left", color=theme.INK, fontsize=11.5, fontweight="bold", fontfamily=FONT
    )
    figure.set_label(words)


def write(axes: Axes, x: float, y: float, text: str, **options: object) -> None:
    """Put text into the axes: small, in ink, at data coordinates unless told otherwise."""
    look = {"color": theme.INK, "fontsize": 8, "fontfamily": FONT, "parse_math": False} | options
    axes.text(x, y, text, **look)  # type: ignore[arg-type]  # options are matplotlib's own


def absent(axes: Axes, text: str = "no data") -> None:
    """Say in the middle of the axes that there is nothing to draw."""
    write(
        axes, 0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center",
        color=theme.MUTED, fontsize=10,
    )  # fmt: skip


def empty_figure(title: str, *, x: str, y: str) -> Figure:
    """The figure of a table without rows."""
    figure = new_figure(9, 2.4)
    axes = figure.subplots()
    style_axes(axes, x=x, y=y)
    axes.grid(visible=False)
    axes.set(xticks=[], yticks=[])
    absent(axes)
    set_title(figure, title, f"{title}: no data.")
    return figure


def add_legend(figure: Figure, handles: Sequence[object]) -> None:
    """One legend for the whole figure, below it."""
    legend = figure.legend(
        handles=list(handles),  # type: ignore[arg-type]  # lines and patches alike
        loc="outside lower left",
        ncols=5,
        frameon=False,
        labelcolor=theme.INK,
        prop={"family": FONT, "size": 8.5},
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def floats(frame: pd.DataFrame, column: str) -> Floats:
    """A column as floats, NaN where a value, or the whole column, is missing."""
    if column not in frame.columns:
        return np.full(len(frame), np.nan)
    numbers = pd.to_numeric(frame[column], errors="coerce")
    return numbers.to_numpy(dtype=np.float64, na_value=np.nan)


def names(frame: pd.DataFrame, column: str) -> list[str]:
    """A column as names: empty where missing, whole numbers without a decimal point."""
    values = frame[column].tolist()
    return ["" if pd.isna(value) else _name(value) for value in values]


def _name(value: object) -> str:
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)


def label(name: str) -> str:
    """A name from the data, fit for an axis: one short line, no mathematical notation."""
    line = " ".join(name.split())
    short = line if len(line) <= LABEL_LENGTH else line[: LABEL_LENGTH - 1] + "…"
    return short.replace("$", r"\$")


def thousands(axes: Axes, which: str) -> None:
    """Whole numbers with separators on the ``x`` or ``y`` axis."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def count(number: int, noun: str) -> str:
    """``1 batch``, ``1,024 batches``."""
    plural = noun + ("es" if noun.endswith("ch") else "s")
    return f"{number:,} {noun if number == 1 else plural}"


@dataclass(frozen=True, slots=True)
class Levels:
    """Where the bars of a distribution lie: ``(L,)`` centres, one height, ``(L + 1,)`` edges."""

    centres: Floats
    height: float
    edges: Floats


def levels_of(values: Floats) -> Levels:
    """Levels for finite values: each different value where they are few, else equal bins."""
    distinct = np.unique(values)
    if len(distinct) > MAX_LEVELS:
        edges = np.histogram_bin_edges(values, bins=2 * MAX_LEVELS)
        return Levels((edges[:-1] + edges[1:]) / 2, float(edges[1] - edges[0]) * 0.92, edges)
    gaps = np.diff(distinct)
    spread = float(distinct[-1] - distinct[0]) or max(abs(float(distinct[0])), 1.0)
    height = min(float(gaps.min()) if len(gaps) else math.inf, spread / 8) * 0.8
    middles = (distinct[:-1] + distinct[1:]) / 2
    edges = np.concatenate([[distinct[0] - spread], middles, [distinct[-1] + spread]])
    return Levels(distinct, height, edges)


def draw_distributions(axes: Axes, groups: Sequence[Floats], colour: str) -> None:
    """A sideways histogram per group in its own slot; the longest bar of all fills its slot.

    Bar lengths are shares of the group's own values. Missing values are left out, and a group
    without any says so.
    """
    known = [group[np.isfinite(group)] for group in groups]
    levels = levels_of(np.concatenate(known))
    counts = [np.histogram(group, bins=levels.edges)[0] for group in known]
    shares = [found / max(found.sum(), 1) for found in counts]
    longest = max(float(share.max()) for share in shares)
    for slot, share in enumerate(shares):
        filled = share > 0
        axes.barh(
            levels.centres[filled], 0.8 * share[filled] / longest, height=levels.height,
            left=slot - 0.4, color=colour, edgecolor=colour, linewidth=0.4, alpha=0.75,
        )  # fmt: skip
        axes.axvline(slot - 0.4, color=theme.GRID, linewidth=0.8, zorder=0.5)
        if not len(known[slot]):
            write(
                axes, slot, 0.5, "no value", transform=axes.get_xaxis_transform(), rotation=90,
                ha="center", va="center", color=theme.MUTED,
            )  # fmt: skip
    axes.grid(visible=False, axis="x")


def draw_centres(axes: Axes, centres: Floats, form: str) -> None:
    """Connect one central value per slot, and write it where there is room."""
    slots = np.arange(len(centres), dtype=np.float64)
    axes.plot(
        slots, centres, color=theme.INK, linewidth=1, marker="D", markersize=4.5,
        markerfacecolor=theme.PAPER, markeredgecolor=theme.INK, zorder=4,
    )  # fmt: skip
    if len(centres) > MAX_TICKS:
        return
    box = {"facecolor": theme.PAPER, "edgecolor": "none", "pad": 0.8, "alpha": 0.85}
    for slot, value in enumerate(centres):
        if math.isfinite(value):
            axes.annotate(
                format(value, form), (slot, value), xytext=(6, 5), textcoords="offset points",
                color=theme.INK, fontsize=8, fontfamily=FONT, bbox=box, zorder=5,
            )  # fmt: skip


def batch_ticks(axes: Axes, batches: Sequence[str]) -> None:
    """Name the slots, every n-th where there are many."""
    step = -(-len(batches) // MAX_TICKS)
    slots = range(0, len(batches), step)
    axes.set_xticks(list(slots), [label(batches[slot]) for slot in slots])
    axes.set_xlim(-0.6, max(len(batches) - 0.4, 0.6))


def patch(colour: str, text: str, hatch: str = "") -> Patch:
    """A legend entry for an area."""
    return Patch(facecolor=colour, edgecolor=theme.INK, linewidth=0.5, hatch=hatch, label=text)
