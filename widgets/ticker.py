"""One thread that pulls a feed while somebody looks, and tells them when there is news."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

QUIET_PERIODS = 10
"""After so many periods without news that itself is something to tell."""

SHARE = 0.045
"""Of a core that looking at a feed may take, drawing included. Where it would take more, as with
hundreds of replicas on a slow machine, it is done less often."""

LONGEST_REST_S = 2.0
"""Even so: the first look, at all that there is, takes long."""


class Pulled(Protocol):
    """What a ticker needs of a feed; see :class:`workbench.metrics.feed.Feed`."""

    @property
    def period_s(self) -> float:
        """How often there may be news."""

    @property
    def closed(self) -> bool:
        """Whether there will be none any more."""

    @property
    def error(self) -> str:
        """Why there is none just now."""

    def pull(self) -> bool:
        """Get the news, if any, and say so. May block; never raises."""


class Budget:
    """What may be used of a core. Pure.

    Args:
        now_s: when it begins.
        used_s: CPU time that was used before.
    """

    def __init__(self, now_s: float, used_s: float) -> None:
        self._now_s = now_s
        self._used_s = used_s
        self._left_s = 0.0
        """CPU time; below 0 where too much was used."""

    def rest_s(self, now_s: float, used_s: float) -> float:
        """How long to rest until as much is there as was used."""
        most_s = SHARE * LONGEST_REST_S
        given_s = min(most_s, self._left_s + SHARE * (now_s - self._now_s))
        self._left_s = max(-most_s, given_s - (used_s - self._used_s))
        self._now_s, self._used_s = now_s, used_s
        return max(0.0, -self._left_s / SHARE)


class _Subscriber:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.is_new = True
        self.has_failed = False


_tickers: weakref.WeakValueDictionary[int, Ticker] = weakref.WeakValueDictionary()
"""By the feed's identity, which a ticker keeps from being used again."""
_lock = threading.RLock()


class Ticker:
    """Calls its subscribers on its own thread, which runs while there are any.

    Use :meth:`of`, so that all who look at a feed share one.
    """

    def __init__(self, feed: Pulled, clock: Callable[[], float] = time.monotonic) -> None:
        self._feed = feed
        self._clock = clock
        self._news_s = clock()
        self._subscribers: list[_Subscriber] = []
        self._state = (feed.error, feed.closed, False)
        self._thread: threading.Thread | None = None
        # Re-entrant, since the garbage collector may end a subscription at any point.
        self._changed = threading.Condition(threading.RLock())

    @staticmethod
    def of(feed: Pulled) -> Ticker:
        """The feed's ticker in this process."""
        with _lock:
            ticker = _tickers.get(id(feed))
            if ticker is None:
                ticker = _tickers[id(feed)] = Ticker(feed)
            return ticker

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` at once, then whenever there is news.

        An error, its end, the feed's closing and a long silence are news as well. It is always
        called on the ticker's thread. What it raises is logged once; it is called again all the
        same. When the feed has closed it is called a last time.

        Returns:
            What ends this; a call that is under way is not waited for.
        """
        subscriber = _Subscriber(callback)
        with self._changed:
            self._subscribers.append(subscriber)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="workbench-ticker", daemon=True
                )
                self._thread.start()
            self._changed.notify()

        def unsubscribe() -> None:
            with self._changed:
                if subscriber in self._subscribers:
                    self._subscribers.remove(subscriber)
                    self._changed.notify()

        return unsubscribe

    def _run(self) -> None:
        budget = Budget(self._clock(), time.thread_time())
        while self._look():
            rest_s = budget.rest_s(self._clock(), time.thread_time())
            if not self._wait(max(rest_s, self._feed.period_s / 2)):
                return

    def _wait(self, seconds: float) -> bool:
        """Until the next round, which somebody new does not wait for; whether there is one."""
        with self._changed:
            self._changed.wait_for(
                lambda: not self._subscribers or any(one.is_new for one in self._subscribers),
                seconds,
            )
            return self._goes_on()

    def _look(self) -> bool:
        """Pull once and tell who has to know; whether to go on."""
        has_news = self._feed.pull()
        now_s = self._clock()
        if has_news:
            self._news_s = now_s
        is_quiet = now_s - self._news_s >= QUIET_PERIODS * self._feed.period_s
        is_closed = self._feed.closed
        state = (self._feed.error, is_closed, is_quiet)
        has_news = has_news or state != self._state
        self._state = state
        with self._changed:
            told = [one for one in self._subscribers if has_news or one.is_new]
            for subscriber in told:
                subscriber.is_new = False
        for subscriber in told:
            self._tell(subscriber)
        with self._changed:
            if is_closed:  # they know; whoever came in between is told yet
                self._subscribers = [one for one in self._subscribers if one.is_new]
            return self._goes_on()

    def _goes_on(self) -> bool:
        if not self._subscribers:
            self._thread = None  # under the lock: the next subscriber starts another
        return bool(self._subscribers)

    def _tell(self, subscriber: _Subscriber) -> None:
        with self._changed:
            if subscriber not in self._subscribers:
                return
        try:
            subscriber.callback()
        except Exception:
            if not subscriber.has_failed:
                log.exception("what looks at a feed failed; it is called again")
            subscriber.has_failed = True
