"""HTML for notebook reprs: tables without scripts, in the notebook's own colours."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_STYLE = "color: var(--jp-ui-font-color1, inherit); font-family: sans-serif"
_CELL = "padding: 2px 10px; text-align: {align}"


def table(title: str, rows: Sequence[Mapping[str, object]], facts: str = "") -> str:
    """A titled table; numbers stand right, what is missing shows as a dash."""
    columns = list(rows[0]) if rows else []
    head = "".join(f'<th style="{_CELL.format(align="left")}">{escape(c)}</th>' for c in columns)
    body = "".join(
        "<tr>" + "".join(_cell(row[column]) for column in columns) + "</tr>" for row in rows
    )
    return (
        f'<div style="{_STYLE}"><strong>{escape(title)}</strong> <span>{escape(facts)}</span>'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def percent(share: float | None) -> str:
    """A share 0–1 in words; a dash when it is unknown."""
    return "–" if share is None else f"{share:.0%}"


def _cell(value: object) -> str:
    is_number = isinstance(value, int | float)
    style = _CELL.format(align="right" if is_number else "left")
    text = "–" if value is None else f"{value:,}" if is_number else str(value)
    return f'<td style="{style}">{escape(text)}</td>'
