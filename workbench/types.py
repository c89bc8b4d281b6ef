"""The vocabulary: what travels between engine, replica, balancer, client and agent loop.

Frozen values without behaviour beyond what can be derived from their own fields.
Durations are seconds (``_s``), token counts end in ``_tokens``, shares lie in 0–1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

SamplingParams = Mapping[str, Any]
"""Sampling parameters by the engine's own names (``temperature``, ``max_tokens``, …)."""


class ByFields:
    """Is pickled as its fields in their order, in half the time that a dataclass with slots takes.

    With every sample a large pool sends a thousand objects.
    """

    __slots__: tuple[str, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple([getattr(self, name) for name in self.__slots__])


class FinishReason(StrEnum):
    """Why a generation ended."""

    STOP = "stop"
    """The model ended its turn, or a stop string or token was met."""
    LENGTH = "length"
    """The token budget or the engine's context was used up."""
    ABORT = "abort"
    """Somebody stopped it; the tokens so far are good."""
    ERROR = "error"
    """The engine failed on it."""


class ReplicaState(StrEnum):
    """Where a replica is in its life."""

    STARTING = "starting"
    READY = "ready"
    PAUSED = "paused"
    DRAINING = "draining"
    UNHEALTHY = "unhealthy"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class VersionSpan:
    """Tokens ``start`` (included) to ``end`` (excluded) were sampled under ``version``."""

    version: int
    start: int
    end: int


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


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One attempt of one ``generate`` call, as a replica gets it."""

    request_id: str
    prompt_ids: list[int]
    sampling: dict[str, Any]
    session_id: str
    priority: int = 0


@dataclass(frozen=True, slots=True)
class GenerationTiming:
    """Where the seconds of a generation went."""

    queue_s: float | None = None
    """In the engine, from arrival to being scheduled."""
    first_token_s: float | None = None
    """In the engine, from arrival to the first token of the first attempt."""
    total_s: float = 0.0
    """At the client, from the call to its end, over all attempts."""


@dataclass(frozen=True, slots=True)
class TokenDelta:
    """New tokens of one request; the last one of a request has a ``finish_reason`` or an ``error``.

    ``token_ids`` and ``log_probs`` are aligned 1:1.
    """

    request_id: str
    token_ids: list[int]
    log_probs: list[float]
    version: int
    """The policy version under which these tokens were sampled."""
    finish_reason: FinishReason | None = None
    num_cached_tokens: int | None = None
    num_preempted: int | None = None
    queue_s: float | None = None
    first_token_s: float | None = None
    version_spans: tuple[VersionSpan, ...] = ()
    """The engine's own spans over the attempt, on the last delta where the engine gives them."""
    error: Exception | None = None
    interrupted: bool = False
    """It ended with ``abort`` because weights changed, and not because anybody meant it to."""

    @property
    def is_last(self) -> bool:
        """Whether nothing follows for this request."""
        return self.finish_reason is not None or self.error is not None


@dataclass(frozen=True, slots=True)
class TokenOutput:
    """What a ``generate`` call sampled, over all its attempts.

    ``token_ids`` and ``log_probs`` have the same length; ``version_spans`` cover it exactly.
    """

    token_ids: list[int]
    log_probs: list[float]
    """The log-probability with which each token was sampled, temperature included."""
    finish_reason: FinishReason
    version_spans: tuple[VersionSpan, ...]
    replica_id: str
    """The replica that produced the last token."""
    num_cached_tokens: int | None = None
    """Prompt tokens of the first attempt that its replica had in cache; None when unknown."""
    num_preempted: int | None = None
    """How often the engine had to push it out and start over; None when unknown."""
    attempts: int = 1
    timing: GenerationTiming = GenerationTiming()

    def __repr__(self) -> str:
        versions = ", ".join(str(span.version) for span in self.version_spans) or "none"
        return (
            f"TokenOutput({len(self.token_ids)} tokens, {self.finish_reason}, {self.replica_id}, "
            f"version {versions}, {self.timing.total_s:.2f} s)"
        )

    @property
    def stop_reason(self) -> str:
        """The finish reason in verl's words: ``completed``, ``aborted`` or ``error``."""
        if self.finish_reason in {FinishReason.STOP, FinishReason.LENGTH}:
            return "completed"
        return "aborted" if self.finish_reason is FinishReason.ABORT else "error"

    @property
    def extra_fields(self) -> dict[str, Any]:
        """verl's version keys: the oldest and the newest version in the tokens."""
        versions = [span.version for span in self.version_spans]
        if not versions:
            return {}
        return {
            "min_global_steps": min(versions),
            "max_global_steps": max(versions),
            "global_steps": versions[-1],
        }


@dataclass(frozen=True, slots=True)
class EngineFigures(ByFields):
    """What the engine itself reports. Counters grow from the engine's start."""

    running: int = 0
    """Requests in the engine's current batch."""
    waiting: int = 0
    """Requests that wait inside the engine."""
    kv_cache_usage: float = 0.0
    """Share of the KV cache in use."""
    prompt_tokens: int = 0
    """Prompt tokens of all requests that were scheduled."""
    cached_prompt_tokens: int = 0
    """Those of them that came from the prefix cache."""
    generation_tokens: int = 0
    """Tokens sampled."""
    num_preempted: int = 0
    """Requests that were pushed out of the batch and had to start over."""
    finished: int = 0
    """Requests that ended."""
    evicted_blocks: int | None = None
    """Blocks that left the prefix cache to make room; None where the engine does not say."""
    ttft_counts: tuple[int, ...] = ()
    """Times to first token by bucket, see :mod:`workbench.metrics.buckets`; empty where the engine
    does not say."""
    external: int = 0
    """Requests in the engine that came past the balancer, over the replica's own HTTP routes."""
    stalled_s: float = 0.0
    """Since the engine last took a step, while it has requests that it may serve; 0 else."""

    @property
    def prefix_hit_rate(self) -> float | None:
        """Cached prompt tokens ÷ prompt tokens; None when nothing was asked."""
        return self.cached_prompt_tokens / self.prompt_tokens if self.prompt_tokens else None


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


@dataclass(frozen=True, slots=True)
class ReplicaStatus(ByFields):
    """One replica as the controller sees it."""

    replica_id: str
    state: ReplicaState
    stage: str
    """What it is doing while it starts, in words; empty once it is ready."""
    pid: int | None = None
    node: str = ""
    start_s: float | None = None
    """From the order to start to ready."""
    error: str = ""
    """Why it was replaced last, or why it is not any more."""
    log_path: str = ""
    version: int = 0
    """The policy version of its weights."""
    restarts: int = 0
    """How often it was replaced since it last ran well for a while."""
    address: str = ""
    """Of its HTTP routes, as ``http://host:port``."""
    stages: tuple[tuple[str, float], ...] = ()
    """What it did while it started, in order, and the seconds that each took."""


@dataclass(frozen=True, slots=True)
class ReplicaSnapshot(ByFields):
    """A replica's three views side by side: life, our books, the engine's own figures."""

    status: ReplicaStatus
    load: ReplicaLoad | None
    """None before the balancer knows it."""
    engine: EngineFigures | None
    """None when the replica did not answer: absence, not zero."""


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """The pool at one moment."""

    name: str
    model: str
    device: str
    """``cpu`` or ``gpu``."""
    replicas: tuple[ReplicaSnapshot, ...]
    routing: RoutingSnapshot | None
