"""The rows of the routing table: replicas and sessions.

Plain slots without behaviour: a million sessions and a lease every few microseconds pass by here.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from workbench.types import ReplicaState

if TYPE_CHECKING:
    from workbench.types import EngineFigures

NO_LIMIT = sys.maxsize


class ReplicaEntry:
    """One replica's books; a :class:`~workbench.routing.policies.base.ReplicaView` for policies."""

    __slots__ = (
        "acquired",
        "ask",
        "backoff_s",
        "cache",
        "capacity",
        "engine",
        "external",
        "failures",
        "in_flight",
        "in_flight_tokens",
        "index_stamp",
        "limit",
        "moved_here",
        "num_sessions",
        "peak_in_flight",
        "queued",
        "reason",
        "replica_id",
        "retry_at_s",
        "since",
        "state",
        "stays_below",
        "total_failures",
        "trial",
        "was_open",
    )

    def __init__(
        self, replica_id: str, state: ReplicaState, capacity: int | None, since: int
    ) -> None:
        self.replica_id = replica_id
        self.state = state
        self.capacity = NO_LIMIT if capacity is None else capacity
        self.limit = self.capacity
        """Requests that it may have in flight now; 1 while it is on trial."""
        self.since = since
        """Stamp of the revocations when it came: pins with an older one are its namesake's."""
        self.stays_below = 0
        """With fewer requests in flight than this, a session that is pinned here stays without
        the policy being asked."""
        self.in_flight = self.in_flight_tokens = self.peak_in_flight = 0
        self.num_sessions = self.acquired = self.moved_here = self.queued = 0
        self.engine: EngineFigures | None = None
        self.external = 0
        """Requests in its engine that came past the balancer, as it said last."""
        self.cache = object()
        """Stands for what its engine has cached; another one once nothing of that is of use."""
        self.ask = False
        """Whether turns of the sessions pinned here have to be asked for."""
        self.trial = False
        """Half open: back from being unhealthy, one request at a time until one succeeds."""
        self.failures = 0
        """In a row."""
        self.total_failures = 0
        self.reason = ""
        """Why it is unhealthy."""
        self.backoff_s = 0.0
        self.retry_at_s = 0.0
        """When it is to be probed next."""
        self.was_open = False
        """Whether the candidates count it as open."""
        self.index_stamp = 0
        """Which entry of the candidates' heap is the valid one."""

    @property
    def load(self) -> int:
        """Requests that are booked here, and those that came past the books."""
        return self.in_flight + self.external

    @property
    def open(self) -> bool:
        """Whether it can take a request now."""
        return self.state is ReplicaState.READY and self.in_flight < self.limit

    @property
    def situation(self) -> str:
        """Why it takes no request, in words."""
        if self.open:
            return f"{self.replica_id} is ready"
        if self.state is not ReplicaState.READY:
            return f"{self.replica_id} is {self.state}" + (f" ({self.reason})" * bool(self.reason))
        if self.trial:
            return f"{self.replica_id} is on trial after a failure"
        return f"{self.replica_id} is full ({self.in_flight} of {self.limit} in flight)"


class SessionEntry:
    """One session's pin and history, as counters."""

    __slots__ = (
        "cached_tokens",
        "context_at",
        "context_tokens",
        "last_used_s",
        "moves",
        "open_leases",
        "pin",
        "prompt_tokens",
        "sampled_tokens",
        "turns",
        "turns_here",
        "yields",
    )

    def __init__(self, now_s: float) -> None:
        self.pin: ReplicaEntry | None = None
        self.last_used_s = now_s
        self.open_leases = self.turns = self.turns_here = self.moves = 0
        self.yields = 0
        """Moves that a policy made away from a replica that was ready."""
        self.prompt_tokens = self.sampled_tokens = self.cached_tokens = self.context_tokens = 0
        self.context_at: object | None = None
        """The cache of the replica where the turn ran whose context that is."""
