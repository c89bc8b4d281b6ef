"""The sessions that a routing table knows: pins, history, and how they are forgotten."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from workbench.routing.entries import SessionEntry
from workbench.types import EventKind, ReplicaState, SessionInfo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workbench.routing.candidates import OpenReplicas
    from workbench.routing.entries import ReplicaEntry
    from workbench.routing.journal import Journal


class Sessions:
    """Session id → entry. A pin to a replica that was removed counts as none."""

    def __init__(self, journal: Journal, candidates: OpenReplicas) -> None:
        self._journal = journal
        self._candidates = candidates
        self.entries: dict[str, SessionEntry] = {}
        self.first_touch = self.moves = self.ordered_moves = 0
        self._unswept: list[str] = []

    def entry(self, session_id: str) -> SessionEntry:
        """The session; a new one if it is not known."""
        session = self.entries.get(session_id)
        if session is None:
            session = self.entries[session_id] = SessionEntry(self._journal.now_s)
        return session

    def pin(
        self, session_id: str, session: SessionEntry, chosen: ReplicaEntry, *, is_shared: bool
    ) -> None:
        """The policy put a turn of it elsewhere than the last one.

        ``is_shared``: clients may hold the pin that it had.
        """
        if session.pin is None:
            self.first_touch += 1
        else:
            self.moves += 1
            if session.pin.state is ReplicaState.READY:
                session.yields += 1
                if is_shared:
                    self._journal.void_session(session_id)
            self._moved(session_id, session, chosen, _why_moved(session.pin, chosen))
        self._set_pin(session, chosen)

    def order_move(self, session_id: str, replica: ReplicaEntry) -> None:
        """Somebody wants it there, from its next turn on."""
        session = self.entries[session_id]
        if session.pin is replica:
            return
        self.ordered_moves += 1
        self._moved(session_id, session, replica, "asked")
        self._set_pin(session, replica)
        self._journal.void_session(session_id)

    def _moved(self, session_id: str, session: SessionEntry, to: ReplicaEntry, why: str) -> None:
        session.moves += 1
        to.moved_here += 1
        self._journal.log(EventKind.MOVED, session_id, to.replica_id, reason=why)

    def _set_pin(self, session: SessionEntry, replica: ReplicaEntry) -> None:
        if session.pin is not None:
            session.pin.num_sessions -= 1
            self._candidates.touch(session.pin)
        replica.num_sessions += 1
        self._candidates.touch(replica)
        session.pin = replica
        session.turns_here = 0

    def adopt(self, session_id: str, replica: ReplicaEntry, *, is_pin: bool = True) -> SessionEntry:
        """Take a client's word for where a session is, unless it is known better.

        ``is_pin``: the client would begin its next turn there too, and has to ask if that is wrong.
        """
        session = self.entry(session_id)
        if session.pin is None or session.pin.state is ReplicaState.STOPPED:
            self._set_pin(session, replica)
        elif is_pin and session.pin is not replica:
            self._journal.void_session(session_id)
        return session

    def end(self, session_id: str, kind: EventKind = EventKind.ENDED) -> bool:
        """Forget a session; whether it was known. Its open leases stay valid."""
        session = self.entries.pop(session_id, None)
        if session is None:
            return False
        if session.pin:
            session.pin.num_sessions -= 1
            self._candidates.touch(session.pin)
        self._journal.log(kind, session_id, session.pin.replica_id if session.pin else "")
        return True

    def expire(self, idle_s: float, limit: int) -> int:
        """Look at ``limit`` sessions and forget those that were idle for ``idle_s``; how many.

        Goes round by and by, so that a million sessions cost no long pause.
        """
        if not self._unswept:
            self._unswept = list(self.entries)
        before = self._journal.now_s - idle_s
        batch = self._unswept[-limit:]
        del self._unswept[-limit:]
        idle = [session_id for session_id in batch if self._idle(session_id, before)]
        for session_id in idle:
            self.end(session_id, EventKind.EVICTED)
        return len(idle)

    def _idle(self, session_id: str, before: float) -> bool:
        session = self.entries.get(session_id)
        return session is not None and not session.open_leases and session.last_used_s <= before

    def pins(self) -> dict[str, str | None]:
        """Session id → replica id, or None where the session has to choose anew."""
        return {info.session_id: info.replica_id for info in self.infos(0, len(self.entries))}

    def infos(self, start: int, limit: int) -> Iterator[SessionInfo]:
        """Sessions ``start`` to ``start + limit`` in the order in which they came."""
        for session_id, session in islice(self.entries.items(), start, start + limit):
            yield self.info(session_id, session)

    def info(self, session_id: str, session: SessionEntry) -> SessionInfo:
        """One session as the outside sees it."""
        pin = session.pin
        return SessionInfo(
            session_id,
            pin.replica_id if pin is not None and pin.state is not ReplicaState.STOPPED else None,
            session.open_leases,
            session.turns,
            session.prompt_tokens,
            session.sampled_tokens,
            session.cached_tokens,
            session.moves,
            max(0.0, self._journal.now_s - session.last_used_s),
        )


def _why_moved(left: ReplicaEntry, chosen: ReplicaEntry) -> str:
    """In the words of :attr:`~workbench.types.RoutingEvent.reason`."""
    if left.state is ReplicaState.STOPPED:
        return "gone"
    if left.state is not ReplicaState.READY:
        return left.state.value
    if left.trial:
        return "trial"
    return "load" if chosen.in_flight < left.in_flight + left.queued else "policy"
