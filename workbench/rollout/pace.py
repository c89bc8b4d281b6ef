"""How many rollouts may be in flight: as many as the pool can take, by what its engines say.

A KV cache that is full makes engines push requests out and compute them again, so that more in
flight means less done. The limit gives way at once and comes back slowly.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from workbench.types import ReplicaState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from workbench.types import ReplicaSnapshot

FULL = 0.9
"""Share of a KV cache in use from which on less is begun."""
ROOMY = 0.75
"""Share below which more may be begun; in between the limit stays."""
SLOWER = 0.85
"""Of what is in flight goes on being allowed when a cache is full."""
FASTER = 8
"""A limit that is used up grows by one in so many, per look."""


HOLDING = {ReplicaState.READY, ReplicaState.PAUSED}
"""Who is paused goes on with what it has."""

AT_ONCE = 16
"""Rollouts that begin in one pass of the event loop."""


@dataclass(frozen=True, slots=True)
class PoolLoad:
    """What the pool's engines say at one moment."""

    capacity: int
    """Requests that the batches of all engines that serve hold together."""
    kv_cache_usage: float = 0.0
    """Share in use, of the replica that uses most."""
    num_preempted: Mapping[str, int] = field(default_factory=dict)
    """By replica: requests that were pushed out so far."""

    @classmethod
    def of(cls, replicas: Sequence[ReplicaSnapshot], max_num_seqs: int) -> PoolLoad:
        """Of a pool's replicas; those that hold no requests count for nothing."""
        serving = [r for r in replicas if r.status.state in HOLDING]
        told = {r.status.replica_id: r.engine for r in serving if r.engine is not None}
        return cls(
            max_num_seqs * len(serving),
            max((figures.kv_cache_usage for figures in told.values()), default=0.0),
            {replica_id: figures.num_preempted for replica_id, figures in told.items()},
        )


class Pace:
    """Decides how many may be in flight. Pure.

    Args:
        capacity: requests that the engines' batches hold; where it begins.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = self._most = capacity
        self._preempted: dict[str, int] = {}
        self.limit = self._bounded(capacity)

    def look(self, load: PoolLoad, running: int) -> int:
        """The limit from now on, where ``running`` are in flight.

        While no replica is there it stays: what is sent then waits for one.
        """
        if not load.capacity:
            return self.limit
        grown = max(0, load.capacity - self._most)  # replicas that were not there before
        self._capacity, self._most = load.capacity, max(self._most, load.capacity)
        pushed_out = any(
            number > self._preempted.get(replica_id, number)
            for replica_id, number in load.num_preempted.items()
        )
        self._preempted |= load.num_preempted
        if load.kv_cache_usage >= FULL or pushed_out:
            self.limit = self._bounded(min(self.limit, int(running * SLOWER)))
        elif load.kv_cache_usage < ROOMY and running >= self.limit:
            self.limit = self._bounded(self.limit + max(1, self.limit // FASTER))
        self.limit = self._bounded(self.limit + grown)
        return self.limit

    def _bounded(self, limit: int) -> int:
        return max(1, min(limit, self._capacity))


class Gate:
    """Lets so many in at once, in the order of asking; how many may change at any time.

    Args:
        limit: None lets everybody in.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = sys.maxsize if limit is None else limit
        self._is_opening = False
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.inside = 0

    def set_limit(self, limit: int) -> None:
        """Whoever is inside stays."""
        self._limit = limit
        self._open()

    @asynccontextmanager
    async def pass_through(self) -> AsyncIterator[None]:
        """Wait for a place and have it."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        self._open()
        try:
            await place
            yield
        finally:
            if place.done() and not place.cancelled():
                self.inside -= 1
                self._open()

    def _open(self) -> None:
        """In the next pass of the event loop, once however many ask for it."""
        if self._waiting and not self._is_opening:
            self._is_opening = True
            asyncio.get_running_loop().call_soon(self._let_in)

    def _let_in(self) -> None:
        """Some of them: a thousand that begin in one pass would hold up the loop."""
        self._is_opening = False
        begun = 0
        while self._waiting and self.inside < self._limit and begun < AT_ONCE:
            place = self._waiting.popleft()
            if not place.done():  # given up while it waited
                self.inside += 1
                begun += 1
                place.set_result(None)
        if begun == AT_ONCE:
            self._open()


class Places:
    """The places in flight that all batches and streams of one pool's handle share.

    Args:
        capacity: requests that the engines' batches hold.
    """

    def __init__(self, capacity: int) -> None:
        self._pace = Pace(capacity)
        self._gate = Gate(self._pace.limit)

    @property
    def limit(self) -> int:
        """How many there are, by the pool's load."""
        return self._pace.limit

    @property
    def free(self) -> int:
        """Those that nobody has."""
        return max(0, self.limit - self._gate.inside)

    def look(self, load: PoolLoad) -> None:
        """Have as many as the pool can take, as it stands."""
        self._gate.set_limit(self._pace.look(load, self._gate.inside))

    def pass_through(self) -> AbstractAsyncContextManager[None]:
        """Wait for a place and have it."""
        return self._gate.pass_through()
