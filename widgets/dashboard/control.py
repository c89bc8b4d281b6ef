"""The page that manages a pool. There is one only where the dashboard was opened with verbs.

Orders go over the page's own websocket, which the door and the password guard; no address does
anything when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import param

from widgets.browser import control_esm
from widgets.control.clerk import Clerk
from widgets.control.desk import Desk
from widgets.control.panel import panel_of
from widgets.dashboard.pages import CONTROL, CONTROL_PAGE
from widgets.dashboard.parts import PictureView
from widgets.dashboard.viewer import Viewer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bokeh.document import Document

    from widgets.control.panel import Panel
    from widgets.dashboard.site import Site
    from widgets.pictures.view import FeedView
    from widgets.sources import PoolVerbs


class ControlView(PictureView):
    """The panel, drawn by the module that draws it in notebooks."""

    _esm = control_esm()

    asks = param.String(doc="What the browser asks, see :mod:`widgets.control.clerk`.")
    replies = param.String(doc="What it is told.")


class ControlRoom:
    """What all viewers of the page share.

    Args:
        verbs: of the pool.
        changed: called from any thread when an order began or ended.
    """

    def __init__(self, verbs: PoolVerbs, changed: Callable[[], None]) -> None:
        self.desk = Desk.of(verbs)
        self.close = self.desk.subscribe(changed)

    def pictures(self) -> dict[str, Callable[[FeedView], Panel]]:
        """By name, for the dashboard's painter."""
        return {CONTROL: lambda view: panel_of(view, self.desk.entries())}


class ControlViewer(Viewer):
    """One browser's control page."""

    def __init__(
        self, room: ControlRoom, site: Site, doc: Document, values: Mapping[str, str]
    ) -> None:
        self._control = ControlView(window={"length_s": 1.0})
        super().__init__(site, doc, CONTROL_PAGE, values)
        self._clerk = Clerk(room.desk, site.feed, self._tell)
        self._control.param.watch(self._hear, "asks")

    def _view_of(self, plot: str) -> PictureView:
        del plot
        return self._control

    def _hear(self, event: Any) -> None:
        self._clerk.hear(event.new)
        self._asked(event)

    def _tell(self) -> None:
        """From any thread, a log's reader among them."""
        self._doc.add_next_tick_callback(self._put_replies)

    def _put_replies(self) -> None:
        if self._is_watching:
            self._control.replies = self._clerk.replies()
