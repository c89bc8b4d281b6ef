"""A bounded log with sequence numbers, read by cursor."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Page(NamedTuple, Generic[T]):
    """A part of a ring."""

    items: list[T]
    cursor: int
    """Where the next read goes on."""
    lost: int
    """Items between the last read and this one that had to make room."""


class Ring(Generic[T]):
    """Keeps the last ``size`` items; the n-th item ever has number n, from 1."""

    def __init__(self, size: int) -> None:
        self._items: deque[T] = deque(maxlen=size)
        self.last = 0
        """Number of the newest item; 0 before the first."""

    def append(self, item: T) -> int:
        """Add an item; its number."""
        self._items.append(item)
        self.last += 1
        return self.last

    def read(self, cursor: int = 0, limit: int | None = None) -> Page[T]:
        """The items after number ``cursor``, oldest first, at most ``limit``."""
        first = self.last - len(self._items)
        start = min(max(cursor, first), self.last)
        stop = self.last if limit is None else min(self.last, start + limit)
        items = list(islice(self._items, start - first, stop - first))
        return Page(items, stop, max(0, first - cursor))

    def __len__(self) -> int:
        return len(self._items)
