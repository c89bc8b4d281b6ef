"""What every page of a dashboard says above everything else. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from widgets.pictures.text import day, prose

if TYPE_CHECKING:
    from workbench.metrics.feed import Feed


def notice_of(feed: Feed) -> dict[str, str]:
    """Why nothing moves, as ``text`` and ``tone``; empty while all is well."""
    latest = feed.latest
    last = f"The last data are from {day(latest.time_s)}." if latest else "There are no data."
    if not feed.is_live:
        return {"text": f"Saved data of a pool. {last}", "tone": ""}
    if feed.closed:
        return {"text": f"This pool was closed. {last}", "tone": ""}
    if feed.error:
        problem = prose(feed.error, 400)
        return {"text": f"This pool cannot be reached: {problem}. {last}", "tone": "bad"}
    return {}
