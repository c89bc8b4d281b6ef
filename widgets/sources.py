"""What panels read, what they may do, and where they find it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from workbench.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from workbench.metrics.feed import Feed
    from workbench.metrics.history import Block
    from workbench.metrics.samples import Sample
    from workbench.trajectory import Trajectory
    from workbench.weights import PauseMode, WeightUpdate


@runtime_checkable
class FeedSource(Protocol):
    """A pool's figures as :class:`workbench.metrics.feed.Feed` has them."""

    @property
    def name(self) -> str:
        """The pool's."""

    @property
    def period_s(self) -> float:
        """Between two samples."""

    @property
    def latest(self) -> Sample | None:
        """The last sample; None before the first."""

    @property
    def closed(self) -> bool:
        """Whether nothing will be added any more."""

    @property
    def is_live(self) -> bool:
        """Whether it shows a pool, and not what was saved of one."""

    @property
    def error(self) -> str:
        """Why there is no news; empty while there is."""

    def pull(self) -> bool:
        """Get what is new, if anything is; blocks and never raises."""

    def window(self, start_s: float, end_s: float, points: int | None = None) -> Block:
        """The figures of a time, at most ``points`` moments."""

    def sessions(self, start: int, limit: int) -> pd.DataFrame:
        """A page of the sessions."""

    def events(self, cursor: int, limit: int) -> pd.DataFrame:
        """What happened at the balancer after ``cursor``."""

    def rollouts(self, name: str) -> list[Trajectory]:
        """The last rollouts of a batch that ended."""


def feed_of(source: object) -> Feed:
    """The figures behind something that a person has at hand.

    Args:
        source: a pool, whatever has its ``feed``, or that feed itself.

    Raises:
        ConfigError: it has none.
    """
    found: Any = getattr(source, "feed", source)
    if not isinstance(found, FeedSource):
        raise ConfigError(
            "source",
            f"{type(source).__name__} has no figures to show",
            allowed="a Workbench, a LocalPool, a Feed, or anything with a feed",
        )
    return cast("Feed", found)


@runtime_checkable
class PoolVerbs(Protocol):
    """What can be done to a pool while it runs.

    All of it blocks and may raise :class:`workbench.errors.WorkbenchError`.
    """

    def scale(self, replicas: int) -> list[str]:
        """Have so many replicas; returns the ids of those that there are then."""

    def add_replicas(self, count: int = 1) -> list[str]:
        """Start so many more; returns their ids."""

    def remove_replicas(self, replica_ids: str | Sequence[str], *, drain: bool = True) -> None:
        """Take these away, by default once they have nothing in flight."""

    def restart(self, replica_id: str, *, drain: bool = False) -> None:
        """Replace a replica by a new one of its name."""

    def drain(self, replica_id: str) -> None:
        """Give it nothing new."""

    def readmit(self, replica_id: str) -> None:
        """Take a drained replica back."""

    def pause(self, replica_id: str | None = None, *, mode: PauseMode = "keep") -> None:
        """Stop a replica's engine, or all of them."""

    def resume(self, replica_id: str | None = None) -> None:
        """Let a paused replica, or all, go on."""

    def update_weights(
        self,
        source: Any,
        *,
        version: int | None = None,
        mode: PauseMode = "keep",
        recompute: bool = False,
    ) -> WeightUpdate:
        """Put new weights into all replicas."""

    def logs(self, replica_id: str, lines: int = 50) -> str:
        """The last lines of a replica's log."""

    def abort(self, session_id: str | None = None) -> int:
        """End a session's requests, or all; returns how many."""

    def clear_kv_cache(self, replica_id: str | None = None) -> None:
        """Forget what the prefix caches hold: one engine's, or all."""


def verbs_of(source: object, field: str = "source") -> PoolVerbs:
    """The verbs of something that a person has at hand.

    Raises:
        ConfigError: it has none; names ``field``.
    """
    if not isinstance(source, PoolVerbs):
        raise ConfigError(
            field,
            f"{type(source).__name__} cannot manage a pool",
            allowed="a Workbench, or anything with its verbs (scale, restart, pause, …)",
        )
    return source
