"""Many look, and the work is done once."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from widgets.dashboard.gallery import KEPT, Built, Gallery, Request
from widgets.windows import Window

if TYPE_CHECKING:
    from collections.abc import Callable


class Made:
    """A gallery, who subscribed to its ticker, and what was built."""

    def __init__(self) -> None:
        self.ticking: list[Callable[[], None]] = []
        self.built: list[Request] = []
        self.gate = threading.Event()
        self.gate.set()
        self.gallery = Gallery(self._build, self._subscribe)

    def _build(self, request: Request) -> Built:
        self.built.append(request)
        assert self.gate.wait(10)
        return Built(f"{request.plot} {len(self.built)}")

    def _subscribe(self, tick: Callable[[], None]) -> Callable[[], None]:
        self.ticking.append(tick)
        return lambda: self.ticking.remove(tick)

    def news(self) -> None:
        for tick in self.ticking:
            tick()


def request(plot: str = "load", length_s: float = 300.0) -> Request:
    return Request(plot, Window(length_s))


async def test_viewers_of_the_same_share_one_picture() -> None:
    made = Made()
    made.gate.clear()
    showing = [asyncio.ensure_future(made.gallery.show(request())) for _ in range(20)]
    await asyncio.sleep(0)
    made.gate.set()
    assert {(await shown)[1].text for shown in showing} == {"load 1"}
    assert (await made.gallery.show(request()))[1].text == "load 1"
    assert len(made.built) == 1


async def test_each_gets_what_it_asked_for() -> None:
    made = Made()
    asked = [request("load"), request("load", 60.0), request("cache")]
    await asyncio.gather(*map(made.gallery.show, asked))
    assert sorted(made.built, key=repr) == sorted(asked, key=repr)


async def test_news_make_a_new_picture() -> None:
    made = Made()
    made.gallery.enter("viewer")
    first, _ = await made.gallery.show(request())
    made.news()
    second, built = await made.gallery.show(request())
    assert second > first
    assert built.text == "load 2"


async def test_one_subscription_for_all_as_long_as_somebody_looks() -> None:
    made = Made()
    for viewer in ("a", "b", "a"):
        made.gallery.enter(viewer)
    assert len(made.ticking) == 1
    made.gallery.leave("a")
    made.gallery.leave("a")
    assert len(made.ticking) == 1
    made.gallery.leave("b")
    assert not made.ticking
    made.gallery.leave("b")


async def test_who_comes_back_sees_nothing_old() -> None:
    made = Made()
    made.gallery.enter("a")
    await made.gallery.show(request())
    made.gallery.leave("a")
    made.gallery.enter("a")
    await made.gallery.show(request())
    assert len(made.built) == 2


async def test_closing_lets_go_of_everybody() -> None:
    made = Made()
    for viewer in range(3):
        made.gallery.enter(viewer)
    made.gallery.close()
    assert not made.ticking
    assert not made.gallery.viewers


async def test_pictures_are_kept_in_bounds() -> None:
    made = Made()
    for length_s in range(KEPT + 10):
        await made.gallery.show(request(length_s=float(length_s + 1)))
    await made.gallery.show(request(length_s=float(KEPT + 10)))
    assert len(made.built) == KEPT + 10
    await made.gallery.show(request(length_s=1.0))
    assert len(made.built) == KEPT + 11


async def test_a_viewer_that_gives_up_takes_the_picture_from_nobody() -> None:
    made = Made()
    made.gate.clear()
    one, other = (asyncio.ensure_future(made.gallery.show(request())) for _ in range(2))
    await asyncio.sleep(0)
    one.cancel()
    made.gate.set()
    assert (await other)[1].text == "load 1"
