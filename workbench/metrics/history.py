"""A pool's figures over the last hour by the second, and over the last day by the minute.

Pure, and bounded: 3.2 MB for up to 8 replicas, 91 MB for 256 (:attr:`History.nbytes`), however
long the pool lives. A time without samples is a gap and stays one; nothing is interpolated.

One history is written, by :meth:`History.add`; any number of others mirror it, by pages. Rows have
numbers that go up, through all lives of the one that is written: its first row's number comes from
its time. So a mirror notices when it reads from another life, and starts over.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from workbench.errors import ConfigError
from workbench.metrics.block import Block
from workbench.metrics.columns import POOL_COLUMNS, REPLICA_COLUMNS
from workbench.metrics.rates import derive
from workbench.metrics.tables import history_frame
from workbench.metrics.tier import Tier

if TYPE_CHECKING:
    import pandas as pd

    from workbench.metrics.samples import Sample

__all__ = ["Block", "History", "HistoryPage"]

RATE_S = 5.0
"""Rates are counted since the sample that is nearest to this long ago."""

MINUTE_S = 60.0

STALE_S = MINUTE_S
"""A sample that is older than this says nothing about the rates of now."""

_WIDTHS_S = (
    0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0,
    1800.0, 3600.0, 7200.0, 21600.0, 86400.0,
)  # fmt: skip
"""Of bins; beyond the last, its multiples."""

_IS_RATE = np.array([column.is_rate for column in REPLICA_COLUMNS])
_IS_POOL_RATE = np.array([column.is_rate for column in POOL_COLUMNS])


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """What a mirror has not got yet, or a part of it."""

    seconds: Block
    minutes: Block
    """Those that became full between the page's first row and its last; before the first page of a
    new mirror, all."""
    latest: Sample | None
    """The newest sample; None on a page without rows."""
    cursor: int
    """Number of the page's last row, where the next page goes on."""
    lost: int
    """Rows after the last page that made room before they were read."""


class History:
    """Figures over time at two resolutions, and the newest sample.

    Args:
        seconds: rows of the finer one, as samples come.
        minutes: rows of the coarser one. Readings are means over the minute, rates are counted
            over all of it.

    Raises:
        ConfigError: too few rows.
    """

    def __init__(self, seconds: int = 3600, minutes: int = 1440) -> None:
        if type(seconds) is not int or seconds < MINUTE_S:
            raise ConfigError("seconds", f"{seconds!r}", allowed="a whole number from 60")
        if type(minutes) is not int or minutes < 1:
            raise ConfigError("minutes", f"{minutes!r}", allowed="a whole number from 1")
        self._seconds = Tier(seconds)
        self._minutes = Tier(minutes)
        self._start_over(0)

    def _start_over(self, number: int) -> None:
        self._seconds.clear()
        self._minutes.clear()
        self.latest: Sample | None = None
        self.cursor = self._born = number
        """Number of the newest row."""
        self._recent: deque[Sample] = deque()
        self._before_minute: Sample | None = None
        """What the rates of the minute that is not full yet are counted from."""

    @property
    def nbytes(self) -> int:
        """Memory of all rows, those to come included."""
        return self._seconds.nbytes + self._minutes.nbytes

    # -- writing ----------------------------------------------------------------------------

    def add(self, sample: Sample) -> None:
        """One row more.

        A sample that is not later than the one before is passed over. One that is more than a
        minute earlier, since the clock was set, begins the history anew.
        """
        if self.latest is None or sample.time_s < self.latest.time_s - STALE_S:
            self._start_over(int(sample.time_s * 1000))
        elif sample.time_s <= self.latest.time_s:
            return
        self._turn_minute(sample)
        self.cursor += 1
        ids, replicas, pool = derive(self._reference(sample.time_s), sample)
        row = Block(np.array([sample.time_s]), ids, replicas[None], pool[None])
        self._seconds.append(np.array([self.cursor]), row)
        self._recent.append(sample)
        self.latest = sample

    def _reference(self, now_s: float) -> Sample | None:
        """What the rates of this moment are counted from."""
        while len(self._recent) > 1 and now_s - self._recent[1].time_s >= RATE_S:
            self._recent.popleft()
        nearest = min(self._recent, key=lambda s: abs(now_s - s.time_s - RATE_S), default=None)
        return nearest if nearest and now_s - nearest.time_s <= STALE_S else None

    def _turn_minute(self, sample: Sample) -> None:
        """The first sample of a minute completes the one before."""
        minute, last = sample.time_s // MINUTE_S, self.latest
        if last is None:
            self._before_minute = sample
        elif minute > last.time_s // MINUTE_S:
            self._complete_minute(last)
            self._before_minute = last if sample.time_s - last.time_s <= STALE_S else sample

    def _complete_minute(self, last: Sample) -> None:
        start_s = last.time_s // MINUTE_S * MINUTE_S
        means = self._seconds.means(*self._seconds.between(start_s, last.time_s), MINUTE_S)
        ids, rates, pool_rates = derive(self._before_minute, last)
        rates_of = dict(zip(ids, rates, strict=True))
        none = np.full(len(REPLICA_COLUMNS), np.nan, np.float32)
        rates = np.array([rates_of.get(replica_id, none) for replica_id in means.replica_ids])
        replicas = np.where(_IS_RATE, rates.reshape(-1, len(none)), means.replicas[0])
        pool = np.where(_IS_POOL_RATE, pool_rates, means.pool[0])
        row = Block(means.times_s, means.replica_ids, replicas[None], pool[None])
        self._minutes.append(np.array([self.cursor + 1]), row)

    # -- mirroring --------------------------------------------------------------------------

    def read(self, cursor: int, limit: int = 600) -> HistoryPage:
        """The rows after number ``cursor``, at most ``limit`` of the finer ones.

        A cursor of 0, or from another life, reads from the beginning.

        Raises:
            ConfigError: ``limit`` is no whole number from 1.
        """
        if type(limit) is not int or limit < 1:
            raise ConfigError("limit", f"{limit!r}", allowed="a whole number from 1")
        oldest = self.cursor - len(self._seconds)
        is_known = self._born <= cursor <= self.cursor
        start = max(cursor, oldest) if is_known else oldest
        stop = min(self.cursor, start + limit)
        return HistoryPage(
            self._seconds.rows(*self._seconds.numbered(start, stop)),
            self._minutes.rows(*self._minutes.numbered(cursor if is_known else 0, stop)),
            self.latest if stop > start else None,
            stop,
            start - cursor if is_known else 0,
        )

    def extend(self, page: HistoryPage) -> None:
        """Mirror a page that was read after this history's ``cursor``."""
        before = page.cursor - len(page.seconds)
        if before != self.cursor + page.lost:
            self._start_over(before)
        self._seconds.append(np.arange(before + 1, page.cursor + 1), page.seconds)
        self._minutes.append(np.full(len(page.minutes), page.cursor), page.minutes)
        self.cursor = page.cursor
        self.latest = page.latest or self.latest

    # -- reading ----------------------------------------------------------------------------

    def window(self, start_s: float, end_s: float, points: int | None = None) -> Block:
        """What was from ``start_s`` to ``end_s``, both included.

        By the second where that reaches back far enough, else by the minute.

        Args:
            start_s: seconds since 1970.
            end_s: seconds since 1970.
            points: so many rows at most: means over bins of time. Bins are whole and begin at
                multiples of a round width, so that their values stay as the window moves on. Bins
                in which there is nothing are no rows.

        Raises:
            ConfigError: ``points`` is no whole number from 2.
        """
        if points is not None and (type(points) is not int or points < 2):
            raise ConfigError("points", f"{points!r}", allowed="a whole number from 2, or None")
        tier = self._tier(start_s)
        first, stop = tier.between(start_s, end_s)
        if points is None or first == stop:
            return tier.rows(first, stop)
        oldest_s, newest_s = tier.times_s[[first, stop - 1]]
        width_s = _width(min(newest_s - oldest_s, end_s - start_s), points)
        begin_s = math.floor(oldest_s / width_s) * width_s
        past_s = math.floor(newest_s / width_s + 1) * width_s
        return tier.means(*tier.between(begin_s, math.nextafter(past_s, 0.0)), width_s)

    def to_pandas(self, start_s: float | None = None, end_s: float | None = None) -> pd.DataFrame:
        """:meth:`window` as a table, see :func:`~workbench.metrics.tables.history_frame`.

        From None on: all that is there by the second.
        """
        if start_s is None:
            start_s = float(self._seconds.times_s[0]) if len(self._seconds) else 0.0
        return history_frame(self.window(start_s, math.inf if end_s is None else end_s))

    def _tier(self, start_s: float) -> Tier:
        """The finer one, unless the other knows of what was more than a minute before it."""
        minutes = self._minutes.times_s[self._minutes.between(start_s, math.inf)[0] :]
        seconds = self._seconds.times_s
        misses = len(minutes) and len(seconds) and minutes[0] < seconds[0] - MINUTE_S
        return self._minutes if misses else self._seconds


def _width(span_s: float, points: int) -> float:
    """The least round width with which a span takes so many bins at most, wherever it begins."""
    least_s = span_s / (points - 1)
    days = math.ceil(least_s / _WIDTHS_S[-1])
    return next((width_s for width_s in _WIDTHS_S if width_s >= least_s), days * _WIDTHS_S[-1])
