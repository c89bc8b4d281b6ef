"""One replica, and a pool of them, at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from workbench.types.fields import ByFields

if TYPE_CHECKING:
    from workbench.types.routing import ReplicaLoad, RoutingSnapshot


class ReplicaState(StrEnum):
    """Where a replica is in its life."""

    STARTING = "starting"
    READY = "ready"
    PAUSED = "paused"
    DRAINING = "draining"
    UNHEALTHY = "unhealthy"
    STOPPED = "stopped"


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
