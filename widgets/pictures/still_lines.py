"""Series over time, drawn still. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from widgets import theme
from widgets.drawing import FONT, absent, style_axes, write
from widgets.pictures.canvas import LINE_IN, drawable
from widgets.pictures.text import clock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from widgets.pictures.canvas import Canvas
    from widgets.pictures.picture import Level, Line, Lines, Values

LINES_HEIGHT = 2.0
LEFT_IN, BOTTOM_IN, TOP_IN, RIGHT_IN = 0.62, 0.3, 0.26, 0.1
LEGEND_COLUMNS = 5
GAP_STEPS = 4
"""Usual steps without a sample from which on a line is interrupted."""
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


def draw_lines(
    canvas: Canvas,
    part: Lines,
    left: float,
    top: float,
    width: float,
    span_s: tuple[float, float] | None,
) -> None:
    """A chart with its own axes; gaps stay gaps."""
    canvas.heading(left, top, width, part.title, part.source)
    note_in = LINE_IN if part.note else 0.0
    axes = canvas.place(
        left + LEFT_IN,
        top + TOP_IN,
        width - LEFT_IN - RIGHT_IN,
        LINES_HEIGHT - TOP_IN - BOTTOM_IN - note_in,
    )
    times = np.array(part.times_s, dtype=np.float64)
    style_axes(axes, y="" if part.unit == "share" else part.unit)
    drawn = [_draw_line(axes, *_with_gaps(times, line.values), line) for line in part.lines]
    _scale(axes, part, drawn)
    for place, level in enumerate(part.levels):
        _draw_level(axes, level, place)
    ends = (float(times[0]), float(times[-1])) if len(times) else (0.0, 1.0)
    if part.along:
        _number_axis(axes, ends, part.along)
    else:
        _time_axis(axes, span_s or ends)
    if not any(drawn):
        absent(axes)
    if part.note:
        canvas.note(left, top + LINES_HEIGHT - LINE_IN / 2, width, part.note)


def _with_gaps(times: np.ndarray, values: Values) -> tuple[np.ndarray, np.ndarray]:
    """A time without samples gets a sample without a value, so that no line crosses it."""
    found = np.array(values, dtype=np.float64)
    steps = np.diff(times)
    if len(steps) < 2:
        return times, found
    after = np.flatnonzero(steps > GAP_STEPS * np.median(steps))
    return (
        np.insert(times, after + 1, times[after] + steps[after] / 2),
        np.insert(found, after + 1, np.nan),
    )


def _draw_line(axes: Axes, times: np.ndarray, values: np.ndarray, line: Line) -> tuple[float, ...]:
    """Its smallest and its largest value; nothing where it has none."""
    known = np.isfinite(values)
    if not known.any():
        return ()
    axes.plot(times, values, color=line.colour, linewidth=1.3, linestyle=_dashes(line))
    before = np.concatenate([[False], known[:-1]])
    after = np.concatenate([known[1:], [False]])
    alone = known & ~before & ~after
    last = np.flatnonzero(known)[-1:]
    axes.plot(times[alone], values[alone], ".", color=line.colour, markersize=3)
    if line.marker:
        axes.plot(
            times[last], values[last], line.marker, color=line.colour, markersize=4, clip_on=False
        )
    return float(values[known].min()), float(values[known].max())


def _dashes(line: Line) -> tuple[float, Sequence[float]]:
    """As matplotlib wants them; solid without any."""
    return (0.0, line.dash)


def _scale(axes: Axes, part: Lines, drawn: Sequence[Sequence[float]]) -> None:
    """From zero; shares to one."""
    if part.unit == "share":
        axes.set_ylim(0, 1.1)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.set_yticks(SHARES)
        return
    ends = [end for line in drawn for end in line]
    axes.set_ylim(min([*ends, 0.0]) * 1.12, max([*ends, 0.0]) * 1.12 or 1.0 * (not any(ends)))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))


def _draw_level(axes: Axes, level: Level, place: int) -> None:
    """Levels may be close: their words stand beside each other."""
    axes.axhline(level.value, color=theme.MUTED, linewidth=0.8, linestyle=(0, (4, 2)))
    write(
        axes, 0.005 + 0.1 * place, level.value, drawable(level.word), va="bottom", fontsize=7,
        transform=axes.get_yaxis_transform(), color=theme.MUTED,
    )  # fmt: skip


def _time_axis(axes: Axes, span_s: tuple[float, float]) -> None:
    """Times of day at both ends and in the middle."""
    start_s, end_s = span_s
    end_s = max(end_s, start_s + 1.0)
    axes.set_xlim(start_s, end_s)
    ticks = [start_s, (start_s + end_s) / 2, end_s]
    axes.set_xticks(ticks, [clock(tick) for tick in ticks], fontfamily=FONT, fontsize=7.5)
    first, _, last = axes.get_xticklabels()
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")


def _number_axis(axes: Axes, ends: tuple[float, float], word: str) -> None:
    """The first and the last number."""
    first, last = ends
    axes.set_xlim(first, max(last, first + 1.0))
    ticks = [first, last] if last > first else [first]
    names = [drawable(f"{word} {tick:,.0f}") for tick in ticks]
    axes.set_xticks(ticks, names, fontfamily=FONT, fontsize=7.5)
    labels = axes.get_xticklabels()
    labels[0].set_horizontalalignment("left")
    if len(labels) > 1:
        labels[-1].set_horizontalalignment("right")


def legend_height(lines: Sequence[Line]) -> float:
    """Of the legend of so many lines."""
    return math.ceil(len(lines) / LEGEND_COLUMNS) * LINE_IN * 1.05


def draw_legend(
    canvas: Canvas, lines: Sequence[Line], left: float, top: float, width: float
) -> None:
    """Colour, dash, marker and name of every line, once for all charts."""
    column = width / LEGEND_COLUMNS
    for place, line in enumerate(lines):
        row, slot = divmod(place, LEGEND_COLUMNS)
        x, y = left + slot * column, top + (row + 0.5) * LINE_IN * 1.05
        canvas.axes.add_line(
            Line2D(
                (x, x + 0.3), (y, y), color=line.colour, linewidth=1.3, linestyle=_dashes(line),
                marker=line.marker or "None", markersize=4, markevery=[1],
            )
        )  # fmt: skip
        canvas.write(x + 0.38, y, line.name, fontsize=7.5)
