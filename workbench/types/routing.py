"""The balancer's words."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from workbench.types.fields import ByFields

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workbench.types.replicas import ReplicaState


@dataclass(slots=True, unsafe_hash=True)
class Lease:
    """The right to run one request on one replica. Unpacks as ``(replica_id, handle)``.

    Not to be changed; it is not frozen because one is made for every turn.
    """

    lease_id: int
    session_id: str
    replica_id: str
    owner: str
    epoch: int
    """Which life of the balancer gave it; a release from an older one changes nothing."""
    handle: Any = field(default=None, compare=False, repr=False)
    """The replica itself, where the balancer was asked to send it along."""

    def __iter__(self) -> Iterator[Any]:
        return iter((self.replica_id, self.handle))


class EventKind(StrEnum):
    """What happened at the balancer."""

    ACQUIRED = "acquired"
    RELEASED = "released"
    MOVED = "moved"
    """A session changed its replica."""
    EVICTED = "evicted"
    """A session was forgotten: it was idle for too long."""
    ENDED = "ended"
    """A session was ended by its owner."""
    RECLAIMED = "reclaimed"
    """A lease came back because its owner was not heard of any more."""
    DRAINED = "drained"
    """A draining replica has nothing in flight any more."""
    REPLICA_UP = "replica_up"
    REPLICA_DOWN = "replica_down"


@dataclass(frozen=True, slots=True)
class RoutingEvent(ByFields):
    """One entry of the balancer's event log."""

    number: int
    """1, 2, … since the balancer started; a gap means that older ones made room."""
    time_s: float
    """By the balancer's clock, which its snapshot carries too."""
    kind: EventKind
    session_id: str
    replica_id: str
    owner: str
    count: int
    """Turns that it stands for: a client reports what it began and ended by itself together."""
    reason: str = ""
    """Of ``moved``: ``load`` or ``policy`` (the policy preferred a replica with less in flight, or
    for reasons of its own), ``asked`` (somebody moved it), ``trial``, ``gone`` or a replica's state
    (where it was could not take it). Of ``replica_down``: ``removed``, or why, in words."""
    unix_s: float = 0.0
    """Seconds since 1970 at ``time_s``."""


@dataclass(frozen=True, slots=True)
class SessionInfo(ByFields):
    """One session's pin and history."""

    session_id: str
    replica_id: str | None
    """The replica that it is pinned to; None where it has to choose anew."""
    in_flight: int
    """Open leases."""
    turns: int
    prompt_tokens: int
    """Of all its turns."""
    sampled_tokens: int
    cached_tokens: int
    """Prompt tokens that replicas had in their caches."""
    moves: int
    idle_s: float
    """Since it was last used; as coarse as the balancer's tick."""


@dataclass(frozen=True, slots=True)
class ReplicaLoad(ByFields):
    """What the balancer has booked on one replica."""

    replica_id: str
    state: ReplicaState
    in_flight: int
    """Requests leased out and not released."""
    peak_in_flight: int
    """The most that were ever in flight together."""
    sessions: int
    """Sessions pinned here."""
    acquired: int
    """Leases given since the balancer started."""
    in_flight_tokens: int = 0
    """Prompt tokens of the requests in flight, counted at dispatch."""
    capacity: int | None = None
    """Requests that may be in flight together; None for no limit."""
    share: float | None = None
    """Of all leases given; None before the first."""
    moved_here: int = 0
    """Sessions that came from another replica."""
    failures: int = 0
    """Requests that failed on it."""
    reason: str = ""
    """Why it is out of rotation."""


@dataclass(frozen=True, slots=True)
class RoutingSnapshot:
    """The balancer's books at one moment."""

    epoch: int
    policy: str
    replicas: tuple[ReplicaLoad, ...]
    sessions: int
    """Sessions known, pinned or not."""
    acquired: int
    """Leases given, those that clients gave themselves on pins included."""
    sticky: int
    """Leases given on the replica that the session was pinned to."""
    first_touch: int
    """Leases given to a session without a pin."""
    moves: int
    """Pins that changed their replica."""
    time_s: float = 0.0
    """By the balancer's clock."""
    queued: int = 0
    """Turns that wait for a replica."""
    failures: int = 0
    """Requests that failed on a replica."""
    clients: int = 0
    """Clients that were heard of lately."""
    known_prompt_tokens: int = 0
    """Prompt tokens of the turns that ended and whose usage clients reported."""
    predicted_cached_tokens: int = 0
    """Those of them that should have been cached: what the session's turn before left on the same
    replica."""
    cached_tokens: int = 0
    """Those of them that were cached, as the engines told the clients."""

    @property
    def in_flight(self) -> int:
        """Requests leased out over all replicas."""
        return sum(replica.in_flight for replica in self.replicas)

    @property
    def in_flight_tokens(self) -> int:
        """Their prompt tokens."""
        return sum(replica.in_flight_tokens for replica in self.replicas)

    @property
    def sticky_rate(self) -> float | None:
        """Share of the turns of pinned sessions that stayed; None before there was one."""
        pinned = self.acquired - self.first_touch
        return self.sticky / pinned if pinned else None
