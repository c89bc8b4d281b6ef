"""How values are spread over rollouts, batch by batch. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from widgets import theme
from widgets.drawing import FONT, LABEL_BOX, absent, label, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from widgets.drawing import Floats

MAX_LEVELS = 12
"""Up to so many different values are drawn as they are; more are put into bins."""
MAX_TICKS = 16
"""Labels on an axis of batches; of more batches only every n-th is labelled."""
MAX_SLOTS = 24
"""Up to so many batches each get bars of their own; more are drawn as bands."""


def how(batches: int) -> str:
    """What the marks of :func:`draw_spread` mean."""
    if batches <= MAX_SLOTS:
        return "bars: share of the batch; diamonds: mean"
    return "bands: 90% and middle half of the batch; line: mean"


def draw_spread(axes: Axes, groups: Sequence[Floats], colour: str, form: str) -> None:
    """One group of values per batch, missing ones left out, with their means.

    Args:
        axes: to draw on.
        groups: values by batch; NaN where missing.
        colour: of the bars or bands.
        form: format of a mean.
    """
    known = [group[np.isfinite(group)] for group in groups]
    if not any(len(group) for group in known):
        absent(axes)
        return
    draw = _draw_bars if len(known) <= MAX_SLOTS else _draw_bands
    draw(axes, known, colour)
    _draw_means(axes, np.array([g.mean() if len(g) else np.nan for g in known]), form)
    axes.grid(visible=False, axis="x")


@dataclass(frozen=True, slots=True)
class _Levels:
    """Where the bars of a distribution lie: ``(L,)`` centres, one height, ``(L + 1,)`` edges."""

    centres: Floats
    height: float
    edges: Floats


def _levels_of(values: Floats) -> _Levels:
    """Levels for finite values: each different value where they are few, else equal bins."""
    distinct = np.unique(values)
    if len(distinct) > MAX_LEVELS:
        edges = np.histogram_bin_edges(values, bins=MAX_LEVELS)
        return _Levels((edges[:-1] + edges[1:]) / 2, float(edges[1] - edges[0]) * 0.92, edges)
    gaps = np.diff(distinct)
    spread = float(distinct[-1] - distinct[0]) or max(abs(float(distinct[0])), 1.0)
    gap = min(float(gaps.min()) if len(gaps) else math.inf, spread / 8)
    height = max(gap * 0.8, spread / 80)
    middles = (distinct[:-1] + distinct[1:]) / 2
    edges = np.concatenate([[distinct[0] - spread], middles, [distinct[-1] + spread]])
    return _Levels(distinct, height, edges)


def _draw_bands(axes: Axes, known: Sequence[Floats], colour: str) -> None:
    """For many groups: where 90% of each one's values lie, and where the middle half."""
    slots = np.arange(len(known))
    for outer, alpha in ((5, 0.25), (25, 0.5)):
        ends = [np.percentile(g, (outer, 100 - outer)) if len(g) else (np.nan,) * 2 for g in known]
        low, high = np.array(ends).T
        axes.fill_between(slots, low, high, color=colour, alpha=alpha, linewidth=0)


def _draw_bars(axes: Axes, known: Sequence[Floats], colour: str) -> None:
    """A sideways histogram per group in its own slot; the longest bar of all fills its slot.

    Bar lengths are shares of the group's own values. A group without any says so.
    """
    levels = _levels_of(np.concatenate(known))
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


def _draw_means(axes: Axes, means: Floats, form: str) -> None:
    """A mean per slot, written where there is room; joined where there are many."""
    slots = np.arange(len(means), dtype=np.float64)
    is_roomy = len(means) <= MAX_TICKS
    axes.plot(
        slots, means, color=theme.INK, linewidth=int(len(means) > MAX_SLOTS), marker="D", zorder=4,
        markersize=4.5 if is_roomy else 1.5, markerfacecolor=theme.PAPER if is_roomy else theme.INK,
        markeredgecolor=theme.INK,
    )  # fmt: skip
    if not is_roomy:
        return
    for slot, value in enumerate(means):
        if math.isfinite(value):
            axes.annotate(
                format(value, form), (slot, value), xytext=(6, 5), textcoords="offset points",
                color=theme.INK, fontsize=8, fontfamily=FONT, bbox=LABEL_BOX, zorder=5,
            )  # fmt: skip


def batch_ticks(axes: Axes, batches: Sequence[str]) -> None:
    """Name the slots, every n-th where there are many."""
    step = -(-len(batches) // MAX_TICKS)
    slots = range(0, len(batches), step)
    axes.set_xticks(list(slots), [label(batches[slot]) for slot in slots])
    axes.set_xlim(-0.6, max(len(batches) - 0.4, 0.6))
