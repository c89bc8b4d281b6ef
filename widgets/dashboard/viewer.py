"""One browser's page: it asks for news at its own pace, and costs nothing once nobody sees it."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from bokeh.document.locking import without_document_lock

from widgets.dashboard.downloads import links
from widgets.dashboard.fields import FIELDS, wishes_of
from widgets.dashboard.gallery import Request
from widgets.dashboard.notice import notice_of
from widgets.dashboard.parts import Bar, PictureView
from widgets.dashboard.web import upwards
from widgets.pictures.asking import EVERYTHING, asked_of
from widgets.windows import LENGTH_S, window_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bokeh.document import Document

    from widgets.dashboard.gallery import Built
    from widgets.dashboard.pages import Page
    from widgets.dashboard.site import Site

ROLLOUTS = "rollouts"
"""The picture that has fields of its own."""

PULL_MS = 500
"""How often a page asks whether there is news."""


class Viewer:
    """Fills a Bokeh document and keeps it up to date. Lives on the server's loop."""

    def __init__(self, site: Site, doc: Document, page: Page, values: Mapping[str, str]) -> None:
        self._site = site
        self._gallery = site.gallery
        self._page = page
        plots = page.plots
        self._doc = doc
        shown = () if page.is_alone else plots
        self._bar = Bar(
            fields=[asdict(field) for plot in shown for field in FIELDS.get(plot, ())],
            values=dict(wish for plot in plots for wish in wishes_of(plot, values)),
        )
        self._views = {plot: self._view_of(plot) for plot in plots}
        self._seen: dict[str, tuple[Request, int]] = {}
        self._bar.param.watch(self._asked, ["values", "hidden"])
        for view in self._views.values():
            view.param.watch(self._asked, ["window", "selected", "asked", "paused"])
        for name, part in {"bar": self._bar, **self._views}.items():
            part.server_doc(doc, title=doc.title, location=False)
            doc.roots[-1].name = name  # where the template puts it
        self._is_drawn = False
        # Clicks do not wait for pictures. Bokeh's types do not know that callbacks may be async.
        self._look_soon: Any = without_document_lock(self._look)
        doc.on_event("document_ready", self._drawn)
        doc.add_periodic_callback(self._look_soon, PULL_MS)
        doc.on_session_destroyed(lambda _: site.gallery.leave(self))

    def _view_of(self, plot: str) -> PictureView:
        """What shows a picture."""
        del plot
        return PictureView(window={"length_s": LENGTH_S})

    def _drawn(self, event: Any) -> None:
        """The browser has the page; what was sent before could be lost on the way."""
        self._is_drawn = True
        self._asked(event)

    def _asked(self, _: Any) -> None:
        """The reader wants to see something else, now."""
        self._doc.add_next_tick_callback(self._look_soon)

    @property
    def _is_watching(self) -> bool:
        """Whether a browser is there, shows the page, and its reader wants news."""
        session = getattr(self._doc.session_context, "session", None)
        if session is None or not session.connection_count:
            return False
        if not self._is_drawn or self._bar.hidden:
            return False
        return not all(view.paused for view in self._views.values())

    async def _look(self) -> None:
        if not self._is_watching:
            self._gallery.leave(self)
            return
        self._gallery.enter(self)
        await asyncio.gather(*(self._show(plot) for plot in self._views))

    async def _show(self, plot: str) -> None:
        """Bring one picture up to date."""
        request = self._request(plot)
        if self._views[plot].paused or self._seen.get(plot) == (request, self._gallery.version):
            return
        version, built = await self._gallery.show(request)
        if self._is_watching and request == self._request(plot):  # it is still what is asked for
            self._doc.add_next_tick_callback(partial(self._put, request, version, built))

    def _request(self, plot: str) -> Request:
        view = self._views[plot]
        wishes = wishes_of(plot, self._bar.values)
        asked = asked_of(view.asked) if plot == ROLLOUTS else EVERYTHING
        return Request(plot, window_of(view.window), view.selected, wishes, asked)

    def _put(self, request: Request, version: int, built: Built) -> None:
        if not self._is_watching:
            return
        plot = request.plot
        self._seen[plot] = request, version
        self._views[plot].picture = built.text
        if plot in FIELDS:
            self._bar.note = {"text": built.place.text, "last": built.place.last}
        if not self._page.is_alone:
            self._bar.notice = notice_of(self._site.feed)
        if self._page.download:
            window = self._views[plot].window
            table, values = self._page.download, self._bar.values
            values = self._views[plot].asked if plot == ROLLOUTS else values
            self._bar.links = links(table, upwards(self._page.name), window, values)
