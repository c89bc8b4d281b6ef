"""A page of the sessions that a balancer knows. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from widgets.drawing import floats, names
from widgets.pictures.picture import Fact, Facts, Table
from widgets.pictures.text import percent, short
from widgets.tables import number
from widgets.theme import MISSING

if TYPE_CHECKING:
    import pandas as pd

    from widgets.pictures.picture import Picture
    from widgets.pictures.view import FeedView

TITLE = "Sessions"
MAX_ROWS = 200
COLUMNS = (
    ("in_flight", "in flight"),
    ("turns", "turns"),
    ("prompt_tokens", "prompt tokens"),
    ("sampled_tokens", "sampled tokens"),
    ("cached_tokens", "cached prompt tokens"),
    ("moves", "moves"),
)
"""Of the page, counts, with their headings."""


def sessions_picture(
    view: FeedView, page: pd.DataFrame, start: int = 0, total: int | None = None
) -> Picture:
    """Sessions with what they did, in the order of their page.

    Args:
        view: the pool.
        page: what ``feed.sessions(start, limit)`` gave; at most 200 rows are shown.
        start: place of its first row among those that there are to page through.
        total: how many these are; None for all that the balancer knows.
    """
    rows = page.iloc[:MAX_ROWS]
    books = view.books
    if total is None and books:
        total = max(books.sessions, start + len(rows))
    where = f"{start + 1:,} to {start + len(rows):,}" if len(rows) else "none"
    facts = Facts(
        "Books: sessions",
        (
            Fact("known", number(books.sessions if books else None)),
            Fact("on this page", f"{where} of {number(total)}" if len(rows) else where),
            Fact("turns in flight", number(books.in_flight if books else None)),
            Fact("moves since the start", number(books.moves if books else None)),
        ),
    )
    of = "" if total is None else f" of {total:,}"
    words = f"Sessions {where}{of}." if len(rows) else "No session on this page."
    return view.picture(TITLE, (facts, _table(rows)), words, span_s=None)


def _table(rows: pd.DataFrame) -> Table:
    counts = [[number(value) for value in floats(rows, column)] for column, _ in COLUMNS]
    hits = [
        percent(cached / prompt) if prompt else MISSING
        for cached, prompt in zip(
            floats(rows, "cached_tokens"), floats(rows, "prompt_tokens"), strict=True
        )
    ]
    columns = [
        [short(session, 40) for session in _texts(rows, "session_id")],
        [short(replica) or "chooses anew" for replica in _texts(rows, "replica_id")],
        *counts,
        hits,
        [number(value, 1) for value in floats(rows, "idle_s")],
    ]
    headings = [heading for _, heading in COLUMNS]
    return Table(
        "Sessions",
        ("session", "pinned to", *headings, "cached", "idle (s)"),
        tuple(zip(*columns, strict=True)),
        numeric=(False, False, *(True,) * (len(COLUMNS) + 2)),
        empty="no session here",
    )


def _texts(rows: pd.DataFrame, column: str) -> list[str]:
    return names(rows, column) if column in rows.columns else [""] * len(rows)
