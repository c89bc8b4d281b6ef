"""The web server behind the pages: Bokeh's, with one door for every request.

Whatever a request asks for (a page, a websocket, a script, a table), it passes the door first. So
no route can be forgotten, and nothing depends on Panel's settings, which the whole process shares.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from bokeh.resources import Resources
from bokeh.server.tornado import BokehTornado
from bokeh.server.views.static_handler import StaticHandler
from tornado.web import RequestHandler

from widgets.dashboard.pages import FIRST_PAGE
from widgets.dashboard.shell import render

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bokeh.protocol import Protocol
    from bokeh.server.connection import ServerConnection
    from bokeh.server.contexts import ApplicationContext
    from bokeh.server.session import ServerSession
    from bokeh.server.views.ws import WSHandler
    from tornado.httputil import HTTPServerRequest

    from widgets.dashboard.door import Door
    from widgets.dashboard.keys import Keys

GOING_AWAY = 1001
"""What a websocket is closed with when its server ends."""
GOODBYE_S = 1.0

FREE_PATHS = frozenset({"login", "logout", "liveness"})
"""All that a stranger may ask for; it tells nothing about the pool."""


class GuardedTornado(BokehTornado):
    """Bokeh's applications behind a :class:`Door`; all scripts are served from here."""

    def __init__(self, applications: Any, *, door: Door, keys: Keys, **options: Any) -> None:
        self._door = door
        self._keys = keys
        self._browsers: dict[ServerConnection, WSHandler] = {}
        self._is_alone = asyncio.Event()
        super().__init__(applications, **options)

    def find_handler(self, request: HTTPServerRequest, **kwargs: Any) -> Any:
        """The handler of a request, or one that refuses it or asks for the password."""
        is_socket = request.headers.get("Upgrade", "").lower() == "websocket"
        reads = request.method in {"GET", "HEAD"} and not is_socket
        path = request.path.removeprefix(self.prefix).removeprefix("/")
        refusal = self._door.refusal(
            host=request.host, origin=request.headers.get("Origin"), acts=not reads
        )
        if refusal or (not reads and path not in FREE_PATHS and not self._keys.opens(request)):
            return self.get_handler_delegate(request, Refused, {"why": refusal or "log in first"})
        if path not in FREE_PATHS and not self._keys.opens(request):
            to = f"{upwards(path)}login?next={path}"
            return self.get_handler_delegate(request, Redirect, {"to": to})
        if path.endswith("/autoload.js"):  # Bokeh shows it to every site; no page here asks for it
            return self.get_handler_delegate(request, Refused, {"why": "not offered here"})
        if reads and path.endswith("/"):  # links in pages are relative, so a page has one address
            to = f"../{path.strip('/').rpartition('/')[2]}"
            return self.get_handler_delegate(request, Redirect, {"to": to})
        return super().find_handler(request, **kwargs)

    def new_connection(
        self,
        protocol: Protocol,
        socket: WSHandler,
        application_context: ApplicationContext,
        session: ServerSession,
    ) -> ServerConnection:
        """See Bokeh; remembers the browser, to tell it when this ends."""
        connection = super().new_connection(protocol, socket, application_context, session)
        self._browsers[connection] = socket
        return connection

    def client_lost(self, connection: ServerConnection) -> None:
        """See Bokeh."""
        super().client_lost(connection)
        self._browsers.pop(connection, None)
        if not self._browsers:
            self._is_alone.set()

    async def say_goodbye(self) -> None:
        """Close all websockets. A browser that does not answer is not waited for."""
        self._is_alone.clear()
        for browser in self._browsers.values():
            browser.close(GOING_AWAY)
        if self._browsers:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_alone.wait(), GOODBYE_S)

    def resources(self, absolute_url: str | bool | None = None) -> Resources:
        """Our own copies, whatever the environment says."""
        del absolute_url
        return Resources(
            mode="server", root_url=f"{self.prefix}/", path_versioner=StaticHandler.append_version
        )


def upwards(path: str) -> str:
    """From a page to the dashboard's root, relative: what proxies put in front is not known."""
    return "../" * path.count("/") or "./"


def text_of(values: Sequence[bytes]) -> str:
    """The last of a query's values by one name."""
    return values[-1].decode(errors="replace")


class Redirect(RequestHandler):
    """To another page, relative to the one that was asked for."""

    def initialize(self, to: str) -> None:
        """See tornado."""
        self._to = to

    def prepare(self) -> None:
        """The answer to every method."""
        self.redirect(self._to)


class Refused(RequestHandler):
    """Says why not, in words."""

    def initialize(self, why: str) -> None:
        """See tornado."""
        self._why = why

    def prepare(self) -> None:
        """The answer to every method."""
        self.set_status(403)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(self._why)


class Root(RequestHandler):
    """The dashboard's address without a page."""

    def get(self) -> None:
        """To the first page."""
        path = self.request.path
        folder = "" if path.endswith("/") else f"{path.rpartition('/')[2]}/"
        self.redirect(f"./{folder}{FIRST_PAGE}")


class Liveness(RequestHandler):
    """Whether somebody answers, and nothing else."""

    def get(self) -> None:
        """Somebody does."""
        self.set_header("Cache-Control", "no-store")
        self.write({"alive": True})


class Login(RequestHandler):
    """The page that asks for the password."""

    def initialize(self, keys: Keys, pages: Collection[str]) -> None:
        """See tornado."""
        self._keys = keys
        self._pages = pages

    def get(self) -> None:
        """The form."""
        self._show()

    async def post(self) -> None:
        """In, or the form again."""
        if not await self._keys.fits(self.get_body_argument("password", "", strip=False)):
            self.set_status(401)
            self._show("This is not the password.")
            return
        # Without a path it counts for the folder of this page, which is the dashboard's root under
        # whatever prefix the browser knows it.
        name, days = self._keys.cookie_name, self._keys.stay_days
        self.set_cookie(
            name, self._keys.cookie(), path="", expires_days=days, httponly=True, samesite="Lax"
        )
        page = self.get_query_argument("next", FIRST_PAGE)
        self.redirect(f"./{page if page in self._pages else FIRST_PAGE}")

    def _show(self, problem: str = "") -> None:
        self.set_header("Cache-Control", "no-store")
        self.write(render("login.html.j2", problem=problem))


class Logout(RequestHandler):
    """Forgets who looked."""

    def initialize(self, keys: Keys) -> None:
        """See tornado."""
        self._keys = keys

    def get(self) -> None:
        """To the form."""
        self.set_cookie(self._keys.cookie_name, "", path="", expires_days=-1)
        self.redirect("./login")
