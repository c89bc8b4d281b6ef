"""The balancer: the routing table behind plain calls, hosted as one actor per pool.

Every method is synchronous and short, and Ray runs an actor's calls one after another, so each is
atomic. It needs no Ray itself: subclasses and tests use it as the plain object that it is.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

from workbench.errors import ReplicaDiedError
from workbench.routing.policies import make_policy
from workbench.routing.table import RoutingTable
from workbench.types import Lease, ReplicaState, RoutingSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SWEEP_EVERY = 1000
"""Leases between two sweeps for idle sessions."""


class GlobalRequestLoadBalancer:
    """Sticky sessions, least load at first touch.

    Args:
        servers: replica id → handle.
        policy: a name from :data:`workbench.routing.policies.POLICIES`.
        seed: of the choice among equally loaded replicas.
        session_idle_s: a session without a request in flight is forgotten after this long.
    """

    def __init__(
        self,
        servers: Mapping[str, Any] | None = None,
        *,
        policy: str = "sticky-least-loaded",
        seed: int = 0,
        session_idle_s: float = 3600.0,
    ) -> None:
        self._table = RoutingTable(make_policy(policy, random.Random(seed)), clock=time.monotonic)
        self._handles: dict[str, Any] = {}
        self._session_idle_s = session_idle_s
        self._until_sweep = SWEEP_EVERY
        self.add_servers(servers or {})

    # -- leases -----------------------------------------------------------------------------

    def acquire_server(self, request_id: str, owner: str = "") -> Lease:
        """Lease the next turn of a session; the lease unpacks as replica id and handle.

        Raises:
            NoReplicaError: no replica is ready.
        """
        lease = self.acquire(request_id, owner)
        handle = self._handles[lease.replica_id]
        return Lease(
            lease.lease_id, lease.session_id, lease.replica_id, lease.owner, lease.epoch, handle
        )

    def release_server(self, lease: Lease) -> bool:
        """Give a lease back; False when it was not open any more, which changes nothing."""
        return self._table.release(lease)

    def acquire(self, session_id: str, owner: str) -> Lease:
        """As :meth:`acquire_server` without the handle, which is costly to send each time."""
        self._until_sweep -= 1
        if self._until_sweep <= 0:
            self._until_sweep = SWEEP_EVERY
            self._table.expire_sessions(self._session_idle_s)
        return self._table.acquire(session_id, owner)

    def release_owner(self, owner: str) -> int:
        """Give back all that one client holds; how many leases that were."""
        return self._table.release_owner(owner)

    def end_session(self, session_id: str) -> bool:
        """Forget a session; whether it was known."""
        return self._table.end_session(session_id)

    # -- replicas ---------------------------------------------------------------------------

    def add_servers(self, servers: Mapping[str, Any]) -> None:
        """Take replicas into rotation.

        Raises:
            ConfigError: one of them is there already.
        """
        for replica_id, handle in servers.items():
            self._table.add_replica(replica_id)
            self._handles[replica_id] = handle

    def remove_servers(self, replica_ids: Iterable[str]) -> None:
        """Take replicas out; their sessions choose anew."""
        for replica_id in replica_ids:
            self._table.remove_replica(replica_id)
            del self._handles[replica_id]

    def set_state(self, replica_id: str, state: ReplicaState) -> None:
        """Only ready replicas get new work."""
        self._table.set_state(replica_id, state)

    def report_death(self, lease: Lease) -> None:
        """A client lost the replica of this open lease: out of rotation at once."""
        self._table.report_death(lease)

    def handle(self, replica_id: str) -> Any:
        """The handle of a replica.

        Raises:
            ReplicaDiedError: there is none of this name (any more).
        """
        if replica_id not in self._handles:
            raise ReplicaDiedError(replica_id, "it is not in the pool any more")
        return self._handles[replica_id]

    # -- views ------------------------------------------------------------------------------

    def snapshot(self) -> RoutingSnapshot:
        """The books at this moment."""
        return self._table.snapshot()

    def pins(self) -> dict[str, str | None]:
        """Session id → replica id."""
        return self._table.pins()

    def get_all_servers(self) -> list[str]:
        """Replica ids in the order in which they were added."""
        return self._table.replica_ids

    def get_inflight_count(self, server_id: str) -> int:
        """Open leases on one replica."""
        return self._table.in_flight(server_id)

    def get_total_inflight(self) -> int:
        """Open leases on all."""
        return self.snapshot().in_flight

    def get_status(self) -> dict[str, Any]:
        """verl's summary of the same books."""
        books = self.snapshot()
        return {
            "servers": {replica.replica_id: replica.in_flight for replica in books.replicas},
            "total_inflight": books.in_flight,
            "active_servers": sum(r.state is ReplicaState.READY for r in books.replicas),
            "registered_handles": len(self._handles),
        }
