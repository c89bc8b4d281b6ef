"""Bars, and bands between two columns, drawn still. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.path import Path

from widgets import theme
from widgets.pictures.canvas import CHARACTER_IN, LINE_IN, cut

if TYPE_CHECKING:
    from collections.abc import Sequence

    from widgets.pictures.canvas import Canvas
    from widgets.pictures.picture import Bars, Flow

HEADING_IN = 0.24
UNITS = {"share": "%"}
BLOCK_IN = 0.1


def bars_height(part: Bars) -> float:
    """Heading, a line per bar, room for levels and a note."""
    lines = max(1, len(part.bars)) + bool(part.note) + 0.8 * bool(part.levels)
    return HEADING_IN + lines * LINE_IN * 1.08


def draw_bars(canvas: Canvas, part: Bars, left: float, top: float, width: float) -> None:
    """Names, bars and values in three columns."""
    canvas.heading(left, top, width, part.title, UNITS.get(part.unit, part.unit))
    step = LINE_IN * 1.08
    y = top + HEADING_IN
    if not part.bars:
        canvas.write(left, y + step / 2, part.note or "nothing yet", color=theme.MUTED)
        return
    limit = part.limit or max([bar.value or 0.0 for bar in part.bars]) or 1.0
    x, end = _columns(part, left, width)
    for bar in part.bars:
        name = cut(bar.name, int((x - left) / CHARACTER_IN))
        canvas.write(x - 0.06, y + step / 2, name, ha="right", fontsize=7.5)
        if bar.value is not None and np.isfinite(bar.value):
            canvas.box(x, y + step * 0.14, end - x, step * 0.72, facecolor=theme.SHADE)
            length = (end - x) * min(max(bar.value / limit, 0.0), 1.0)
            canvas.box(x, y + step * 0.14, length, step * 0.72, facecolor=bar.colour)
        text = cut(bar.text, int((left + width - end) / CHARACTER_IN))
        canvas.write(end + 0.06, y + step / 2, text, fontsize=7.5)
        y += step
    for level in part.levels:
        at = x + (end - x) * level.value / limit
        canvas.box(at - 0.005, top + HEADING_IN, 0.01, y - top - HEADING_IN, facecolor=theme.INK)
    if part.levels:
        canvas.write(end, y + step * 0.4, _levels(part), ha="right", fontsize=7, color=theme.MUTED)
        y += step * 0.8
    if part.note:
        canvas.note(left, y + step / 2, width, part.note)


def _levels(part: Bars) -> str:
    """What the lines across the bars mean."""
    form = ".0%" if part.unit == "share" else ",g"
    return "lines: " + ", ".join(f"{level.word} from {level.value:{form}}" for level in part.levels)


def _columns(part: Bars, left: float, width: float) -> tuple[float, float]:
    """Where bars begin and where they end at the latest."""
    character = CHARACTER_IN * 0.97
    names = max(len(bar.name) for bar in part.bars) * character
    texts = max(len(bar.text) for bar in part.bars) * character
    return left + min(names + 0.1, width * 0.4), left + width - min(texts + 0.1, width * 0.42)


def flow_height(part: Flow) -> float:
    """Heading, a line and a half per name of the longer column, a note."""
    names = max(len(part.left), len(part.right), 2)
    return HEADING_IN + names * LINE_IN * 1.5 + bool(part.note) * LINE_IN


def draw_flow(canvas: Canvas, part: Flow, left: float, top: float, width: float) -> None:
    """Bands as thick as what went along them, in the colour of where they end."""
    canvas.heading(left, top, width, part.title, part.unit)
    bottom = top + flow_height(part) - 0.05
    if part.note:
        canvas.note(left, bottom - LINE_IN / 2, width, part.note)
        bottom -= LINE_IN
    if not part.links:
        canvas.write(
            left + width / 2, (top + HEADING_IN + bottom) / 2, f"no {part.unit} yet", ha="center",
            color=theme.MUTED,
        )  # fmt: skip
        return
    ends = np.array([(link.source, link.target) for link in part.links])
    values = np.array([link.value for link in part.links])
    start_x = left + _room(part.left)
    end_x = left + width - _room(part.right)
    sources = _Column(part.left, ends[:, 0], values, top + HEADING_IN, bottom)
    targets = _Column(part.right, ends[:, 1], values, top + HEADING_IN, bottom)
    for (source, target), value in zip(ends, values, strict=True):
        y0, y1 = sources.take(source, value), targets.take(target, value)
        shape = _band(
            start_x + BLOCK_IN, end_x, y0, y1, value * sources.scale, value * targets.scale
        )
        canvas.shape(shape, facecolor=_colour(part, target), alpha=0.5)
    sources.draw(canvas, start_x, start_x - 0.06, "right", [theme.MUTED] * len(part.left))
    colours = [_colour(part, place) for place in range(len(part.right))]
    targets.draw(canvas, end_x, end_x + BLOCK_IN + 0.06, "left", colours)


def _room(names: Sequence[str]) -> float:
    """For names and what went through them."""
    return (max((len(name) for name in names), default=0) + 9) * CHARACTER_IN


def _colour(part: Flow, target: int) -> str:
    return part.colours[target] if target < len(part.colours) else theme.MUTED


class _Column:
    """Blocks below each other, and how much of each is used up by bands."""

    def __init__(
        self,
        names: Sequence[str],
        places: np.ndarray,
        values: np.ndarray,
        top: float,
        bottom: float,
    ) -> None:
        self.names = names
        self.totals = np.bincount(places, weights=values, minlength=len(names))
        gap = LINE_IN * 0.9
        height = max(bottom - top - gap * (len(names) - 1), LINE_IN)
        self.scale = height / max(float(self.totals.sum()), 1e-9)
        heights = self.totals * self.scale
        self.tops = top + np.concatenate([[0.0], np.cumsum(heights + gap)[:-1]])
        self._next = self.tops.copy()

    def take(self, place: int, value: float) -> float:
        """Where the next band begins at a block."""
        start = float(self._next[place])
        self._next[place] += value * self.scale
        return start

    def draw(
        self, canvas: Canvas, x: float, name_x: float, side: str, colours: Sequence[str]
    ) -> None:
        for name, total, top, colour in zip(
            self.names, self.totals, self.tops, colours, strict=True
        ):
            height = total * self.scale
            canvas.box(x, top, BLOCK_IN, max(height, 0.01), facecolor=colour)
            text = cut(f"{name}  {total:,.0f}", 40)
            canvas.write(name_x, top + height / 2, text, ha=side, fontsize=7.5)


def _band(x0: float, x1: float, y0: float, y1: float, height0: float, height1: float) -> Path:
    """From the right of one block to the left of another, in an even bend."""
    middle = (x0 + x1) / 2
    points = [
        (x0, y0), (middle, y0), (middle, y1), (x1, y1),
        (x1, y1 + height1), (middle, y1 + height1), (middle, y0 + height0), (x0, y0 + height0),
        (x0, y0),
    ]  # fmt: skip
    bend = [Path.CURVE4] * 3
    return Path(points, [Path.MOVETO, *bend, Path.LINETO, *bend, Path.CLOSEPOLY])
