"""What the viewers of a dashboard look at: each picture is built once, however many look.

A gallery lives on the server's loop. As long as somebody looks, it subscribes to the one ticker of
its feed, which only counts here that there is news. Viewers come and ask, each at its own pace, for
what has changed since.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from widgets.pictures.asking import EVERYTHING, Asked
from workbench.aio import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from widgets.windows import Window


KEPT = 256
"""Pictures that are kept for those who ask for the same."""


@dataclass(frozen=True, slots=True)
class Request:
    """Which picture somebody wants to see. Equal requests get the same one."""

    plot: str
    """One of :data:`widgets.dashboard.pages.PLOTS`."""
    window: Window
    """What part of the time."""
    selected: str = ""
    """What was clicked."""
    wishes: tuple[tuple[str, str], ...] = ()
    """What to search for, to sort by and the like, by name, sorted."""
    asked: Asked = EVERYTHING
    """What is asked of rollouts, in the picture itself."""


@dataclass(frozen=True, slots=True)
class Place:
    """Which part of a longer list a picture shows."""

    text: str = ""
    last: int = 0
    """The last page; the first is 0."""


@dataclass(frozen=True, slots=True)
class Built:
    """A picture as the browser gets it."""

    text: str
    """JSON of a :class:`widgets.pictures.picture.Picture`."""
    place: Place = Place()


class Gallery:
    """Pictures of one pool.

    Args:
        build: makes a picture; called in a thread, as it may ask the pool.
        subscribe: calls back, from any thread, when there is news; returns how to stop that.
    """

    def __init__(
        self,
        build: Callable[[Request], Built],
        subscribe: Callable[[Callable[[], None]], Callable[[], None]],
    ) -> None:
        self._build = build
        self._subscribe = subscribe
        self._stop: Callable[[], None] | None = None
        self._pictures: OrderedDict[Request, tuple[int, asyncio.Task[Built]]] = OrderedDict()
        self.viewers: set[object] = set()
        """Those who look right now."""
        self.version = 1
        """Rises with the news."""

    def enter(self, viewer: object) -> None:
        """Somebody looks. The first one makes the ticker tick. Idempotent."""
        self.viewers.add(viewer)
        if self._stop is None:
            self.tick()  # nobody listened: what is kept is old
            self._stop = self._subscribe(self.tick)

    def leave(self, viewer: object) -> None:
        """They look no more. With the last one the ticker stops. Idempotent."""
        self.viewers.discard(viewer)
        if not self.viewers and self._stop is not None:
            stop, self._stop = self._stop, None
            stop()
            self._pictures.clear()

    def close(self) -> None:
        """Nobody looks any more."""
        for viewer in list(self.viewers):
            self.leave(viewer)

    async def show(self, request: Request) -> tuple[int, Built]:
        """The picture, and which news it is up to. All who ask meanwhile get the same one."""
        version, task = self._pictures.get(request, (0, None))
        if task is None or version != self.version:
            version, task = (
                self.version,
                asyncio.ensure_future(in_thread(partial(self._build, request))),
            )
            self._pictures[request] = version, task
        self._pictures.move_to_end(request)
        while len(self._pictures) > KEPT:
            self._pictures.popitem(last=False)
        return version, await asyncio.shield(task)

    def tick(self) -> None:
        """What is kept is old. From any thread."""
        self.version += 1
