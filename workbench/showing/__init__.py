"""How objects show themselves in a notebook: a line of text, a table, a live view where it can be.

The HTML has no scripts and takes the notebook's own colours: it reads the same in a notebook that
was saved and is opened elsewhere.
"""

from __future__ import annotations

import logging
from html import escape
from typing import TYPE_CHECKING, Any

from workbench.views import view

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

_STYLE = "color: var(--jp-ui-font-color1, inherit); font-family: sans-serif"
_CELL = "padding: 2px 10px; text-align: {align}"

logger = logging.getLogger(__name__)


def bundle(
    kind: str,
    subject: Any,
    include: Collection[str] | None = None,
    exclude: Collection[str] | None = None,
) -> dict[str, Any]:
    """What a front end may choose from: text, HTML, and in a live one a view that moves.

    Args:
        kind: what the view ``live`` calls such objects.
        subject: has a repr and an HTML repr.
        include: MIME types that are wanted; None for all.
        exclude: those that are not.
    """
    data = {"text/plain": repr(subject), "text/html": subject._repr_html_()}
    try:
        data |= view("live")(kind, subject) or {}
    except Exception:  # the text and the table are there, whatever becomes of the view
        logger.debug("no live view of %r", kind, exc_info=True)
    return {
        mime: content
        for mime, content in data.items()
        if (include is None or mime in include) and mime not in (exclude or ())
    }


def table(title: str, rows: Sequence[Mapping[str, object]], facts: str = "") -> str:
    """A titled table; numbers stand right, what is missing shows as a dash."""
    columns = list(rows[0]) if rows else []
    head = "".join(f'<th style="{_CELL.format(align="left")}">{escape(c)}</th>' for c in columns)
    body = "".join(
        "<tr>" + "".join(_cell(row[column]) for column in columns) + "</tr>" for row in rows
    )
    inside = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if rows else ""
    return (
        f'<div style="{_STYLE}"><strong>{escape(title)}</strong> <span>{escape(facts)}</span>'
        f"{inside}</div>"
    )


def percent(share: float | None) -> str:
    """A share 0–1 in words; a dash when it is unknown."""
    return "–" if share is None else f"{share:.0%}"


def _cell(value: object) -> str:
    is_number = isinstance(value, int | float)
    style = _CELL.format(align="right" if is_number else "left")
    text = "–" if value is None else f"{value:,}" if is_number else str(value)
    return f'<td style="{style}">{escape(text)}</td>'
