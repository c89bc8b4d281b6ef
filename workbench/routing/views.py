"""What the outside may know of a routing table, and whether its books are in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.routing.entries import NO_LIMIT
from workbench.types import ReplicaLoad, ReplicaState, RoutingSnapshot

if TYPE_CHECKING:
    from workbench.routing.entries import ReplicaEntry
    from workbench.routing.table import RoutingTable


def snapshot(table: RoutingTable, *, queued: int = 0, clients: int = 0) -> RoutingSnapshot:
    """The books at this moment."""
    sessions = table.sessions
    return RoutingSnapshot(
        epoch=table.epoch,
        policy=policy_name(table),
        replicas=tuple(_load(replica, table.acquired) for replica in table.replicas.values()),
        sessions=len(sessions.entries),
        acquired=table.acquired,
        sticky=table.sticky,
        first_touch=sessions.first_touch,
        moves=sessions.moves + sessions.ordered_moves,
        time_s=table.journal.now_s,
        queued=queued,
        failures=sum(replica.total_failures for replica in table.replicas.values()),
        clients=clients,
        known_prompt_tokens=table.known_prompt_tokens,
        predicted_cached_tokens=table.predicted_cached_tokens,
        cached_tokens=table.cached_tokens,
    )


def policy_name(table: RoutingTable) -> str:
    """The policy's own name, or that of its class."""
    return str(getattr(table.policy, "name", type(table.policy).__name__))


def _load(replica: ReplicaEntry, acquired: int) -> ReplicaLoad:
    return ReplicaLoad(
        replica.replica_id,
        replica.state,
        replica.in_flight,
        replica.peak_in_flight,
        replica.num_sessions,
        replica.acquired,
        in_flight_tokens=replica.in_flight_tokens,
        capacity=None if replica.capacity == NO_LIMIT else replica.capacity,
        share=replica.acquired / acquired if acquired else None,
        moved_here=replica.moved_here,
        failures=replica.total_failures,
        reason=replica.reason,
    )


def check(table: RoutingTable) -> None:
    """Assert every invariant of :mod:`workbench.routing.table`."""
    held = [held for leases in table.leases.values() for held in leases.values()]
    sessions = table.sessions.entries
    for replica in table.replicas.values():
        mine = [lease for lease in held if lease[0] is replica]
        assert replica.in_flight == len(mine) <= replica.peak_in_flight, replica.replica_id
        assert replica.in_flight_tokens == sum(lease[2] for lease in mine), replica.replica_id
        assert replica.num_sessions == sum(s.pin is replica for s in sessions.values())
        assert replica.limit <= replica.capacity
    for session_id, session in sessions.items():
        open_leases = sum(lease[1] is session for lease in held)
        assert session.open_leases == open_leases, session_id
        gone = session.pin is None or session.pin.state is ReplicaState.STOPPED
        assert gone or any(session.pin is r for r in table.replicas.values()), session_id
    first, moves = table.sessions.first_touch, table.sessions.moves
    assert table.acquired == table.sticky + first + moves
    assert 0 <= table.predicted_cached_tokens <= table.known_prompt_tokens
    is_open = [replica for replica in table.replicas.values() if replica.open]
    assert table.candidates.num_open == len(is_open)
    if is_open:
        best = table.candidates.least_loaded()
        fewest = min((r.in_flight, r.num_sessions) for r in is_open)
        assert (best.in_flight, best.num_sessions) == fewest
