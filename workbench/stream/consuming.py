"""Whoever takes batches from a stream's queue."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from workbench.aio import in_thread
from workbench.errors import ConfigError, DeadlineError, StreamEndedError
from workbench.stream.groups import Group, GroupBatch
from workbench.stream.packing import unpack

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from workbench.metrics.streams import StreamSnapshot
    from workbench.stream.queue import Taken

TAKE_S = 5.0
"""How long one question for a batch waits at the queue."""

PATIENCE_S = 10.0
"""After so long without a batch it is told what the stream waits for."""

MANY_BYTES = 2**20
"""Batches that are larger are unpacked apart from the event loop."""


class TakingPort(Protocol):
    """The queue, as whoever takes needs it; see :class:`workbench.stream.queue.StreamQueue`."""

    async def take(self, n: int, wait_s: float, consumer: str, after: int) -> Taken | None: ...
    async def commit(self, number: int) -> None: ...
    async def snapshot(self) -> StreamSnapshot: ...


class Consumer:
    """Takes batches under a name. Can be sent to other processes as long as it has taken none.

    What it has taken and not committed comes back to the next one of its name. Calls wait for each
    other.

    Args:
        queue: the stream's.
        name: nobody else's at the same time.
        required_samples: groups in a batch.
        pad_id: fills the batch tensors.
        tell: is called once with what the stream waits for, where a batch takes long.
        look: says where the stream stands, where somebody knows more of it than the queue.
    """

    def __init__(
        self,
        queue: TakingPort,
        name: str,
        *,
        required_samples: int,
        pad_id: int,
        tell: Callable[[str], None] | None = None,
        look: Callable[[], Awaitable[StreamSnapshot]] | None = None,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise ConfigError("consumer", f"{name!r}", allowed="a text that is not empty")
        self._queue = queue
        self.name = name
        self._required = required_samples
        self._pad_id = pad_id
        self._tell = tell
        self._look = look
        self._taking = asyncio.Lock()
        self._settling = asyncio.Lock()
        self._taken: list[int] = []
        """Given, and not committed."""
        self._after = 0

    def __repr__(self) -> str:
        return f"Consumer({self.name!r}, {len(self._taken)} batches not committed)"

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
        if type(n) is not int or n < 1:
            raise ConfigError("n", f"{n!r}", allowed="a whole number from 1")
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit, self._taking:
                taken = await self._take(n)
                groups = await _unpacked(taken)
                self._after = taken.number  # from here on the caller has it
                self._taken.append(taken.number)
                return GroupBatch(taken.number, taken.version, groups, self._pad_id)
        except TimeoutError:
            if not limit.expired():
                raise
            waits = await self._waits_for()
            raise DeadlineError(f"no batch within {timeout_s:g} s: it waits for {waits}") from None

    async def _take(self, n: int) -> Taken:
        waited_s = 0.0
        while True:
            taken = await self._queue.take(n, TAKE_S, self.name, self._after)
            if taken is not None:
                return taken
            waited_s += TAKE_S
            if waited_s == PATIENCE_S and self._tell is not None:
                self._tell(f"no batch for {waited_s:g} s: it waits for {await self._waits_for()}")

    async def _waits_for(self) -> str:
        now = await (self._look or self._queue.snapshot)()
        return now.waits_for or f"{now.in_flight} groups in flight"

    async def commit(self) -> None:
        """What was taken until now is dealt with, and comes back no more."""
        async with self._settling:
            for number in tuple(self._taken):  # not what is taken meanwhile
                if number in self._taken:  # it may be missed meanwhile
                    await self._queue.commit(number)
                if number in self._taken:
                    self._taken.remove(number)

    async def again(self) -> None:
        """What was taken and not committed is given again, from the first of it on."""
        async with self._settling:  # what is being committed is not asked for again
            if self._taken:
                self._after = self._taken[0] - 1
                self._taken.clear()

    def missed(self) -> None:
        """What was given last did not arrive: it is given again. Takes effect at once."""
        if self._taken:
            self._after = self._taken.pop() - 1

    async def __aiter__(self) -> AsyncIterator[GroupBatch]:
        """Batches until the stream ends; each is committed when the next is asked for.

        Begins with what was taken and not committed.

        Raises:
            StreamError: the stream failed.
        """
        await self.again()
        while True:
            try:
                batch = await self.get_batch()
            except StreamEndedError:
                return
            yield batch
            await self.commit()


async def _unpacked(taken: Taken) -> tuple[Group, ...]:
    def opened() -> tuple[Group, ...]:
        return tuple(
            Group(header, unpack(blob), staleness, queue_s)
            for header, blob, staleness, queue_s in taken.groups
        )

    is_large = sum(len(blob) for _, blob, _, _ in taken.groups) > MANY_BYTES
    return await in_thread(opened) if is_large else opened()
