"""The routing table: replicas, sessions and leases, and the counts that follow from them.

Invariants, asserted by :meth:`RoutingTable.check`:

* a lease is given back exactly once; a second release, one from an older epoch and one of a
  lease that never was change nothing;
* a replica's in-flight count is the number of open leases on it, so a replica that was removed
  and added again starts at zero whatever is still out on its former self;
* a session is pinned to at most one replica, and only to one that the table knows.

Plain and synchronous: it owns no task, clock, client or actor.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.errors import ConfigError, NoReplicaError
from workbench.types import Lease, ReplicaLoad, ReplicaState, RoutingSnapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from workbench.routing.policies import Policy


@dataclass(slots=True, eq=False)
class _Replica:
    replica_id: str
    state: ReplicaState
    in_flight: int = 0
    peak_in_flight: int = 0
    num_sessions: int = 0
    acquired: int = 0


@dataclass(slots=True, eq=False)
class _Session:
    pin: _Replica | None
    last_used_s: float
    open_leases: int = 0


class RoutingTable:
    """Who is where. ``clock`` returns seconds and is only read to age idle sessions."""

    def __init__(self, policy: Policy, *, clock: Callable[[], float], epoch: int = 0) -> None:
        self.epoch = epoch
        self._policy = policy
        self._clock = clock
        self._lease_ids = itertools.count(1)
        self._replicas: dict[str, _Replica] = {}
        self._sessions: dict[str, _Session] = {}
        self._leases: dict[int, tuple[Lease, _Replica, _Session]] = {}
        self._acquired = self._sticky = self._first_touch = self._moves = 0

    # -- replicas ---------------------------------------------------------------------------

    def add_replica(self, replica_id: str, state: ReplicaState = ReplicaState.READY) -> None:
        """Take a replica into the table.

        Raises:
            ConfigError: it is there already (re-adding would forget its counts).
        """
        if replica_id in self._replicas:
            raise ConfigError("replica_id", f"{replica_id!r} is in the table already")
        self._replicas[replica_id] = _Replica(replica_id, state)

    def remove_replica(self, replica_id: str) -> None:
        """Forget a replica; its sessions choose anew, its open leases count for nothing."""
        replica = self._replica(replica_id)
        del self._replicas[replica_id]
        for session in self._sessions.values():
            if session.pin is replica:
                session.pin = None

    def set_state(self, replica_id: str, state: ReplicaState) -> None:
        """Only ``READY`` replicas get new work; pins survive any other state."""
        self._replica(replica_id).state = state

    @property
    def replica_ids(self) -> list[str]:
        """All replicas, in the order in which they were added."""
        return list(self._replicas)

    # -- leases -----------------------------------------------------------------------------

    def acquire(self, session_id: str, owner: str) -> Lease:
        """Lease the next turn of a session on the replica that the policy names.

        Raises:
            NoReplicaError: no replica is ready; names each with its state.
        """
        candidates = [r for r in self._replicas.values() if r.state is ReplicaState.READY]
        if not candidates:
            states = ", ".join(f"{r.replica_id} is {r.state}" for r in self._replicas.values())
            raise NoReplicaError(f"no replica is ready: {states or 'the pool is empty'}")
        session = self._session(session_id)
        pinned = session.pin if session.pin and session.pin.state is ReplicaState.READY else None
        chosen = self._replica(self._policy.choose(session_id, pinned, candidates).replica_id)
        self._pin(session, chosen)
        return self._lease(session_id, session, chosen, owner)

    def release(self, lease: Lease) -> bool:
        """Give a lease back; whether it was still open (False changes nothing)."""
        if lease.epoch != self.epoch:
            return False
        held = self._leases.pop(lease.lease_id, None)
        if held is None:
            return False
        # The replica and session that were leased: others may go by their names by now.
        _, replica, session = held
        replica.in_flight -= 1
        session.open_leases -= 1
        session.last_used_s = self._clock()
        return True

    def report_death(self, lease: Lease) -> bool:
        """Take the replica of an open lease out of rotation; whether that changed anything.

        A replica that has come in its place under the same id is not meant.
        """
        held = self._leases.get(lease.lease_id) if lease.epoch == self.epoch else None
        if held is None or self._replicas.get(lease.replica_id) is not held[1]:
            return False
        held[1].state = ReplicaState.UNHEALTHY
        return True

    def release_owner(self, owner: str) -> int:
        """Give back all that ``owner`` holds; how many leases that were."""
        held = [lease for lease, _, _ in self._leases.values() if lease.owner == owner]
        return sum(self.release(lease) for lease in held)

    # -- sessions ---------------------------------------------------------------------------

    def end_session(self, session_id: str) -> bool:
        """Forget a session; whether it was known. Its open leases stay valid."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            return False
        if session.pin:
            session.pin.num_sessions -= 1
        return True

    def expire_sessions(self, idle_s: float) -> int:
        """End the sessions without an open lease that were idle for ``idle_s``; how many."""
        before = self._clock() - idle_s
        idle = [
            session_id
            for session_id, session in self._sessions.items()
            if not session.open_leases and session.last_used_s <= before
        ]
        return sum(self.end_session(session_id) for session_id in idle)

    def pins(self) -> dict[str, str | None]:
        """Session id → replica id, or None where the session has to choose anew."""
        return {
            session_id: session.pin.replica_id if session.pin else None
            for session_id, session in self._sessions.items()
        }

    # -- views ------------------------------------------------------------------------------

    def in_flight(self, replica_id: str) -> int:
        """Open leases on a replica."""
        return self._replica(replica_id).in_flight

    def snapshot(self) -> RoutingSnapshot:
        """The books at this moment."""
        return RoutingSnapshot(
            epoch=self.epoch,
            policy=self._policy.name,
            replicas=tuple(
                ReplicaLoad(
                    r.replica_id, r.state, r.in_flight, r.peak_in_flight, r.num_sessions, r.acquired
                )
                for r in self._replicas.values()
            ),
            sessions=len(self._sessions),
            acquired=self._acquired,
            sticky=self._sticky,
            first_touch=self._first_touch,
            moves=self._moves,
        )

    def check(self) -> None:
        """Assert every invariant of this module's docstring."""
        known = list(self._replicas.values())
        for replica in known:
            open_leases = sum(held is replica for _, held, _ in self._leases.values())
            assert replica.in_flight == open_leases <= replica.peak_in_flight
            assert replica.num_sessions == sum(s.pin is replica for s in self._sessions.values())
        for session_id, session in self._sessions.items():
            assert session.pin is None or any(session.pin is r for r in known), session_id
            open_leases = sum(held is session for _, _, held in self._leases.values())
            assert session.open_leases == open_leases, session_id
        assert self._acquired == self._sticky + self._first_touch + self._moves

    # -- inside -----------------------------------------------------------------------------

    def _replica(self, replica_id: str) -> _Replica:
        if replica_id not in self._replicas:
            raise ConfigError("replica_id", f"unknown {replica_id!r}", allowed=self._replicas)
        return self._replicas[replica_id]

    def _session(self, session_id: str) -> _Session:
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = _Session(None, self._clock())
        return session

    def _pin(self, session: _Session, chosen: _Replica) -> None:
        self._acquired += 1
        if session.pin is chosen:
            self._sticky += 1
            return
        if session.pin is None:
            self._first_touch += 1
        else:
            self._moves += 1
            session.pin.num_sessions -= 1
        chosen.num_sessions += 1
        session.pin = chosen

    def _lease(self, session_id: str, session: _Session, replica: _Replica, owner: str) -> Lease:
        lease = Lease(next(self._lease_ids), session_id, replica.replica_id, owner, self.epoch)
        self._leases[lease.lease_id] = (lease, replica, session)
        replica.in_flight += 1
        replica.acquired += 1
        replica.peak_in_flight = max(replica.peak_in_flight, replica.in_flight)
        session.open_leases += 1
        session.last_used_s = self._clock()
        return lease
