"""Tables of a run as pictures: DataFrame in, :class:`matplotlib.figure.Figure` out. Pure.

Nothing here touches pyplot or the notebook's style. A missing value is drawn as an absence, never
as zero. A column with measurements may be missing as a whole; the columns that say what a row is
may not. What a figure shows in words is its label, ``figure.get_label()``.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from widgets import theme
from widgets.drawing import (
    Floats,
    absent,
    add_legend,
    batch_ticks,
    count,
    draw_centres,
    draw_distributions,
    empty_figure,
    floats,
    label,
    names,
    new_figure,
    patch,
    set_title,
    style_axes,
    thousands,
    write,
)
from widgets.theme import natural_key

DPI = 110


def png(figure: Figure, dpi: int = DPI) -> bytes:
    """The figure as an opaque PNG, the same bytes every time.

    Args:
        figure: one of this module's.
        dpi: dots per inch.
    """
    buffer = io.BytesIO()
    figure.savefig(
        buffer, format="png", dpi=dpi, facecolor=theme.PAPER, metadata={"Software": None}
    )
    return buffer.getvalue()


class Still:
    """A figure as the last line of a cell: a picture that a saved notebook keeps.

    Args:
        figure: one of this module's.
        dpi: dots per inch.
    """

    def __init__(self, figure: Figure, dpi: int = DPI) -> None:
        self.figure = figure
        self._dpi = dpi

    def _repr_png_(self) -> bytes:
        return png(self.figure, self._dpi)

    def __repr__(self) -> str:
        return str(self.figure.get_label()) or "A figure without a description."


# ---------------------------------------------------------------------------- replicas


def replica_figure(replicas: pd.DataFrame) -> Figure:
    """What each replica did: its prompt tokens, computed and cached, and its speed.

    Args:
        replicas: a row per replica: ``replica_id``, ``requests``, ``prompt_tokens``,
            ``cached_tokens`` (those of them from the prefix cache), ``generation_tokens``,
            ``tokens_per_s`` (generated), ``peak_in_flight``.
    """
    title = "Work per replica"
    if not len(replicas):
        return empty_figure(title, x="tokens", y="replica")
    order = sorted(range(len(replicas)), key=lambda row: natural_key(names(replicas, "replica_id")[row]))
    rows = replicas.iloc[order]
    figure = new_figure(9, 1.7 + 0.44 * len(rows))
    left, right = figure.subplots(1, 2, sharey=True, gridspec_kw={"width_ratios": [3, 2]})
    _prompt_bars(left, rows)
    _speed_bars(right, rows)
    left.set_yticks(range(len(rows)), [label(name) for name in _replica_labels(rows)])
    left.set_ylim(len(rows) - 0.4, -0.6)
    add_legend(
        figure,
        [
            patch(theme.COLOURS[0], "computed"),
            patch(theme.COLOURS[5], "from the prefix cache", "///"),
            patch(theme.GRID, "share of the cache unknown"),
        ],
    )
    set_title(figure, title, _replica_words(rows))
    return figure


def _replica_labels(rows: pd.DataFrame) -> list[str]:
    requests, peaks = floats(rows, "requests"), floats(rows, "peak_in_flight")
    return names(rows, "replica_id") if not len(requests) + len(peaks) else names(rows, "replica_id")


def _prompt_bars(axes: Axes, rows: pd.DataFrame) -> None:
    prompt, cached = floats(rows, "prompt_tokens"), floats(rows, "cached_tokens")
    slots = np.arange(len(rows))
    known = np.isfinite(cached)
    computed = np.where(known, prompt - cached, np.nan)
    edge = {"edgecolor": theme.INK, "linewidth": 0.5, "height": 0.62}
    axes.barh(slots, computed, color=theme.COLOURS[0], **edge)
    axes.barh(slots, cached, left=computed, color=theme.COLOURS[5], hatch="///", **edge)
    axes.barh(slots, np.where(known, np.nan, prompt), color=theme.GRID, **edge)
    for slot, (asked, hit) in enumerate(zip(prompt, cached, strict=True)):
        _bar_value(axes, slot, asked, _cached_text(asked, hit))
    style_axes(axes, x="prompt tokens", y="replica", title="Prompt tokens, computed and cached")
    thousands(axes, "x")
    _room_for_labels(axes, prompt, 1.5)
    axes.grid(visible=False, axis="y")


def _cached_text(prompt: float, cached: float) -> str:
    if not np.isfinite(cached):
        return f"{prompt:,.0f}, cached unknown"
    return f"{prompt:,.0f}, {cached / prompt:.0%} cached" if prompt else "0"


def _speed_bars(axes: Axes, rows: pd.DataFrame) -> None:
    speed = floats(rows, "tokens_per_s")
    axes.barh(
        np.arange(len(rows)), speed, height=0.62, color=theme.COLOURS[2], edgecolor=theme.INK,
        linewidth=0.5,
    )  # fmt: skip
    for slot, value in enumerate(speed):
        _bar_value(axes, slot, value, f"{value:,.1f}" if value < 100 else f"{value:,.0f}")
    style_axes(axes, x="tokens/s", title="Generated tokens per second")
    axes.tick_params(labelleft=False)
    _room_for_labels(axes, speed, 1.25)
    axes.grid(visible=False, axis="y")


def _bar_value(axes: Axes, slot: int, value: float, text: str) -> None:
    if np.isfinite(value):
        write(axes, value, slot, f" {text}", va="center")
    else:
        write(axes, 0, slot, f" {theme.MISSING} no data", va="center", color=theme.MUTED)


def _room_for_labels(axes: Axes, values: Floats, factor: float) -> None:
    longest = np.nanmax(values) if np.isfinite(values).any() else 0.0
    axes.set_xlim(0, longest * factor or 1.0)


def _replica_words(rows: pd.DataFrame) -> str:
    prompt, cached = floats(rows, "prompt_tokens"), floats(rows, "cached_tokens")
    speed = floats(rows, "tokens_per_s")
    words = f"Work of {count(len(rows), 'replica')}"
    if np.isfinite(prompt).any():
        words += f": {np.nansum(prompt):,.0f} prompt tokens"
    both = np.isfinite(prompt) & np.isfinite(cached)
    if prompt[both].sum():
        words += f", {cached[both].sum() / prompt[both].sum():.0%} of them cached"
    if np.isfinite(speed).any():
        words += f"; {np.nanmin(speed):,.1f} to {np.nanmax(speed):,.1f} generated tokens/s each"
    return words + "."
