"""A pool's dashboard, served from the process that asks for it."""

from __future__ import annotations

import errno
import os
import socket
from typing import TYPE_CHECKING, Self

from widgets.dashboard.door import Door
from widgets.dashboard.frame import Frame
from widgets.dashboard.links import link_host, link_template, page_link
from widgets.dashboard.options import check_options, is_everywhere, netloc
from widgets.dashboard.pages import FIRST_PAGE
from widgets.sources import feed_of, verbs_of
from workbench.aio import LoopThread
from workbench.errors import ConfigError

if TYPE_CHECKING:
    from widgets.dashboard.options import Options
    from widgets.dashboard.site import Site
    from widgets.sources import PoolVerbs
    from workbench.metrics.feed import Feed

START_S = 60.0
"""How long a server may take to start."""

STOP_S = 10.0
"""How long browsers may take to be told."""

HEIGHT = 720
"""Pixels of a page in a cell."""


def serve(
    source: object,
    *,
    address: str = "127.0.0.1",
    port: int = 0,
    prefix: str = "",
    password: str | None = None,
    link: str | None = None,
    control: PoolVerbs | None = None,
) -> Dashboard:
    """Serve a pool's dashboard until it is closed or this process ends.

    On loopback anybody on this machine may look. On any other address a password is asked for: the
    one given, or a new one, see :attr:`Dashboard.password`. It is not encrypted on its way: across
    networks that others listen to, go through an SSH tunnel or a proxy with TLS. See
    :mod:`widgets.dashboard.door` for what else is refused, and why.

    Args:
        source: a ``Workbench``, a ``LocalPool``, or a ``Feed``.
        address: of this machine, to listen on.
        port: to listen on; 0 for any that is free.
        prefix: path in front of every page.
        password: 8 characters or more.
        link: where a browser finds a page, for a proxy: ``https://lab.example/dash/{page}`` or
            ``/user/{JUPYTERHUB_USER}/proxy/{port}/{page}``, with variables of the environment.
            ``WORKBENCH_DASHBOARD_LINK`` is the default; JupyterHub is found by itself.
        control: the pool's verbs, such as a ``Workbench``, for a page on which whoever may look
            may manage the pool; None for no such page.

    Raises:
        ConfigError: an argument is wrong, the port is taken; nothing was started.
    """
    feed = feed_of(source)
    options = check_options(address, port, prefix, password)
    verbs = None if control is None else verbs_of(control, "control")
    return Dashboard(feed, options, link_template(link, os.environ), verbs)


class Dashboard:
    """A dashboard that is being served. Made by :func:`serve`."""

    def __init__(
        self,
        feed: Feed,
        options: Options,
        template: str | None,
        control: PoolVerbs | None = None,
    ) -> None:
        self._options = options
        self._template = template
        self._title = f"{feed.name}: dashboard"
        listening = bind(options)
        self.port = int(listening.getsockname()[1])
        self._loop: LoopThread | None = LoopThread("workbench-dashboard")
        try:
            self._site = self._loop.run(self._open(feed, listening, control), START_S)
        except BaseException:
            self._loop.close()
            listening.close()
            raise

    async def _open(self, feed: Feed, listening: socket.socket, control: PoolVerbs | None) -> Site:
        from widgets.dashboard.site import Site

        door = Door(
            has_password=self.password is not None,
            has_link=self._template is not None,
            link_host=link_host(self._template),
        )
        return Site(feed, self._options, door, listening, control)

    @property
    def password(self) -> str | None:
        """What a browser is asked for; None where anybody may look."""
        return self._options.password

    @property
    def url(self) -> str:
        """Where it listens."""
        address = self._options.address
        host = socket.gethostname() if is_everywhere(address) else address
        return f"http://{netloc(host, self.port)}{self._options.prefix}/"

    def page_url(self, page: str = FIRST_PAGE) -> str:
        """Where a browser finds a page, through the proxy if there is one.

        Raises:
            ConfigError: there is no such page.
        """
        if page not in self._site.paths:
            raise ConfigError("page", f"{page!r}", allowed=self._site.paths)
        if self._template is None:
            return f"{self.url}{page}"
        path = f"{self._options.prefix}/{page}".removeprefix("/")
        return page_link(self._template, port=self.port, page=path)

    def show(self, page: str = FIRST_PAGE, *, height: int = HEIGHT) -> Frame:
        """A page in a cell, ``height`` pixels high."""
        return Frame(self.page_url(page), self._title, height)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._loop is None

    def close(self) -> None:
        """Stop serving; the port is free afterwards. Idempotent."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        try:
            loop.run(self._site.close(), STOP_S)
        finally:
            loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self.closed:
            return f"Dashboard({self.url!r}, closed)"
        asks = ", asks for a password" if self.password else ""
        return f"Dashboard({self.page_url()!r}{asks})"

    def _repr_html_(self) -> str:
        return f"<div>{self!r}</div>" if self.closed else self.show()._repr_html_()


def bind(options: Options) -> socket.socket:
    """A socket that listens.

    Raises:
        ConfigError: the address is not of this machine; the port is taken or not ours to take.
    """
    here = "an address of this machine"
    try:
        found = socket.getaddrinfo(options.address, options.port, type=socket.SOCK_STREAM)
        family, *_, where = min(found, key=lambda one: one[0] != socket.AF_INET)  # IPv4 where both
        listening = socket.create_server(where[:2], family=family)
    except socket.gaierror as error:
        problem = f"{options.address!r} is not known: {error.strerror}"
        raise ConfigError("address", problem, allowed=here) from error
    except OSError as error:
        raise _refusal(options, error, here) from error
    listening.setblocking(False)
    return listening


def _refusal(options: Options, error: OSError, here: str) -> ConfigError:
    where = f"{options.port} on {options.address}"
    if error.errno == errno.EADDRINUSE:
        return ConfigError("port", f"{where} is in use", allowed="a free port, or 0 for any")
    if error.errno == errno.EACCES:
        return ConfigError("port", f"{where} is not permitted", allowed="a port from 1024")
    problem = os.strerror(error.errno) if error.errno else str(error)
    return ConfigError("address", f"{options.address!r}: {problem}", allowed=here)
