"""What sessions did since somebody asked last, counted from the event log."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from operator import itemgetter
from typing import TYPE_CHECKING

from workbench.metrics.samples import Activity, SessionTurns
from workbench.types import EventKind

if TYPE_CHECKING:
    from workbench.routing.journal import Journal, Row

MOVES = 100
"""Moves that are told of one by one: the last ones."""


def activity(journal: Journal, cursor: int, top: int) -> Activity:
    """What happened after event number ``cursor``; takes no longer than a look at the whole log."""
    page = journal.rows(cursor)
    turns: Counter[tuple[str, str]] = Counter()
    moves: deque[Row] = deque(maxlen=MOVES)
    for row in page.items:
        kind = row[2]
        if kind is EventKind.ACQUIRED:
            turns[row[3], row[4]] += row[6]
        elif kind is EventKind.MOVED:
            moves.append(row)
    hot = heapq.nlargest(top, turns.items(), key=itemgetter(1))  # the first to come, of equals
    others: Counter[str] = Counter()
    for (_, replica_id), count in turns.items():
        others[replica_id] += count
    for (_, replica_id), count in hot:
        others[replica_id] -= count
    return Activity(
        page.cursor,
        page.lost,
        tuple(SessionTurns(*where, count) for where, count in hot),
        tuple((replica_id, count) for replica_id, count in others.items() if count),
        tuple(journal.event(row) for row in moves),
    )
