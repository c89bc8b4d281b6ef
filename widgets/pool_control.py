"""Managing a pool from a cell."""

from __future__ import annotations

import threading
import time
import weakref
from typing import TYPE_CHECKING

import traitlets

from widgets.browser import control_esm
from widgets.control.clerk import Clerk
from widgets.control.desk import Desk
from widgets.control.panel import panel_of
from widgets.drawing import count
from widgets.live_view import weakly
from widgets.pictures.view import look
from widgets.pool_view import PoolView
from widgets.sources import verbs_of

if TYPE_CHECKING:
    from widgets.pictures.picture import Picture

WINDOW_S = 1.0
"""The panel shows the present alone."""


class PoolControl(PoolView):
    """A panel to manage a pool: scale, drain, restart, pause, new weights, and each one's log.

    What interrupts work asks back first. Orders run on threads of their own, so that neither the
    cell nor the kernel waits for them; what came of each is shown. In JupyterLab it works while a
    cell is running. Where a front end delivers no click meanwhile, the click is forgotten after ten
    seconds, and the panel says so.

    Args:
        source: a ``Workbench``, or anything with a ``feed`` and the verbs of
            :class:`widgets.sources.PoolVerbs`.

    Raises:
        ConfigError: the source has no figures, or no verbs.
    """

    _esm = control_esm()
    asks = traitlets.Unicode("").tag(sync=True)
    """What the browser asks, see :mod:`widgets.control.clerk`."""
    replies = traitlets.Unicode("").tag(sync=True)
    """What it is told."""

    def __init__(self, source: object) -> None:
        self._following = threading.RLock()  # first: it is needed to close even a refused one
        self._desk = Desk.of(verbs_of(source))
        super().__init__(source, window_s=WINDOW_S)
        self._clerk = Clerk(self._desk, self._feed, weakly(self._tell))
        self.observe(lambda change: self._clerk.hear(change.new), "asks")
        end = self._desk.subscribe(weakly(self._again))
        weakref.finalize(self, end)

    def _picture(self) -> Picture:
        view = look(self._feed, now_s=time.time(), span_s=WINDOW_S)
        return panel_of(view, self._desk.entries())

    def _tell(self) -> None:
        with self._sending:
            self.replies = self._clerk.replies()

    def _again(self) -> None:
        """An order began or ended: draw, on the ticker's thread as ever."""
        with self._following:
            if self._unsubscribe is not None:
                self._follow()

    def _follow(self) -> None:
        with self._following:
            super()._follow()

    def _rest(self) -> None:
        with self._following:
            super()._rest()

    def _facts(self) -> list[str]:
        pool = self._feed.latest.pool if self._feed.latest else None
        if pool is None:
            return []
        running = sum(entry.runs for entry in self._desk.entries())
        return [
            count(len(pool.replicas), "replica"),
            *([f"{running} under way"] if running else []),
        ]
