"""Figures in words, tables and tokens, drawn still. Pure."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.colors import to_hex, to_rgb

from widgets import theme
from widgets.pictures.canvas import CHARACTER_IN, LINE_IN, MONO, TONES, cut

if TYPE_CHECKING:
    from collections.abc import Sequence

    from widgets.pictures.canvas import Canvas
    from widgets.pictures.picture import Facts, Table, Token, Tokens

HEADING_IN = 0.24
FACT_IN = 0.38
MAX_ROWS = 14
CELL_LENGTH = 90
"""Characters of a cell that are drawn where there is room."""
CELL_CHARACTER_IN = 0.06
"""At 7.2 points, on average."""
TOKEN_LINES = 24
MONO_IN = 0.602 * 7.5 / 72
"""A character of :data:`MONO` at 7.5 points."""
LIKELY, UNLIKELY = "#e3eefa", "#f3b26b"
"""Behind sampled tokens, from sure to surprising."""


def facts_height(part: Facts, width: float) -> float:
    """Heading and rows of figures."""
    return (
        HEADING_IN + (_fact_spots(part, width)[-1][0] + 1) * FACT_IN if part.facts else HEADING_IN
    )


def _fact_spots(part: Facts, width: float) -> list[tuple[int, float]]:
    """Row and x of each figure: as many beside each other as there is room for."""
    spots, row, x = [], 0, 0.0
    for fact in part.facts:
        room = (max(len(fact.label) * 0.9, len(fact.text) * 1.45) + 2) * CHARACTER_IN
        if x and x + room > width:
            row, x = row + 1, 0.0
        spots.append((row, x))
        x += max(room, 1.0)
    return spots


def draw_facts(canvas: Canvas, part: Facts, left: float, top: float, width: float) -> None:
    """Labels above figures."""
    canvas.heading(left, top, width, part.title)
    for fact, (row, x) in zip(part.facts, _fact_spots(part, width), strict=True):
        y, length = top + HEADING_IN + row * FACT_IN, int(width / CHARACTER_IN)
        canvas.write(left + x, y + 0.07, cut(fact.label, length), color=theme.MUTED, fontsize=7.2)
        canvas.write(
            left + x, y + 0.22, cut(fact.text, length), color=TONES[fact.tone], fontsize=10,
            fontweight="bold",
        )  # fmt: skip


class _Grid(NamedTuple):
    """A table's columns as they are drawn."""

    lengths: list[int]
    """In characters."""
    heads: list[list[str]]
    """Per column, in lines."""

    @property
    def width(self) -> float:
        return sum(length + 2 for length in self.lengths) * CELL_CHARACTER_IN

    @property
    def head_lines(self) -> int:
        return max((len(lines) for lines in self.heads), default=1)


def _grid(part: Table, width: float) -> _Grid:
    """Columns as long as they need, the longest shortened until all fit."""
    lengths = []
    for place, head in enumerate(part.columns):
        cells = [len(row[place]) for row in part.rows[:MAX_ROWS]]
        words = [len(word) for word in head.split()]
        lengths.append(min(max([*cells, *words, 4]), CELL_LENGTH))
    room = int(width / CELL_CHARACTER_IN) - 2 * len(lengths)
    while sum(lengths) > room and max(lengths) > 4:
        lengths[lengths.index(max(lengths))] -= 1
    heads = [
        textwrap.wrap(head, length, max_lines=4, placeholder="…", break_long_words=False) or [""]
        for head, length in zip(part.columns, lengths, strict=True)
    ]
    return _Grid(lengths, heads)


def table_width(part: Table, width: float) -> float:
    """What it needs, at most ``width``."""
    return _grid(part, width).width


def table_height(part: Table, width: float) -> float:
    """Heading, head, rows, a note."""
    rows = max(1, min(len(part.rows), MAX_ROWS))
    return HEADING_IN + (_grid(part, width).head_lines + rows + bool(_note(part))) * LINE_IN


def _note(part: Table) -> str:
    left = len(part.rows) - MAX_ROWS
    more = f"{left:,} more rows" if left > 0 else ""
    return "; ".join(text for text in (more, part.note) if text)


def draw_table(canvas: Canvas, part: Table, left: float, top: float, width: float) -> None:
    """The first rows; numbers stand right."""
    canvas.heading(left, top, width, part.title)
    grid, y = _grid(part, width), top + HEADING_IN
    for line in range(grid.head_lines):
        texts = [lines[line] if line < len(lines) else "" for lines in grid.heads]
        _draw_cells(canvas, part, grid, texts, left, y, color=theme.MUTED)
        y += LINE_IN
    for place, row in enumerate(part.rows[:MAX_ROWS]):
        if place % 2 == 0:
            canvas.box(left, y, grid.width, LINE_IN, facecolor=theme.SHADE, alpha=0.6)
        _draw_cells(canvas, part, grid, row, left, y, color=theme.INK)
        y += LINE_IN
    if not part.rows:
        canvas.write(left + 0.02, y + LINE_IN / 2, part.empty, color=theme.MUTED)
        y += LINE_IN
    if _note(part):
        canvas.note(left, y + LINE_IN / 2, width, _note(part))


def _draw_cells(
    canvas: Canvas,
    part: Table,
    grid: _Grid,
    texts: Sequence[str],
    left: float,
    y: float,
    *,
    color: str,
) -> None:
    for column, (text, length) in enumerate(zip(texts, grid.lengths, strict=True)):
        room = (length + 2) * CELL_CHARACTER_IN
        is_right = column < len(part.numeric) and part.numeric[column]
        x = left + room - 0.08 if is_right else left + 0.02
        line = text.replace("\n", " ")
        canvas.write(
            x, y + LINE_IN / 2, cut(line, length + 1), fontsize=7.2, color=color,
            ha="right" if is_right else "left",
        )  # fmt: skip
        left += room


class _Placed(NamedTuple):
    """A token, and where it begins."""

    token: Token
    line: int
    column: int


def _placed(part: Tokens, width: float) -> list[_Placed]:
    """Tokens in lines of characters of one width."""
    room = int(width / MONO_IN)
    found, line, column = [], 0, 0
    for token in part.tokens:
        if column and column + len(token.text) > room:
            line, column = line + 1, 0
        found.append(_Placed(token, line, column))
        column += len(token.text)
        if token.text.endswith("␊"):
            line, column = line + 1, 0
    return found


def _token_note(part: Tokens, placed: Sequence[_Placed]) -> str:
    left = sum(item.line >= TOKEN_LINES for item in placed)
    more = f"{left:,} further tokens are not drawn" if left else ""
    legend = "underlined: sampled; the darker, the less likely"
    return "; ".join(text for text in (part.note, more, legend) if text)


def tokens_height(part: Tokens, width: float) -> float:
    """Heading, lines of tokens, a note."""
    placed = _placed(part, width)
    lines = min(placed[-1].line + 1, TOKEN_LINES) if placed else 1
    return HEADING_IN + (lines + 1) * LINE_IN


def draw_tokens(canvas: Canvas, part: Tokens, left: float, top: float, width: float) -> None:
    """Tokens as they follow each other; sampled ones stand on a line and have a shade."""
    canvas.heading(left, top, width, part.title)
    placed = _placed(part, width)
    y = top + HEADING_IN
    for token, line, column in placed:
        if line >= TOKEN_LINES:
            break
        x, at = left + column * MONO_IN, y + line * LINE_IN
        if token.mask:
            size = len(token.text) * MONO_IN - 0.01
            canvas.box(x, at + 0.01, size, LINE_IN - 0.02, facecolor=_shade(token.shade))
            canvas.box(x, at + LINE_IN - 0.025, size, 0.012, facecolor=theme.INK)
        canvas.write(
            x, at + LINE_IN / 2, token.text, fontsize=7.5, fontfamily=MONO,
            color=theme.INK if token.mask else theme.MUTED,
        )  # fmt: skip
    canvas.note(
        left, top + tokens_height(part, width) - LINE_IN / 2, width, _token_note(part, placed)
    )


def _shade(unlikely: float | None) -> str:
    share = min(max(unlikely or 0.0, 0.0), 1.0)
    low, high = np.array(to_rgb(LIKELY)), np.array(to_rgb(UNLIKELY))
    red, green, blue = (low + (high - low) * share).tolist()
    return to_hex((red, green, blue))
