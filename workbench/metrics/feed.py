"""A pool's figures as one process sees them: a mirror that is kept up to date by pulling."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from workbench.errors import ConfigError, PoolClosedError, WorkbenchError
from workbench.metrics import archive
from workbench.metrics.history import History
from workbench.metrics.tables import event_frame, session_frame

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from workbench.metrics.history import Block, HistoryPage
    from workbench.metrics.samples import Sample
    from workbench.trajectory import Trajectory

T = TypeVar("T")

KEPT_WINDOWS, KEPT_ROWS = 8, 200
"""Blocks that are kept for those who ask for the same, and how long they may be."""

SAVED_SESSIONS = 10_000
"""Of a pool that has more, the first ones are saved."""

SAVED_EVENTS = 100_000
"""More than a balancer keeps, unless it was told to."""


class Feed:
    """A pool's figures over time, its sessions, its events and its rollouts.

    Made of plain blocking calls, so that any pool can have one, and a folder too (:meth:`open`).
    All methods may be called from any thread.

    Args:
        name: the pool's.
        read: the page of the pool's history after a cursor. Raises PoolClosedError once there will
            be no more, another WorkbenchError while the pool cannot be reached.
        sessions: a page of the sessions, from a number on and so many at most.
        events: a page of the events, after a cursor and so many at most.
        rollouts: the last trajectories of a batch that ended.
        period_s: between two samples.
        is_live: whether it shows a pool, and not a folder.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[int], HistoryPage],
        *,
        sessions: Callable[[int, int], pd.DataFrame],
        events: Callable[[int, int], pd.DataFrame],
        rollouts: Callable[[str], list[Any]],
        period_s: float = 1.0,
        is_live: bool = True,
    ) -> None:
        self.name = name
        self.period_s = period_s
        self.is_live = is_live
        self.history = History()
        """The mirror. While others pull, :meth:`window` and :meth:`to_pandas` read it safely."""
        self.closed = False
        """Whether nothing more will come. What came stays."""
        self.error = ""
        """Why the pool could not be reached when it was last tried; empty when it could."""
        self._read = read
        self._sessions = sessions
        self._events = events
        self._rollouts = rollouts
        self._windows: OrderedDict[tuple[float, float, int | None], Block] = OrderedDict()
        self._pulling = threading.Lock()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        state = "saved" if not self.is_live else "closed" if self.closed else self.error or "live"
        return f"Feed({self.name!r}, {state})"

    @property
    def latest(self) -> Sample | None:
        """The newest sample; None before the first."""
        return self.history.latest

    def pull(self) -> bool:
        """Get what is new, if anything is, and say so. Blocks, and never raises."""
        with self._pulling:
            before = self.history.cursor
            if not self.closed:
                self._pull()
            return self.history.cursor != before

    def _pull(self) -> None:
        try:
            while self._pull_page():
                pass
            self.error = ""
        except PoolClosedError:
            self.closed, self.error = True, ""
        except Exception as error:  # noqa: BLE001 - whoever pulls in the background goes on
            ours = isinstance(error, WorkbenchError)
            self.error = str(error) if ours else f"{type(error).__name__}: {error}"

    def _pull_page(self) -> bool:
        """Whether there is more."""
        page = self._read(self.history.cursor)
        with self._lock:
            self.history.extend(page)
            if len(page.seconds):
                self._windows.clear()
        return page.latest is not None and page.seconds.times_s[-1] < page.latest.time_s

    # -- reading ----------------------------------------------------------------------------

    def window(self, start_s: float, end_s: float, points: int | None = None) -> Block:
        """See :meth:`History.window`.

        Until there is news all who ask for the same short block get the same one, which is not to
        be written to.
        """
        asked = (start_s, end_s, points)
        with self._lock:
            block = self._windows.get(asked)
            if block is None:
                block = self.history.window(*asked)
                if len(block) <= KEPT_ROWS:
                    self._windows[asked] = _read_only(block)
            while len(self._windows) > KEPT_WINDOWS:
                self._windows.popitem(last=False)
            return block

    def to_pandas(self, start_s: float | None = None, end_s: float | None = None) -> pd.DataFrame:
        """See :meth:`History.to_pandas`; gets what is new first."""
        self.pull()
        with self._lock:
            return self.history.to_pandas(start_s, end_s)

    def sessions(self, start: int = 0, limit: int = 1000) -> pd.DataFrame:
        """A page of the sessions with their history, in the order in which they came.

        Raises:
            WorkbenchError: the pool cannot be reached, or was closed.
        """
        return self._sessions(start, limit)

    def events(self, cursor: int = 0, limit: int = 1000) -> pd.DataFrame:
        """What happened at the balancer after event number ``cursor``, oldest first.

        ``attrs["cursor"]`` is where the next read goes on; ``attrs["lost"]`` counts events in
        between that had to make room.

        Raises:
            WorkbenchError: the pool cannot be reached, or was closed.
        """
        return self._events(cursor, limit)

    def rollouts(self, name: str) -> list[Trajectory]:
        """The last rollouts of a batch that ended, in that order; none where it is not known.

        Raises:
            WorkbenchError: the pool cannot be reached, or was closed.
        """
        return self._rollouts(name)

    # -- taking away ------------------------------------------------------------------------

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write all that there is into a folder, which :meth:`open` shows again.

        What a pool does not tell any more, because it was closed, is missing there: sessions,
        events and trajectories.

        Raises:
            ConfigError: the folder holds something else.
        """
        self.pull()
        with self._lock:
            page = self.history.read(0, sys.maxsize)
        rollouts: dict[str, list[Trajectory]] = {}
        for run in page.latest.runs if page.latest else ():
            rollouts[run.name] = _or_else(functools.partial(self._rollouts, run.name), [])
        archive.write(
            _path(folder),
            archive.Archive(
                self.name,
                self.period_s,
                page,
                _or_else(lambda: self.sessions(0, SAVED_SESSIONS), session_frame(())),
                _or_else(lambda: self.events(0, SAVED_EVENTS), event_frame((), cursor=0, lost=0)),
                rollouts,
            ),
        )

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Self:
        """What :meth:`save` wrote. It is not live: nothing will be added.

        Raises:
            ConfigError: the folder is missing, is of something else, or is damaged.
        """
        saved = archive.read(_path(folder))

        def sessions(start: int, limit: int) -> pd.DataFrame:
            return saved.sessions.iloc[start : start + limit].reset_index(drop=True)

        def events(cursor: int, limit: int) -> pd.DataFrame:
            later = saved.events[saved.events["number"] > cursor].head(limit)
            page = later.reset_index(drop=True)
            page.attrs.update(cursor=int(page["number"].max()) if len(page) else cursor, lost=0)
            return page

        feed = cls(
            saved.name,
            _no_more,
            sessions=sessions,
            events=events,
            rollouts=lambda name: list(saved.rollouts.get(name, ())),
            period_s=saved.period_s,
            is_live=False,
        )
        feed.history.extend(saved.page)
        feed.closed = True
        return feed


def _read_only(block: Block) -> Block:
    for array in (block.times_s, block.replicas, block.pool):
        array.setflags(write=False)
    return block


def _path(folder: Any) -> Path:
    if not isinstance(folder, str | os.PathLike) or not str(folder):
        raise ConfigError("folder", f"{folder!r}", allowed="a path")
    return Path(folder)


def _or_else(ask: Callable[[], T], fallback: T) -> T:
    try:
        return ask()
    except WorkbenchError:
        return fallback


def _no_more(_: int) -> NoReturn:
    raise PoolClosedError("it was saved, and nothing is added any more")
