"""Replica load: what is booked beside what engines report, over time and now. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from widgets.drawing import count
from widgets.pictures.condition import conditions, state, worst_first
from widgets.pictures.picture import Fact, Facts, Table
from widgets.pictures.series import choose, replica_lines
from widgets.pictures.text import measured, percent, short
from widgets.tables import number

if TYPE_CHECKING:
    from widgets.pictures.picture import Part, Picture
    from widgets.pictures.view import FeedView

TITLE = "Replica load"
MAX_ROWS = 40
LINES = {
    "in_flight": "Requests in flight",
    "in_flight_tokens": "Prompt tokens in flight",
    "running": "Running requests",
    "waiting": "Waiting requests",
    "generation_tokens_per_s": "Sampled tokens",
    "ttft_p95_s": "Time to first token, p95",
}
"""Columns with the titles of their charts."""


def load_picture(view: FeedView) -> Picture:
    """How much work each replica has: the balancer's books and the engines' own figures."""
    shown = choose(view)
    parts: tuple[Part, ...] = (
        books_facts(view),
        engine_facts(view),
        *(replica_lines(view, shown, column, title=title) for column, title in LINES.items()),
        replica_table(view),
    )
    return view.picture(TITLE, parts, load_words(view))


def books_facts(view: FeedView) -> Facts:
    """What we leased out, and who waits for a lease."""
    books = view.books
    return Facts(
        "Books: what is leased out",
        (
            Fact("in flight", measured(books.in_flight if books else None, "requests")),
            Fact(
                "prompt tokens in flight",
                measured(books.in_flight_tokens if books else None, "tokens"),
            ),
            Fact("queued at the balancer", measured(books.queued if books else None, "turns")),
            Fact("sessions", number(books.sessions if books else None)),
        ),
    )


def engine_facts(view: FeedView) -> Facts:
    """What the engines say of themselves; of how many of them, where some are silent."""
    engines = view.engines()
    silent = len(view.replicas) - len(engines)
    of = f" ({len(engines)} of {len(view.replicas)} report)" if silent and engines else ""
    running = sum(engine.running for engine in engines.values()) if engines else None
    waiting = sum(engine.waiting for engine in engines.values()) if engines else None
    return Facts(
        "Engines: what they report",
        (
            Fact("running", measured(running, "requests") + of, "warn" if of else "plain"),
            Fact("waiting", measured(waiting, "requests")),
            Fact("sampled", measured(view.total("generation_tokens_per_s"), "tokens/s")),
            Fact("time to first token, p95", measured(view.total("ttft_p95_s"), "s", 2)),
        ),
    )


def replica_table(view: FeedView) -> Table:
    """Every replica as it is now, those with something unusual first."""
    unusual, engines = conditions(view), view.engines()
    speed, ttft = view.by_replica("generation_tokens_per_s"), view.by_replica("ttft_p95_s")
    found, left = worst_first(view, unusual, MAX_ROWS)
    rows = []
    for replica in found:
        replica_id = replica.status.replica_id
        engine, load = engines.get(replica_id), replica.load
        rows.append(
            (
                short(replica_id),
                str(state(replica)),
                number(load.in_flight if load else None),
                number(engine.running if engine else None),
                number(engine.waiting if engine else None),
                percent(engine.kv_cache_usage if engine else None),
                number(speed.get(replica_id)),
                number(ttft.get(replica_id), 2),
                unusual[replica_id],
            )
        )
    return Table(
        "Replicas now",
        ("replica", "state", "in flight (books)", "running (engine)", "waiting (engine)",
         "KV cache", "tokens/s", "TTFT p95 (s)", "unusual"),
        tuple(rows),
        numeric=(False, False, True, True, True, True, True, True, False),
        empty="no replica",
        note=f"and {count(left, 'replica')} more, less busy" if left else "",
    )  # fmt: skip


def load_words(view: FeedView) -> str:
    """What there is to see, in a few sentences."""
    engines, books = view.engines(), view.books
    if not view.replicas:
        return "No replica, no data yet."
    words = f"{count(len(view.replicas), 'replica')}."
    if books:
        words += f" {count(books.in_flight, 'request')} in flight, {books.queued:,} queued (books)."
    if engines:
        running = sum(engine.running for engine in engines.values())
        waiting = sum(engine.waiting for engine in engines.values())
        words += f" {running:,} running, {waiting:,} waiting (engines)."
    speed = view.total("generation_tokens_per_s")
    if not math.isnan(speed):
        words += f" {speed:,.0f} tokens/s sampled."
    silent = len(view.replicas) - len(engines)
    return f"{words} {count(silent, 'replica')} without data." if silent else words
