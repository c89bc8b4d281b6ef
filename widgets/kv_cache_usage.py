"""KV-cache usage, live in a cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from widgets.drawing import count
from widgets.pictures.cache import cache_picture
from widgets.pool_view import PoolView

if TYPE_CHECKING:
    from widgets.pictures.picture import Picture


class KVCacheUsage(PoolView):
    """How full each replica's KV cache is, how much of prompts it serves, what falls out of it.

    Args:
        source: a ``Workbench``, a ``LocalPool``, a ``Feed``, or anything with a ``feed``.
        window_s: how far back it looks at first, in seconds.
    """

    def _picture(self) -> Picture:
        return cache_picture(self._look())

    def _facts(self) -> list[str]:
        replicas = self._feed.latest.pool.replicas if self._feed.latest else ()
        use = [replica.engine.kv_cache_usage for replica in replicas if replica.engine]
        fullest = f"fullest {max(use):.0%}" if use else "no data"
        return [count(len(replicas), "replica"), fullest]
