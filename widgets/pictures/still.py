"""Any picture without a browser: drawn by matplotlib, for saved notebooks and files. Pure."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

from matplotlib.figure import Figure

from widgets import theme
from widgets.figures import Still
from widgets.pictures.canvas import LINE_IN, TONES, Canvas, cut
from widgets.pictures.markup import html
from widgets.pictures.picture import Bars, Facts, Flow, Lines, Table
from widgets.pictures.still_bars import bars_height, draw_bars, draw_flow, flow_height
from widgets.pictures.still_lines import LINES_HEIGHT, draw_legend, draw_lines, legend_height
from widgets.pictures.still_text import (
    draw_facts,
    draw_table,
    draw_tokens,
    facts_height,
    table_height,
    table_width,
    tokens_height,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from widgets.pictures.picture import Line, Part, Picture

__all__ = ["html", "still"]

WIDTH_IN = 10.0
MARGIN_IN = 0.15
GAP_IN = 0.16
INNER_IN = WIDTH_IN - 2 * MARGIN_IN
HALF_IN = (INNER_IN - GAP_IN) / 2
DPI = 90
ERROR_LENGTH = 130


class _Place(NamedTuple):
    """Where a part stands."""

    part: Part
    left: float
    top: float
    width: float


def still(picture: Picture) -> Still:
    """The picture as it is now, opaque; its words are its description.

    Args:
        picture: any.
    """
    top = MARGIN_IN + 0.3 + (LINE_IN * 1.3 if picture.error else 0.0)
    places, top, legend_top = _lay_out(picture.parts, top)
    figure = Figure(figsize=(WIDTH_IN, top), facecolor=theme.PAPER, edgecolor=theme.PAPER)
    canvas = Canvas(figure)
    _draw_header(canvas, picture)
    for place in places:
        _draw(canvas, place, picture.span_s)
    draw_legend(canvas, _legend(picture.parts), MARGIN_IN, legend_top, INNER_IN)
    figure.set_label(picture.words or picture.title)
    return Still(figure, DPI)


def _lay_out(parts: Sequence[Part], top: float) -> tuple[list[_Place], float, float]:
    """Where parts stand, where that ends, and where the legend of all lines begins."""
    legend = legend_height(_legend(parts))
    groups = [(shape, list(group)) for shape, group in itertools.groupby(parts, _shape)]
    with_lines = [any(isinstance(part, Lines) for part in group) for _, group in groups]
    places: list[_Place] = []
    legend_top = top
    for number, (shape, group) in enumerate(groups):
        if shape == "wide" or (shape == "facts" and len(group) == 1):
            for part in group:
                places.append(_Place(part, MARGIN_IN, top, INNER_IN))
                top += _height(part, INNER_IN) + GAP_IN
        else:
            found, top = _in_two_columns(group, top)
            places += found
        if with_lines[number] and not any(with_lines[number + 1 :]):
            legend_top = top
            top += legend + GAP_IN * bool(legend)
    return places, top, legend_top


def _in_two_columns(parts: Sequence[Part], top: float) -> tuple[list[_Place], float]:
    """Each part goes where there is more room."""
    tops = [top, top]
    places = []
    for part in parts:
        column = int(tops[1] < tops[0])
        places.append(_Place(part, MARGIN_IN + column * (HALF_IN + GAP_IN), tops[column], HALF_IN))
        tops[column] += _height(part, HALF_IN) + GAP_IN
    return places, max(tops)


def _shape(part: Part) -> str:
    if isinstance(part, Facts):
        return "facts"
    is_half = isinstance(part, Lines | Bars) or (
        isinstance(part, Table) and table_width(part, INNER_IN) <= HALF_IN
    )
    return "half" if is_half else "wide"


def _height(part: Part, width: float) -> float:
    if isinstance(part, Lines):
        return LINES_HEIGHT
    if isinstance(part, Bars):
        return bars_height(part)
    if isinstance(part, Flow):
        return flow_height(part)
    if isinstance(part, Facts):
        return facts_height(part, width)
    if isinstance(part, Table):
        return table_height(part, width)
    return tokens_height(part, width)


def _draw(canvas: Canvas, place: _Place, span_s: tuple[float, float] | None) -> None:
    part, left, top, width = place
    if isinstance(part, Lines):
        draw_lines(canvas, part, left, top, width, span_s)
    elif isinstance(part, Bars):
        draw_bars(canvas, part, left, top, width)
    elif isinstance(part, Flow):
        draw_flow(canvas, part, left, top, width)
    elif isinstance(part, Facts):
        draw_facts(canvas, part, left, top, width)
    elif isinstance(part, Table):
        draw_table(canvas, part, left, top, width)
    else:
        draw_tokens(canvas, part, left, top, width)


def _legend(parts: Sequence[Part]) -> list[Line]:
    """Every different line of charts that have several, once."""
    charts = [part for part in parts if isinstance(part, Lines) and len(part.lines) > 1]
    found = {(line.name, line.colour, line.dash): line for part in charts for line in part.lines}
    return list(found.values())


def _draw_header(canvas: Canvas, picture: Picture) -> None:
    canvas.write(MARGIN_IN, MARGIN_IN, picture.title, fontsize=12, fontweight="bold", va="top")
    canvas.write(
        WIDTH_IN - MARGIN_IN, MARGIN_IN + 0.03, picture.status, fontsize=9, ha="right", va="top"
    )
    if picture.error:
        text = cut(f"Problem: {picture.error}", ERROR_LENGTH)
        canvas.write(MARGIN_IN, MARGIN_IN + 0.3, text, color=TONES["bad"], va="top")
