"""Load over time, replica by replica: what we booked, what the engine reports, its KV cache. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from widgets import theme
from widgets.drawing import (
    Floats,
    absent,
    add_legend,
    count,
    empty_figure,
    floats,
    label,
    names,
    new_figure,
    patch,
    set_title,
    style_axes,
    write,
)

TITLE = "Load over time"

UNITS = ((3 * 3600.0, 3600.0, "h"), (600.0, 60.0, "min"), (0.0, 1.0, "s"))
"""From which length on (s) a time axis counts in what."""

BATCH_LABELS = 8
"""Batches that a panel has room to name; of more only every n-th is named."""


@dataclass(frozen=True, slots=True)
class _Span:
    """A batch's first and last moment (s)."""

    batch: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class _Clock:
    """How the time axis is written."""

    start_s: float
    end_s: float
    unit_s: float
    unit: str

    def ticks(self, times: Floats) -> Floats:
        return times / self.unit_s


def load_figure(load: pd.DataFrame) -> Figure:
    """In-flight requests and KV-cache use over time, two panels per replica.

    Args:
        load: a row per replica and moment: ``t_s``, ``replica_id``, ``in_flight`` (what we
            booked), ``running``, ``waiting`` and ``kv_cache_usage`` (what its engine reports; the
            share of the cache in use). A column ``batch``, where there is one, says which batch
            was played; its spans are marked.
    """
    load = load[np.isfinite(floats(load, "t_s"))] if len(load) else load
    if not len(load):
        return empty_figure(TITLE, x="time (s)", y="in-flight requests")
    load = load.assign(replica_id=names(load, "replica_id")).sort_values("t_s", kind="stable")
    styles = theme.replica_styles(load["replica_id"])
    clock, spans = _clock(load), _spans(load)
    columns = min(len(styles), 4)
    rows = math.ceil(len(styles) / columns)
    figure = new_figure(9, 0.9 + rows * (3.1 if rows == 1 else 2.3))
    grid = figure.subplots(
        2 * rows, columns, sharex=True, squeeze=False,
        gridspec_kw={"height_ratios": [3, 2] * rows},
    )  # fmt: skip
    peak = _peak(load)
    for place in range(rows * columns):
        pair = grid[2 * (place // columns) : 2 * (place // columns) + 2, place % columns]
        if place >= len(styles):
            for axes in pair:
                axes.set_axis_off()
            continue
        replica_id = list(styles)[place]
        own = load[load["replica_id"] == replica_id]
        _draw_spans(pair, spans, clock, named=place < columns)
        _draw_requests(pair[0], own, clock, styles[replica_id].colour, peak)
        _draw_kv(pair[1], own, clock, styles[replica_id].colour)
        _label_panels(pair, label(replica_id), clock, first=place % columns == 0)
        pair[1].tick_params(labelbottom=place + columns >= len(styles))
    add_legend(figure, _legend(spans))
    set_title(figure, f"{TITLE}: requests and KV cache per replica", _words(load, clock, spans))
    return figure
