"""Any picture as HTML that stands still: for saved notebooks, opened untrusted and offline. Pure.

No script, no drawing, nothing to fetch: tables, bars of background colour, and lines written in
block characters. All text is escaped and kept from turning its neighbours around.
"""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from widgets.pictures.canvas import TONES
from widgets.pictures.picture import Bars, Facts, Flow, Lines, Table
from widgets.pictures.text import NAME_LENGTH, percent
from widgets.theme import MISSING, MUTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from widgets.pictures.picture import Line, Part, Picture, Tokens

MAX_ROWS = 40
MAX_TOKENS = 600
MAX_LINKS = 30
BLOCKS = "▁▂▃▄▅▆▇█"
SOURCES = {"books": ", by our books", "engine": ", by the engines", "": ""}
TREND_LENGTH = 30
"""Characters of a line's course."""

INK = "color: var(--jp-ui-font-color1, inherit)"
QUIET = "color: var(--jp-ui-font-color2, inherit); font-size: 85%"
CELL = "padding: 1px 8px; text-align: {side}; vertical-align: top"
BACK = "background-color: rgba(128, 128, 128, 0.2)"


def html(picture: Picture) -> str:
    """The picture as it is now.

    Args:
        picture: any.
    """
    head = f"<strong>{_text(picture.title)}</strong>"
    if picture.status:
        head += f' <span style="{QUIET}">{_text(picture.status)}</span>'
    if picture.error:
        head += (
            f'<div style="border-left: 4px solid {TONES["bad"]}; padding: 2px 8px">'
            f"Problem: {_text(picture.error)}</div>"
        )
    if picture.words:
        head += _aside(picture.words)
    body = "".join(_part(part) for part in picture.parts)
    return f'<div style="{INK}; font-family: sans-serif">{head}{body}</div>'


def _part(part: Part) -> str:
    if isinstance(part, Facts):
        inside = _facts(part)
    elif isinstance(part, Lines):
        inside = _lines(part)
    elif isinstance(part, Bars):
        inside = _bars(part)
    elif isinstance(part, Table):
        inside = _table(part)
    elif isinstance(part, Flow):
        inside = _flow(part)
    else:
        inside = _tokens(part)
    note = "" if isinstance(part, Facts) else part.note
    title = f'<div style="margin-top: 10px"><strong>{_text(part.title)}</strong></div>'
    return title + inside + (_aside(note) if note else "")


def _facts(part: Facts) -> str:
    left = CELL.format(side="left")
    tones = {tone: f"; border-left: 4px solid {colour}" for tone, colour in TONES.items()}
    tones["plain"] = ""
    labels = (f'<td style="{left}; {QUIET}">{_text(fact.label)}</td>' for fact in part.facts)
    values = (
        f'<td style="{left}{tones[fact.tone]}"><strong>{_text(fact.text)}</strong></td>'
        for fact in part.facts
    )
    return _grid([labels, values])


def _lines(part: Lines) -> str:
    top = 1.0 if part.unit == "share" else _highest(part.lines)
    rows = [_heads(("", "course", "lowest", "highest", "last"), (False, False, True, True, True))]
    for line in part.lines:
        known = [value for value in line.values if value is not None]
        last = line.values[-1] if len(line.values) else None
        figures = (min(known, default=None), max(known, default=None), last)
        swatch = f'<span style="background-color: {line.colour}">&nbsp;&nbsp;</span> '
        course = f'<span style="font-family: monospace">{_trend(line, top)}</span>'
        rows.append(
            [
                _cell(line.name, before=swatch),
                _cell("", before=course),
                *(_cell(_figure(value, part.unit), is_right=True) for value in figures),
            ]
        )
    along = ""
    if part.along and part.times_s:
        along = f", {part.along} {part.times_s[0]:,.0f} to {part.times_s[-1]:,.0f}"
    return _aside(f"{_unit(part.unit)}{SOURCES[part.source]}{along}") + _grid(rows)


def _highest(lines: Iterable[Line]) -> float:
    return max((v for line in lines for v in line.values if v is not None), default=0.0) or 1.0


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return MISSING
    return (
        percent(value) if unit == "share" else f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"
    )


def _trend(line: Line, top: float) -> str:
    """The line's course in block characters, means of equal stretches; a space where nothing is."""
    values = np.array(line.values, dtype=np.float64)
    found = ""
    for stretch in np.array_split(values, min(TREND_LENGTH, len(values)) or 1):
        known = stretch[np.isfinite(stretch)]
        if len(known):
            share = min(max(float(known.mean()) / top, 0.0), 1.0)
            found += BLOCKS[min(int(share * len(BLOCKS)), len(BLOCKS) - 1)]
        else:
            found += "&nbsp;"
    return found


def _bars(part: Bars) -> str:
    limit = part.limit or max((bar.value or 0.0 for bar in part.bars), default=0.0) or 1.0
    rows = [
        [_cell(bar.name), _bar(bar.value, limit, bar.colour), _cell(bar.text)] for bar in part.bars
    ]
    levels = ", ".join(
        f"{level.word} from {_figure(level.value, part.unit)}" for level in part.levels
    )
    unit = _unit(part.unit)
    return _aside(f"{unit}; {levels}" if levels else unit) + _grid(rows)


def _unit(unit: str) -> str:
    return "percent" if unit == "share" else unit


def _bar(value: float | None, limit: float, colour: str) -> str:
    share = 0.0 if value is None or not math.isfinite(value) else min(max(value / limit, 0.0), 1.0)
    filled = "&nbsp;"
    if share:
        look = f"width: {share:.1%}; background-color: {colour}"
        filled = f'<div style="{look}">&nbsp;</div>'
    track = f'<div style="width: 220px; {BACK}">{filled}</div>'
    return f'<td style="width: 220px; padding: 1px">{track}</td>'


def _table(part: Table) -> str:
    if not part.rows:
        return _aside(part.empty)
    sides = (*part.numeric, *(False,) * (len(part.columns) - len(part.numeric)))
    rows = [
        [_cell(cell, is_right=side) for cell, side in zip(row, sides, strict=True)]
        for row in part.rows[:MAX_ROWS]
    ]
    return _grid([_heads(part.columns, sides), *rows]) + _left(len(part.rows) - MAX_ROWS, "rows")


def _flow(part: Flow) -> str:
    links = sorted(part.links, key=lambda link: -link.value)
    if not links:
        return _aside(f"no {part.unit} yet")
    most = links[0].value or 1.0
    rows = [_heads(("from", "to", "", part.unit), (False, False, False, True))]
    for link in links[:MAX_LINKS]:
        colour = part.colours[link.target] if link.target < len(part.colours) else MUTED
        rows.append(
            [
                _cell(part.left[link.source]),
                _cell(part.right[link.target]),
                _bar(link.value, most, colour),
                _cell(f"{link.value:,.0f}", is_right=True),
            ]
        )
    return _grid(rows) + _left(len(links) - MAX_LINKS, "links")


def _tokens(part: Tokens) -> str:
    """Sampled tokens are underlined and shaded; their figures show on hovering."""
    spans = []
    for token in part.tokens[:MAX_TOKENS]:
        look = QUIET
        if token.mask:
            shade = 0.1 + 0.5 * min(max(token.shade or 0.0, 0.0), 1.0)
            look = f"text-decoration: underline; background-color: rgba(230, 159, 0, {shade:.2f})"
        text = _text(token.text).replace("␊", "↵\n")
        spans.append(f'<span style="{look}" title="{escape(token.hint)}">{text}</span>')
    legend = _aside("underlined: sampled; the darker, the less likely")
    body = f'<pre style="white-space: pre-wrap; {INK}">{"".join(spans)}</pre>'
    return legend + body + _left(len(part.tokens) - MAX_TOKENS, "tokens")


def _left(number: int, noun: str) -> str:
    return _aside(f"and {number:,} more {noun}") if number > 0 else ""


def _aside(text: str) -> str:
    return f'<div style="{QUIET}">{_text(text)}</div>'


def _text(text: str) -> str:
    """Escaped, and isolated from the direction of the text around it."""
    return f"<bdi>{escape(text)}</bdi>"


def _cell(text: str, *, before: str = "", is_right: bool = False) -> str:
    """``before`` is HTML already. Names and numbers stay in one line, long texts do not."""
    wrap = "white-space: nowrap" if len(text) <= NAME_LENGTH else "overflow-wrap: anywhere"
    style = f"{CELL.format(side='right' if is_right else 'left')}; {wrap}"
    return f'<td style="{style}">{before}{_text(text)}</td>'


def _heads(names: Sequence[str], sides: Sequence[bool]) -> list[str]:
    return [
        f'<th style="{CELL.format(side="right" if side else "left")}">{_text(name)}</th>'
        for name, side in zip(names, sides, strict=True)
    ]


def _grid(rows: Iterable[Iterable[str]]) -> str:
    lines = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return f"<table><tbody>{lines}</tbody></table>"
