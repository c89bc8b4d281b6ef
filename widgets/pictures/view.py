"""What pictures are made from: a pool's figures at one moment, read in one place.

:func:`look` is the only one that touches a feed, and of that only what is at hand: it asks nobody.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from widgets.pictures.picture import Part, Picture
from widgets.pictures.text import clock, day, prose
from widgets.theme import replica_styles
from workbench.metrics.samples import Activity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from widgets.theme import ReplicaStyle
    from workbench.metrics.block import Block
    from workbench.metrics.feed import Feed
    from workbench.metrics.samples import Sample
    from workbench.types import EngineFigures, ReplicaSnapshot, RoutingSnapshot

POINTS = 125
"""Moments that a picture's lines have at most: six charts of nine lines stay below 60 kB."""
NOTHING = Activity()
QUIET_PERIODS = 10
"""After so many periods without a sample, or without an engine's report, there is no data."""


@dataclass(frozen=True, slots=True)
class FeedView:
    """A pool as its pictures see it."""

    name: str
    latest: Sample | None
    """None before the first."""
    block: Block
    """The window, at most :data:`POINTS` moments."""
    now: Block
    """The last seconds, moment by moment; its last row is the present."""
    span_s: tuple[float, float]
    """What ``block`` covers; seconds since 1970."""
    status: str
    """``live``, ``closed …``, ``saved …``, ``no data since …``."""
    error: str
    """Why the feed has no news; the last data stay."""
    period_s: float
    """Between two samples."""
    styles: Mapping[str, ReplicaStyle]
    """Of every replica in the window and now."""
    recent: Activity
    """What sessions did lately, see :class:`widgets.pictures.flows.Flows`."""
    selected: tuple[str, ...] = ()
    """Replicas that somebody wants to see; empty for those that stand out."""

    @property
    def books(self) -> RoutingSnapshot | None:
        """What is leased out; None where the balancer did not say."""
        return self.latest.pool.routing if self.latest else None

    @property
    def replicas(self) -> tuple[ReplicaSnapshot, ...]:
        """Those that there are now."""
        return self.latest.pool.replicas if self.latest else ()

    def heard_s(self) -> dict[str, float]:
        """When engines last reported, by replica; those that never did are missing."""
        return dict(self.latest.heard_s) if self.latest else {}

    def engines(self) -> dict[str, EngineFigures]:
        """What engines report now, by replica; those that went quiet are missing."""
        if self.latest is None:
            return {}
        heard_s, now_s = self.heard_s(), self.latest.time_s
        quiet_s = QUIET_PERIODS * self.period_s
        return {
            replica.status.replica_id: replica.engine
            for replica in self.latest.pool.replicas
            if replica.engine is not None
            and now_s - heard_s.get(replica.status.replica_id, now_s) < quiet_s
        }

    def total(self, column: str) -> float:
        """A figure of the pool now; NaN where there is none."""
        values = self.now.total(column)
        return float(values[-1]) if len(values) else float("nan")

    def by_replica(self, column: str) -> dict[str, float]:
        """A figure of each replica now; those without one are missing."""
        values = self.now.replica(column)
        if not len(values):
            return {}
        pairs = zip(self.now.replica_ids, values[-1].tolist(), strict=True)
        return {replica_id: value for replica_id, value in pairs if math.isfinite(value)}

    def picture(self, title: str, parts: tuple[Part, ...], words: str, **more: Any) -> Picture:
        """A picture of this pool, with its state."""
        title = f"{title}: {prose(self.name)}" if self.name else title
        return Picture(
            title,
            parts,
            self.status,
            words=words,
            **{"span_s": self.span_s, "error": self.error} | more,
        )


def look(
    feed: Feed,
    *,
    now_s: float,
    span_s: float = 300.0,
    end_s: float | None = None,
    recent: Activity = NOTHING,
    selected: tuple[str, ...] = (),
) -> FeedView:
    """What there is to see of a pool now.

    Args:
        feed: the pool's figures in this process.
        now_s: seconds since 1970; decides whether the last sample is old.
        span_s: how far back the window reaches.
        end_s: where it ends; None for the last sample. The present stays what it is.
        recent: of a :class:`widgets.pictures.flows.Flows` that got each new sample.
        selected: replicas to draw; empty for those that stand out.
    """
    latest = feed.latest
    present_s = latest.time_s if latest else now_s
    end_s = present_s if end_s is None else end_s
    block = feed.window(end_s - span_s, end_s, POINTS)
    ids = [replica.status.replica_id for replica in latest.pool.replicas] if latest else []
    return FeedView(
        name=feed.name,
        latest=latest,
        block=block,
        now=feed.window(present_s - 2 * feed.period_s, present_s),
        span_s=(end_s - span_s, end_s),
        status=_status(feed, latest, now_s),
        error=prose(feed.error, 400),
        period_s=feed.period_s,
        styles=_styles((*ids, *block.replica_ids)),
        recent=recent,
        selected=selected,
    )


@functools.lru_cache(maxsize=16)
def _styles(replica_ids: tuple[str, ...]) -> Mapping[str, ReplicaStyle]:
    """Kept, since replicas seldom change and there may be very many of them."""
    return replica_styles(replica_ids)


def _status(feed: Feed, latest: Sample | None, now_s: float) -> str:
    if latest is None:
        return "closed" if feed.closed else "no data yet"
    if not feed.is_live:
        return f"saved, last data {day(latest.time_s)}"
    last = clock(latest.time_s)
    if feed.closed:
        return f"closed, last data {last}"
    is_quiet = now_s - latest.time_s >= QUIET_PERIODS * feed.period_s
    return f"no data since {last}" if feed.error or is_quiet else "live"
