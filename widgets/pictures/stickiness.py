"""Session stickiness: whether sessions stay where their KV cache is. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from widgets.drawing import count
from widgets.pictures.picture import Fact, Facts, Table
from widgets.pictures.series import Amount, replica_bars, total_lines
from widgets.pictures.text import clock, measured, percent, prose, short, stretch
from widgets.pictures.turns import MAX_SESSIONS, session_turns, turn_flow
from widgets.tables import number
from widgets.theme import COLOURS

if TYPE_CHECKING:
    from widgets.pictures.picture import Bars, Picture
    from widgets.pictures.view import FeedView

TITLE = "Session stickiness"
MAX_MOVES = 20


def stickiness_picture(view: FeedView) -> Picture:
    """Where sessions are, how many of their turns stay, and which sessions moved, why."""
    parts = (
        _facts(view),
        total_lines(view, "sticky_rate", COLOURS[0], title="Turns that stayed on their replica"),
        total_lines(view, "moves_per_s", COLOURS[1]),
        session_bars(view),
        turn_flow(view),
        _move_table(view),
        _hot_table(view),
    )
    return view.picture(TITLE, parts, _words(view))


def sticky_rate(view: FeedView) -> float | None:
    """The share of turns that stayed, over the window; each moment weighs as much as its turns."""
    rates = view.block.total("sticky_rate").astype(np.float64)
    turns = view.block.total("turns_per_s").astype(np.float64)
    known = np.isfinite(rates) & np.isfinite(turns)
    weight = float(turns[known].sum())
    return float((rates[known] * turns[known]).sum()) / weight if weight else None


def _facts(view: FeedView) -> Facts:
    books = view.books
    start_s, end_s = view.span_s
    return Facts(
        "Books: sessions and their turns",
        (
            Fact("sessions", number(books.sessions if books else None)),
            Fact(f"turns that stayed, last {stretch(end_s - start_s)}", percent(sticky_rate(view))),
            Fact("moves since the start", number(books.moves if books else None)),
            Fact("moves now", measured(view.total("moves_per_s"), "moves/s", 2)),
            Fact("queued at the balancer", measured(books.queued if books else None, "turns")),
        ),
    )


def session_bars(view: FeedView) -> Bars:
    """Sessions pinned to each replica."""
    amounts = {
        replica.status.replica_id: (
            Amount(replica.load.sessions, f"{replica.load.sessions:,}")
            if replica.load
            else Amount(None, "no data")
        )
        for replica in view.replicas
    }
    return replica_bars(view, amounts, title="Sessions pinned to each replica", unit="sessions")


def _move_table(view: FeedView) -> Table:
    moves = view.recent.moves[::-1]
    rows = tuple(
        (clock(move.unix_s), short(move.session_id), short(move.replica_id), prose(move.reason))
        for move in moves[:MAX_MOVES]
    )
    return Table(
        "Last moves",
        ("time", "session", "to replica", "reason"),
        rows,
        numeric=(True, False, False, False),
        empty="no session moved since this view began",
    )


def _hot_table(view: FeedView) -> Table:
    by_session = session_turns(view)
    used: dict[str, list[str]] = {}
    for hot in view.recent.hot:
        used.setdefault(hot.session_id, []).append(hot.replica_id)
    rows = tuple(
        (short(session), f"{turns:,}", prose(", ".join(used[session]), 60))
        for session, turns in sorted(by_session.items(), key=lambda item: (-item[1], item[0]))
    )
    return Table(
        "Busiest sessions",
        ("session", "turns", "on replicas, most used first"),
        rows[:MAX_SESSIONS],
        numeric=(False, True, False),
        empty="no turn yet since this view began",
    )


def _words(view: FeedView) -> str:
    books = view.books
    if books is None:
        return "No data on sessions yet."
    rate = sticky_rate(view)
    stayed = "no turn of a pinned session" if rate is None else f"{rate:.1%} of turns stayed"
    return (
        f"{count(books.sessions, 'session')} on {count(len(view.replicas), 'replica')}; {stayed} "
        f"in the last {stretch(view.span_s[1] - view.span_s[0])}; "
        f"{count(books.moves, 'move')} since the start; {count(books.queued, 'turn')} queued."
    )
