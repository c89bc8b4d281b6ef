"""What happened and what is void: the table's two logs, and its clock."""

from __future__ import annotations

import itertools
from collections import deque
from typing import Any

from workbench.routing.messages import Revocation
from workbench.routing.ring import Page, Ring, read_page
from workbench.types import EventKind, RoutingEvent

LIFE = 10**12
"""Event numbers that each life of the balancer has to itself: cursors go on through all of them."""

REVOCATIONS = 4096
"""Revocations that are kept; a client that is further behind drops all its pins."""


class Journal:
    """Events for people, revocations for clients.

    ``now_s`` is the time that somebody said last: a lease costs no look at a clock.
    """

    def __init__(self, events: int, now_s: float = 0.0, epoch: int = 1) -> None:
        self.now_s = now_s
        self._first = (epoch - 1) * LIFE + 1
        self.revocations: Ring[Revocation] = Ring(REVOCATIONS)
        self.numbers = itertools.count(self._first)
        self.written: deque[tuple[Any, ...]] = deque(maxlen=events)
        """The last events, each with its number; the table writes the frequent ones itself."""

    def log(
        self,
        kind: EventKind,
        session_id: str = "",
        replica_id: str = "",
        owner: str = "",
        count: int = 1,
    ) -> None:
        """Write an event down."""
        self.written.append(
            (next(self.numbers), self.now_s, kind, session_id, replica_id, owner, count)
        )

    def events(self, cursor: int = 0, limit: int | None = None) -> Page[RoutingEvent]:
        """The events after ``cursor``, oldest first.

        What a former life of the balancer wrote is gone and not counted as lost.
        """
        if not self.written:
            return Page([], cursor, 0)
        last = self.written[-1][0]
        page = read_page(self.written, last, cursor, limit, first_ever=self._first)
        return Page([RoutingEvent(*event) for event in page.items], page.cursor, page.lost)

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
