"""What happened and what is void: the table's two logs, and its clock."""

from __future__ import annotations

import itertools
from collections import deque

from workbench.routing.messages import Revocation
from workbench.routing.ring import Page, Ring, read_page
from workbench.types import EventKind, RoutingEvent

LIFE = 10**12
"""Event numbers that each life of the balancer has to itself: cursors go on through all of them."""

REVOCATIONS = 4096
"""Revocations that are kept; a client that is further behind drops all its pins."""

Row = tuple[int, float, EventKind, str, str, str, int, str]
"""An event as it is written: the fields of :class:`RoutingEvent` but the last."""

SAME_S = 0.1
"""Clocks that differ by less tell the same time: events are no finer than that."""


class Journal:
    """Events for people, revocations for clients.

    ``now_s`` is the time that somebody said last: a lease costs no look at a clock.
    """

    def __init__(self, events: int, now_s: float = 0.0, epoch: int = 1) -> None:
        self.now_s = now_s
        self._unix_at_zero_s = 0.0
        """Seconds since 1970 when ``now_s`` was 0."""
        self._first = (epoch - 1) * LIFE + 1
        self.revocations: Ring[Revocation] = Ring(REVOCATIONS)
        self.numbers = itertools.count(self._first)
        self.written: deque[Row] = deque(maxlen=events)
        """The last events; the table writes the frequent ones itself."""

    def log(
        self,
        kind: EventKind,
        session_id: str = "",
        replica_id: str = "",
        owner: str = "",
        count: int = 1,
        reason: str = "",
    ) -> None:
        """Write an event down."""
        self.written.append(
            (next(self.numbers), self.now_s, kind, session_id, replica_id, owner, count, reason)
        )

    def set_wall_clock(self, unix_s: float) -> None:
        """``now_s`` is ``unix_s`` seconds since 1970.

        Said again and again, for that clock may be set, and ours stands still while the machine
        sleeps; events are then told by the latest.
        """
        at_zero_s = unix_s - self.now_s
        if abs(at_zero_s - self._unix_at_zero_s) > SAME_S:
            self._unix_at_zero_s = at_zero_s

    def events(self, cursor: int = 0, limit: int | None = None) -> Page[RoutingEvent]:
        """The events after ``cursor``, oldest first.

        What a former life of the balancer wrote is gone and not counted as lost.
        """
        page = self.rows(cursor, limit)
        return Page([self.event(row) for row in page.items], page.cursor, page.lost)

    def rows(self, cursor: int = 0, limit: int | None = None) -> Page[Row]:
        """:meth:`events` as they were written, for those who only count."""
        if not self.written:
            return Page([], cursor, 0)
        last = self.written[-1][0]
        return read_page(self.written, last, cursor, limit, first_ever=self._first)

    def event(self, row: Row) -> RoutingEvent:
        """What a row stands for."""
        return RoutingEvent(*row, self._unix_at_zero_s + row[1])

    def void_session(self, session_id: str) -> None:
        """No client may start a turn of this session without asking."""
        self._void(session_id, "")

    def void_replica(self, replica_id: str) -> None:
        """… of any session that is pinned to this replica."""
        self._void("", replica_id)

    def void_all(self) -> None:
        """… of any session."""
        self._void("", "")

    def _void(self, session_id: str, replica_id: str) -> None:
        self.revocations.append(Revocation(self.revocations.last + 1, session_id, replica_id))
