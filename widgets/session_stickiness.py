"""Session stickiness, live in a cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from widgets.drawing import count
from widgets.pictures.flows import Flows
from widgets.pictures.stickiness import stickiness_picture
from widgets.pool_view import PoolView
from widgets.windows import LENGTH_S

if TYPE_CHECKING:
    from widgets.pictures.picture import Picture


class SessionStickiness(PoolView):
    """Whether sessions stay where their KV cache is, where they ran, and why some moved.

    Args:
        source: a ``Workbench``, a ``LocalPool``, a ``Feed``, or anything with a ``feed``.
        window_s: how far back it looks at first, in seconds.
    """

    def __init__(self, source: object, *, window_s: float = LENGTH_S) -> None:
        self._flows = Flows()
        super().__init__(source, window_s=window_s)

    def _picture(self) -> Picture:
        if self._feed.latest is not None:
            self._flows.add(self._feed.latest)
        return stickiness_picture(self._look(recent=self._flows.activity()))

    def _facts(self) -> list[str]:
        books = self._feed.latest.pool.routing if self._feed.latest else None
        return [count(books.sessions, "session"), count(books.moves, "move")] if books else []
