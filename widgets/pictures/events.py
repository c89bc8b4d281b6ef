"""What happened at a balancer, the newest first. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from widgets.drawing import count, floats, names
from widgets.pictures.picture import Fact, Facts, Table
from widgets.pictures.text import clock, prose, short
from widgets.tables import number
from widgets.theme import MISSING
from workbench.errors import ConfigError
from workbench.types import EventKind

if TYPE_CHECKING:
    from collections.abc import Collection

    from widgets.pictures.picture import Picture
    from widgets.pictures.view import FeedView

TITLE = "Events"
MAX_ROWS = 200


def events_picture(view: FeedView, page: pd.DataFrame, kinds: Collection[str] = ()) -> Picture:
    """The last events of some kinds.

    Args:
        view: the pool.
        page: what ``feed.events(cursor, limit)`` gave; the last 200 that fit are shown.
        kinds: kinds to show; empty for all.

    Raises:
        ConfigError: a kind that there is not.
    """
    known = [str(kind) for kind in EventKind]
    for kind in kinds:
        if kind not in known:
            raise ConfigError("kinds", f"{kind!r}", allowed=", ".join(known))
    found = _texts(page, "kind")
    fits = page[[not kinds or kind in kinds for kind in found]]
    rows = fits.iloc[::-1].iloc[:MAX_ROWS]
    per_kind = {kind: found.count(kind) for kind in known if kind in found}
    lost = int(page.attrs.get("lost", 0))
    facts = Facts(
        f"{count(len(page), 'event')} by kind",
        (
            *(Fact(kind.replace("_", " "), f"{number:,}") for kind, number in per_kind.items()),
            *([Fact("made room unread", f"{lost:,}", "warn")] if lost else []),
        ),
    )
    what = f"Events of kind {', '.join(sorted(kinds))}" if kinds else "All events"
    left = len(fits) - len(rows)
    table = Table(
        f"{what}, the newest first",
        ("number", "time", "kind", "session", "replica", "client", "turns", "reason"),
        _rows(rows),
        numeric=(True, True, False, False, False, False, True, False),
        empty="no such event" if kinds else "no event yet",
        note=f"and {left:,} older" if left else "",
    )
    words = f"{count(len(rows), 'event')} shown of {len(page):,}."
    return view.picture(TITLE, (facts, table), words, span_s=None)


def _rows(rows: pd.DataFrame) -> tuple[tuple[str, ...], ...]:
    columns = [
        [number(value) for value in floats(rows, "number")],
        _times(rows),
        [kind.replace("_", " ") for kind in _texts(rows, "kind")],
        [short(session, 40) for session in _texts(rows, "session_id")],
        [short(replica) for replica in _texts(rows, "replica_id")],
        [short(owner) for owner in _texts(rows, "owner")],
        [number(value) for value in floats(rows, "count")],
        [prose(reason) for reason in _texts(rows, "reason")],
    ]
    return tuple(zip(*columns, strict=True))


def _times(page: pd.DataFrame) -> list[str]:
    if "time" not in page.columns:
        return [MISSING] * len(page)
    return [MISSING if pd.isna(time) else clock(time.timestamp()) for time in page["time"]]


def _texts(page: pd.DataFrame, column: str) -> list[str]:
    return names(page, column) if column in page.columns else [""] * len(page)
