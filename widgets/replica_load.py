"""Replica load, live in a cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from widgets.drawing import count
from widgets.pictures.load import load_picture
from widgets.pool_view import PoolView
from widgets.windows import LENGTH_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from widgets.pictures.picture import Picture


class ReplicaLoad(PoolView):
    """How much work each replica has: the balancer's books beside the engines' own figures.

    Args:
        source: a ``Workbench``, a ``LocalPool``, a ``Feed``, or anything with a ``feed``.
        replicas: ids of those to draw over time; empty for all, or those that stand out.
        window_s: how far back it looks at first, in seconds.
    """

    def __init__(
        self, source: object, *, replicas: Sequence[str] = (), window_s: float = LENGTH_S
    ) -> None:
        self._replicas = tuple(replicas)
        super().__init__(source, window_s=window_s)

    def _picture(self) -> Picture:
        return load_picture(self._look(selected=self._replicas))

    def _facts(self) -> list[str]:
        pool = self._feed.latest.pool if self._feed.latest else None
        if pool is None:
            return []
        in_flight = [f"{pool.routing.in_flight:,} in flight"] if pool.routing else []
        return [count(len(pool.replicas), "replica"), *in_flight]
