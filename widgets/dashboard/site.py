"""All routes of a dashboard, and what its viewers share."""

from __future__ import annotations

import logging
import secrets
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import panel.io.server  # noqa: F401 it puts its handlers in the place of Bokeh's
from bokeh.application.handlers.function import FunctionHandler
from bokeh.server.server import BaseServer
from panel.io.application import Application
from tornado.httpserver import HTTPServer
from tornado.ioloop import IOLoop
from tornado.web import RequestHandler

from widgets.dashboard.control import ControlRoom, ControlViewer
from widgets.dashboard.decoding import Decoder, load_decode
from widgets.dashboard.downloads import Archive, Download
from widgets.dashboard.gallery import Gallery
from widgets.dashboard.keys import Keys
from widgets.dashboard.pages import CONTROL, CONTROL_PAGE, PAGES, PATHS, PLOTS, Page
from widgets.dashboard.plots import Painter
from widgets.dashboard.shell import render, template
from widgets.dashboard.viewer import Viewer
from widgets.dashboard.web import (
    GuardedTornado,
    Liveness,
    Login,
    Logout,
    Root,
    text_of,
    upwards,
)
from widgets.ticker import Ticker

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from bokeh.document import Document

    from widgets.dashboard.door import Door
    from widgets.dashboard.options import Options
    from widgets.sources import PoolVerbs
    from workbench.metrics.feed import Feed

log = logging.getLogger(__name__)

# It warns of every browser that leaves while it is written to, in whatever cell is running.
logging.getLogger("bokeh.server.views.ws").setLevel(logging.ERROR)

CHECK_MS, LINGER_MS = 5_000, 20_000
"""How often sessions without a browser are looked for, and how long they are kept."""

MESSAGE_BYTES = 1_000_000
"""The largest message that a browser may send: they are clicks and a few words."""


class Site:
    """One pool's dashboard, on the loop that makes it.

    Args:
        feed: the pool's figures.
        options: where it listens.
        door: who is let in.
        listening: where it is reached; closed with it.
        control: what viewers may do to the pool; None for nothing.
    """

    def __init__(
        self,
        feed: Feed,
        options: Options,
        door: Door,
        listening: socket.socket,
        control: PoolVerbs | None = None,
    ) -> None:
        self.feed = feed
        self._has_password = options.password is not None
        self._room = ControlRoom(control, self._refresh) if control else None
        self._pages = (*PAGES, CONTROL_PAGE) if control else PAGES
        decoder = Decoder(load_decode, self._refresh)
        more = self._room.pictures() if self._room else None
        self.painter = Painter(feed, decoder, time.time, time.monotonic, more)
        self.gallery = Gallery(self.painter, self._subscribe)
        keys = Keys(options.password, listening.getsockname()[1])
        self._tornado = GuardedTornado(
            self._applications(),
            door=door,
            keys=keys,
            prefix=options.prefix,
            extra_patterns=self._routes(keys),
            extra_websocket_origins=["*"],  # the door has looked already
            sign_sessions=True,
            secret_key=secrets.token_bytes(32),
            include_headers=[],  # they would be in the page, where scripts could read the cookie
            include_cookies=[],
            use_index=False,
            ico_path="none",
            check_unused_sessions_milliseconds=CHECK_MS,
            unused_session_lifetime_milliseconds=LINGER_MS,
            websocket_max_message_size_bytes=MESSAGE_BYTES,
            log_function=_log,
        )
        self._http = HTTPServer(self._tornado)
        self._http.add_sockets([listening])
        self._server = BaseServer(IOLoop.current(), self._tornado, self._http)
        self._server.start()

    async def close(self) -> None:
        """Let go of the pool, of every browser and of the socket."""
        self._http.stop()
        if self._room:
            self._room.close()
        await self._tornado.say_goodbye()
        self.gallery.close()
        for shown in self._tornado.applications.values():
            for session in list(shown.sessions):
                context = session.document.session_context
                session.destroy()
                if context is not None:
                    await shown.application.on_session_destroyed(context)
        self._server.stop(wait=False)
        await self._http.close_all_connections()

    def _refresh(self) -> None:
        self.gallery.tick()

    def _subscribe(self, tick: Callable[[], None]) -> Callable[[], None]:
        def hear() -> None:
            self.painter.hear()
            tick()

        return Ticker.of(self.feed).subscribe(hear)

    @property
    def paths(self) -> tuple[str, ...]:
        """Everything that a browser can be sent to."""
        return (*PATHS, CONTROL) if self._room else PATHS

    # -- routes -----------------------------------------------------------------------------

    def _applications(self) -> dict[str, Application]:
        alone = [Page(f"plot/{name}", title, (name,)) for name, title in PLOTS.items()]
        return {
            f"/{page.name}": Application(  # type: ignore[no-untyped-call]
                FunctionHandler(partial(self._fill, page))
            )
            for page in (*self._pages, *alone)
        }

    def _routes(self, keys: Keys) -> list[tuple[Any, ...]]:
        return [
            (r"/?", Root),
            (r"/plots", Plots, {"variables": self._variables("plots")}),
            (r"/liveness", Liveness),
            (r"/login", Login, {"keys": keys, "pages": self.paths}),
            (r"/logout", Logout, {"keys": keys}),
            (r"/download/pool\.zip", Archive, {"feed": self.feed}),
            (r"/download/(\w+)\.(csv|parquet)", Download, {"painter": self.painter}),
        ]

    def _variables(self, path: str) -> dict[str, Any]:
        return {
            "pool": self.feed.name,
            "pages": self._pages,
            "current": path,
            "up": upwards(path),
            "has_password": self._has_password,
        }

    def _fill(self, page: Page, doc: Document) -> None:
        doc.title = f"{page.title}: {self.feed.name}"
        doc.template = template("page.html.j2")
        doc.template_variables.update(
            self._variables(page.name), plots=page.plots, alone=page.is_alone
        )
        doc.config.update(reconnect_session=False, notify_connection_status=False)
        request = getattr(doc.session_context, "request", None)
        asked = request.arguments if request else {}
        values = {name: text_of(texts) for name, texts in asked.items()}
        if self._room and page is CONTROL_PAGE:
            ControlViewer(self._room, self, doc, values)
        else:
            Viewer(self, doc, page, values)


def _log(handler: RequestHandler) -> None:
    """Requests are of interest to nobody, least of all in the cell that happens to be running."""
    status, method, path = handler.get_status(), handler.request.method, handler.request.path
    log.debug("%s %s %s", status, method, path)


class Plots(RequestHandler):
    """The list of pictures that have a page of their own."""

    def initialize(self, variables: dict[str, Any]) -> None:
        """See tornado."""
        self._variables = variables

    def get(self) -> None:
        """The list."""
        title = f"Plots: {self._variables['pool']}"
        self.write(render("plots.html.j2", title=title, plots=PLOTS, **self._variables))
