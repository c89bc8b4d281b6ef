"""Pieces of HTML that a saved notebook keeps when it is opened untrusted. Pure.

JupyterLab's sanitiser drops scripts, styles of classes, drawings and many styles of elements: no
``color`` by variable, no ``overflow-wrap: anywhere``. What is used here passes it, and sets no
colour of text or paper, so that it reads the same in light and dark.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from workbench.showing.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

QUIET = "opacity: 0.7"
LINE = "rgba(128, 128, 128, 0.4)"
WORD = "overflow-wrap: break-word; white-space: pre-wrap"
BAD, PLAIN = "#d55e00", "#8c959f"
"""Of an edge; what it says stands in words beside it."""


class Room:
    """Bytes that are left for pieces of HTML; a piece that does not fit is left out whole."""

    def __init__(self, size: int) -> None:
        self._left = size

    def takes(self, html: str) -> bool:
        """Whether there is room for it; if so, there is less from now on."""
        size = len(html.encode())
        fits = size <= self._left
        if fits:
            self._left -= size
        return fits


def words(text: str) -> str:
    """Text as text, isolated from the direction of what is around it."""
    return f"<bdi>{escape(visible(text), quote=False)}</bdi>"


def lines(text: str) -> str:
    """The same, for a :func:`workbench.showing.text.passage`, which has lines."""
    return f"<bdi>{escape(text, quote=False)}</bdi>"


def quiet(html: str) -> str:
    """Set back, in a line of its own."""
    return f'<div style="{QUIET}; font-size: 90%">{html}</div>'


def edged(html: str, colour: str = PLAIN) -> str:
    """With a coloured edge at its left."""
    look = f"border-left: 3px solid {colour}; padding: 1px 8px; margin: 4px 0"
    return f'<div style="{look}">{html}</div>'


def folded(title: str, html: str, *, is_open: bool = False) -> str:
    """Something to unfold; ``title`` is HTML."""
    opened = " open" if is_open else ""
    summary = f'<summary style="cursor: pointer; padding: 2px 0">{title}</summary>'
    return f"<details{opened}>{summary}{html}</details>"


def passages(html: str) -> str:
    """Text with its own lines."""
    return f'<div style="{WORD}">{html}</div>'


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Labels with their values, one after the other; both are plain text."""
    return "".join(
        f'<span style="display: inline-block; padding: 0 16px 2px 0">'
        f'<span style="{QUIET}">{words(label)}</span> <strong>{words(value)}</strong></span> '
        for label, value in pairs
    )


def grid(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of plain text."""
    cell = "padding: 1px 14px 1px 0; text-align: left; vertical-align: top"
    head = "".join(f'<th style="{cell}">{words(column)}</th>' for column in columns)
    body = "".join(
        "<tr>" + "".join(f'<td style="{cell}">{words(text)}</td>' for text in row) + "</tr>"
        for row in rows
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div style="overflow-x: auto">{table}</div>'
