"""What the widgets that show a pool have in common."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from widgets.live_view import LiveView
from widgets.pictures.view import look
from widgets.sources import feed_of
from widgets.windows import LENGTH_S

if TYPE_CHECKING:
    from widgets.pictures.view import FeedView
    from workbench.metrics.feed import Feed


class PoolView(LiveView):
    """A live picture of a pool.

    Args:
        source: a ``Workbench``, a ``LocalPool``, a ``Feed``, or anything with a ``feed``.
        window_s: how far back it looks at first, in seconds.

    Raises:
        ConfigError: the source has no figures.
    """

    _feed: Feed

    def __init__(self, source: object, *, window_s: float = LENGTH_S) -> None:
        super().__init__(feed_of(source), window_s=window_s)

    def _look(self, **more: Any) -> FeedView:
        span = self._span
        return look(self._feed, now_s=time.time(), span_s=span.length_s, end_s=span.end_s, **more)

    def _facts(self) -> list[str]:
        """What its repr says beside the pool's name."""
        return []

    def __repr__(self) -> str:
        facts = self._facts() if self._feed.latest else ["no data yet"]
        closed = ["closed"] if self._feed.closed else []
        return f"{type(self).__name__}({', '.join([repr(self._feed.name), *facts, *closed])})"
