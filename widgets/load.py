"""Load over time per replica: what we booked, what its engine reports, its KV cache. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from widgets import theme
from widgets.drawing import (
    FONT,
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

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Load over time, per replica"

UNITS = ((3 * 3600.0, 3600.0, "h"), (600.0, 60.0, "min"), (0.0, 1.0, "s"))
"""From which length on (s), a time axis counts in units of how long (s), and their name."""

MAX_COLUMNS = 4
LINE_LENGTH = 150
"""Characters of a batch's name that fit beside each other over the whole figure."""
QUIET_SAMPLES = 3
"""After so many last samples without engine figures a panel says since when there are none."""


@dataclass(frozen=True, slots=True)
class _Span:
    """A batch's first and last moment, in the clock's units."""

    batch: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class _Scene:
    """What all panels share: the rows in order of time, the axes' extent, the batches."""

    load: pd.DataFrame
    unit_s: float
    unit: str
    start: float
    end: float
    top: float
    spans: tuple[_Span, ...]


def load_figure(load: pd.DataFrame) -> Figure:
    """In-flight requests and KV-cache use over time, two panels per replica.

    Args:
        load: a row per replica and moment: ``t_s``, ``replica_id``, ``in_flight`` (what we
            booked), ``running``, ``waiting`` and ``kv_cache_usage`` (what its engine reports; the
            share of the cache in use). A column ``batch``, where there is one, says which batch
            was played; its span is marked.
    """
    rows = load[np.isfinite(floats(load, "t_s"))] if len(load) else load
    if not len(rows):
        return empty_figure(TITLE, x="time (s)", y="in-flight requests")
    scene = _scene(rows.assign(replica_id=names(rows, "replica_id")))
    styles = theme.replica_styles(scene.load["replica_id"])
    lines = math.ceil(len(styles) / MAX_COLUMNS)
    columns = math.ceil(len(styles) / lines)
    figure = new_figure(9, 1.0 + lines * (3.0 if lines == 1 else 2.4))
    grid = figure.subplots(
        2 * lines, columns, sharex=True, squeeze=False,
        gridspec_kw={"height_ratios": [3, 2] * lines},
    )  # fmt: skip
    for place in range(lines * columns):
        line, column = divmod(place, columns)
        panels = (grid[2 * line, column], grid[2 * line + 1, column])
        if place >= len(styles):
            for axes in panels:
                axes.set_axis_off()
            continue
        replica_id = list(styles)[place]
        own = scene.load[scene.load["replica_id"] == replica_id]
        _draw_requests(panels[0], scene, own, styles[replica_id].colour)
        _draw_cache(panels[1], scene, own, styles[replica_id].colour)
        _mark_batches(panels, scene, room=LINE_LENGTH / columns if line == 0 else 0)
        is_lowest = place + columns >= len(styles)
        _name_axes(panels, scene, replica_id, is_first=column == 0, is_lowest=is_lowest)
    add_legend(figure, _legend(scene))
    set_title(figure, TITLE, _words(scene, len(styles)))
    return figure


def _scene(load: pd.DataFrame) -> _Scene:
    load = load.assign(t=floats(load, "t_s")).sort_values("t", kind="stable")
    length_s = float(load["t"].iloc[-1] - load["t"].iloc[0])
    unit_s, unit = next((size, name) for above, size, name in UNITS if length_s >= above)
    load["t"] /= unit_s
    counts = np.concatenate([floats(load, name) for name in ("in_flight", "running", "waiting")])
    top = float(np.nanmax(counts)) if np.isfinite(counts).any() else 0.0
    start, end = float(load["t"].iloc[0]), float(load["t"].iloc[-1])
    return _Scene(load, unit_s, unit, start, end, top, _spans(load))


def _spans(load: pd.DataFrame) -> tuple[_Span, ...]:
    """Batches in order of their start; each lasts to the sample after its last one."""
    if "batch" not in load.columns:
        return ()
    times = load["t"].to_numpy()
    marked = pd.DataFrame({"batch": names(load, "batch"), "t": times})
    extent = marked[marked["batch"] != ""].groupby("batch")["t"].agg(["min", "max"])
    found = []
    for batch, (start, last) in zip(extent.index, extent.to_numpy(), strict=True):
        later = times[times > last]
        found.append(_Span(str(batch), float(start), float(later[0] if len(later) else last)))
    return tuple(sorted(found, key=lambda span: (span.start, theme.natural_key(span.batch))))


def _draw_requests(axes: Axes, scene: _Scene, own: pd.DataFrame, colour: str) -> None:
    times = own["t"].to_numpy()
    in_flight, running, waiting = (floats(own, n) for n in ("in_flight", "running", "waiting"))
    axes.fill_between(times, waiting, step="post", color=theme.COLOURS[4], alpha=0.75, linewidth=0)
    axes.plot(times, in_flight, drawstyle="steps-post", color=colour, linewidth=1.7)
    axes.plot(
        times, running, drawstyle="steps-post", color=theme.INK, linewidth=0.9, dashes=(1.2, 2)
    )
    if not np.isfinite(np.concatenate([in_flight, running, waiting])).any():
        absent(axes)
    axes.set_ylim(0, max(scene.top * 1.22, 1.2))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))


def _draw_cache(axes: Axes, scene: _Scene, own: pd.DataFrame, colour: str) -> None:
    times, used = own["t"].to_numpy(), floats(own, "kv_cache_usage")
    axes.fill_between(times, used, step="post", color=colour, alpha=0.25, linewidth=0)
    axes.plot(times, used, drawstyle="steps-post", color=colour, linewidth=1.2)
    axes.axhline(theme.KV_HIGH, color=theme.MUTED, linewidth=0.8, dashes=(5, 3))
    axes.axhline(theme.KV_FULL, color=theme.MUTED, linewidth=0.8)
    axes.set_ylim(0, 1.35)
    axes.set_yticks([0, 0.5, 1])
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))
    axes.set_xlim(scene.start, scene.end if scene.end > scene.start else scene.start + 1)
    if not np.isfinite(used).any():
        absent(axes)
        return
    peak, last = float(np.nanmax(used)), int(np.flatnonzero(np.isfinite(used))[-1])
    word = theme.kv_word(peak)
    write(
        axes,
        0.98,
        0.97,
        f"peak {peak:.0%} – {word}",
        transform=axes.transAxes,
        ha="right",
        va="top",
    )
    if len(used) - 1 - last >= QUIET_SAMPLES:
        note = f"no data since {times[last]:.3g} {scene.unit}"
        axes.set_title(note, loc="right", fontsize=8, color=theme.MUTED, fontfamily=FONT)


def _name_axes(
    panels: Sequence[Axes], scene: _Scene, replica_id: str, *, is_first: bool, is_lowest: bool
) -> None:
    """Label only the outer axes of the grid."""
    y = ("requests", "KV cache (%)") if is_first else ("", "")
    style_axes(panels[0], y=y[0], title=label(replica_id))
    style_axes(panels[1], y=y[1], x=f"time ({scene.unit})" if is_lowest else "")
    panels[1].tick_params(labelbottom=is_lowest)


def _mark_batches(panels: Sequence[Axes], scene: _Scene, *, room: float) -> None:
    """Shade every other batch through both panels; name those for which there is room above.

    Args:
        panels: of one replica.
        scene: what all panels share.
        room: characters that fit into a panel's width; 0 for no names.
    """
    free = scene.start
    per_character = (scene.end - scene.start) / room if room else math.inf
    for number, span in enumerate(scene.spans):
        for axes in panels:
            axes.axvline(span.start, color=theme.MUTED, linewidth=0.6, alpha=0.6, zorder=0.4)
            if number % 2 == 0:
                axes.axvspan(span.start, span.end, color=theme.SHADE, linewidth=0, zorder=0.3)
        text = label(span.batch)
        if number == 0 and span.end - span.start >= (len(text) + 8) * per_character:
            text = f"batch {text}"
        until = span.start + (len(text) + 2) * per_character
        if span.start >= free and until <= scene.end:
            free = until
            write(
                panels[0], span.start, 0.98, f" {text}", va="top", fontsize=7.5,
                transform=panels[0].get_xaxis_transform(), color=theme.MUTED,
            )  # fmt: skip


def _legend(scene: _Scene) -> list[object]:
    entries: list[object] = [
        Line2D([], [], color=theme.COLOURS[0], linewidth=1.7, label="in flight (booked)"),
        Line2D([], [], color=theme.INK, linewidth=0.9, dashes=(1.2, 2), label="running (engine)"),
        patch(theme.COLOURS[4], "waiting (engine)"),
        Line2D([], [], color=theme.MUTED, linewidth=0.8, dashes=(5, 3), label="90%: high"),
        Line2D([], [], color=theme.MUTED, linewidth=0.8, label="98%: full"),
    ]
    if scene.spans:
        entries.append(patch(theme.SHADE, "batches, alternately shaded"))
    return entries


def _words(scene: _Scene, replicas: int) -> str:
    length = f"{scene.end - scene.start:.3g} {scene.unit}"
    words = [f"Load of {count(replicas, 'replica')} over {length}."]
    booked = floats(scene.load, "in_flight")
    if np.isfinite(booked).any():
        place = int(np.nanargmax(booked))
        name = scene.load["replica_id"].iloc[place]
        words.append(f"At most {count(int(booked[place]), 'request')} in flight, on {name}.")
    used = floats(scene.load, "kv_cache_usage")
    if np.isfinite(used).any():
        place = int(np.nanargmax(used))
        name = scene.load["replica_id"].iloc[place]
        word = theme.kv_word(float(used[place]))
        words.append(f"KV cache at most {used[place]:.0%} in use ({word}), on {name}.")
    else:
        words.append("No data on the KV cache.")
    if scene.spans:
        words.append(f"{count(len(scene.spans), 'batch')} marked.")
    return " ".join(words)
