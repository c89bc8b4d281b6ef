"""The balancer from a cell: who is where, what happened, and what to change."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from workbench.errors import BalancerLostError, ConfigError, DeadlineError
from workbench.metrics.tables import event_frame, session_frame
from workbench.showing import bundle, percent, table
from workbench.types import ReplicaState

if TYPE_CHECKING:
    import pandas as pd

    from workbench.facade.reach import Reach
    from workbench.metrics.feed import Feed
    from workbench.types import RoutingSnapshot

POLL_S = 0.05
"""How often a draining replica is looked at."""


class Routing:
    """A pool's balancer, blocking."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._manager = reach.manager

    @property
    def feed(self) -> Feed:
        """The pool's figures over time."""
        return self._reach.feed

    def __repr__(self) -> str:
        books = self._reach.look_at(self._manager.ask_balancer("snapshot"))
        if isinstance(books, str):
            return f"Routing({books})"
        rate = "no turn yet" if books.sticky_rate is None else f"{books.sticky_rate:.0%} sticky"
        return (
            f"Routing({books.policy}, {books.sessions} sessions, {books.in_flight} in flight, "
            f"{books.queued} queued, {rate}, {books.moves} moves)"
        )

    def _repr_html_(self) -> str:
        books = self._reach.look_at(self._manager.ask_balancer("snapshot"))
        if isinstance(books, str):
            return table("Routing", [], books)
        rows = [
            {
                "replica": load.replica_id,
                "state": str(load.state),
                "in flight": load.in_flight,
                "prompt tokens in flight": load.in_flight_tokens,
                "capacity": load.capacity,
                "sessions": load.sessions,
                "share of turns": percent(load.share),
                "came from elsewhere": load.moved_here,
                "failures": load.failures,
                "out because": load.reason,
            }
            for load in books.replicas
        ]
        note = (
            f"{books.sessions} sessions, {books.queued} turns queued, {books.moves} moves, "
            f"{percent(books.sticky_rate)} of further turns stayed"
        )
        return table(f"Routing: {books.policy}", rows, note)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return bundle("routing", self, include, exclude)

    def snapshot(self) -> RoutingSnapshot:
        """The books at this moment; behind by no more than ``report_s`` and a call."""
        books: RoutingSnapshot = self._ask("snapshot")
        return books

    def sessions(self, start: int = 0, limit: int = 1000) -> pd.DataFrame:
        """A page of the sessions with their history, in the order in which they came."""
        return session_frame(self._ask("sessions", start, limit))

    def events(self, cursor: int = 0, limit: int | None = None) -> pd.DataFrame:
        """What happened after event number ``cursor``, oldest first.

        ``time_s`` is the balancer's clock, ``time`` the same moment in UTC. ``attrs["cursor"]`` is
        where the next read goes on; ``attrs["lost"]`` counts events in between that had to make
        room.
        """
        page = self._ask("events", cursor, limit)
        return event_frame(page.items, cursor=page.cursor, lost=page.lost)

    def end(self, session_id: str) -> bool:
        """Forget a session; whether it was known."""
        return bool(self._ask("end_session", session_id))

    def move(self, session_id: str, replica_id: str) -> None:
        """Pin a session to another replica, from its next turn on.

        Raises:
            ConfigError: unknown session; unknown or unready replica.
        """
        self._ask("move_session", session_id, replica_id)

    def drain(self, replica_id: str, *, timeout_s: float | None = None) -> None:
        """Give a replica no new work; returns when what it has is done.

        Its sessions go on elsewhere with their next turn. :meth:`readmit` takes it back.

        Raises:
            ConfigError: unknown replica.
            DeadlineError: it still has work after ``timeout_s``; it goes on draining.
        """
        if timeout_s is not None and not (isinstance(timeout_s, int | float) and timeout_s > 0):
            raise ConfigError("timeout_s", f"{timeout_s!r}", allowed="seconds above 0, or None")
        self._reach.call(self._drain(replica_id, timeout_s))

    def readmit(self, replica_id: str) -> None:
        """Take a replica back into rotation; one that is unhealthy is asked for its health now."""
        self._reach.call(self._manager.set_state(replica_id, ReplicaState.READY))

    async def _drain(self, replica_id: str, timeout_s: float | None) -> None:
        await self._manager.set_state(replica_id, ReplicaState.DRAINING)
        rules = self._manager.config.routing
        late_s = None if timeout_s is None else time.monotonic() + timeout_s
        # Clients may have begun turns that the balancer has yet to hear of.
        sure_s, epoch = time.monotonic() + rules.report_s + POLL_S, 0
        while True:
            books = await self._books()
            if books is None or (epoch and books.epoch != epoch):
                sure_s = time.monotonic() + rules.recovery_s + rules.report_s + POLL_S
            epoch = books.epoch if books else epoch
            left = _in_flight(books, replica_id)
            if left == 0 and time.monotonic() >= sure_s:
                return
            if late_s is not None and time.monotonic() >= late_s:
                raise DeadlineError(f"{replica_id} still has {left} in flight after {timeout_s} s")
            await asyncio.sleep(POLL_S)

    async def _books(self) -> RoutingSnapshot | None:
        """None while the balancer starts over."""
        try:
            books: RoutingSnapshot = await self._manager.ask_balancer("snapshot")
        except BalancerLostError:
            return None
        return books

    def _ask(self, method: str, *args: Any) -> Any:
        return self._reach.call(self._manager.ask_balancer(method, *args))


def _in_flight(books: RoutingSnapshot | None, replica_id: str) -> int | None:
    """None where that is not known."""
    found = (
        [load.in_flight for load in books.replicas if load.replica_id == replica_id]
        if books
        else []
    )
    return found[0] if found else None
