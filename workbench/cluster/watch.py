"""What the controller sees of its pool: life, books and engine figures, each replica's together."""

from __future__ import annotations

import asyncio
import functools
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from ray.exceptions import RayError

from workbench.cluster.ports import balancer_errors
from workbench.metrics.samples import Activity, Sample
from workbench.types import (
    EngineFigures,
    PoolSnapshot,
    ReplicaLoad,
    ReplicaSnapshot,
    ReplicaState,
    ReplicaStatus,
    RoutingSnapshot,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

FIGURES_S = 2.0
"""A replica that does not answer within this is shown without figures."""

SHARE = 0.8
"""Of the time between two samples that taking one may take: one that hangs holds up none."""

TOP = 30
"""Sessions that a sample tells one by one."""


class Watched(Protocol):
    """A replica as the controller has it."""

    status: ReplicaStatus
    handle: Any
    """None before it has a process and after."""


class PoolWatch:
    """Looks at a pool. ``replicas`` gives those that there are, whenever it is called."""

    def __init__(
        self,
        pool: PoolSnapshot,
        balancer: Any,
        replicas: Callable[[], Collection[Watched]],
        period_s: float,
    ) -> None:
        self._pool = pool
        """With its name, model and device."""
        self._balancer = balancer
        self._replicas = replicas
        self._limit_s = min(FIGURES_S, SHARE * period_s)
        self._asked: dict[Any, asyncio.Future[EngineFigures]] = {}
        """By handle: who has not answered yet is not asked again."""
        self._heard_s: dict[str, float] = {}

    async def snapshot(self) -> PoolSnapshot:
        """The pool at this moment.

        Raises:
            BalancerLostError: the balancer cannot be reached just now.
        """
        with balancer_errors():
            routing: RoutingSnapshot = await self._balancer.snapshot.remote()
        return self._together(routing, await self._figures(FIGURES_S))

    async def take(self, cursor: int) -> Sample:
        """A sample, with what sessions did after event number ``cursor``; takes bounded time.

        What cannot be had is missing: the books of a balancer that starts over, the figures of a
        replica that hangs.
        """
        books, figures = await asyncio.gather(self._books(cursor), self._figures(self._limit_s))
        routing, activity = books
        now_s = time.time()
        pool = self._together(routing, figures)
        heard_s = self._heard_s | dict.fromkeys(figures, now_s)
        ids = [replica.status.replica_id for replica in pool.replicas]
        self._heard_s = {name: heard_s[name] for name in ids if name in heard_s}
        return Sample(now_s, pool, activity, heard_s=tuple(self._heard_s.items()))

    async def _books(self, cursor: int) -> tuple[RoutingSnapshot | None, Activity]:
        try:
            async with asyncio.timeout(self._limit_s):
                books: tuple[RoutingSnapshot, Activity]
                books = await self._balancer.sample.remote(cursor, TOP)
        except (RayError, TimeoutError):
            return None, Activity(cursor)
        return books

    async def _figures(self, limit_s: float) -> dict[str, EngineFigures]:
        """Of the replicas that answer in time, by id."""
        asked = {r.status.replica_id: self._ask(r.handle) for r in self._replicas() if r.handle}
        if asked:
            await asyncio.wait(asked.values(), timeout=limit_s)
        return {
            replica_id: answer.result()
            for replica_id, answer in asked.items()
            if answer.done() and not answer.exception()
        }

    def _ask(self, handle: Any) -> asyncio.Future[EngineFigures]:
        if handle not in self._asked:
            answer = self._asked[handle] = asyncio.ensure_future(handle.figures.remote())
            answer.add_done_callback(functools.partial(self._answered, handle))
        return self._asked[handle]

    def _answered(self, handle: Any, answer: asyncio.Future[EngineFigures]) -> None:
        del self._asked[handle]
        if not answer.cancelled():
            answer.exception()  # known, also where nobody waits for it any more

    def _together(
        self, routing: RoutingSnapshot | None, figures: dict[str, EngineFigures]
    ) -> PoolSnapshot:
        loads = {load.replica_id: load for load in routing.replicas} if routing else {}
        replicas = tuple(
            _side_by_side(r.status, loads.get(r.status.replica_id), figures)
            for r in self._replicas()
        )
        return replace(self._pool, replicas=replicas, routing=routing)


def _side_by_side(
    status: ReplicaStatus, load: ReplicaLoad | None, figures: dict[str, EngineFigures]
) -> ReplicaSnapshot:
    """One replica's views; whether one that was started takes work is the balancer's to say."""
    if load is not None and status.state is ReplicaState.READY:
        status = replace(status, state=load.state)
    return ReplicaSnapshot(status, load, figures.get(status.replica_id))
