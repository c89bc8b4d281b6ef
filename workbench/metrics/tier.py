"""The last rows of figures at one resolution, in preallocated arrays. Pure.

A row is flat: the pool's figures, then each replica's. What has no value is stored as a zero that
is marked as missing, so that means over many rows are sums and counts, without a look at each.
"""

from __future__ import annotations

import functools
import itertools
import re
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from workbench.metrics.block import Block
from workbench.metrics.columns import POOL_COLUMNS, REPLICA_COLUMNS

T = TypeVar("T", bound=np.generic)
Mean = tuple[float, NDArray[np.float32]]
"""A time and a row."""

POOL_WIDTH, REPLICA_WIDTH = len(POOL_COLUMNS), len(REPLICA_COLUMNS)

ROOM = 8
"""Replicas that there is room for from the start; doubles as more of them come."""

KEPT_MEANS = 512
"""As many as three windows have; 7 MB with 256 replicas."""


class Tier:
    """The last ``size`` rows. Rows have numbers, which rise, and times, which rise too.

    A replica gets its place in a row with its first value and loses it once no row has one any
    more.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._count_type = np.min_scalar_type(size)
        self.clear()

    def clear(self) -> None:
        """Forget all rows."""
        self._written = 0
        self._times = np.zeros(self.size)
        self._numbers = np.zeros(self.size, np.int64)
        self._places: dict[str, int] = {}
        self._last_value = np.zeros(ROOM, np.int64)
        """Of the replica in each place: its last row with a value, counted like ``_written``."""
        width = POOL_WIDTH + ROOM * REPLICA_WIDTH
        self._values = np.zeros((self.size, width), np.float32)
        self._present = np.zeros((self.size, width), np.uint8)
        self._means: dict[tuple[int, int], Mean] = {}
        """Of rows from and up to a place, counted like ``_written``; the last ones asked for. While
        a window moves on its bins stay, but for the last."""

    def __len__(self) -> int:
        return min(self._written, self.size)

    @property
    def nbytes(self) -> int:
        """Memory, once all rows are written."""
        arrays = (self._times, self._numbers, self._last_value, self._values, self._present)
        return sum(array.nbytes for array in arrays)

    @property
    def replica_ids(self) -> tuple[str, ...]:
        """Those that have a value in some row."""
        return tuple(sorted(self._places, key=_natural))

    @property
    def times_s(self) -> NDArray[np.float64]:
        """Of all rows, oldest first."""
        return self._in_order(self._times)

    # -- writing ----------------------------------------------------------------------------

    def append(self, numbers: NDArray[np.int64], block: Block) -> None:
        """Add rows; the oldest make room for them."""
        rows = min(len(block), self.size)
        if not rows:
            return
        replicas, pool = block.replicas[-rows:], block.pool[-rows:]
        known, pool_known = ~np.isnan(replicas), ~np.isnan(pool)
        has_value: Any = known.any(axis=2)
        self._written += rows
        self._drop_replicas()
        comes: Any = has_value.any(axis=0)
        ids = [name for name, one in zip(block.replica_ids, comes, strict=True) if one]
        places = [self._place(replica_id) for replica_id in ids]
        self._last_value[places] = self._written - has_value[::-1, comes].argmax(axis=0)
        replicas, known = np.where(known, replicas, 0)[:, comes], known[:, comes]
        pool = np.where(pool_known, pool, 0)
        times_s, numbers = block.times_s[-rows:], numbers[-rows:]
        done = 0
        for part in self._slots(len(self) - rows, len(self)):
            new = slice(done, done + part.stop - part.start)
            done = new.stop
            self._times[part], self._numbers[part] = times_s[new], numbers[new]
            _write(self._values[part], pool[new], places, replicas[new])
            _write(self._present[part], pool_known[new], places, known[new])

    def _place(self, replica_id: str) -> int:
        if replica_id not in self._places:
            taken = set(self._places.values())
            if len(taken) == len(self._last_value):
                self._double()
            self._places[replica_id] = next(p for p in itertools.count() if p not in taken)
        return self._places[replica_id]

    def _drop_replicas(self) -> None:
        oldest = self._written - self.size
        for replica_id, place in list(self._places.items()):
            if self._last_value[place] <= oldest:
                del self._places[replica_id]

    def _double(self) -> None:
        """Room for twice as many replicas, which no row has a value of yet."""
        room = len(self._last_value)
        rows, old = len(self), self._values.shape[1]
        shape = (self.size, old + room * REPLICA_WIDTH)
        values, present = np.zeros(shape, np.float32), np.zeros(shape, np.uint8)
        values[:rows, :old], present[:rows, :old] = self._values[:rows], self._present[:rows]
        self._values, self._present = values, present
        self._last_value = np.pad(self._last_value, (0, room))
        self._means.clear()

    # -- reading ----------------------------------------------------------------------------

    def numbered(self, after: int, last: int) -> tuple[int, int]:
        """Where the rows with these numbers are: the first, and the one behind the last."""
        first, stop = np.searchsorted(self._in_order(self._numbers), (after, last), side="right")
        return int(first), int(stop)

    def between(self, start_s: float, end_s: float) -> tuple[int, int]:
        """Where the rows from ``start_s`` to ``end_s`` are, both included."""
        times = self.times_s
        first = np.searchsorted(times, start_s, side="left")
        return int(first), max(int(first), int(np.searchsorted(times, end_s, side="right")))

    def rows(self, first: int = 0, stop: int | None = None) -> Block:
        """Rows as they are."""
        values = self._in_order(self._values, first, stop)
        values[self._in_order(self._present, first, stop) == 0] = np.nan
        return self._block(self._in_order(self._times, first, stop), values)

    def means(self, first: int, stop: int, width_s: float) -> Block:
        """Rows by the mean of what there is in bins of time, which begin at multiples of a width.

        A bin in which there is nothing is no row; its time is the mean of its rows' times.
        """
        bins = np.floor(self._in_order(self._times, first, stop) / width_s)
        starts = (first + np.flatnonzero(np.diff(bins, prepend=np.nan))).tolist()
        means = [self._mean(*ends) for ends in zip(starts, [*starts[1:], stop], strict=True)]
        values = np.zeros((len(means), self._values.shape[1]), np.float32)
        for row, (_, mean) in zip(values, means, strict=True):
            row[:] = mean
        return self._block(np.array([time_s for time_s, _ in means]), values)

    def _mean(self, first: int, stop: int) -> Mean:
        """The time and the values of some rows, on average."""
        gone = self._written - len(self)
        rows = gone + first, gone + stop
        mean = self._means.pop(rows, None) or self._new_mean(first, stop)
        self._means[rows] = mean
        if len(self._means) > KEPT_MEANS:
            del self._means[next(iter(self._means))]
        return mean

    def _new_mean(self, first: int, stop: int) -> Mean:
        time_s, values = 0.0, np.zeros(self._values.shape[1], np.float32)
        counts = np.zeros(len(values), self._count_type)
        for part in self._slots(first, stop):
            time_s += float(self._times[part].sum())
            values += self._values[part].sum(axis=0)
            counts += self._present[part].sum(axis=0, dtype=self._count_type)
        with np.errstate(invalid="ignore"):  # nothing ÷ 0 is NaN, as it should be
            values /= counts
        return time_s / (stop - first), values

    def _block(self, times_s: NDArray[np.float64], values: NDArray[np.float32]) -> Block:
        replica_ids = self.replica_ids
        places = [self._places[replica_id] for replica_id in replica_ids]
        return Block(times_s, replica_ids, _by_place(values)[:, places], values[:, :POOL_WIDTH])

    def _in_order(self, array: NDArray[T], first: int = 0, stop: int | None = None) -> NDArray[T]:
        """A copy of some rows, oldest first."""
        end = len(self) if stop is None else stop
        return np.concatenate([array[part] for part in self._slots(first, end)])

    def _slots(self, first: int, stop: int) -> tuple[slice, slice]:
        """Where rows are kept: before and after the end of the arrays."""
        oldest = self._written % self.size if self._written > self.size else 0
        begin, end = oldest + first, oldest + stop
        if begin >= self.size:
            return slice(begin - self.size, end - self.size), slice(0, 0)
        return slice(begin, min(end, self.size)), slice(0, max(0, end - self.size))


def _write(
    rows: NDArray[Any], pool: NDArray[Any], places: list[int], replicas: NDArray[Any]
) -> None:
    rows[:] = 0
    rows[:, :POOL_WIDTH] = pool
    _by_place(rows)[:, places] = replicas


def _by_place(rows: NDArray[T]) -> NDArray[T]:
    """A view of the replicas' part: [rows, places, REPLICA_COLUMNS]."""
    places = (rows.shape[1] - POOL_WIDTH) // REPLICA_WIDTH
    return rows[:, POOL_WIDTH:].reshape(len(rows), places, REPLICA_WIDTH)


@functools.lru_cache(maxsize=4096)
def _natural(replica_id: str) -> tuple[int | str, ...]:
    return tuple(int(p) if p.isdecimal() else p for p in re.split(r"(\d+)", replica_id))
