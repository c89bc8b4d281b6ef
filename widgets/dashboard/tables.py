"""Sessions, events and rollouts as viewers read them, at little cost for the pool.

A pool may have 100,000 sessions. Pages in the order in which they came are asked for one by one. To
search or sort, all are read once, in portions, by whoever asks first, and are good for everybody
for a while: the longer reading takes, the longer.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from widgets.dashboard.fields import CHANGES, TURNS
from workbench.routing.journal import LIFE
from workbench.types import EventKind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from workbench.metrics.feed import Feed
    from workbench.trajectory import Trajectory

PORTION = 5000
"""Sessions that are read together, so that the balancer never stops for long."""
FRESH_S = 5.0
REST = 20.0
"""Reading what is large may take one in so many parts of the time."""
MAX_ROLLOUTS = 200
"""That are read and shown, those of the newest batches: a pool keeps no more either."""
KEPT_EVENTS = 5000
"""Events that are read together, and kept."""


class Rest:
    """A pause after work, longer after longer work. ``with`` it, work."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began_s = self._until_s = -math.inf

    @property
    def is_over(self) -> bool:
        """Whether it is time to work."""
        return self._clock() >= self._until_s

    def __enter__(self) -> None:
        self._began_s = self._clock()

    def __exit__(self, *exc_info: object) -> None:
        now_s = self._clock()
        self._until_s = now_s + max(FRESH_S, REST * (now_s - self._began_s))


@dataclass(frozen=True, slots=True)
class SessionPage:
    """Some sessions of those that were found."""

    rows: pd.DataFrame
    start: int
    """Place of the first row among those found."""
    total: int
    """How many were found."""


class SessionList:
    """The sessions of a pool, for threads that ask.

    Args:
        feed: the pool's figures.
        clock: seconds, rising.
    """

    def __init__(self, feed: Feed, clock: Callable[[], float]) -> None:
        self._feed = feed
        self._lock = threading.Lock()
        self._all: pd.DataFrame | None = None
        self._rest = Rest(clock)

    def page(self, find: str, order: str, number: int, size: int) -> SessionPage:
        """A page of the sessions with ``find`` in their id, in an order of ``ORDERS``.

        The last page stands for all behind it.
        """
        if not find and order == "came":
            return self._as_they_came(number, size)
        found = self.found(find, order)
        start = min(number, max(0, len(found) - 1) // size) * size
        return SessionPage(found.iloc[start : start + size], start, len(found))

    def found(self, find: str, order: str) -> pd.DataFrame:
        """All sessions with ``find`` in their id."""
        rows = self._read()
        if find:
            rows = rows[
                rows["session_id"].str.contains(find, case=False, regex=False).fillna(False)
            ]
        if order == "came":
            return rows
        return rows.sort_values(
            order, ascending=order == "session_id", kind="stable", na_position="last"
        )

    def _as_they_came(self, number: int, size: int) -> SessionPage:
        latest = self._feed.latest
        books = latest.pool.routing if latest else None
        known = books.sessions if books else 0
        start = min(number, max(0, known - 1) // size) * size
        rows = self._feed.sessions(start, size)
        return SessionPage(rows, start, max(known, start + len(rows)))

    def _read(self) -> pd.DataFrame:
        with self._lock:
            if self._all is None or self._rest.is_over:
                with self._rest:
                    self._all = read_all(self._feed)
            return self._all


def read_all(feed: Feed) -> pd.DataFrame:
    """All sessions. One that ends meanwhile may hide another: it is there the next time."""
    portions = [feed.sessions(0, PORTION)]
    while len(portions[-1]) == PORTION:
        portions.append(feed.sessions(PORTION * len(portions), PORTION))
    together = pd.concat(portions, ignore_index=True)
    return together.drop_duplicates("session_id", ignore_index=True)


class RolloutList:
    """The last rollouts that ended, of every batch that a pool knows, for threads that ask.

    They are large, so a batch is read only when more of it has ended, and the longer that takes,
    the more seldom.

    Args:
        feed: the pool's figures.
        clock: seconds, rising.
    """

    def __init__(self, feed: Feed, clock: Callable[[], float]) -> None:
        self._feed = feed
        self._lock = threading.Lock()
        self._read: dict[tuple[str, int], list[Trajectory]] = {}
        """By batch, and how many had ended then."""
        self._rest = Rest(clock)

    def rows(self) -> list[Trajectory]:
        """Oldest first in each batch."""
        return [row for _, row in self.with_batches()]

    def with_batches(self) -> list[tuple[str, Trajectory]]:
        """The same, each with its batch's name."""
        runs = self._feed.latest.runs if self._feed.latest else ()
        ended = [(run.name, run.ended) for run in runs]
        with self._lock:
            if self._rest.is_over and ended != list(self._read):
                with self._rest:
                    self._read = self._reread(ended)
            return [(name, row) for (name, _), rows in self._read.items() for row in rows]

    def _reread(self, ended: list[tuple[str, int]]) -> dict[tuple[str, int], list[Trajectory]]:
        """The newest batches first, until there are as many rollouts as are shown."""
        kept: dict[tuple[str, int], list[Trajectory]] = {}
        room = MAX_ROLLOUTS
        for key in reversed(ended):
            known = self._read.get(key, [] if not room else None)
            rows = self._feed.rollouts(key[0]) if known is None else known
            kept[key] = rows[-room:] if room else []
            room -= len(kept[key])
        return dict(reversed(kept.items()))


class EventLog:
    """The last events of a pool, for threads that ask.

    Events that only say that the pool is at work are so many that they would drive out all others:
    those are kept apart.
    """

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._lock = threading.Lock()
        self._all: pd.DataFrame | None = None
        self._changes: pd.DataFrame | None = None
        self._cursor = 0
        self._lost = 0

    def rows(self, kinds: Collection[str]) -> pd.DataFrame:
        """What is kept that holds these kinds, all if empty; oldest first.

        ``attrs["lost"]`` counts events that made room before they were read.
        """
        with self._lock:
            self._skip()
            page = self._feed.events(self._cursor, KEPT_EVENTS)
            self._cursor = page.attrs.get("cursor", self._cursor)
            self._lost += page.attrs.get("lost", 0)
            self._all = _last(self._all, page)
            self._changes = _last(self._changes, page[~page["kind"].isin(TURNS)])
            rows = self._changes if kinds and not TURNS & set(kinds) else self._all
            rows = rows.copy(deep=False)
            rows.attrs["lost"] = self._lost
            return rows

    def _skip(self) -> None:
        """Do not read what would make room at once."""
        latest = self._feed.latest
        begin = (latest.activity.cursor if latest else 0) - KEPT_EVENTS
        if begin > self._cursor:
            if self._all is not None and begin // LIFE == self._cursor // LIFE:
                self._lost += begin - self._cursor
            self._cursor = begin


def _last(rows: pd.DataFrame | None, more: pd.DataFrame) -> pd.DataFrame:
    if rows is None or not len(rows):
        return more
    return pd.concat([rows, more], ignore_index=True).tail(KEPT_EVENTS) if len(more) else rows


def kinds_of(wish: str) -> tuple[str, ...]:
    """The kinds of events that a choice of ``KINDS`` stands for; empty for all."""
    if wish == CHANGES:
        return tuple(str(kind) for kind in EventKind if kind not in TURNS)
    return () if wish == "all" else (wish,)
