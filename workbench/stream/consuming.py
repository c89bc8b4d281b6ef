"""Whoever takes batches from a stream's queue."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from workbench.errors import ConfigError, DeadlineError, StreamEndedError
from workbench.stream.groups import Group, GroupBatch
from workbench.stream.packing import unpack

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from workbench.metrics.streams import StreamSnapshot
    from workbench.stream.queue import Taken

TAKE_S = 5.0
"""How long one question for a batch waits at the queue."""


class TakingPort(Protocol):
    """The queue, as whoever takes needs it; see :class:`workbench.stream.queue.StreamQueue`."""

    async def take(self, n: int, wait_s: float, consumer: str, after: int) -> Taken | None: ...
    async def commit(self, number: int) -> None: ...
    async def snapshot(self) -> StreamSnapshot: ...


class Consumer:
    """Takes batches under a name. Can be sent to other processes as long as it has taken none.

    What it has taken and not committed comes back to the next one of its name.

    Args:
        queue: the stream's.
        name: nobody else's at the same time.
        required_samples: groups in a batch.
        window: groups that there may be at once.
        pad_id: fills the batch tensors.
    """

    def __init__(
        self, queue: TakingPort, name: str, *, required_samples: int, window: int, pad_id: int
    ) -> None:
        if not isinstance(name, str) or not name:
            raise ConfigError("consumer", f"{name!r}", allowed="a text that is not empty")
        self._queue = queue
        self.name = name
        self._required = required_samples
        self._window = window
        self._pad_id = pad_id
        self._taken: list[int] = []
        self._after = 0

    async def get_batch(self, n: int | None = None, timeout_s: float | None = None) -> GroupBatch:
        """The next batch; at the end, what is left over.

        Args:
            n: groups; ``required_samples`` by default.
            timeout_s: None waits as long as it takes.

        Raises:
            ConfigError: so many groups are never there at once; says what is allowed.
            DeadlineError: it did not come in time; says what the stream waits for.
            StreamEndedError: all was handed out.
            StreamError: the stream failed.
        """
        n = self._required if n is None else n
        if type(n) is not int or not 1 <= n <= self._window:
            allowed = f"1 <= n <= window = {self._window} groups, which are there at once"
            raise ConfigError("n", f"{n!r}", allowed=allowed)
        deadline = asyncio.timeout(timeout_s)
        try:
            async with deadline:
                while True:
                    taken = await self._queue.take(n, TAKE_S, self.name, self._after)
                    if taken is not None:
                        return self._unpacked(taken)
        except TimeoutError:
            if not deadline.expired():
                raise
            now = await self._queue.snapshot()
            waits = now.waits_for or f"{now.in_flight} groups in flight"
            raise DeadlineError(f"no batch within {timeout_s:g} s: it waits for {waits}") from None

    async def commit(self) -> None:
        """What was taken is dealt with, and comes back no more."""
        while self._taken:
            await self._queue.commit(self._taken[0])
            del self._taken[0]

    async def __aiter__(self) -> AsyncIterator[GroupBatch]:
        """Batches until the stream ends; each is committed when the next is asked for.

        Raises:
            StreamError: the stream failed.
        """
        while True:
            try:
                batch = await self.get_batch()
            except StreamEndedError:
                return
            yield batch
            await self.commit()

    def _unpacked(self, taken: Taken) -> GroupBatch:
        self._after = taken.number
        self._taken.append(taken.number)
        groups = tuple(
            Group(header, unpack(blob), staleness, queue_s)
            for header, blob, staleness, queue_s in taken.groups
        )
        return GroupBatch(taken.number, taken.version, groups, self._pad_id)
