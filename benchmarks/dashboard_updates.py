"""What updates cost who serves them: the time of every picture, and the memory of very many."""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benchmarks.dashboard_machine import resident_bytes
from benchmarks.dashboard_wire import Remote
from widgets.dashboard.decoding import Decoder
from widgets.dashboard.fields import wishes_of
from widgets.dashboard.gallery import Request
from widgets.dashboard.pages import PAGES, PLOTS
from widgets.dashboard.plots import Painter
from widgets.windows import Window
from workbench.metrics.feed import Feed

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from workbench.metrics.history import HistoryPage

TIMED = 30
WARM_UP = 5
RECORDED = 30
"""Pages that are read again and again, with later times, for the memory of very many updates."""
SETTLED = 300
"""Updates before the memory is looked at for the first time."""
REQUESTS = {plot: Request(plot, Window(), "", wishes_of(plot, {})) for plot in PLOTS}
"""Every picture as it is when somebody opens its page."""


def painter_of(feed: Feed) -> Painter:
    """As a dashboard has it; there are no tokens to decode."""
    return Painter(feed, Decoder(lambda _: str, lambda: None), time.time, time.monotonic)


def first_page(where: tuple[str, bytes]) -> dict[str, float]:
    """What a new viewer waits for: an hour by the second and a day by the minute."""
    remote = Remote(where)
    feed = remote.feed()
    began_s = time.perf_counter()
    feed.pull()
    took_s = time.perf_counter() - began_s
    assert not feed.error, feed.error
    return {"first_page_s": round(took_s, 3), "first_page_bytes": remote.received_bytes}


def updates(where: tuple[str, bytes]) -> dict[str, Any]:
    """Seconds of an update, as a median: getting the news, and making each picture and page.

    Pictures of a page are made one after the other, as threads of one process are no faster.
    """
    remote = Remote(where)
    painter = painter_of(remote.feed())
    painter.feed.pull()
    took: dict[str, list[float]] = defaultdict(list)
    for number in range(WARM_UP + TIMED):
        remote.call("step")
        round_ = _update(painter)
        for name, seconds in round_.items() if number >= WARM_UP else ():
            took[name].append(seconds)
    assert not painter.feed.error, painter.feed.error
    pages = {
        page.name: _summary([took["pull"], *(took[plot] for plot in page.plots)])
        for page in PAGES
    }
    heaviest = max(pages, key=lambda name: pages[name]["median_s"])
    return {
        "update_s": pages[heaviest]["median_s"],
        "heaviest_page": heaviest,
        "pages": pages,
        "pull": _summary([took["pull"]]),
        "pictures": {plot: _summary([took[plot]]) for plot in PLOTS},
        **{f"{name}_s": round(s, 5) for name, s in remote.call("took_s").items()},
    }


def _update(painter: Painter) -> dict[str, float]:
    """Seconds of each step; every picture has to be one."""
    took = {}
    began_s = time.perf_counter()
    assert painter.feed.pull()
    painter.hear()
    took["pull"] = time.perf_counter() - began_s
    for plot, request in REQUESTS.items():
        began_s = time.perf_counter()
        built = painter(request)
        took[plot] = time.perf_counter() - began_s
        assert '"error":""' in built.text, built.text[:400]
    return took


def _summary(steps: list[list[float]]) -> dict[str, float]:
    """Of what takes these steps one after the other, each time."""
    together = sorted(map(sum, zip(*steps, strict=True)))
    return {
        "median_s": round(statistics.median(together), 4),
        "p95_s": round(together[int(0.95 * (len(together) - 1))], 4),
    }


# ------------------------------------------------------------------------------------ memory


def memory_process(pipe: Connection, where: tuple[str, bytes], updates: int) -> None:
    """For :func:`~benchmarks.dashboard_wire.process`: sends what so many updates leave behind."""
    remote = Remote(where)
    source = Replay(remote)
    live = remote.feed()
    feed = Feed(
        "benchmark", source.read, sessions=live.sessions, events=live.events, rollouts=live.rollouts
    )
    painter = painter_of(feed)
    for _ in range(SETTLED):
        _update(painter)
    before = _resident_now()
    began_s = time.perf_counter()
    for _ in range(updates):
        _update(painter)
    took_s = time.perf_counter() - began_s
    after = _resident_now()
    pipe.send(
        {
            "rss_before_mb": round(before / 1e6, 1),
            "rss_after_mb": round(after / 1e6, 1),
            "rss_growth_mb": round((after - before) / 1e6, 1),
            "rss_updates": updates,
            "rss_update_s": round(took_s / updates, 4),
        }
    )


def _resident_now() -> int:
    gc.collect()
    return resident_bytes(os.getpid())


class Replay:
    """The pool's history once, then the last pages again and again as if time went on.

    The viewer has the same work as with a pool, which cannot go through hours in minutes.
    """

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._pages: list[bytes] = []
        self._number = 0

    def read(self, cursor: int) -> HistoryPage:
        """See :class:`workbench.metrics.feed.Feed`."""
        raise NotImplementedError
