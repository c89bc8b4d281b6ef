"""What panels read, and where they find it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from workbench.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd

    from workbench.metrics.feed import Feed
    from workbench.metrics.history import Block
    from workbench.metrics.samples import Sample
    from workbench.trajectory import Trajectory


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
