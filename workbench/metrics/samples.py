"""What a pool looks like at one moment. Frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.types import ByFields

if TYPE_CHECKING:
    from workbench.metrics.streams import StreamSnapshot
    from workbench.types import PoolSnapshot, RoutingEvent


@dataclass(frozen=True, slots=True)
class SessionTurns(ByFields):
    """What one session did on one replica over an interval."""

    session_id: str
    replica_id: str
    turns: int


@dataclass(frozen=True, slots=True)
class Activity(ByFields):
    """What sessions did since the sampler asked last; aggregates and a top-k, never all."""

    cursor: int = 0
    """Number of the last event that is in here."""
    lost: int = 0
    """Events that made room before they were read: the counts below lack them."""
    hot: tuple[SessionTurns, ...] = ()
    """The busiest sessions by replica, most turns first."""
    others: tuple[tuple[str, int], ...] = ()
    """Replica id, turns of all sessions that are not in ``hot``."""
    moves: tuple[RoutingEvent, ...] = ()
    """The last moves, oldest first, each with its reason."""


@dataclass(frozen=True, slots=True)
class RolloutSnapshot(ByFields):
    """A batch of rollouts at one moment."""

    agent: str
    total: int
    """Rows that there will be, if none is dropped."""
    running: int
    """Rollouts in flight."""
    done: int
    failed: int
    cancelled: int
    sampled_tokens: int
    """Of the rollouts that ended."""
    mean_reward: float | None
    """Of those that have a reward; None when none has."""
    wall_s: float
    """Since the batch began, until it ended."""
    name: str = ""
    """Tells batches of one pool apart."""
    failures: tuple[tuple[str, int], ...] = ()
    """Cause (an error's type), failed rollouts; the most frequent first."""
    rewards: tuple[tuple[float, float, int], ...] = ()
    """From, to, rollouts with a reward in between: at most 20 bins, the last with both ends."""
    started_s: float = 0.0
    """When it began; seconds since 1970."""
    heard_s: float = 0.0
    """When whoever plays it told of it last, where others look; 0 where it is at hand."""
    missing: int = 0
    """Rows that will not come, since their rollouts were dropped."""
    left_out: tuple[tuple[str, int, int], ...] = ()
    """Cause (see ``LeftOut``), rollouts that are no rows, their tokens."""
    retried: int = 0
    """Times that a rollout was played again."""
    limit: int = 0
    """Rollouts that may be in flight just now, by what the pool can take; 0 when unknown."""
    stream: StreamSnapshot | None = None
    """Of a stream, whose ``total`` is 0 where nobody knows how many tasks it has."""

    @property
    def ended(self) -> int:
        """Rows that are settled, however."""
        return self.done + self.failed + self.cancelled + self.missing

    @property
    def tokens_per_s(self) -> float:
        """Sampled tokens of ended rollouts per second of wall time."""
        return self.sampled_tokens / self.wall_s if self.wall_s else 0.0

    @property
    def left_s(self) -> float | None:
        """Estimated from the rollouts that ended so far; None before the first, 0 at the end."""
        if self.ended >= self.total:
            return 0.0
        return self.wall_s / self.ended * (self.total - self.ended) if self.ended else None


@dataclass(frozen=True, slots=True)
class Sample(ByFields):
    """A pool, what its sessions just did, and its batches of rollouts."""

    time_s: float
    """Seconds since 1970, by the sampler's clock."""
    pool: PoolSnapshot
    activity: Activity = Activity()
    runs: tuple[RolloutSnapshot, ...] = ()
    """Those that are known, oldest first; one that ended stays for a while."""
    heard_s: tuple[tuple[str, float], ...] = ()
    """Replica id, when its engine last reported; replicas that never did are missing."""
