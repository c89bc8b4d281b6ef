"""What the figures share: a styled figure, honest columns, safe labels, distributions. Pure.

Every colour is set on the object, so that a notebook's own matplotlib style changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from widgets import theme

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

FONT = "DejaVu Sans"
"""Ships with matplotlib, so that a picture is the same on every machine."""

LABEL_BOX = {"facecolor": theme.PAPER, "edgecolor": "none", "pad": 0.8, "alpha": 0.85}
"""Behind text that may lie on something."""

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
        title,
        x=0.008,
        ha="left",
        color=theme.INK,
        fontsize=11.5,
        fontweight="bold",
        fontfamily=FONT,
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
        handles=list(handles),
        loc="outside lower left",
        ncols=6,
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
    values, missing = frame[column].tolist(), frame[column].isna().tolist()
    pairs = zip(values, missing, strict=True)
    return ["" if is_missing else _name(value) for value, is_missing in pairs]


def _name(value: object) -> str:
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)


def label(name: str) -> str:
    """A name from the data, fit for an axis: one short line, no mathematical notation."""
    line = " ".join(name.split())
    short = line if len(line) <= LABEL_LENGTH else line[: LABEL_LENGTH - 1] + "…"
    return short.replace("$", r"\$")


def thousands(axes: Axes, which: str, most: int = 5) -> None:
    """At most so many whole numbers, with separators, on the ``x`` or ``y`` axis."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(MaxNLocator(nbins=most, integer=True))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def count(number: int, noun: str) -> str:
    """``1 batch``, ``1,024 batches``."""
    plural = noun + ("es" if noun.endswith(("ch", "sh")) else "s")
    return f"{number:,} {noun if number == 1 else plural}"


def patch(colour: str, text: str, hatch: str = "") -> Patch:
    """A legend entry for an area."""
    return Patch(facecolor=colour, edgecolor=theme.INK, linewidth=0.5, hatch=hatch, label=text)
