"""A pool on one screen. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from widgets.pictures.cache import cache_bars, fullest
from widgets.pictures.load import LINES, books_facts, engine_facts, load_words
from widgets.pictures.picture import Fact, Facts
from widgets.pictures.progress import batch_bars
from widgets.pictures.series import choose, replica_lines, total_lines
from widgets.pictures.stickiness import sticky_rate
from widgets.pictures.text import percent
from widgets.theme import COLOURS

if TYPE_CHECKING:
    from widgets.pictures.picture import Picture
    from widgets.pictures.view import FeedView

TITLE = "Pool"


def overview_picture(view: FeedView) -> Picture:
    """Load, speed, caches, stickiness and batches of a pool."""
    shown = choose(view)
    caches = Facts(
        "Caches and sessions",
        (
            fullest(view),
            Fact("prefix-cache hit rate, by the engines", percent(view.total("prefix_hit_rate"))),
            Fact("turns that stayed (books)", percent(sticky_rate(view))),
        ),
    )
    parts = (
        books_facts(view),
        engine_facts(view),
        caches,
        replica_lines(view, shown, "in_flight", title=LINES["in_flight"]),
        total_lines(
            view, "generation_tokens_per_s", COLOURS[2], title="Tokens sampled by the whole pool"
        ),
        cache_bars(view),
        total_lines(view, "sticky_rate", COLOURS[0], title="Turns that stayed on their replica"),
        batch_bars(view.latest.runs, view.latest.time_s) if view.latest else batch_bars((), 0.0),
    )
    return view.picture(TITLE, parts, load_words(view))
