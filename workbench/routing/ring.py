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


def read_page(
    kept: deque[T], last: int, cursor: int, limit: int | None, *, first_ever: int = 1
) -> Page[T]:
    """The items after number ``cursor``, oldest first, at most ``limit``.

    Args:
        kept: the newest items, numbered without a gap.
        last: number of the newest.
        cursor: number of the last item that was read.
        limit: None for no limit.
        first_ever: number of the first item there ever was: what came before counts as no loss.
    """
    before = last - len(kept)
    start = min(max(cursor, before), last)
    stop = last if limit is None else min(last, start + limit)
    items = list(islice(kept, start - before, stop - before))
    return Page(items, stop, max(0, before - max(cursor, first_ever - 1)))


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
        return read_page(self._items, self.last, cursor, limit)

    def __len__(self) -> int:
        return len(self._items)
