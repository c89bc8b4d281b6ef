"""What updates cost who serves them: the time of every picture, and the memory of very many."""

from __future__ import annotations

import gc
import os
import pickle
import statistics
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from benchmarks.dashboard_machine import resident_bytes
from benchmarks.dashboard_pool import STEP_S
from benchmarks.dashboard_wire import Remote
from widgets.dashboard.decoding import Decoder
from widgets.dashboard.fields import wishes_of
from widgets.dashboard.gallery import Request
from widgets.dashboard.pages import PAGES, PLOTS
from widgets.dashboard.plots import Painter
from widgets.windows import Window
from workbench.metrics.feed import Feed
from workbench.metrics.history import Block, HistoryPage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection

T = TypeVar("T")

WARM_UP = 5
RECORDED = 30
"""Pages that are read again and again, with later times, for the memory of very many updates."""
SETTLED = 100
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


def updates(where: tuple[str, bytes], timed: int) -> dict[str, Any]:
    """Seconds of an update: getting the news, and making each picture and page.

    Pictures of a page are made one after the other, as threads of one process are no faster.

    Args:
        where: the pool's address.
        timed: updates that count.
    """
    remote = Remote(where)
    painter = painter_of(remote.feed())
    painter.feed.pull()
    rounds = []
    for _ in range(WARM_UP + timed):
        remote.call("step")
        rounds.append(_update(painter))
    assert not painter.feed.error, painter.feed.error
    del rounds[:WARM_UP]
    pages = {page.name: _summary(rounds, ("pull", *page.plots)) for page in PAGES}
    heaviest = max(pages, key=lambda name: pages[name]["cpu_s"])
    return {
        "update_s": pages[heaviest]["s"],
        "update_cpu_s": pages[heaviest]["cpu_s"],
        "update_page": heaviest,
        "pages": pages,
        "pictures": {name: _summary(rounds, (name,)) for name in rounds[0]},
        **{f"{name}_s": round(s, 5) for name, s in remote.call("took_s").items()},
    }


def _update(painter: Painter) -> dict[str, tuple[float, float]]:
    """Seconds by the clock, and of this thread's CPU time, of each step."""
    took = {}

    def timed(name: str, step: Callable[[], T]) -> T:
        began_s, cpu_s = time.perf_counter(), time.thread_time()
        found = step()
        took[name] = time.perf_counter() - began_s, time.thread_time() - cpu_s
        return found

    def pull() -> bool:
        is_new = painter.feed.pull()
        painter.hear()
        return is_new

    assert timed("pull", pull)
    for plot, request in REQUESTS.items():
        built = timed(plot, partial(painter, request))
        assert '"error":""' in built.text, built.text[:400]
    return took


def _summary(
    rounds: list[dict[str, tuple[float, float]]], steps: Sequence[str]
) -> dict[str, float]:
    """Of what takes these steps one after the other; medians."""
    by_clock, cpu = zip(
        *(map(sum, zip(*(took[step] for step in steps), strict=True)) for took in rounds),
        strict=True,
    )
    return {
        "s": round(statistics.median(by_clock), 4),
        "p95_s": round(sorted(by_clock)[int(0.95 * (len(by_clock) - 1))], 4),
        "cpu_s": round(statistics.median(cpu), 4),
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
    began_s = time.process_time()
    for _ in range(updates):
        _update(painter)
    took_s = time.process_time() - began_s
    after = _resident_now()
    pipe.send(
        {
            "rss_before_mb": round(before / 1e6, 1),
            "rss_after_mb": round(after / 1e6, 1),
            "rss_growth_mb": round((after - before) / 1e6, 1),
            "rss_updates": updates,
            "rss_update_cpu_s": round(took_s / updates, 4),
        }
    )


def _resident_now() -> int:
    gc.collect()
    return resident_bytes(os.getpid())


class Replay:
    """What a pool recorded, then its last pages again and again as if time went on.

    The viewer has the same work as with a pool, which cannot go through hours in minutes.
    """

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._recorded: list[bytes] = []
        self._number = 0

    def read(self, cursor: int) -> HistoryPage:
        """See :class:`workbench.metrics.feed.Feed`."""
        if not self._recorded:
            page: HistoryPage = self._remote.call("read", cursor)
            if page.latest is not None:
                return page
            self._record(cursor)
        rounds, place = divmod(self._number, RECORDED)
        self._number += 1
        page = pickle.loads(self._recorded[place])
        return _later(page, cursor + 1, rounds * RECORDED * STEP_S)

    def _record(self, cursor: int) -> None:
        for later in range(RECORDED):
            self._remote.call("step")
            self._recorded.append(self._remote.ask("read", cursor + later))


def _later(page: HistoryPage, cursor: int, by_s: float) -> HistoryPage:
    """A page of one row as if it came at another time; each minute has a row of its own."""
    assert page.latest is not None
    time_s = page.latest.time_s + by_s
    row = replace(page.seconds, times_s=np.array([time_s]))
    none = Block(row.times_s[:0], row.replica_ids, row.replicas[:0], row.pool[:0])
    heard_s = tuple((replica_id, time_s) for replica_id, _ in page.latest.heard_s)
    latest = replace(page.latest, time_s=time_s, heard_s=heard_s)
    return HistoryPage(row, none if cursor % 60 else row, latest, cursor, 0)
